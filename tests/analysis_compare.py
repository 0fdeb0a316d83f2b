"""compare and scaling: what they say against what plain h5py and a few lines of numpy find."""

import csv
import io
import os
import re
import shutil

import h5py
import numpy as np
from analysis_runs import command, module, ok, skip, train, write

CURVES = [
    "steps/" + n for n in "tokens loss aux_loss z_loss grad_norm learning_rate useful_tokens padded_tokens".split()
]
CURVES += ["eight_bits/" + n for n in "nonzero underflow at_largest nonfinite amax scale_min scale_max error".split()]
CURVES += ["experts/tokens", "experts/entropy", "validation/tokens", "validation/loss", "validation/bits_per_base"]


def first_difference(a, b):
    """(step, dataset) by plain h5py; None where all bits are the same."""
    found = []
    with h5py.File(a) as x, h5py.File(b) as y:
        for name in CURVES:
            one, other = x[name][:], y[name][:]
            bad = [i for i in range(len(one)) if one[i].tobytes() != other[i].tobytes()]
            found += [(int(x[name.split("/")[0] + "/step"][bad[0]]), "/" + name)] if bad else []
    return min(found, key=lambda f: f[0], default=None)


def said(out):
    match = re.search(r"^different from step (\d+) on, (\S+) first$", out.stdout, re.M)
    return (int(match[1]), match[2]) if match else None


def changed(run, name, row, value):
    """A copy of a run's file with one value changed."""
    shutil.copy(f"{run}/metrics.h5", "changed.h5")
    with h5py.File("changed.h5", "r+") as f:
        f[name][row] = value(f[name][row])
    return "changed.h5"


def test_compare():
    out = command("compare", "dp", "ep")
    want = first_difference("dp/metrics.h5", "ep/metrics.h5")
    ok(
        out.returncode == 1 and want and said(out) == want,
        "two grids differ to the bit, where h5py finds it",
        f"{want}\n{out.stdout}{out.stderr}",
    )
    keys = re.findall(r"^  (\w+\.\w+) ", out.stdout, re.M)
    ok(
        keys == ["checkpoint.ckpt_dir", "parallelism.dp_size", "parallelism.ep_size"]
        and "dp 2 x ep 1          dp 1 x ep 2" in out.stdout,
        "and their decks in three keys, which are named",
        out.stdout,
    )
    out = command("compare", "dp", "ep", "--rtol", "1e-4")
    ok(
        out.returncode == 0 and "the same: 20 rows of steps, to 0.0001" in out.stdout,
        "within a tolerance they are the same",
        out.stdout,
    )
    out = command("compare", "ep", "resumed")
    ok(
        out.returncode == 0 and "the same: 20 rows of steps, every bit" in out.stdout,
        "a resumed run is the undisturbed one, to the bit",
        out.stdout,
    )
    out = command("compare", "eight", "eight")
    ok(
        out.returncode == 0 and len(re.findall(r"^  /eight_bits/\w+ +the same in 4 rows$", out.stdout, re.M)) == 8,
        "eight bits: figures of layers that have none are the same, too",
        out.stdout,
    )
    path = changed("eight", "eight_bits/scale_min", (1, 0, 7), lambda x: 2 * x)
    out, want = command("compare", "eight", path), first_difference("eight/metrics.h5", path)
    ok(
        out.returncode == 1 and said(out) == want == (3, "/eight_bits/scale_min") and "at step 3: [0][7] " in out.stdout,
        "one figure of eight bits changed: named, with its step, layer and operand",
        f"{want}\n{out.stdout}{out.stderr}",
    )
    with h5py.File(path, "r+") as f:
        del f["eight_bits"]
    out, alike = command("compare", "eight", path), command("compare", "eight", path, "--common")
    ok(
        out.returncode == 1
        and re.search(r"^  /eight_bits/step +4 only in A \(from step 1\)$", out.stdout, re.M)
        and alike.returncode == 0
        and command("convert-metrics", path, "--csv").stdout == command("convert-metrics", "eight", "--csv", "--no-eight-bits").stdout,
        "a file of before that group",
        out.stdout + alike.stdout,
    )
    for name, row, value in (
        ("steps/loss", 16, lambda x: np.nextafter(x, 9)),
        ("experts/tokens", (4, 1, 2), lambda n: n + 1),
        ("experts/entropy", (7, 1), lambda x: np.float32(np.nan)),
        ("validation/loss", 1, lambda x: x + 1),
    ):
        path = changed("ep", name, row, value)
        out, want = command("compare", "ep", path), first_difference("ep/metrics.h5", path)
        ok(
            out.returncode == 1 and said(out) == want,
            f"one value of {name} changed: named, with its step",
            f"{want}\n{out.stdout}",
        )
    out = command("compare", "ep", changed("ep", "steps/step_s", 3, lambda x: 2 * x))
    ok(out.returncode == 0, "times may differ", out.stdout)
    for run in ("skipped", "empty", "begun"):
        out = command("compare", run, run)
        ok(out.returncode == 0, f"{run}: the same as itself", out.stdout)
    write("short.h5", 20, 20)
    write("long.h5", 25, 25)
    out = command("compare", "short.h5", "long.h5")
    ok(
        out.returncode == 1 and re.search(r"^  /steps/step +5 only in B \(from step 21\)$", out.stdout, re.M),
        "a run that went on",
        out.stdout,
    )
    out = command("compare", "short.h5", "long.h5", "--common")
    ok(
        out.returncode == 0 and "the same: 20 rows" in out.stdout,
        "with --common only what both have counts",
        out.stdout,
    )
    out = command("compare", "short.h5", "empty", "--common")
    ok(out.returncode == 1 and "no step is in both" in out.stdout, "nothing in common is not the same", out.stdout)
    out = command("compare", "dp", "dp", "--rtol", "-1")
    ok(out.returncode == 64, "a tolerance that is none: 64", out.stderr)


