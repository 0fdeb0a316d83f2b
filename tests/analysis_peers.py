"""compare.py through whole comparisons with stand-ins; analysis_peers.sh starts this. A stand-in says each time a little less, so
that medians, lowest and highest of the rounds differ."""

import csv
import os
import subprocess
import sys
import tempfile

PEERS = os.path.join(os.path.abspath(sys.argv[1]), "analysis", "peers")
TESTS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [PEERS, os.path.dirname(PEERS)]
sys.dont_write_bytecode = True
import peer  # noqa: E402
import report  # noqa: E402
import runs  # noqa: E402

PRODUCTS = ["up, activation", "up", "down", "down backward", "up backward", "down weights", "up weights"]
STAND_IN = f"""#!{sys.executable}
import os, sys
here, me, words = os.path.dirname(os.path.abspath(__file__)), os.path.basename(__file__), sys.argv[1:]
what = words[1] if me == "regulon" and words[0] == "bench" else os.path.basename(words[0])
with open(os.path.join(here, "calls"), "a+") as calls:
    print(what, file=calls)
    calls.seek(0)
    less = calls.read().split().count(what) - 1
wrong = os.environ.get("WRONG", "").split(",")
if what + " absent" in wrong:
    sys.exit(f"Traceback\\nModuleNotFoundError: No module named 'torch'")
if what + " old" in wrong:
    sys.stderr.write("regulon: bench: what? regulon bench ops, gemm or moe; see regulon bench --help\\n") and sys.exit(64)
if what + " dies" in wrong:
    sys.stderr.write("[0][1.5] cuda.c:3: out of memory\\napplication called MPI_Abort\\n") and sys.exit(70)
def table(head, *rows):
    out = open(words[-1], "w") if me == "regulon" else sys.stdout
    print(head, *rows, sep="\\n", file=out)
if me == "nvidia-smi":
    print("NVIDIA Stand-in, 700.00, 580.1" if "name" in words[0] else "80.00, 1980, 30\\n650.00, 1500, 60")  # one of two is idle
elif what == "--version":
    print("regulon 9")
elif what == "-c":
    print("torch 3")
elif what == "gemm":
    rows = (f'balanced,"{{p}}",{{600 - less}},660,650' for p in {PRODUCTS})
    table("routing,product,grouped_tflops,dense_tflops,each_tflops", *rows)
elif what == "moe":
    E = int(words[words.index("--experts") + 1])
    if f"moe {{E}}" in wrong:
        sys.exit("regulon: no room")
    table("experts,engine,routing,forward_seconds,both_seconds,launches", f"{{E}},grouped,balanced,1,{{0.004 * E}},{{6 * E + 2}}")
elif what == "step":
    if not os.path.exists(os.path.join(os.path.dirname(words[-1]), "peers.csv")):
        sys.exit("regulon: the parts before are not written")
    head = "engine,steps,tokens,step_seconds,tokens_per_s,tflops,forward_seconds"
    table(head, "grouped,3,65536,1.25,52000,560,0.4", "cublaslt,3,65536,1.3,50000,540,0.4")
elif what == "torch_grouped.py":
    print("a warning")
    table("product,tflops", *(f"{{h}}{{k}},{{r}}" for h in ("up", "down") for k, r in zip({peer.KINDS}, (600, 400, 300))))
elif what == "te_grouped.py":
    table("product,tflops", "up,500", '"up, all three",450', "down,510", '"down, all three",440')
elif what == "sonic_layer.py":
    table("experts,both_seconds", words[-1] + ",0.003")
elif what == "hf_mixtral.py":
    print("experts x, 4 layers: 39214 tokens/s, 418.0 TFLOP/s, 1671.0 ms a step, 80.0 GB" if "mixtral odd" not in wrong else "?")
"""
count = 0


def ok(good, what, why=""):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)
    if not good:
        print("# " + str(why).replace("\n", "\n# "), flush=True)


def compare(*words, wrong="", out="out"):
    """The program's result, its rows by (part, case, engine), and its text."""
    if os.path.exists("calls"):
        os.remove("calls")
    here = os.getcwd()
    env = {**os.environ, "WRONG": wrong, "PATH": f"{here}:{os.environ['PATH']}"}
    words = ["--regulon", f"{here}/regulon", "--python", f"{here}/python", "--out", out, *words]
    done = subprocess.run([sys.executable, f"{PEERS}/compare.py", *words], capture_output=True, text=True, env=env)
    if not os.path.exists(f"{out}/peers.csv"):
        return done, {}, ""
    with open(f"{out}/peers.csv", newline="") as f:
        rows = {(r["part"], r["case"], r["engine"]): r for r in csv.DictReader(f)}
    return done, rows, open(f"{out}/peers.txt").read()


