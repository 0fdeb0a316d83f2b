#!/usr/bin/env python3
"""The held-out loss of runs against the tokens they read, beside the best Markov chain, as SVG or PNG.

    analysis/curve.py RUN... -o curve.svg      RUN: a run folder or a metrics.h5
"""
import argparse
import itertools
import os
import sys

try:
    import h5py
    import numpy as np
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError as missing:
    sys.exit(f"curve.py: {missing}; on Debian: apt-get install python3-h5py python3-matplotlib")

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"]  # told apart by colour-blind readers too


def read(path):
    """Name, training rows (tokens, bits), held-out rows (tokens, bits), best Markov chain (order, bits)."""
    file = os.path.join(path, "metrics.h5") if os.path.isdir(path) else path
    with h5py.File(file, "r") as f:
        done = f["steps/step"][:] >= 0
        train = f["steps/tokens"][done], f["steps/loss"][done] / np.log(2)
        done = f["validation/step"][:] >= 0
        held_out = f["validation/tokens"][done], f["validation/bits_per_base"][done]
        markov = f["validation/markov_bits_per_base"][:]
    order = int(np.nanargmin(markov)) if np.isfinite(markov).any() else None
    name = os.path.basename(os.path.normpath(path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))))
    return name, train, held_out, (order, markov[order] if order is not None else None)


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("runs", nargs="+", metavar="RUN")
    words.add_argument("-o", dest="out", required=True, help="file to write: .svg, .png or .pdf")
    words = words.parse_args()
    plt.rcParams.update({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "regulon"})
    figure, axes = plt.subplots(figsize=(6.4, 3.4), constrained_layout=True)
    markov, lowest = None, 2
    runs = [read(run) for run in words.runs]
    longest = max(train[0][-1] for _, train, _, _ in runs if len(train[0])) / 1e6
    for colour, (name, train, held_out, markov_here) in zip(itertools.cycle(COLOURS), runs):
        if markov is None and markov_here[0] is not None:
            markov = markov_here
        lowest = min(lowest, np.min(held_out[1], initial=2), np.nanmin(train[1], initial=2))
        axes.plot(train[0] / 1e6, train[1], color=colour, lw=0.7, alpha=0.35)
        axes.plot(held_out[0] / 1e6, held_out[1], "o-", color=colour, ms=3.5, lw=1.5)
        if len(held_out[0]):
            end = held_out[0][-1] / 1e6, held_out[1][-1]
            side = (6, "left") if end[0] < 0.4 * longest else (-4, "right")
            axes.annotate(f"{name}: {end[1]:.4f}", end, color=colour, xytext=(side[0], -12),
                          textcoords="offset points", ha=side[1])
    if markov:
        axes.axhline(markov[1], color="0.3", lw=1, ls="--")
        axes.annotate(f"best Markov chain (order {markov[0]}): {markov[1]:.4f}", (1, markov[1]),
                      xycoords=("axes fraction", "data"), xytext=(-4, 4), textcoords="offset points", ha="right", color="0.3")
    axes.set(xlabel="tokens read [million]", ylabel="loss [bits per base]", ylim=(lowest - 0.01, 2.01), xlim=(0, None))
    axes.set_title("held-out loss (points) and training loss (faint)", loc="left", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(words.out, metadata={"Date": None} if words.out.endswith(".svg") else None)


if __name__ == "__main__":
    main()
