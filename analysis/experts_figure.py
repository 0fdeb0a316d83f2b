"""The figure of `regulon experts`: what the expert tells of each feature, by layer, and where each codon position goes in
the layer that tells most of it."""

import itertools

import command
import figures  # the look; says what to install where matplotlib is absent
import numpy as np
from figures import GREY, WIDTH
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

FEW = 1e-3  # per cent: what is below is drawn there


def draw(rows, path):
    kind = path.rpartition(".")[2]
    with command.whole_file(path, "wb") as out:
        made(rows).savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)


def made(rows):
    codon = [row for row in rows if row["feature"] == "codon"]
    figure = Figure(figsize=(WIDTH, 3.4), constrained_layout={"w_pad": 0.06})
    grid = figure.add_gridspec(2, 3, width_ratios=[1.2, 1.2, 1], height_ratios=[1, 0.16])
    axes = [figure.add_subplot(grid[0, 0])]
    axes += [figure.add_subplot(grid[0, 1], sharey=axes[0]), figure.add_subplot(grid[0, 2])]
    lines = draw_features(axes[0], rows, "")
    draw_features(axes[1], rows, "beyond_")
    axes[0].set(yscale="log", ylabel="of the feature's entropy [%]", title="Expert tells")
    axes[1].set(title="beyond the letter")
    figures.plain_log(axes[0])
    axes[1].tick_params(labelleft=False)
    names = figure.add_subplot(grid[1, :])
    names.set_axis_off()
    names.legend(handles=lines, loc="center", ncol=5, fontsize=7.5)
    if codon:
        draw_codons(figure, axes[2], max(codon, key=lambda row: row["beyond_explained"]))
    else:
        axes[2].set_axis_off()
    return figure


def draw_features(ax, rows, measure):
    """A line a feature; a filled marker where p is as small as the number of shifts lets it be. Returns the lines."""
    styles, lines = itertools.cycle(figures.RUN_STYLES), []
    least = min(row["p"] for row in rows)
    for name, group in itertools.groupby(rows, key=lambda row: row["feature"]):
        group, (colour, line, marker) = list(group), next(styles)
        layer = [row["layer"] for row in group]
        share = [np.nan if np.isnan(row[f"{measure}explained"]) else max(FEW, 100 * row[f"{measure}explained"]) for row in group]
        lines += ax.plot(layer, share, color=colour, ls=line, lw=1.2, marker=marker, mfc="white", ms=5, label=name)
        lines[-1].set_gid(f"{measure}{name}")
        sure = [i for i, row in enumerate(group) if row[f"{measure}p"] <= least]
        ax.plot([layer[i] for i in sure], [share[i] for i in sure], ls="", marker=marker, color=colour, ms=5)
    ax.set(xlabel="layer")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.text(1, 1, f"filled: p = {least:.2g}", transform=ax.transAxes, ha="right", va="top", size=7, color=GREY)
    return lines


def draw_codons(figure, ax, row):
    """Share of each codon position that goes to an expert, over the expert's share of all."""
    counts = row["counts"].astype(float)
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0, keepdims=True) / counts.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log2(counts / expected)
    most = max(0.1, float(np.nanmax(np.abs(ratio[np.isfinite(ratio)]), initial=0)))
    image = ax.imshow(np.clip(ratio, -most, most), cmap="cividis", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
    image.set_gid("codons")
    ax.set(xticks=[0, 1, 2], xticklabels=["1", "2", "3"], xlabel="position in the codon", ylabel="expert")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(False)
    ax.set_title(f"Layer {row['layer']}")
    bar = figure.colorbar(image, ax=ax, shrink=0.9, aspect=22, pad=0.02)
    bar.set_label("log2 of bases over the even share [1]")
    bar.outline.set_visible(False)