def test_whole():
    done, rows, text = compare("--rounds", "3", "--experts", "1,2,64")
    ok(done.returncode == 0 and text.startswith(done.stdout), "a whole comparison", done.stderr)
    r = rows["gemm", "up", "Regulon grouped"]
    ok(list(r.values())[3:8] == ["TFLOP/s", "599.0", "598.0", "600.0", "3"], "median of rounds", r)
    three = float(rows["gemm", "up, all three", "torch grouped_mm"]["median"])
    ok(abs(three - 3 / (1 / 600 + 1 / 400 + 1 / 300)) < 1e-9, "the rate of three products together", three)
    ok(rows["gemm", "up, all three", "Transformer Engine"]["median"] == "450.0", "Transformer Engine's own")
    for key, median in [
        (("experts", "64", "Regulon an expert each"), "256.0"),
        (("experts", "2", "SonicMoE"), "3.0"),
        (("launches", "64", "Regulon an expert each"), "386.0"),
        (("step", "tokens/s", "Regulon an expert each"), "50000.0"),
        (("step", "TFLOP/s", "Hugging Face eager"), "418.0"),
    ]:
        ok(rows[key]["median"] == median, " ".join(key), rows[key])
    turns = open("calls").read().split("\n")
    turns = [name for name in turns if name in ("gemm", "torch_grouped.py", "te_grouped.py")]
    ok(turns == ["gemm", "torch_grouped.py", "te_grouped.py"] * 3, "they take turns", turns)
    lines = text[text.index(report.UNTRIED) :].splitlines()[2:]
    ok(all("/peers/" in line or "/regulon " in line for line in lines[::2]) and len(lines) % 2 == 0, "what ran", text)
    ok(set(lines[1::2]) == {"# meanwhile 650 W, 1500 MHz, 60 C"}, "clocks, power", text)
    ok(runs.busy([[80, 1980, 30], [690, 1500, 50], [700, 1400, 60], [650, 1600, 61]]) == [690, 1500, 60], "of the time that counts")
    ok("NVIDIA Stand-in, 700.00 W, driver 580.1" in text, "the GPU", text)
    ok(text.count(report.MEMORY) == 4 and report.UNTRIED in text, "what a reader must know", text)
    ok("torch 3" in text and "regulon 9" in text and " --tokens 8192 --seconds 2 " in text, "versions, commands", text)
    with open("out/peers.png", "rb") as f:
        ok(f.read(4) == b"\x89PNG" and os.path.exists("out/peers.svg"), "figure")
    svg = open("out/peers.svg").read()
    ok(all(f'id="{key[0]} {key[2]}"' in svg for key in rows if key[0] in ("experts", "launches")), "a line each")