def expected(path, after, ranks):
    with h5py.File(path) as f:
        rows = f["steps/step"][:] > after
        s, t = f["steps"], f["timing"]
        rate = np.median(s["tokens_per_s"][rows])
        bases = np.median(s["useful_tokens"][rows] / s["step_s"][rows])
        moved = np.median((t["exchange"][rows, 1] + t["reduce"][rows, 1]) / t["total"][rows, 1])
        return {
            "ranks": ranks,
            "rows": rows.sum(),
            "tokens_per_s": rate,
            "exposed_communication": moved,
            "hours_per_billion_bases": ranks * 1e9 / bases / 3600,
            "cost_per_billion_bases": 0.5 * ranks * 1e9 / bases / 3600,
        }


def test_scaling():
    out = command("scaling", "one", "dp", "ep", "resumed", "--csv", "--price", "0.5", "--warmup", "5")
    found = {row["run"]: row for row in csv.DictReader(io.StringIO(out.stdout))}
    want = {
        "one": expected("one/metrics.h5", 5, 1),
        "dp": expected("dp/metrics.h5", 5, 2),
        "ep": expected("ep/metrics.h5", 5, 2),
        "resumed": expected("resumed/metrics.h5", 15, 2),
    }  # its last start was at step 10
    bad = [
        f"{run} {key}: {found[run][key]} not {value}"
        for run in want
        for key, value in want[run].items()
        if not np.isclose(float(found[run][key]), value, rtol=1e-12)
    ]
    ok(
        out.returncode == 0 and set(found) == set(want) and not bad,
        "scaling: rows after the last start's first five steps",
        f"{bad}{out.stdout}{out.stderr}",
    )
    base = want["one"]["tokens_per_s"]
    bad = [
        run
        for run in want
        if not np.isclose(float(found[run]["efficiency"]), want[run]["tokens_per_s"] / want[run]["ranks"] / base)
    ]
    ok(
        not bad and found["ep"]["ep"] == "2" and found["dp"]["dp"] == "2",
        "efficiency against the run on one core",
        out.stdout,
    )
    out = command("scaling", "ep", "one", "--warmup", "0")
    ok(
        out.returncode == 0
        and [line.split()[0] for line in out.stdout.splitlines()] == ["run", "one", "ep"]
        and "100.0 %" in out.stdout.splitlines()[1]
        and [line.split()[4] for line in out.stdout.splitlines()] == ["cores", "1", "2"],
        "the table, fewest ranks first",
        out.stdout,
    )
    for words in (["--csv"], ["--figure", "none.png"]):
        out = command("scaling", "empty", "begun", *words)
        ok(
            out.returncode == 65
            and out.stderr == "regulon-scaling: empty/metrics.h5, begun/metrics.h5: no rows behind the first 10 steps "
            "of the last start; see --warmup\n"
            and not out.stdout
            and not os.path.exists("none.png"),
            f"no rows at all {words[0]}: one line and 65",
            out.stderr,
        )
    out = command("scaling", "one", "empty", "--csv")
    ok(
        out.returncode == 0 and "empty: no rows behind the first 10 steps" in out.stderr,
        "a run without rows is said, and has no figures",
        out.stderr,
    )
    train(1, "wide", "num_train_steps=12", "parallelism.ep_size=1", "model.intermediate_size=32")
    out = command("scaling", "one", "wide")
    ok(
        "the runs differ in model.intermediate_size: their efficiencies do not compare" in out.stderr,
        "another model is said",
        out.stderr,
    )
    try:
        import matplotlib  # noqa: F401
    except ImportError as absent:
        return skip("scaling --figure", absent)
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        out = command("scaling", "one", "dp", "ep", "--figure", f"figure.{kind}")
        ok(
            out.returncode == 0 and open(f"figure.{kind}", "rb").read(len(start)) == start,
            f"--figure figure.{kind}",
            out.stderr,
        )
    out = command("scaling", "one", "--figure", "figure.doc")
    ok(out.returncode == 64, "another kind of figure: 64", out.stderr)
    test_joined(module("scaling_figure.py"))


