"""The report of real runs, in the folder that analysis_report.sh filled: what is drawn is what the files hold, read
here by plain h5py; the page stands alone; wrong input gets one line. Artists are found by their names (gid)."""

import contextlib
import html.parser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

SOURCE = sys.argv[1]
sys.path.insert(0, f"{SOURCE}/analysis")
import h5py  # noqa: E402
import numpy as np  # noqa: E402

import draw_experts  # noqa: E402
import draw_speed  # noqa: E402
import draw_training  # noqa: E402
import figures  # noqa: E402
import metrics  # noqa: E402
import page  # noqa: E402
import summary  # noqa: E402

REPORT = [sys.executable, f"{SOURCE}/analysis/regulon-report"]
count = 0


def ok(good, what):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)


def skip(what, why):
    global count
    count += 1
    print(f"ok {count} - {what} # SKIP {why}", flush=True)


def note(text):
    print("#", *str(text).split("\n"), sep="\n# ", flush=True)


def report(*words, env=None):
    return subprocess.run([*REPORT, *words], capture_output=True, text=True, env=env)


def artists(drawing):
    return {a.get_gid(): a for a in drawing.figure.findobj() if a.get_gid()}


def line(found, name):
    return np.asarray(found[name].get_xdata(), float), np.asarray(found[name].get_ydata(), float)


def same(have, want):
    return have.shape == np.shape(want) and np.array_equal(have, want, equal_nan=True)


def opened(*paths):
    runs = [metrics.open_run(path) for path in paths]
    figures.dress(runs)
    return runs


def check_series(path):
    """Every line of a run's figures against the file."""
    (run,) = opened(path)
    axis = figures.TimeAxis("step", [run])
    found = {}
    for draw in (
        draw_training.loss,
        draw_training.optimizer,
        draw_training.auxiliary,
        draw_speed.speed,
        draw_speed.memory,
    ):
        found.update(artists(draw([run], axis)))
    bad = []
    with h5py.File(f"{path}/metrics.h5", "r") as f:
        step = f["steps/step"][:]
        rows = step >= 0
        for name, series, scale in (
            ("loss", "loss", 1),
            ("learning_rate", "learning_rate", 1),
            ("grad_norm", "grad_norm", 1),
            ("aux_loss", "aux_loss", 1),
            ("z_loss", "z_loss", 1),
            ("tokens_per_s", "tokens_per_s", 1),
            ("mfu", "mfu", 100),
            ("memory", "memory_bytes", 2.0**-20),
        ):
            x, y = line(found, f"{name} 0 rows")
            if not same(x, step[rows]) or not same(y, f[f"steps/{series}"][rows] * scale):
                bad.append(f"{name}: {y}")
        losses = found["loss 0 rows"].axes
        cut = "".join(text.get_text() for text in losses.texts if text.get_gid() == "cut ↑")
        top, both = losses.get_ylim()[1], [f["steps/loss"][rows], f["validation/loss"][:]]
        above = sum(int((loss > top).sum()) for loss in both)
        if cut.split()[1:2] != ([str(above)] if above else []):
            bad.append(f"'{cut}' where {above} losses lie above {top}")
        done = f["validation/step"][:] >= 0
        x, y = line(found, "validation 0")
        if not same(x, f["validation/step"][done]) or not same(y, f["validation/loss"][done]):
            bad.append(f"validation: {x} {y}")
        markov = f["validation/markov_bits_per_base"][:]
        shown = {int(name.split()[1]): line(found, name)[1][0] for name in found if name.startswith("markov")}
        if np.isfinite(markov).any() and (
            int(np.nanargmin(markov)) not in shown
            or any(abs(y / np.log(2) - markov[o]) > 1e-12 for o, y in shown.items())
        ):
            bad.append(f"markov: {shown}")
        kinds = [bytes(row.tobytes()).rstrip(b"\0").decode() for row in f["events/kind"][:]]
        for kind in set(kinds) - {"start", ""}:
            want = [s for s, k in zip(f["events/step"][:], kinds) if k == kind]
            if not same(line(found, f"{kind} 0")[0], want):
                bad.append(f"{kind}: {line(found, f'{kind} 0')[0]} not {want}")
    bad and note("\n".join(bad))
    ok(not bad, f"{path}: what the figures show of steps, validation, Markov chains and events is what the file holds")
    return run, found