def test_figure():
    found = report.Found()
    for E in ("1", "4"):
        found.add("experts", "a", [(E, float(E))], "")
        found.add("experts", "b", [], "not installed: no Python module x", E)
    ax = report.drawn(found, ["experts"]).axes[0]
    ok(list(ax.lines[0].get_xdata()) == [1, 4] and list(ax.lines[0].get_ydata()) == [1, 4], "drawn as found")
    ok((ax.get_xscale(), ax.get_yscale()) == ("log", "log"), "logarithmic")
    ok([t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b: not installed"], "the legend names who is absent")


def test_absent():
    gone = "torch_grouped.py absent,te_grouped.py absent,sonic_layer.py absent,hf_mixtral.py absent"
    done, rows, text = compare("--quick", wrong=gone, out="absent")
    notes = {k[2] for k, r in rows.items() if r["note"] == "not installed: no Python module torch" and not r["median"]}
    want = {"torch grouped_mm", "Transformer Engine", "SonicMoE", "Hugging Face grouped_mm", "Hugging Face eager"}
    ok(done.returncode == 0 and notes == want, "peers that are not installed", notes)
    ok(all(f"{name}: not installed" in text.replace(", 8:", ":") for name in want), "said so", text)
    ok("rehearsal" in text and {k[1] for k in rows if k[0] == "experts"} == {"1", "8", "32"}, "--quick", text)


def test_failures():
    wrong = "torch_grouped.py dies,step old,moe 8,mixtral odd"
    done, rows, text = compare("--quick", wrong=wrong, out="failures")
    note = {k: r["note"] for k, r in rows.items()}
    ok(done.returncode == 1, "exit code 1")
    for key, why in [
        (("gemm", "up", "torch grouped_mm"), "failed with 70: [0][1.5] cuda.c:3: out of memory"),
        (("step", "all", "Regulon"), "failed: this regulon has no bench step"),
        (("experts", "8", "Regulon grouped"), "failed with 1: regulon: no room"),
        (("experts", "32", "Regulon grouped"), ""),
        (("step", "all", "Hugging Face eager"), "failed: it says no rates"),
    ]:
        ok(note[key] == why and bool(why) != bool(rows[key]["median"]), f"{key[2]}: {why}", note)
    done, rows, text = compare("--quick", "--parts", "gemm", wrong="gemm dies", out="dead")
    has = {key[2] for key, row in rows.items() if row["median"]}
    ok(done.returncode == 1 and has == {"torch grouped_mm", "Transformer Engine"}, "without Regulon", text)
    done, rows, text = compare("--parts", "gemm", "--regulon", "nowhere/regulon", out="nowhere")
    ok(done.returncode == 1 and "failed: nowhere/regulon: No such file or directory" in text, "no regulon", text)


def test_words():
    for words, said in [
        (["--parts", "gem"], "argument --parts: invalid parts value: 'gem'"),
        (["--rounds", "0"], "argument --rounds: invalid count value: '0'"),
        (["--experts", "1,,2"], "argument --experts: invalid numbers value: '1,,2'"),
        (["--routing", "skew:9"], "argument --routing: invalid routing value: 'skew:9'"),
        (["--seconds", "nan"], "--seconds takes seconds, 0.01 to 60"),
        (["--quik"], "unrecognized arguments: --quik"),
    ]:
        done, _, _ = compare(*words, out="never")
        ok(done.returncode == 64 and done.stderr == f"compare.py: {said}; compare.py --help\n", said, done.stderr)
    ok(not os.path.exists("never"), "nothing is made")
    done, _, _ = compare("--quick", out="regulon/x")
    ok(done.returncode == 74 and done.stderr == "compare.py: regulon/x: Not a directory\n", "no folder", done.stderr)


def test_scripts():
    """The peers' scripts with a torch that knows shapes only and whose every product takes a millisecond."""
    s = peer.SHAPES["fine"]
    one = 2 * 96 * s.A * s.D * s.F / 1e-3 / 1e12  # TFLOP/s of a product of a D x F matrix
    wants = {
        "torch_grouped.py": {h + k: m * one for h, m in peer.HALVES.items() for k in peer.KINDS},
        "te_grouped.py": {h + k: m * one for h, m in peer.HALVES.items() for k in ("", peer.SUM)},
        "sonic_layer.py": {"16": 6e-3},
    }
    for name, want in wants.items():
        words = ["--shape", "fine", "--tokens", "96", "--seconds", "0.1"]
        words += ["--experts", "16"] if name == "sonic_layer.py" else ["--routing", "skew:1"]
        env = {**os.environ, "PYTHONPATH": f"{TESTS}/fixtures/peers", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, f"{PEERS}/{name}", *words], capture_output=True, text=True, env=env)
        got = {row[0]: float(row[1]) for row in list(csv.reader(done.stdout.splitlines()))[1:]}
        good = got.keys() == want.keys() and all(abs(got[k] / want[k] - 1) < 0.03 for k in want)
        ok(done.returncode == 0 and good, f"{name}: shapes and FLOPs", f"{done.stderr}{got} {want}")


def test_routing():
    rows = peer.counts_of("skew:1", 8, 16388)
    ok(rows == [485, 2638, 1555, 3438, 1692, 1226, 3195, 2159], "rows as tests/routing.c has them", rows)
    ok(peer.counts_of("empty", 6, 16)[1::3] == [0, 0] and peer.counts_of("half", 4, 16) == [8, 3, 2, 3], "empty and half")
    ok(peer.counts_of("one", 4, 16) == [0, 0, 16, 0] and sum(peer.counts_of("balanced", 7, 16)) == 16, "one and balanced")


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    for name in ("regulon", "python", "nvidia-smi"):
        with open(name, "w") as script:
            script.write(STAND_IN)
        os.chmod(name, 0o755)
    for test in (test_whole, test_figure, test_absent, test_failures, test_words, test_scripts, test_routing):
        test()
    os.chdir("/")
print(f"1..{count}")
