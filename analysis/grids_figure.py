"""The figure of `regulon grids`: tokens per second of a rank, a bar a case, grids beside each other."""

import command
import figures  # the look; says what to install where matplotlib is absent
import numpy as np
from figures import BLUE, GREEN, GREY, ORANGE, PINK, WIDTH
from matplotlib.figure import Figure

COLOURS = {"bf16": BLUE, "fp8_block": ORANGE, "mxfp8": GREEN, "fp32": PINK}
PUBLISHED = {  # Mixtral-8x7B by the BioNeMo recipe, tokens/s/GPU; how the name stands beside the line
    "Hugging Face,\nBF16, B200: 4,096": (4096, "top"),
    "Transformer Engine,\nBF16, B200: 4,447": (4447, "bottom"),
    "Transformer Engine,\nMXFP8, B200: 9,050": (9050, "center"),
}
WHY = {"no room": "does not fit", "finished": ""}


def draw(found, path):
    kind = path.rpartition(".")[2]
    with command.whole_file(path, "wb") as out:
        made(found).savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)


def made(found):
    """Rows of regulon-grids. The published figures are drawn where they are of the same model."""
    grids = list(dict.fromkeys(r["grid"] for r in sorted(found, key=lambda r: int(r["grid"].split("x")[0]))))
    kinds = list(dict.fromkeys((r["recipe"], r["tokens"]) for r in found))
    figure = Figure(figsize=(WIDTH, 3.6), constrained_layout=figures.PADS)
    axes = figure.add_subplot()
    whole, width = any(r["whole"] for r in found), 0.84 / len(kinds)
    for row in found:
        kind = kinds.index((row["recipe"], row["tokens"]))
        x, rate = grids.index(row["grid"]) + (kind - (len(kinds) - 1) / 2) * width, row["tokens_per_s_rank"]
        name = " ".join(map(str, (row["grid"], *kinds[kind])))
        if np.isfinite(rate):
            small = row["tokens"] == min(tokens for recipe, tokens in kinds if recipe == row["recipe"])
            axes.bar(x, rate, 0.94 * width, color=COLOURS[row["recipe"]], hatch="" if small else "///", edgecolor="white",
                     lw=0.3, gid=name)
            axes.annotate(f"{rate:,.0f}", (x, rate), xytext=(0, 1), textcoords="offset points", ha="center", fontsize=7)
        else:
            axes.annotate(WHY.get(row["ended"], row["ended"]), (x, 0), xytext=(0, 3), textcoords="offset points", ha="center",
                          va="bottom", rotation=90, fontsize=7, color=GREY)
    top = max([r["tokens_per_s_rank"] for r in found if np.isfinite(r["tokens_per_s_rank"])], default=1)
    axes.set_ylim(0, 1.12 * max([top] + [rate for rate, _ in PUBLISHED.values() if whole]))
    axes.set_xlim(-0.5, len(grids) - 0.5)
    for text, (rate, side) in PUBLISHED.items() if whole else ():
        axes.axhline(rate, color=GREY, lw=0.9, ls=(0, (5, 2)), zorder=3)
        axes.annotate(text, (1, rate), xycoords=("axes fraction", "data"), xytext=(4, 0), textcoords="offset points",
                      va=side, fontsize=7.5, color=GREY)
    axes.set_xticks(range(len(grids)))
    axes.set_xticklabels(grids)
    axes.set(xlabel="grid, dp x ep", ylabel="tokens per second of a rank [1/s]")
    axes.yaxis.set_major_formatter(figures.FuncFormatter(lambda y, _: f"{y:,.0f}"))
    figures.set_title(axes, title(found, whole))
    patch = figures.matplotlib.patches.Patch
    handles = [
        patch(facecolor=COLOURS[recipe], edgecolor="white", label=f"{recipe}, {tokens} tokens a micro-batch",
              hatch="" if tokens == min(t for r, t in kinds if r == recipe) else "///")
        for recipe, tokens in kinds
    ]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncol=2, fontsize=7.5)
    return figure


def title(found, whole):
    model = "Mixtral-8x7B" if whole else f"A model of {found[0]['layers']} layers"
    known = [r for r in found if np.isfinite(r["tokens_per_s_rank"])]
    if not known:
        return f"{model}: nothing was measured"
    best = max(known, key=lambda r: r["tokens_per_s_rank"])
    return f"{model}: {best['tokens_per_s_rank']:,.0f} tokens/s of a rank on {best['grid']} in {best['recipe']}"