def check_experts(path):
    (run,) = opened(path)
    axis = figures.TimeAxis("step", [run])
    stats = summary.Load(run)
    balance = artists(draw_experts.balance([run], [stats], axis))
    load = artists(draw_experts.load(run, stats, axis))
    split_figure = draw_speed.time_split([run], axis)
    split = artists(split_figure)
    with h5py.File(f"{path}/metrics.h5", "r") as f:
        tokens = f["experts/tokens"][: np.sum(f["experts/step"][:] >= 0)].astype(float)
        rows = f["timing/step"][:] >= 0
        kinds = [kind.tobytes().rstrip(b"\0") for kind in f["events/kind"][:]]
        starts = [step + 1 for step, kind in zip(f["events/step"][:], kinds) if kind in (b"start", b"resume")]
        rows &= ~np.isin(f["timing/step"][:], starts)
        forward, total = f["timing/forward"][rows, 1], f["timing/total"][rows, 1]
    with np.errstate(invalid="ignore"):
        share = tokens / tokens.mean(axis=2, keepdims=True)
    share_of, bad = share, []
    if not np.allclose(stats.imbalance, share.max(axis=2), rtol=1e-6, equal_nan=True):
        bad.append("imbalance")
    for layer in range(run.n_layers):
        shades = np.ma.filled(np.ma.asarray(load[f"load {layer}"].get_array(), float), np.nan)
        want = np.log2(np.clip(share[:, layer].T, 0.25, 4))
        if not np.allclose(shades.reshape(want.shape), want, equal_nan=True):
            bad.append(f"layer {layer}: {shades} not {want}")
    if not same(stats.starved.astype(float), (share < 0.01).sum(axis=(1, 2))):
        bad.append(f"starved {stats.starved}")
    if not same(line(balance, "starved 0")[1][:-1], stats.starved):
        bad.append("starved, as drawn")
    median = line(balance, "imbalance 0 median")[1]
    if np.isfinite(share).all() and not np.isclose(median[-1], np.median(share.max(axis=2).mean(axis=1)[-4:])):
        bad.append(f"the end of the median {median[-1]}")
    top = split["time forward"].get_paths()[0].vertices[:, 1].max()
    if len(forward) <= draw_speed.TIME_BINS and not np.isclose(top, 1e3 * forward.max()):
        bad.append(f"forward {top} not {1e3 * forward.max()} ms")
    words = [text.get_text() for text in split_figure.figure.findobj(figures.matplotlib.text.Text)]
    share = f"forward {100 * forward.sum() / total.sum():.1f} %"
    if share not in words:
        bad.append(f"{share}: not in {words}")
    for layer in range(run.n_layers):
        lines = load[f"starved {layer}"].get_segments() if f"starved {layer}" in load else []
        marked = sorted((int(e), step) for (a, e), (b, _) in lines for step in range(int(a + 1), int(b + 1)))
        want = [(int(e), int(run.experts.step[row])) for row, e in np.argwhere(share_of[:, layer] < 0.01)]
        if marked != sorted(want):
            bad.append(f"starved, marked in layer {layer}: {marked} not {sorted(want)}")
    bad and note("\n".join(bad))
    ok(
        not bad,
        f"{path}: and so are expert load, imbalance, starved experts, and the forward pass without the first steps",
    )


def check_looks():
    """What must be told apart can be, in grey and where curves lie on each other."""
    grey = draw_experts.COLOURS(np.linspace(0, 1, 100))[:, :3] @ [0.299, 0.587, 0.114]
    ok((np.diff(grey) < 0).all() and grey[0] - grey[-1] > 0.6, "the load's colours go from light to dark")
    runs = opened("two", "two", "two")
    axis = figures.TimeAxis("tokens", runs)
    bad = []
    found = artists(draw_training.loss(runs, axis))
    for name in ("loss {} rows", "validation {}"):
        lines = [found[name.format(i)] for i in range(3)]
        widths, order = [line.get_linewidth() for line in lines], [line.get_zorder() for line in lines]
        styles = {str(line.get_linestyle()) for line in lines}
        if len(styles) < 3 or sorted(widths, reverse=True) != widths or len(set(widths)) < 3 or order != sorted(order):
            bad.append(f"{name}: {styles} {widths} {order}")
    markers = [found[f"validation {i}"] for i in range(3)]
    if len({m.get_marker() for m in markers}) < 3 or len({m.get_markersize() for m in markers}) < 3:
        bad.append("markers")
    for kind in ("resume", "checkpoint"):
        lanes = [set(found[f"{kind} {i}"].get_ydata()) for i in range(3)]
        if any(len(lane) != 1 for lane in lanes) or len(set.union(*lanes)) != 3:
            bad.append(f"{kind}: {lanes}")
    bad and note("\n".join(bad))
    ok(not bad, "of three runs that are the same, the curves and events of all can be seen")
    words = [figures.median_words([n]) for n in (12, 100, 1000)] + [figures.median_words([1000, 12, 500])]
    want = [f"running median of up to {n} rows" for n in ("7", "7", "51", "7 to 51")]
    y = np.arange(1000.0) ** 2
    median = figures.rolling_median(y, most=1000)[1][500]
    ok(
        words == want and median == np.median(y[475:526]) != np.median(y[474:526]),
        "captions name the rows that a median is of",
    )


