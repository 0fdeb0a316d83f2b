"""metrics.h5 read by h5py, ncdump and xarray: the values, while it is written, after kill -9 at any write.
The writer is tests/metrics.np1, whose rows are functions of the step; `expected` has the same functions."""
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

WRITER = os.path.abspath("tests/metrics.np1")
LAYERS, EXPERTS = 2, 4
KINDS = [f"{of}_{what}" for of in ("qkv", "o", "up", "down") for what in ("input", "weight", "gradient")]
count = 0


def ok(good, what):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)


def note(text):
    print("#", *str(text).split("\n"), sep="\n# ", flush=True)


def skip(what, why):
    global count
    count += 1
    print(f"ok {count} - {what} # SKIP {why}", flush=True)


def expected(group, step):
    """What the rows of `group` at these steps hold."""
    x = step.astype(float)
    if group == "steps":
        names = ("loss aux_loss z_loss grad_norm learning_rate step_s tokens_per_s tflops mfu mfu_6n memory_bytes").split()
        add = (0.25, 0.5, 0.75, 1.25, 1.5, 1.75, 2.25, 2.5, 2.75, 3.0, 3.25)
        rows = {name: x + a for name, a in zip(names, add)}
        return rows | {"tokens": 1000 * step, "useful_tokens": 10 * step, "padded_tokens": 20 * step}
    if group == "experts":
        index = np.arange(LAYERS * EXPERTS).reshape(LAYERS, EXPERTS)
        return {"tokens": 1000 * step[:, None, None] + index, "entropy": x[:, None] + np.arange(LAYERS) / 8}
    if group == "timing":
        phases = "data forward backward exchange reduce optimizer checkpoint total".split()
        return {p: x[:, None] + i / 8 + np.arange(3) / 64 for i, p in enumerate(phases)}
    if group == "eight_bits":
        figures = "underflow at_largest nonfinite amax scale_min scale_max error".split()
        index = np.arange(LAYERS * len(KINDS)).reshape(LAYERS, len(KINDS))
        rows = {name: x[:, None, None] + k / 8 + index / 64 for k, name in enumerate(figures)}
        return rows | {"nonzero": 1000 * step[:, None, None] + index}
    if group == "validation":
        return {"tokens": 1000 * step, "loss": 2 - x / 1024, "bits_per_base": 3 - x / 1024}
    raise KeyError(group)


def text(dataset, n):
    return [bytes(row.tobytes()).rstrip(b"\0").decode() for row in dataset[:n]]


