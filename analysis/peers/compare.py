#!/usr/bin/env python3
"""Regulon beside its peers on one GPU: a table, a CSV file and a figure, from runs on this machine that take turns.

    compare.py --regulon build/regulon --out peers [--shape mixtral|fine|sonic] [--parts gemm,experts,step]

gemm: the products of the experts, beside cuBLASLt, torch and Transformer Engine. experts: a layer's time by number of
experts, beside SonicMoE. step: the training step, beside Hugging Face's Mixtral. A peer that is not installed, or fails, is
named as such. Exit code 1: something failed.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import command  # noqa: E402
import peer  # noqa: E402
import report  # noqa: E402
import runs  # noqa: E402

ROOM = 100e9  # bytes of a GPU for a layer's weights, in BF16, and their gradients, in FP32
QUICK = {"rounds": 1, "seconds": 0.2, "experts": [1, 8, 32], "layers": 1, "ga": 1, "steps": 2}
VERSIONS = """import importlib.metadata as m, platform
print("Python", platform.python_version())
for name in "torch", "transformers", "transformer-engine", "sonic-moe":
    try: print(name, m.version(name))
    except m.PackageNotFoundError: print("no", name)"""


def heading(a):
    s = peer.shape_of(a)
    yield f"{a.shape}: N {s.N}, D {s.D}, F {s.F}, E {s.E}, A {s.A}, routing {a.routing}"
    yield f"Training step: {a.layers} layers, {a.batch} windows of {runs.WINDOW} tokens a micro-batch, {a.ga} micro-batches"
    yield f"Medians of {a.rounds} rounds in turns, {a.seconds:g} s each." + (" A rehearsal, nothing to claim." if a.quick else "")
    out, why = runs.run(a.regulon, "--version")
    yield why or out.splitlines()[0]
    out, why = runs.run(a.python, "-c", VERSIONS)
    yield f"{a.python}: {why or ', '.join(out.splitlines())}"
    yield from (f"{name}, {watts} W, driver {driver}" for name, watts, driver in runs.ask_gpus("name,power.limit,driver_version"))


def count(text):
    if int(text) < 1:
        raise ValueError
    return int(text)


def routing(text):
    peer.weights_of(text, 1)
    return text


def numbers(text):
    return [count(n) for n in text.split(",")]


def parts(text):
    names = text.split(",")
    if not set(names) <= set(runs.PARTS):
        raise ValueError
    return list(dict.fromkeys(names))


def words():
    w = command.Words("compare", description=__doc__, allow_abbrev=False)
    w.prog = command.program()
    add = w.add_argument
    add("--regulon", metavar="PATH", default="regulon", help="the program (regulon of PATH)")
    add("--python", metavar="PATH", default="python3", help="runs the peers (python3 of PATH)")
    add("--out", metavar="FOLDER", default="peers", help="gets peers.txt, .csv, .png, .pdf and .svg (peers)")
    add("--shape", choices=peer.SHAPES, default="mixtral")
    add("--tokens", type=count, help="of gemm and experts (the shape's)")
    add("--routing", type=routing, default="balanced", help="of gemm: balanced, skew:S, half, empty or one")
    add("--parts", type=parts, default=list(runs.PARTS), help="some of gemm,experts,step")
    add("--rounds", type=count, default=2, help="of turns (2)")
    add("--seconds", type=float, default=2, help="of each measurement (2)")
    add("--experts", type=numbers, metavar="E,E,...", help=f"(1,2,4,...,256, as far as they fit {ROOM / 1e9:g} GB)")
    add("--layers", type=count, default=4, help="of the training step (4)")
    add("--batch", type=count, default=2, help="windows of 4096 tokens a micro-batch (2)")
    add("--ga", type=count, default=8, help="micro-batches a step (8)")
    add("--steps", type=count, default=6, help="that Hugging Face is timed for (6)")
    add("--quick", action="store_true", help="about a minute, to see that all works: other defaults")
    a = w.parse_args()
    if a.quick:
        w.set_defaults(**QUICK)
        a = w.parse_args()
    if not 0.01 <= a.seconds <= 60:
        w.error("--seconds takes seconds, 0.01 to 60")
    s = peer.shape_of(a)
    a.experts = a.experts or [E for E in (2**i for i in range(9)) if 18 * E * s.D * s.F <= ROOM]
    return a


def main():
    a = words()
    os.makedirs(a.out, exist_ok=True)
    found = report.Found()
    lines, shown = list(heading(a)), []
    for name in a.parts:
        for _ in range(a.rounds):
            runs.PARTS[name](found, a, ["--shape", a.shape, "--tokens", str(peer.shape_of(a).N), "--seconds", str(a.seconds)])
        if name == "gemm":
            found.add_sums()
        shown += [name, "launches"] if name == "experts" else [name]
        found.write(shown, os.path.join(a.out, "peers"), lines)  # kept if a later one is cut off
    print(found.text(shown, lines))
    return int(found.failed())


if __name__ == "__main__":
    command.run(main)