def test_joined(scaling_figure):
    """A line joins runs that differ in their units alone."""

    def run(name, units, rate, tokens=512, width="64", ep=1):
        known = {"run": name, "units": units, "ep": ep, "tokens_per_s": rate, "tokens_per_step": tokens, "unit": "core"}
        return known | {
            "alike": {"model.intermediate_size": width},
            "tokens_per_s_unit": rate / units,
            "efficiency": rate / units / 100,
            "exposed_communication": 0.25,
        }

    a = [run("a1", 1, 100), run("a2", 2, 190), run("a2slow", 2, 150), run("a4", 4, 350)]
    other = [run("b1", 1, 60, width="128"), run("b2", 2, 120, width="128", tokens=1024)]
    mixed = [run("c2", 2, 80, ep=2), run("c4", 4, 90, tokens=300, ep=2)]
    found = {x.get_gid(): x for x in scaling_figure.made(a + other + mixed).findobj() if x.get_gid()}
    name = "ep 1 (a1, a2, a2slow, a4)"
    drawn = {gid: list(zip(x.get_xdata(), x.get_ydata())) for gid, x in found.items() if "tokens_per_s" in gid}
    want = {
        f"tokens_per_s {name}": [(1, 100), (2, 190), (2, 150), (4, 350)],
        f"tokens_per_s {name} line": [(1, 100), (2, 190), (4, 350)],
        "tokens_per_s ep 1 (b1, b2)": [(1, 60), (2, 120)],
        "tokens_per_s ep 1 (b1, b2) line": [(1, 60), (2, 120)],  # weak scaling
        "tokens_per_s ep 2": [(2, 80), (4, 90)],
        "tokens_per_s ep 2 line": [],
    }
    alone = [x.get_text() for x in scaling_figure.made(a[:1]).findobj(lambda x: hasattr(x, "get_text"))]
    ok("throughput" in map(str.lower, alone) and "perfect" not in alone, "no perfect scaling of one number of cores")
    ok(drawn == want, "a marker a run, and lines between those that scale one job", drawn)
    ok(
        drawn == want
        and list(found[f"efficiency {name}"].get_ydata()) == [100, 95, 75, 87.5]
        and list(found["exposed_communication ep 2"].get_ydata()) == [25, 25],
        "efficiency and communication in percent",
    )


def run_all():
    test_compare()
    test_scaling()
