"""The figure of `regulon scaling`: throughput beside what perfect scaling would give, and the efficiency with the share
of a step that is communication."""

import itertools

import command
import figures  # the look; says what to install where matplotlib is absent
import numpy as np
from figures import BLUE, GREEN, GREY, INK, ORANGE, PINK, WIDTH
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

SERIES = [(BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (PINK, "D"), (INK, "v")]


def draw(found, path):
    kind = path.rpartition(".")[2]
    with command.whole_file(path, "wb") as out:
        made(found).savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)


def made(found):
    """The figure: a marker a run. A line joins runs that differ in their units alone."""
    unit = "GPUs" if all(r["unit"] == "GPU" for r in found) else "cores"
    found = [r for r in found if np.isfinite(r["tokens_per_s"])]
    figure = Figure(figsize=(WIDTH, 3.1), constrained_layout={"w_pad": 0.08})
    rate, share = figure.subplots(1, 2)
    units = sorted({r["units"] for r in found})
    base = min(found, key=lambda r: abs(r["efficiency"] - 1), default=None)
    if base and len(units) > 1:
        ideal = np.array([units[0], units[-1]]) * base["tokens_per_s_unit"]
        rate.plot([units[0], units[-1]], ideal, color=GREY, ls="--", lw=1)
        rate.annotate(
            "perfect", (units[-1], ideal[1]), xytext=(-4, 2), textcoords="offset points", ha="right", color=GREY
        )
    handles = [
        Line2D([], [], color=GREY, marker="o", ms=5, lw=1.4, label="efficiency"),
        Line2D([], [], color=GREY, marker="o", ms=5, lw=1.4, ls=":", mfc="white", label="time in communication"),
    ]
    for (name, runs), (colour, marker) in zip(series(found), itertools.cycle(SERIES)):
        for axes, key, scale, style, face in (
            (rate, "tokens_per_s", 1, "-", colour),
            (share, "efficiency", 100, "-", colour),
            (share, "exposed_communication", 100, ":", "white"),
        ):
            axes.plot(
                [r["units"] for r in runs],
                [scale * r[key] for r in runs],
                ls="",
                color=colour,
                marker=marker,
                mfc=face,
                ms=5,
                gid=f"{key} {name}",
            )
            joined = joint(runs)
            x, y = [r["units"] for r in joined], [scale * r[key] for r in joined]
            axes.plot(x, y, color=colour, ls=style, lw=1.4, zorder=1.5, gid=f"{key} {name} line")
        handles.append(Line2D([], [], color=colour, marker=marker, ms=5, lw=1.4, label=name))
    rate.set(xscale="log", yscale="log", xlabel=unit, ylabel="tokens per second [1/s]", title="Throughput")
    share.set(xscale="log", ylim=(0, None), xlabel=unit, ylabel="share [%]", title="Efficiency, communication")
    share.axhline(100, color=GREY, ls="--", lw=1)
    for axes in (rate, share):
        axes.xaxis.set_major_locator(FixedLocator(units))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    figures.plain_log(rate)
    share.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7.5)
    return figure


def series(found):
    """(name, runs) of the same ep, model, window and backend, from the fewest units up."""
    for ep in sorted({r["ep"] for r in found}):
        kinds = {}
        for r in sorted((r for r in found if r["ep"] == ep), key=lambda r: r["units"]):
            kinds.setdefault(tuple(sorted(r["alike"].items())), []).append(r)
        for runs in kinds.values():
            yield f"ep {ep}" + (f" ({', '.join(r['run'] for r in runs)})" if len(kinds) > 1 else ""), runs


def joint(runs):
    """Those that a line may join: the fastest of each number of units, where the batch is the same for all (strong
    scaling), or for each unit (weak scaling); else none."""
    best = {r["units"]: r for r in sorted(runs, key=lambda r: r["tokens_per_s"])}
    best = [best[units] for units in sorted(best)]
    batches = [[r["tokens_per_step"] for r in best], [r["tokens_per_step"] / r["units"] for r in best]]
    return best if any(max(batch) < 1.05 * min(batch) for batch in batches) else []