def check_dense():
    run = report("dense")
    dense, names = Page("dense/report/report.html"), set(os.listdir("dense/report"))
    ok(
        run.returncode == 0
        and not run.stderr
        and dense.pictures == 5
        and dense.words.count("Dense (one expert a layer)") == 1
        and not {f"{n}.png" for n in ("balance", "expert_load", "auxiliary")} & names,
        "a dense run: no figures of the router, and a line that says so",
    )
    run = report("dense", "two", "-o", "both")
    both = Page("both/report.html")
    ok(
        run.returncode == 0 and not run.stderr and both.pictures == 8 and both.words.count("Dense (one expert") == 1,
        "beside another: those are of the other",
    )


def check_stale():
    """In the folder of two runs' figures, a report of one."""
    for name in ("mine.png", "expert_load_1.txt", "expert_load_7.png"):
        open(f"both/{name}", "w").close()
    report("two", "one", "-o", "both")
    before = set(os.listdir("both"))
    report("dense", "-o", "both")
    gone = before - set(os.listdir("both"))
    ours = "balance expert_load_1 expert_load_2 auxiliary".split()
    gone == {f"{n}.{k}" for n in ours for k in ("png", "pdf", "svg")} or note(gone)
    ok(
        gone == {f"{n}.{k}" for n in ours for k in ("png", "pdf", "svg")},
        "figures of the report before are removed, and nothing else",
    )


def check_bins():
    """Binned sums are the sums of the pieces, however they are cut."""
    (run,) = opened("two")
    tokens, bad = run.experts["tokens"], []
    for bins in (1, 5, 12, 100):
        load, edges = run.expert_load(bins)
        starts = run.bins(bins)[0]
        want = np.add.reduceat(tokens.astype(np.int64), starts, axis=0)
        sums = np.zeros_like(want)
        for row in range(0, run.experts.n, 5):
            metrics.add_rows(sums, starts, row, tokens[row : row + 5])
        if (
            not np.array_equal(load, want)
            or not np.array_equal(sums, want)
            or len(edges) != len(load) + 1
            or np.any(np.diff(edges) <= 0)
        ):
            bad.append(bins)
    pieces = [p for _, p in run.expert_pieces(2, 9, piece_bytes=1)]
    ok(
        not bad and len(pieces) == 7 and np.array_equal(np.concatenate(pieces), tokens[2:9]),
        "sums over stretches of rows, in pieces",
    )


class Page(html.parser.HTMLParser):
    """What a page loads, its pictures, its words."""

    def __init__(self, path):
        super().__init__()
        self.loads, self.pictures, self.words, self.scripts = [], 0, "", 0
        with open(path, encoding="utf-8") as f:
            text = f.read()
        self.loads += re.findall(r"url\(|@import|https?://(?!www\.w3\.org)[^\s<\"']*", text.split("</style>")[0])
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script" or any(name.startswith("on") for name, _ in attrs)
        for name, value in attrs:
            if name in ("src", "href", "srcset", "data"):
                self.pictures += value.startswith("data:image/svg+xml;base64,")
                self.loads += [] if value.startswith("data:") else [value]

    def handle_data(self, data):
        self.words += data + "\n"