def problems(path, acknowledged=0, at_rest=True):
    """Opens the file as anybody would; a list of what is wrong with it. `step` is read first, then the rows."""
    bad = []
    with h5py.File(path, "r") as f:
        rows = {}
        for group, every in (("steps", 1), ("experts", 1), ("timing", 1), ("validation", 5), ("eight_bits", 3)):
            step = f[group]["step"][:]
            n = rows[group] = int(np.sum(step >= 0))
            if not np.array_equal(step[:n], every * np.arange(1, n + 1)) or np.any(step[n:] != -1):
                bad.append(f"{group}/step {step}")
            for name, want in expected(group, step[:n]).items():
                have = f[group][name][:]
                if not np.array_equal(have[:n], want):
                    bad.append(f"{group}/{name}: {have[:n]} not {want}")
                if at_rest and len(have) > n + 1:  # row n may be half written
                    unwritten = {"i": have == -1, "u": have == 0, "f": np.isnan(have)}[have.dtype.kind]
                    if not np.all(unwritten[n + 1 :]):
                        bad.append(f"{group}/{name}: an unwritten row holds {have[n + 1:]}")
        step = f["events/step"][:]
        n = int(np.sum(step >= 0))
        kinds = text(f["events/kind"], n)
        if n and (kinds[0] != "start" or set(kinds[1:]) - {"checkpoint"}) or np.any(step[:n] != 7 * np.arange(n)):
            bad.append(f"events {step} {kinds}")
        if np.any(np.isnan(f["events/time"][:n])) or set(text(f["events/text"], n)[1:]) - {"saved"}:
            bad.append("events: time or text")
    done = {"steps": acknowledged, "experts": acknowledged, "timing": acknowledged}
    done |= {"validation": acknowledged // 5, "eight_bits": acknowledged // 3}
    bad += [f"{g}: {rows[g]} rows, {done[g]} were done" for g in done if rows[g] < done[g]]
    return bad


def last_line(path):
    """The last step that the writer said is done."""
    lines = open(path).read().split("\n")[:-1]
    return int(lines[-1]) if lines else 0


def write(path, rows, room, pause_us=0, close=1):
    words = [WRITER, "write", path, str(rows), str(room), str(pause_us), str(close)]
    return subprocess.run(words, stdout=subprocess.DEVNULL, check=True)


def test_values(folder):
    path = f"{folder}/values.h5"
    write(path, rows=15, room=20)
    bad = problems(path, acknowledged=15)
    with h5py.File(path, "r") as f:
        datasets, shapes = [], {}
        f.visititems(lambda name, o: datasets.append(o) if isinstance(o, h5py.Dataset) else None)
        bad += [d.name for d in datasets if not (d.attrs.get("units") and d.attrs.get("long_name"))]
        bad += [d.name + " is not contiguous" for d in datasets if d.chunks]
        shapes = {d.name: d.shape for d in datasets}
        if f.attrs["format"] != "regulon metrics" or f.attrs["format_version"] != 1:
            bad.append("format")
        if set(f["code"].attrs) != set("version revision configure_line compiler hdf5 mpi".split()):
            bad.append("/code")
        if dict(f["config"].attrs) != {"seed": "42", "optimizer.lr": "0.0003", "dataset.path": "caf\u00e9.fa"}:
            bad.append("/config")
        run = dict(f["run"].attrs)
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", run.pop("start")) or not run.pop("host"):
            bad.append("/run start or host")
        if run != {"grid": "dp 1 x ep 2", "backend": "cpu (test)", "run_id": "run-1"}:
            bad.append(f"/run {run}")
        markov = f["validation/markov_bits_per_base"]
        if markov.shape != (9,) or markov[3] != 1.9375 or not np.isnan(markov[0]):
            bad.append("markov")
        if abs(f["events/time"][0] - time.time()) > 60:
            bad.append("events/time")
        kinds = [bytes(kind).decode() for kind in f["eight_bits/kind"][:]]
        if kinds != KINDS or list(f["eight_bits/layer"][:]) != [0, 1]:
            bad.append(f"eight_bits/kind {kinds}")
    if shapes["/eight_bits/error"] != (5, 2, 12) or shapes["/steps/loss"] != (15,) or shapes["/experts/tokens"] != (15, 2, 4) or shapes["/events/kind"] != (3, 16):
        bad.append(f"shapes {shapes}")
    bad and note("\n".join(bad))
    ok(not bad, "closed: exactly the rows there are, every value, every description")


def test_unwritten(folder):
    path = f"{folder}/room.h5"
    write(path, rows=7, room=20000, close=0)
    bad = problems(path, acknowledged=7)
    bad and note("\n".join(bad))
    ok(not bad, "not closed: rows behind the last are NaN, -1 and 0")
    stat = os.stat(path)
    ok(stat.st_size - stat.st_blocks * 512 > 20000 * LAYERS * EXPERTS * 4 * 3 / 4, "the expert counts are a hole")


def test_reader(folder):
    """A reader against a writer whose file is also rewritten under it (the room doubles from 50 rows on)."""
    path, said = f"{folder}/read.h5", f"{folder}/said"
    with open(said, "w") as out:
        writer = subprocess.Popen([WRITER, "write", path, "100000", "50", "300", "0"], stdout=out)
    bad, reads, end = [], 0, time.time() + 3
    while time.time() < end and not bad:
        if not os.path.exists(path):
            continue
        done = last_line(said)
        try:
            bad = problems(path, acknowledged=done, at_rest=False)
        except Exception as e:
            bad = [repr(e)]
        reads += 1
    alive = writer.poll() is None
    writer.kill()
    writer.wait()
    note(f"{reads} reads of up to {last_line(said)} rows")
    bad and note("\n".join(bad))
    ok(alive and reads > 20 and last_line(said) > 200 and not bad, "readable and right between any two writes")


def check_killed(path, said, folder):
    """What is wrong after a kill. Before its first rename there is no file, and nothing was said to be done."""
    done = last_line(said)
    if not os.path.exists(path):
        return [f"no file after {done} rows"] if done else []
    try:
        return problems(path, acknowledged=done)
    except Exception as e:
        return [repr(e)]


def test_kill(folder):
    random.seed(1)
    bad, rows = [], []
    for i in range(15):
        path, said = f"{folder}/kill{i}.h5", f"{folder}/said"
        with open(said, "w") as out:
            writer = subprocess.Popen([WRITER, "write", path, "1500", "200", "0", "1"], stdout=out)
        time.sleep(random.uniform(0.01, 0.4))
        writer.kill()
        writer.wait()
        rows.append(last_line(said))
        bad += check_killed(path, said, folder)
    note(f"killed after rows {rows}")
    bad and note("\n".join(bad))
    ok(not bad and sum(r > 0 for r in rows) >= 3, "killed at 15 random moments: whole rows right, none lost that was done")


def can_trace():
    return shutil.which("strace") and subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


CALLS = "pwrite64,pwritev,ftruncate,rename,fsync"


def test_every_write(folder, points):
    what = "killed at each of the writes"
    if not can_trace():
        return skip(what, "strace is not there or may not trace")
    path, said, log = f"{folder}/inject.h5", f"{folder}/said", f"{folder}/strace"
    words = [WRITER, "write", path, "12", "8", "0", "1"]  # outgrows its room, so that a rewrite is among the points
    subprocess.run(["strace", "-f", "-o", log, "-e", f"trace={CALLS}", *words], check=True, stdout=subprocess.DEVNULL)
    n_calls = sum(1 for line in open(log) if re.search(r"\b(" + CALLS.replace(",", "|") + r")\(", line))
    counts = {c: sum(1 for line in open(log) if f"{c}(" in line) for c in CALLS.split(",")}
    places = [(c, n) for c in counts for n in range(1, counts[c] + 1)]
    if points and len(places) > points:
        places = [p for p in places if p[0] != "pwrite64"] + [("pwrite64", 1 + i * counts["pwrite64"] // points) for i in range(points)]
    bad, killed = [], 0
    for call, n in places:
        for name in (path, path + ".tmp"):
            if os.path.exists(name):
                os.unlink(name)
        with open(said, "w") as out:
            run = subprocess.run(["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                                  f"inject={call}:signal=KILL:when={n}", *words], stdout=out, stderr=subprocess.DEVNULL)
        killed += run.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
        bad += [f"{call} {n}: {b}" for b in check_killed(path, said, folder)]
    note(f"{killed} of {len(places)} points killed, of {n_calls} calls")
    bad and note("\n".join(bad[:20]))
    ok(not bad and killed == len(places) > 20, f"{what} (a sample)" if points else what)


def test_full(folder):
    """Writes that fail (a limit on the size of files stands in for a full disk): 74 at the start, later rows are lost."""

    def limited(path, size, rows):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        words = [WRITER, "write", path, str(rows), "10", "0", "1"]
        return subprocess.run(words, preexec_fn=limit, capture_output=True, text=True)

    path = f"{folder}/first.h5"
    run = limited(path, 20000, rows=8)
    ok(run.returncode == 74 and "File too large" in run.stderr and not os.path.exists(path), "no room at the start: 74, no file")
    path = f"{folder}/grows.h5"
    write(path, rows=10, room=10, close=0)
    size = os.path.getsize(path)
    run = limited(path, size, rows=13)  # no group but those that are full gets a row
    bad = problems(path, acknowledged=10)
    run.returncode and note(run.stderr)
    bad and note("\n".join(bad))
    said = run.stderr.count("cannot be written")
    ok(run.returncode == 0 and said == 1 and not bad, "no room for a longer file: said once, the rows stay, the run goes on")
    run = limited(f"{folder}/absent/metrics.h5", size, rows=8)
    ok(run.returncode == 74 and "No such file or directory" in run.stderr, "no folder: 74")


def test_resume(folder):
    """A killed run goes on after an earlier checkpoint: each step once."""
    path, said = f"{folder}/resume.h5", f"{folder}/said"
    write(path, rows=40, room=64, close=0)
    subprocess.run([WRITER, "resume", path, "28", "70"], stdout=subprocess.DEVNULL, check=True)
    with h5py.File(path, "r") as f:
        good = all(np.array_equal(f[g]["step"][:], np.arange(1, 71)) for g in ("steps", "experts", "timing"))
        good = good and np.array_equal(f["steps/loss"][:], np.arange(1, 71) + 0.25)
        good = good and np.array_equal(f["validation/step"][:], 5 * np.arange(1, 15))
        good = good and np.array_equal(f["eight_bits/step"][:], 3 * np.arange(1, 24))
        kinds = text(f["events/kind"], None)
        good = good and kinds == ["start"] + 5 * ["checkpoint"] + ["resume"] + 6 * ["checkpoint"]
    ok(good and not os.path.exists(path + ".tmp"), "resumed after a kill: each step once, the events of both")


def test_refusals(folder):
    good = f"{folder}/good.h5"
    write(good, rows=7, room=7)

    def made(name, change):
        path = f"{folder}/{name}.h5"
        shutil.copy(good, path)
        with h5py.File(path, "r+") as f:
            change(f)
        return path

    def drop(f):
        del f["steps/loss"]

    cut, words, absent = f"{folder}/cut.h5", f"{folder}/words.h5", f"{folder}/absent.h5"
    open(cut, "wb").write(open(good, "rb").read()[:20000])
    open(words, "w").write("step loss\n1 2.0\n")
    cases = [
        (absent, "absent.h5: No such file or directory"),
        (words, "words.h5: not an HDF5 file"),
        (cut, "cut.h5: an HDF5 file, but damaged or cut short"),
        (made("newer", lambda f: f.attrs.modify("format_version", np.int64(2))),
         "newer.h5: format_version 2 of 'regulon metrics' is newer than this program reads (1)"),
        (made("corpus", lambda f: f.attrs.__setitem__("format", "regulon corpus")),
         "corpus.h5: a 'regulon corpus' file where 'regulon metrics' is wanted"),
        (made("foreign", lambda f: f.attrs.__delitem__("format")),
         "foreign.h5: no 'regulon metrics' file: it has no attribute 'format'"),
        (made("number", lambda f: f.attrs.__setitem__("format", 1)), "it has no attribute 'format'"),
        (made("orders", lambda f: f.__delitem__("validation/markov_bits_per_base")),
         "orders.h5: no dataset /validation/markov_bits_per_base"),
        (made("dropped", drop), "dropped.h5: no dataset /steps/loss"),
    ]
    for path, message in cases:
        run = subprocess.run([WRITER, "info", path], capture_output=True, text=True)
        good_answer = run.returncode == 65 and message in run.stderr and run.stderr.count("\n") == 1
        good_answer or note(f"{run.returncode}: {run.stderr}")
        ok(good_answer, f"refused, 65: {message}")

    def extras(f):
        f["steps/extra"] = np.arange(3)
        f.create_group("notes").attrs["by"] = "me"
        f.attrs["format"] = np.bytes_("regulon metrics")  # of fixed length, as other programs write it

    run = subprocess.run([WRITER, "info", made("extras", extras)], capture_output=True, text=True)
    ok(run.returncode == 0 and "steps        1 to 7 in 7 rows" in run.stdout, "unknown extras are ignored")


def test_netcdf(folder):
    path = f"{folder}/netcdf.h5"
    write(path, rows=15, room=15)
    if not shutil.which("ncdump"):
        skip("ncdump shows the dimensions", "no ncdump")
    else:
        dump = subprocess.run(["ncdump", "-h", path], capture_output=True, text=True)
        steps, experts = (re.search(f"group: {g} .*?// group {g}\n", dump.stdout, re.S) for g in ("steps", "experts"))
        ok(steps and "double loss(step)" in steps[0] and "step = 15 ;" in steps[0] and "UNLIMITED" not in dump.stdout
           and experts and "uint tokens(step, layer, expert)" in experts[0], "ncdump -h names the dimensions")
        dump = subprocess.run(["ncdump", path], capture_output=True, text=True)
        ok(dump.returncode == 0 and '"checkpoint"' in dump.stdout and '"median"' in dump.stdout, "ncdump prints all of it")
    program = """
import sys, numpy as np, xarray
path, engine = sys.argv[1:]
d = {g: xarray.open_dataset(path, group=g, engine=engine).load() for g in "steps experts timing validation events eight_bits".split()}
assert d["steps"].loss.dims == ("step",) and d["steps"].loss.sel(step=7) == 7.25
assert d["experts"].tokens.dims == ("step", "layer", "expert") and d["experts"].tokens.sel(step=7, layer=1, expert=2) == 7006
assert d["experts"].entropy.dims == ("step", "layer") and d["experts"].entropy.units == "nats"
assert d["timing"].forward.sel(step=7, statistic="median") == 7 + 1 / 8 + 1 / 64
assert d["validation"].loss.sel(step=10) == 2 - 10 / 1024 and d["validation"].markov_bits_per_base.sel(order=3) == 1.9375
assert d["eight_bits"].error.dims == ("step", "layer", "kind") and d["eight_bits"].nonzero.sel(step=6, layer=1, kind="o_input") == 6015
assert d["eight_bits"].scale_max.sel(step=6, layer=0, kind="qkv_weight") == 6 + 5 / 8 + 1 / 64
assert list(d["events"].kind.values) == ["start", "checkpoint", "checkpoint"]
assert d["events"].time.dtype.kind == "M"
"""
    plots = """
import sys, matplotlib, numpy as np, xarray
matplotlib.use("Agg")
import matplotlib.pyplot as plt
path, engine = sys.argv[1:]
def labels(group, pick):
    plt.figure()
    drawn = pick(xarray.open_dataset(path, group=group, engine=engine)).plot()
    return " ".join(plt.gca().get_xlabel().split()), " ".join(plt.gca().get_ylabel().split()), drawn
x, y, lines = labels("steps", lambda d: d.loss)
assert x.startswith("optimiser step") and y == "training loss [nats/token]", (x, y)
assert np.array_equal(lines[0].get_xdata(), np.arange(1, 16)) and np.array_equal(lines[0].get_ydata(), np.arange(1, 16) + 0.25)
x, y, lines = labels("validation", lambda d: d.loss)
assert x.startswith("optimiser step") and y == "held-out loss [nats/token]" and list(lines[0].get_xdata()) == [5, 10, 15], (x, y)
x, y, _ = labels("experts", lambda d: d.tokens.sel(layer=1))
assert x.startswith("expert") and y.startswith("optimiser step"), (x, y)
x, y, _ = labels("experts", lambda d: d.entropy.sel(layer=1))
assert x.startswith("optimiser step") and y == "entropy of the router's probabilities [nats]", (x, y)
"""
    for engine, module in (("netcdf4", "netCDF4"), ("h5netcdf", "h5netcdf")):
        what = f"xarray opens every group with named coordinates ({engine})"
        if subprocess.run([sys.executable, "-c", f"import xarray, {module}"], capture_output=True).returncode:
            skip(what, f"no xarray or {module}")
            continue
        run = subprocess.run([sys.executable, "-c", program, path, engine], capture_output=True, text=True)
        run.returncode and note(run.stderr)
        ok(run.returncode == 0, what)
        what = f"and draws them with steps and units on the axes ({engine})"
        if subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True).returncode:
            skip(what, "no matplotlib")
            continue
        run = subprocess.run([sys.executable, "-c", plots, path, engine], capture_output=True, text=True)
        run.returncode and note(run.stderr)
        ok(run.returncode == 0, what)


with tempfile.TemporaryDirectory(prefix="metrics-", dir=".") as work:
    test_values(work)
    test_unwritten(work)
    test_reader(work)
    test_kill(work)
    test_every_write(work, points=0 if "all" in sys.argv[1:] else 60)
    test_full(work)
    test_resume(work)
    test_refusals(work)
    test_netcdf(work)
print(f"1..{count}")
