"""The figure of `regulon scaling`: throughput beside what perfect scaling would give, and the efficiency with the share
of a step that is communication."""

import itertools

import figures  # the look; says what to install where matplotlib is absent
import numpy as np
from figures import BLUE, GREEN, GREY, INK, ORANGE, PINK, WIDTH
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

SERIES = [(BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (PINK, "D"), (INK, "v")]


def draw(found, path):
    unit = "GPUs" if all(r["unit"] == "GPU" for r in found) else "cores"
    found = [r for r in found if np.isfinite(r["tokens_per_s"])]
    figure = Figure(figsize=(WIDTH, 3.1), constrained_layout={"w_pad": 0.08})
    rate, share = figure.subplots(1, 2)
    units = sorted({r["units"] for r in found})
    base = min(found, key=lambda r: abs(r["efficiency"] - 1), default=None)
    if base:
        ideal = np.array([units[0], units[-1]]) * base["tokens_per_s_unit"]
        rate.plot([units[0], units[-1]], ideal, color=GREY, ls="--", lw=1)
        rate.annotate(
            "perfect", (units[-1], ideal[1]), xytext=(-4, 2), textcoords="offset points", ha="right", color=GREY
        )
    for (ep, runs), (colour, marker) in zip(by_ep(found), itertools.cycle(SERIES)):
        x = [r["units"] for r in runs]
        line = {"color": colour, "marker": marker, "ms": 5, "lw": 1.4}
        rate.plot(x, [r["tokens_per_s"] for r in runs], label=f"ep {ep}", **line)
        share.plot(x, [100 * r["efficiency"] for r in runs], label=f"efficiency, ep {ep}", **line)
        share.plot(
            x,
            [100 * r["exposed_communication"] for r in runs],
            ls=":",
            mfc="white",
            label=f"communication, ep {ep}",
            **line,
        )
    rate.set(xscale="log", yscale="log", xlabel=unit, ylabel="tokens per second", title="Throughput")
    share.set(
        xscale="log", ylim=(0, None), xlabel=unit, ylabel="percent", title="Efficiency, and time in communication"
    )
    share.axhline(100, color=GREY, ls="--", lw=1)
    for axes in (rate, share):
        axes.xaxis.set_major_locator(FixedLocator(units))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    rate.yaxis.set_major_formatter(FuncFormatter(figures.count_text))
    rate.yaxis.set_minor_formatter(FuncFormatter(figures.count_text))
    rate.legend(title="expert-parallel ranks", loc="upper left", alignment="left")
    share.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7.5)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def by_ep(found):
    """(ep, runs) from the fewest units up."""
    for ep in sorted({r["ep"] for r in found}):
        yield ep, sorted((r for r in found if r["ep"] == ep), key=lambda r: r["units"])