def check_page():
    run = report("two")
    html_page = Page("two/report/report.html")
    names = "loss balance expert_load speed time_split optimizer auxiliary memory".split()
    magic = {"png": b"\x89PNG", "pdf": b"%PDF"}
    files = all(open(f"two/report/{n}.{k}", "rb").read(4) == magic[k] for n in names for k in magic)
    ok(
        run.returncode == 0 and run.stdout == "two/report/report.html\n" and not run.stderr and files,
        "report: a page, and PNG and PDF figures",
    )
    ok(
        not html_page.loads and not html_page.scripts and html_page.pictures == len(names),
        "the page holds its figures, loads nothing and has no script",
    )
    with h5py.File("two/metrics.h5", "r") as f:
        best = np.nanmin(f["validation/bits_per_base"][:])
        facts = [
            f"{best:.4f}",
            f"{f['steps/loss'][11]:.4f}",
            "of 12",
            f["run"].attrs["grid"],
            f["run"].attrs["run_id"],
            f["run"].attrs["host"],
            f["run"].attrs["backend"],
            f["code"].attrs["revision"],
            *f["config"].attrs,
            "resume",
        ]
    absent = [x for x in facts if x not in html_page.words]
    absent and note(absent)
    ok(not absent, "it says deck, grid, code, device, results and events")


def check_overlay():
    run = report("two", "one", "-o", "both")
    both = Page("both/report.html")
    ok(
        run.returncode == 0 and not run.stderr and both.pictures == 9 and not both.loads,
        "two runs over each other, an expert figure each",
    )
    table = both.words[both.words.index("What differs") : both.words.index("Cross-entropy")]
    rows = [w for w in table.split("\n") if w.strip()]
    with h5py.File("two/metrics.h5", "r") as a, h5py.File("one/metrics.h5", "r") as b:
        a, b = dict(a["config"].attrs), dict(b["config"].attrs)
    keys = {k for k in a if a[k] != b.get(k)} - {"checkpoint.ckpt_dir"}
    missing = [k for k in keys if not any(rows[i : i + 3] == [k, a[k], b[k]] for i in range(len(rows)))]
    missing and note((missing, rows))
    ok(
        not missing
        and {"optimizer.lr", "parallelism.ep_size", "grad_acc_steps"} <= keys
        and "seed" not in rows
        and "grid" in rows,
        "with a table of the keys that differ, and no others",
    )
    runs = opened("two", "one")
    axis = figures.TimeAxis("tokens", runs)
    found = artists(draw_training.loss(runs, axis))
    right = all(
        same(line(found, f"loss {i} rows")[0], r.steps["tokens"] / axis.unit)
        and same(line(found, f"loss {i} rows")[1], r.steps["loss"])
        for i, r in enumerate(runs)
    )
    ok(right, "drawn against the tokens read")
    os.symlink("two", r"_2$\frac$")
    run = report(r"_2$\frac$", "one", "-o", "named")
    named = Page("named/report.html")
    run.stderr and note(run.stderr)
    ok(run.returncode == 0 and not run.stderr and r"_2$\frac$, one" in named.words, "a run's name is no formula")


def check_diverged():
    """A loss that explodes leaves the axis, and is counted; the lowest held-out loss is not called the last."""
    (run,) = opened("two")
    loss, held_out = run.steps["loss"], run.validation["loss"]
    first = loss[0]
    loss[-4:], held_out[-1] = 5e3, 5e3
    drawing = draw_training.loss([run], figures.TimeAxis("step", [run]))
    axes = artists(drawing)["loss 0 rows"].axes
    cut = "".join(text.get_text() for text in axes.texts if text.get_gid() == "cut ↑")
    ok(
        first < axes.get_ylim()[1] < 2 * first and cut.endswith("above, up to 5000") and cut.split()[1] == "5",
        "a loss that explodes is counted above an axis that shows the rest",
    )
    ok(drawing.title.startswith("Lowest held-out loss: "), "a lowest loss that is not the last is named so")


def check_skipped():
    run, found = check_series("skipped")
    events = [e for e in run.events if e.kind == "skipped_step"]
    finite = np.isfinite(run.steps["loss"]) & np.isfinite(run.steps["grad_norm"])
    ok(
        len(events) >= 3 and not finite[-1] and len(line(found, "skipped_step 0")[0]) == len(events),
        "skipped steps are marked",
    )
    words = page.page("skipped", [run], [], 0)
    ok(
        f"<dt>skipped steps</dt><dd>{len(events)} " in words and words.count("<td>skipped step</td>") == len(events),
        "counted and listed on the page",
    )


