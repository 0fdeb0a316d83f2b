"""The programs that a comparison starts, and what is read from their words. `found` (of report.py) gets it."""
import contextlib
import csv
import itertools
import os
import re
import statistics
import subprocess
import sys
import threading

import peer

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINES = {"grouped": "Regulon grouped", "cublaslt": "Regulon an expert each"}
SECONDS = 1800  # that a program may take
WINDOW = 4096  # tokens, of the training step


def run(*words):
    """What a program says, and why that is not all, or ''."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except OSError as error:
        return "", f"failed: {words[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return "", f"failed: not done in {SECONDS} s"
    lines = done.stderr.strip().splitlines()
    own = [line for line in lines if re.match(r"regulon: |\[\d", line)]  # not what MPI says behind it
    last = [*lines, *own][-1] if lines else "it says nothing"
    absent = re.match(r"ModuleNotFoundError: No module named '([^']*)'", last)
    why = f"not installed: no Python module {absent[1]}" if absent else f"failed with {done.returncode}: {last}"
    return done.stdout, why if done.returncode else ""


def ask_gpus(fields):
    out, _ = run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    return [line.split(", ") for line in out.splitlines()]


def busy(seen):
    """Medians over the time in which a GPU drew nearly as much as ever; of (W, MHz, C)."""
    return [statistics.median(column) for column in zip(*(row for row in seen if row[0] >= 0.9 * max(seen)[0]))]


@contextlib.contextmanager
def watched(found):
    """Asks the GPUs meanwhile, and notes what the one that drew most did when it was busy."""
    seen, over = [], threading.Event()

    def look():
        with contextlib.suppress(ValueError):  # a number that this GPU does not have
            while rows := ask_gpus("power.draw,clocks.sm,temperature.gpu"):
                seen.append(max([float(x) for x in row] for row in rows))
                if over.wait(0.25):
                    return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if seen:
        found.said.append("# meanwhile {:.0f} W, {:.0f} MHz, {:.0f} C".format(*busy(seen)))


def measure(found, *words):
    """The same, noted."""
    found.said.append(" ".join(words))
    print("#", found.said[-1], file=sys.stderr, flush=True)
    with watched(found):
        return run(*words)


def table_of(text, why, *columns):
    """The rows below the first line that names these columns, as numbers but for the first; and why there are not more."""
    lines = itertools.dropwhile(lambda line: not set(columns) <= set(line.split(",")), text.splitlines())
    try:
        rows = [[row[columns[0]], *(float(row[c]) for c in columns[1:])] for row in csv.DictReader(lines)]
    except (TypeError, ValueError):
        rows, why = [], why or "failed: a number is missing in its table"
    return rows, why or ("" if rows else f"failed: no table of {', '.join(columns)}")


def regulon(found, a, what, words, *columns):
    path = os.path.join(a.out, "regulon.csv")
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)  # of the call before
    _, why = measure(found, a.regulon, "bench", what, *words, "--csv", path)
    if what == "step" and "bench: what?" in why:
        why = "failed: this regulon has no bench step"
    if why:
        return [], why
    with open(path) as file:
        return table_of(file.read(), why, *columns)


def script(found, a, name, *words):
    return measure(found, a.python, os.path.join(HERE, name), *words)


def gemm(found, a, sizes):
    sizes = [*sizes, "--routing", a.routing]
    rows, why = regulon(found, a, "gemm", sizes, "product", "grouped_tflops", "dense_tflops", "each_tflops")
    for i, engine in enumerate(["Regulon grouped", "cuBLASLt dense", "cuBLASLt an expert each"], 1):
        found.add("gemm", engine, [(row[0], row[i]) for row in rows], why)
    for engine, name in [("torch grouped_mm", "torch_grouped.py"), ("Transformer Engine", "te_grouped.py")]:
        found.add("gemm", engine, *table_of(*script(found, a, name, *sizes), "product", "tflops"))


def experts(found, a, sizes):
    for E in map(str, a.experts):
        for key, engine in ENGINES.items():
            words = [*sizes, "--experts", E, f"engine.experts={key}"]
            rows, why = regulon(found, a, "moe", words, "experts", "both_seconds", "launches")
            found.add("experts", engine, [(E, 1e3 * s) for _, s, _ in rows], why, E)
            found.add("launches", engine, [(E, n) for *_, n in rows], why, E)
        rows, why = table_of(*script(found, a, "sonic_layer.py", *sizes, "--experts", E), "experts", "both_seconds")
        found.add("experts", "SonicMoE", [(E, 1e3 * s) for _, s in rows], why, E)


def step(found, a, _):
    s = peer.shape_of(a)
    model = {"num_hidden_layers": a.layers, "hidden_size": s.D, "intermediate_size": s.F, "num_local_experts": s.E,
             "num_experts_per_tok": s.A, "num_attention_heads": s.H, "num_key_value_heads": s.G, "vocab_size": s.V}
    keys = [f"model.{key}={value}" for key, value in model.items()]
    keys += [f"dataset.max_seq_length={WINDOW}", f"dataset.micro_batch_size={a.batch}", f"grad_acc_steps={a.ga}"]
    words = ["L1_8x7B_ep", "--seconds", str(a.seconds), "parallelism.ep_size=1", *keys]
    rows, why = regulon(found, a, "step", words, "engine", "tokens_per_s", "tflops")
    for engine, tokens, tflops in rows:
        found.add("step", ENGINES.get(engine, engine), [("tokens/s", tokens), ("TFLOP/s", tflops)], why)
    if not rows:
        found.add("step", "Regulon", [], why)
    sizes = {"layers": a.layers, "hidden": s.D, "ffn": s.F, "experts": s.E, "topk": s.A, "heads": s.H, "kv": s.G,
             "vocab": s.V, "seq": WINDOW, "batch": a.batch, "ga": a.ga, "steps": a.steps}
    for way in ["grouped_mm", "eager"]:
        out, why = script(found, a, "hf_mixtral.py", "--impl", way, *(w for k, v in sizes.items() for w in (f"--{k}", str(v))))
        rates = re.findall(r"([\d.]+) tokens/s, ([\d.]+) TFLOP/s", out)
        pairs = list(zip(["tokens/s", "TFLOP/s"], map(float, rates[-1]))) if rates else []
        found.add("step", f"Hugging Face {way}", pairs, why or ("" if rates else "failed: it says no rates"))


PARTS = {"gemm": gemm, "experts": experts, "step": step}
