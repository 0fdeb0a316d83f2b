"""WHAT PATH: what bench_8x7b.sh looks at, and does, with h5py. Exit code 1: it is not so."""

import csv
import glob
import json
import os
import sys

import h5py
import numpy as np

ANALYSIS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analysis")


def check_csv(folder):
    with open(os.path.join(folder, "grids.csv")) as file:
        rows = {(r["part"], r["grid"], r["recipe"], r["tokens"]): r for r in csv.DictReader(file)}
    assert len(rows) == 10, rows
    for path in glob.glob(os.path.join(folder, "*", "case.json")):
        with open(path) as file, open(os.path.join(os.path.dirname(path), "plan.json")) as plan:
            case, planned = json.load(file), json.load(plan)
        row = rows[tuple(str(case[key]) for key in ("part", "grid", "recipe", "tokens"))]
        with h5py.File(os.path.join(os.path.dirname(path), "run", "metrics.h5"), "r") as m:
            step = m["steps/step"][:]
            n = int((step >= 0).sum())
            first = int(m["events/step"][:][[b"resume" in k.tobytes() for k in m["events/kind"][:]]].max(initial=0))
            used = np.arange(n)[step[:n] > first + 1]
            load = m["experts/tokens"][n - 1].astype(float)
            want = {
                "steps": len(used),
                "tokens_per_s_rank": np.median(m["steps/tokens_per_s"][used]) / 2,
                "tflops_rank": np.median(m["steps/tflops"][used]),
                "memory_bytes": m["steps/memory_bytes"][:n].max(),
                "planned_bytes": planned["memory"][planned["shard"]]["total"],
                "loss": m["steps/loss"][n - 1],
                "balance": (load.max(axis=1) / load.mean(axis=1)).mean(),
            }
            assert row["revision"] == m["code"].attrs["revision"] and row["ended"] == case["ended"], row
            layers = m["config"].attrs["memory.recompute"], m["config"].attrs["memory.recompute_layers"]
            assert layers == ("activation" if case["grid"].endswith("x1") else "none", "all"), (path, layers)
        for key, value in want.items():
            assert np.isclose(float(row[key]), value, rtol=1e-12), (path, key, row[key], value)
        parts = [b"2x1" in case["grid"].encode(), first > 0]
        assert case["part"] == "speed" or parts[0] == parts[1], (path, first)


def check_figure(_):
    sys.path.insert(0, ANALYSIS)
    import grids_figure

    def row(grid, tokens, rate, whole, ended="finished"):
        return {"grid": grid, "recipe": "bf16", "tokens": tokens, "layers": 32, "tokens_per_s_rank": rate, "whole": whole,
                "ended": ended}

    def drawn(whole):
        rows = [row("1x8", 4096, 5000.0, whole), row("8x1", 4096, 3000.0, whole), row("1x8", 16384, np.nan, whole, "no room")]
        figure = grids_figure.made(rows)
        bars = {x.get_gid(): x.get_height() for x in figure.findobj(lambda x: x.get_gid() and hasattr(x, "get_height"))}
        texts = [x.get_text() for x in figure.findobj(lambda x: hasattr(x, "get_text"))]
        assert bars == {"1x8 bf16 4096": 5000, "8x1 bf16 4096": 3000}, bars
        assert "does not fit" in texts, texts
        lines = {y for line in figure.axes[0].lines for y in line.get_ydata()}
        return lines, any("B200" in text for text in texts), figure.axes[0].get_ylim()[1]

    assert drawn(True)[:2] == ({4096, 4447, 9050}, True) and drawn(True)[2] > 9050
    assert drawn(False)[:2] == (set(), False) and drawn(False)[2] < 6000


def spoil(path):
    """1 % more loss at the second step."""
    with h5py.File(path, "r+") as m:
        m["steps/loss"][1] *= 1.01


def make_whole(path):
    with h5py.File(path, "r+") as m:
        for key, value in (("hidden_size", 4096), ("intermediate_size", 14336), ("num_hidden_layers", 32)):
            m["config"].attrs[f"model.{key}"] = str(value)


what, path = sys.argv[1:]
{"csv": check_csv, "figure": check_figure, "spoil": spoil, "whole": make_whole}[what](path)