def check_running():
    """The run that analysis_report.sh left in the background: read while it writes, then killed."""
    path, end = "killed/metrics.h5", time.time() + 120
    while time.time() < end and not (os.path.exists(path) and metrics.open_run("killed").steps.n > 5):
        time.sleep(0.2)
    bad, reads, last, end = [], 0, 0, time.time() + 4
    while time.time() < end:
        run = metrics.open_run("killed")
        n = run.steps.n
        load = run.expert_load(10)[0]
        per_step = run.steps["tokens"] - np.append(0, run.steps["tokens"][:-1])
        right = (
            n >= last
            and np.array_equal(run.steps.step, np.arange(1, n + 1))
            and np.isfinite(run.steps["loss"]).all()
            and (per_step > 0).all()
        )
        right = (
            right and load.sum() == run.experts["tokens"].sum() and (run.experts["tokens"].sum(axis=(1, 2)) > 0).all()
        )
        bad += [] if right else [f"{n} rows"]
        reads, last = reads + 1, n
    done = report("killed")
    alive = metrics.open_run("killed").steps.n
    words = Page("killed/report/report.html").words
    note(f"{reads} reads of up to {last} rows")
    bad and note("\n".join(bad[:5]))
    ok(
        not bad and reads > 2 and done.returncode == 0 and "of 100000" in words and alive > last,
        "a run under way: every read whole and right, a report",
    )
    for name in os.listdir("killed"):
        if name.startswith("lock."):
            with contextlib.suppress(ProcessLookupError):
                os.kill(json.load(open(f"killed/{name}"))["pid"], signal.SIGKILL)
    time.sleep(1)
    check_series("killed")


def check_none():
    done = report("none.h5", "-o", "none")
    none = Page("none/report.html")
    ok(
        done.returncode == 0 and none.pictures == 0 and "No step has been logged yet" in none.words,
        "a run without a step: a page that says so",
    )


def check_refusals():
    with h5py.File("newer.h5", "w") as f:
        f.attrs["format"], f.attrs["format_version"] = "regulon metrics", np.int64(2)
    shutil.copy("two/metrics.h5", "lacks.h5")
    with h5py.File("lacks.h5", "r+") as f:
        del f["steps/loss"]
    with open("cut.h5", "wb") as f:
        f.write(open("two/metrics.h5", "rb").read()[:20000])
    with open("words.h5", "w") as f:
        f.write("step loss\n")
    os.mkdir("bare")
    checkpoint = next(f"two/{n}" for n in os.listdir("two") if re.fullmatch("step_[0-9]+", n))
    cases = [
        ("absent", "absent: No such file or directory"),
        ("bare", "bare: no metrics.h5 in it"),
        (checkpoint, "a checkpoint, not a run"),
        (f"{checkpoint}/index.h5", "a 'regulon checkpoint' file where 'regulon metrics' is wanted"),
        (f"{SOURCE}/tests/fixtures/corpus_v1.h5", "a 'regulon corpus' file"),
        ("words.h5", "words.h5: not an HDF5 file"),
        ("cut.h5", "cut.h5: an HDF5 file, but damaged or cut short"),
        ("lacks.h5", "lacks.h5: no dataset /steps/loss"),
        ("newer.h5", "format_version 2 of 'regulon metrics' is newer than this program reads (1)"),
    ]
    for path, message in cases:
        run = report(path, "-o", "wrong")
        good = (
            run.returncode == 65
            and run.stderr.startswith("regulon-report: ")
            and message in run.stderr
            and run.stderr.count("\n") == 1
        )
        good or note(f"{run.returncode}: {run.stderr}")
        ok(good and not os.path.exists("wrong"), f"65, one line: {message}")
    run = report()
    ok(run.returncode == 64 and run.stderr.count("\n") == 1, "64: no run named")
    run = report("two", "-o", "words.h5/report")
    ok(run.returncode == 74 and run.stderr.count("\n") == 1 and "words.h5" in run.stderr, "74: no folder to write to")
    os.mkdir("hidden")
    for module, package in (("h5py", "python3-h5py"), ("matplotlib", "python3-matplotlib")):
        with open("hidden/" + module + ".py", "w") as f:
            f.write(f"raise ImportError(\"No module named '{module}'\")\n")
        run = report("two", env={**os.environ, "PYTHONPATH": os.path.abspath("hidden")})
        os.unlink("hidden/" + module + ".py")
        shutil.rmtree("hidden/__pycache__", ignore_errors=True)
        ok(
            run.returncode == 78 and f"apt-get install {package}" in run.stderr and run.stderr.count("\n") == 1,
            f"78: without {module}, one line names its package",
        )
    (run,) = opened(f"{SOURCE}/tests/fixtures/metrics_v1.h5")
    found = artists(draw_training.loss([run], figures.TimeAxis("step", [run])))
    ok(same(line(found, "loss 0 rows")[1], np.arange(1, 8) + 0.25), "a file of the first version is drawn")


def chromium(program, page):
    """What Chromium shows, asks the network for (its own services aside) and complains of."""
    words = [
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--user-data-dir=" + os.path.abspath("profile"),
        "--log-net-log=net.json",
        "--enable-logging=stderr",
        "--hide-scrollbars",
        "--window-size=1000,1600",
        "--screenshot=shot.png",
        "file://" + os.path.abspath(page),
    ]
    run = subprocess.run(words, capture_output=True, text=True, timeout=150)
    urls = set(re.findall(r'"url":"(https?:[^"]*)"', open("net.json").read()))
    own = re.compile(r"https?://([a-z0-9.]*\.)?(google|googleapis|gvt1|gstatic)\.com/")
    return [u for u in urls if not own.match(u)], [line for line in run.stderr.split("\n") if ":CONSOLE" in line]


def check_chromium():
    what = "headless Chromium shows the page, makes no request and has nothing to complain of"
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not program:
        return skip(what, "no chromium")
    with open("wrong.html", "w") as f:
        f.write("<img src='http://127.0.0.1:9/x.png'><script>absent()</script>")
    try:
        asked, complained = chromium(program, "wrong.html")
        seen = len(asked) == 1 and len(complained) == 1  # the check can fail
        asked, complained = chromium(program, "two/report/report.html")
    except (subprocess.TimeoutExpired, OSError) as error:
        return skip(what, f"chromium does not run here: {type(error).__name__}")
    import matplotlib.image

    shot = matplotlib.image.imread("shot.png")
    coloured = np.mean(np.ptp(shot[..., :3], axis=2) > 0.2)  # of the pixels: lines of figures; words are grey
    (asked or complained or not seen) and note((seen, asked, complained))
    ok(seen and not asked and not complained and coloured > 0.001, what)


def check_large(steps, layers, experts, whole):
    """Made-up rows, many of them: nothing is lost when they are drawn together; a whole report within 30 s and 2 GB."""
    subprocess.run(
        [
            sys.executable,
            f"{SOURCE}/tests/synthetic_metrics.py",
            "two/metrics.h5",
            "large.h5",
            *map(str, (steps, layers, experts)),
        ],
        check=True,
    )
    if whole:
        start = time.time()
        run = subprocess.run(
            ["/usr/bin/env", "time", "-f", "%M", *REPORT, "large.h5", "-o", "large"], capture_output=True, text=True
        )
        wall, memory = time.time() - start, int(run.stderr.split()[-1]) / 1024
        note(f"{steps} steps x {layers} layers x {experts} experts: {wall:.1f} s, {memory:.0f} MB")
        ok(run.returncode == 0 and wall < 30 and memory < 2048, f"a report of {steps} steps below 30 s and 2 GB")
    (run,) = opened("large.h5")
    axis = figures.TimeAxis("step", [run])
    for draw, name, values in (
        (draw_training.optimizer, "learning_rate", run.steps["learning_rate"]),
        (draw_speed.memory, "memory", run.steps["memory_bytes"] / 2**30),
    ):
        y = line(artists(draw([run], axis)), f"{name} 0 middle")[1]
        ok(0.9 * values.max() < y.max() <= values.max(), f"a line shows {name} of many rows")
    found = artists(draw_training.loss([run], axis))
    low_high = found["loss 0 extent"].get_paths()[0].vertices[:, 1]
    with h5py.File("large.h5", "r") as f:
        loss, sums = f["steps/loss"][:], sum(
            f["experts/tokens"][i : i + 1000].sum(dtype=np.int64) for i in range(0, steps, 1000)
        )
    ok(
        np.nanmax(low_high) == np.nanmax(loss)
        and np.nanmin(low_high) == np.nanmin(loss)
        and run.expert_load(50)[0].sum() == sums,
        "neither a peak nor a token is lost when rows are drawn together",
    )


want = {"two": "0", "one": "0", "dense": "0", "skipped": "76"}
codes = {name: open(f"{name}.code").read().strip() for name in want}
codes == want or note(open("out").read())
ok(codes == want, "the runs themselves")
check_running()
check_series("two")
check_series("one")
check_experts("two")
check_experts("skipped")
check_bins()
check_page()
check_overlay()
check_diverged()
check_looks()
check_dense()
check_stale()
check_skipped()
check_none()
check_refusals()
check_chromium()
check_large(20000, 4, 8, whole=False)
if "big" in sys.argv[2:]:
    check_large(200000, 32, 64, whole=True)
print(f"1..{count}")
