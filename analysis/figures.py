"""How the report's figures look, and what they share: the time axis, the strip of events above it, noisy lines.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; what colour says, a marker, a line style
or a label says too. Sizes are those of a printed page.
"""

import collections

import command

command.need("numpy", "matplotlib")
import matplotlib  # noqa: E402
import numpy as np  # noqa: E402

matplotlib.use("Agg")
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.backends.backend_pdf import FigureCanvasPdf  # noqa: E402
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: E402

WIDTH = 7.2  # inches: the text of an A4 page
INK, GREY, FAINT = "#222222", "#666666", "#dddddd"
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
RUN_STYLES = [
    (BLUE, "-", "o"),
    (ORANGE, "--", "s"),
    (GREEN, "-.", "^"),
    (PINK, ":", "D"),
    (INK, (0, (6, 1)), "v"),
    (SKY, (0, (1, 1)), "P"),
]
EVENTS = {  # kind: name, marker, colour, whether a line crosses the panels
    "resume": ("resume", ">", GREEN, True),
    "preemption": ("preemption", "s", ORANGE, True),
    "stop": ("stop", "s", INK, True),
    "skipped_step": ("skipped step", "x", ORANGE, True),
    "overflow": ("overflow", "^", ORANGE, True),
    "spike": ("loss spike", "^", PINK, True),
    "checkpoint": ("checkpoint", "|", GREY, False),
}
PADS = {"h_pad": 0.03, "hspace": 0.04, "w_pad": 0.05}
MOST_LINES = 20  # of a kind across the panels
FEW = 60  # rows, below which there is no running median
MOST_POINTS = 2000  # beyond, a line of single rows becomes a band from the lowest to the highest of a stretch
matplotlib.rcParams.update(
    {
        "font.size": 8.5,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": 7,
        "axes.labelcolor": INK,
        "axes.edgecolor": GREY,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.major.size": 3,
        "ytick.major.size": 0,
        "lines.solid_capstyle": "round",
        "text.color": INK,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "pdf.fonttype": 42,
        "svg.hashsalt": "regulon",
        "figure.dpi": 160,
    }
)
if "text.parse_math" in matplotlib.rcParams:  # from 3.6 on
    matplotlib.rcParams["text.parse_math"] = False  # a name with two $ is no formula

Style = collections.namedtuple("Style", "colour line marker width size")  # of a run; width and size in points


def dress(runs):
    """Gives each run a label that tells it apart, and its style. Runs are drawn in their order, each narrower than the
    one before and with gaps in its line, so that what lies below a later one still shows."""
    names = [run.name for run in runs]
    for i, run in enumerate(runs):
        run.label = run.name if names.count(run.name) == 1 else f"{run.name} ({i + 1})"
        colour, line, marker = RUN_STYLES[i % len(RUN_STYLES)]
        later = min(len(runs) - 1 - i, 4)
        run.style = Style(colour, line, marker, (1.7 if len(runs) == 1 else 1.2) + 0.7 * later, 4.5 + 1.2 * later)


class Drawing:
    """A figure with what the page says about it."""

    def __init__(self, name, figure, title, caption):
        self.name, self.figure, self.title, self.caption = name, figure, title, caption


class TimeAxis:
    """Where a step lies on x: at its number, or at the tokens read until then."""

    def __init__(self, kind, runs):
        self.kind = kind
        tokens = max([int(run.steps["tokens"][-1]) for run in runs if run.steps.n], default=0)
        self.unit, word = (1e9, "billion") if tokens >= 2e9 else (1e6, "million") if tokens >= 2e6 else (1, "")
        self.label = "step" if kind == "step" else f"tokens read [{word}]" if word else "tokens read"
        ends = [self.of(run, run.steps.step[-1:])[0] for run in runs if run.steps.n]
        self.end = max(ends, default=1) or 1

    def of(self, run, steps):
        if self.kind == "step" or not run.steps.n:
            return np.asarray(steps, float)
        return np.interp(steps, np.append(0, run.steps.step), np.append(0, run.steps["tokens"])) / self.unit


def count_text(x, _=None):
    """1500 as 1500, 20000 as 20k, 1500000 as 1.5M."""
    if not abs(x) < 1e15:
        return f"{x:.3g}"
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= 10 * unit or (abs(x) >= unit and unit > 1e3):
            return f"{x / unit:.3g}{letter}"
    return f"{x:.4g}"


def panels(title, runs, time, heights, room=0.0):
    """A figure with panels above each other, heights in inches, over one time axis; events lie in a strip on top.
    `room` is left free on the right, as a share of the axis. Returns the figure and the panels' axes."""
    kinds = event_kinds(runs)
    strip = [strip_height(kinds, len(runs))] if kinds else []
    figure = Figure(figsize=(WIDTH, sum(strip) + sum(heights) + 0.75), constrained_layout=PADS)
    grid = figure.add_gridspec(len(strip) + len(heights), 1, height_ratios=strip + list(heights))
    axes = [figure.add_subplot(grid[len(strip)])]
    axes += [figure.add_subplot(grid[len(strip) + i], sharex=axes[0]) for i in range(1, len(heights))]
    axes[0].set_xlim(0, (1.01 + room) * time.end)
    ticks = MaxNLocator(8, integer=time.kind == "step").tick_values(0, time.end)
    axes[0].set_xticks([x for x in ticks if 0 <= x <= time.end])
    for ax in axes:
        ax.spines["bottom"].set_bounds(0, time.end)
        ax.xaxis.set_major_formatter(FuncFormatter(count_text))
        ax.tick_params(labelbottom=ax is axes[-1])
    axes[-1].set_xlabel(time.label)
    top = axes[0]
    if kinds:
        top = figure.add_subplot(grid[0], sharex=axes[0])
        draw_events(top, axes, kinds, runs, time)
    set_title(top, title)
    return figure, axes


def set_title(ax, title):
    ax.set_title(title, fontsize=min(9.5, 9.5 * 76 / max(1, len(title))))


def save(figure, path):
    """path.png, path.pdf and path.svg. The layout is found once (by matplotlib 3.6 and later), and each canvas draws
    once; figure.savefig would do both anew for each format."""
    with command.whole_file(path + ".png", "wb") as out:
        FigureCanvasAgg(figure).print_png(out)
    if hasattr(figure, "set_layout_engine"):
        figure.set_layout_engine("none")
    with command.whole_file(path + ".pdf", "wb") as out:
        FigureCanvasPdf(figure).print_pdf(out, metadata={"CreationDate": None})
    with command.whole_file(path + ".svg", "wb") as out:
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None})


def event_kinds(runs):
    return [k for k in EVENTS if any(e.kind == k and e.step >= 0 for run in runs for e in run.events)]


def strip_height(kinds, n_runs=1):
    return (0.17 if n_runs == 1 else 0.12 + 0.07 * n_runs) * len(kinds) + 0.05


def draw_events(strip, axes, kinds, runs, time):
    """A row of markers a kind in `strip`, in it a lane a run. What interrupts a lone run crosses the panels."""
    strip.set_ylim(len(kinds) - 0.5, -0.5)
    strip.set_yticks(range(len(kinds)))
    strip.set_yticklabels([EVENTS[k][0] for k in kinds])
    strip.tick_params(length=0, labelbottom=False, labelsize=7.5)
    strip.grid(False)
    for side in strip.spines.values():
        side.set_visible(False)
    crossed, alone = set(), len(runs) == 1
    for row, kind in enumerate(kinds):
        _, marker, colour, crosses = EVENTS[kind]
        for i, run in enumerate(runs):
            lane = row + (i - (len(runs) - 1) / 2) * 0.62 / len(runs)
            if not alone:
                ends = time.of(run, run.steps.step[-1:])
                strip.plot([0, *ends], [lane] * (1 + len(ends)), color=run.style.colour, lw=0.5, alpha=0.6, zorder=1)
            x = time.of(run, [e.step for e in run.events if e.kind == kind and e.step >= 0])
            if not len(x):
                continue
            strip.plot(
                x,
                np.full(len(x), lane),
                linestyle="",
                marker=marker,
                ms=4.5 if alone else 4,
                mew=1.1 if len(x) < 80 else 0.4,
                clip_on=False,
                color=colour if alone else run.style.colour,
                gid=f"{kind} {i}",
            )
            if crosses and alone and len(x) <= MOST_LINES:
                for at in sorted(set(x) - crossed):
                    for ax in axes:
                        ax.axvline(at, color=colour, lw=0.7, ls=(0, (2, 2)), zorder=2.5)
                crossed.update(x)


def median_window(n, share=0.05, fewest=7):
    """Rows, an odd number, that a running median over n rows is of."""
    return 2 * max(fewest // 2, int(n * share / 2)) + 1


def rolling_median(y, most=400):
    """(rows, medians) of at most `most` rows: each of the finite values of the median_window() rows around it, of fewer
    at the ends."""
    n = len(y)
    half = median_window(n) // 2
    at = np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))
    windows = [y[max(0, i - half) : i + half + 1] for i in at]
    windows = [w[np.isfinite(w)] for w in windows]
    return at, np.array([np.median(w) if len(w) else np.nan for w in windows])


def median_words(lengths):
    """"running median of up to 11 rows" for series of these lengths."""
    sizes = sorted({median_window(n) for n in lengths})
    return f"running median of up to {' to '.join(str(size) for size in sizes[:: max(1, len(sizes) - 1)])} rows"


def rows_words(runs, smooth=True):
    """How trend() shows the rows of /steps."""
    lengths = [run.steps.n for run in runs]
    words, neighbours = "each row", "from the lowest to the highest of neighbouring rows"
    if max(lengths) > MOST_POINTS:
        words = neighbours if min(lengths) > MOST_POINTS else f"each row (of more than {MOST_POINTS}: {neighbours})"
    long = [n for n in lengths if n >= FEW]
    return words + (f" faint, bold the {median_words(long)}. " if smooth and long else ". ")


def extent(x, y, most=MOST_POINTS // 2):
    """Rows in at most `most` stretches: (x in the middle, lowest, highest of the finite values)."""
    starts = np.arange(min(len(y), most)) * len(y) // min(len(y), most)
    low = np.fmin.reduceat(y, starts)
    high = np.fmax.reduceat(y, starts)
    ends = np.append(starts[1:], len(y)) - 1
    return (x[starts] + x[ends]) / 2, low, high


def trend(ax, x, y, style, name, smooth=True):
    """Every row faint, the running median over it bold. With many rows: the extent of neighbouring rows, shaded. What
    is smooth by itself has no median: one line, which is the middle of the extent where there are many rows."""
    y = np.asarray(y, float)
    if not np.isfinite(y).any():
        return
    few = len(y) < FEW or not smooth
    if len(y) <= MOST_POINTS:
        ax.plot(
            x,
            y,
            color=style.colour,
            lw=style.width if few else 0.6,
            alpha=1 if few else 0.4,
            ls=style.line if few else "-",
            gid=f"{name} rows",
            marker="o" if len(y) < 3 else None,
            ms=4,
        )
    else:
        middle, low, high = extent(x, y)
        ax.fill_between(middle, low, high, color=style.colour, alpha=0.22, lw=0, gid=f"{name} extent")
        if few:
            between = (low + high) / 2
            ax.plot(middle, between, color=style.colour, lw=style.width, ls=style.line, gid=f"{name} middle")
    if not few:
        at, median = rolling_median(y)
        ax.plot(x[at], median, color=style.colour, lw=style.width, ls=style.line, gid=f"{name} median", zorder=2.2)


def span(*series, low=0.0, high=100.0):
    """Lowest and highest of the finite values between two percentiles."""
    values = np.concatenate([np.ravel(np.asarray(s, float)) for s in series] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    return (np.percentile(values, low), np.percentile(values, high)) if len(values) else (0.0, 1.0)


def say_cut(ax, *series, at=1.0):
    """Says how many values lie outside of the y axis, and how far; `at`: where, as a share of the width."""
    values = np.concatenate([np.ravel(np.asarray(s, float)) for s in series])
    low, high = ax.get_ylim()
    for out, far, side, arrow, y in (
        (values[values > high], np.max, "above, up to", "↑", 1),
        (values[values < low], np.min, "below, down to", "↓", 0),
    ):
        if len(out):
            text = f"{arrow} {len(out)} of {len(values)} {side} {count_text(far(out))}"
            note(ax, at, y, text, INK, (0, -2 if y else 2), "right" if at > 0.5 else "left", 7.5,
                 xycoords="axes fraction", va="top" if y else "bottom", gid=f"cut {arrow}", zorder=4)


def from_zero(ax, *series):
    """The y axis from 0 to a little above all but rare values."""
    ax.set_ylim(0, 1.15 * (span(*series, high=99.5)[1] or 1))
    say_cut(ax, *series)
    ax.yaxis.set_major_formatter(FuncFormatter(count_text))
    ax.yaxis.set_major_locator(MaxNLocator(5))


def plain_log(ax):
    """On a logarithmic y axis numbers, not powers of ten, and enough of them."""
    low, high = ax.get_ylim()
    steps = (1,) if high / low > 1e4 else (1, 3) if high / low > 30 else (1, 2, 5)
    ax.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=steps, numticks=12))
    ax.yaxis.set_major_formatter(FuncFormatter(count_text))
    ax.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def name_runs(ax, runs, markers=False):
    """The runs' names beside their lines, and markers, below the lowest panel, where there are several."""
    if len(runs) == 1:
        return
    ax.set_xlabel(ax.get_xlabel(), loc="left")
    handles = [
        matplotlib.lines.Line2D(
            [], [], color=s.colour, ls=s.line, lw=s.width, marker=s.marker if markers else None, ms=s.size, mec="white"
        )
        for s in (run.style for run in runs)
    ]
    ax.legend(
        handles,
        [f" {run.label}" for run in runs],  # matplotlib leaves out what begins with "_"
        loc="upper right",
        bbox_to_anchor=(1, 0),
        borderaxespad=2.0,
        ncol=min(len(runs), 4),
        handlelength=3.2,
    )


def note(ax, x, y, text, colour=GREY, place=(0, 4), ha="right", size=8, **words):
    """A word beside what it names, on white."""
    ax.annotate(
        text,
        (x, y),
        xytext=place,
        textcoords="offset points",
        color=colour,
        ha=ha,
        fontsize=size,
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8},
        **words,
    )


def level(ax, y, text, colour=GREY, place=(-3, 3), va="bottom"):
    """A horizontal line with its name at the right end."""
    ax.axhline(y, color=colour, lw=0.9, ls=(0, (5, 2)), zorder=1)
    note(ax, 1, y, text, colour, place, xycoords=("axes fraction", "data"), va=va)


class Margin:
    """Names in the free room on the right of a panel, each at its height, moved apart where they would overlap. Those
    added first have the first choice; optional ones stay away."""

    def __init__(self, ax, x, inches):
        low, high = ax.get_ylim()
        self.ax, self.x, self.low, self.high, self.apart = ax, x, low, high, 0.15 / inches * (high - low)
        self.taken = []

    def add(self, y, text, colour, optional=False, above=-np.inf, **words):
        """The height it got, where possible above another one's; None: there is no room."""
        free = [
            at
            for at in [y] + [y + sign * k * self.apart / 4 for k in range(1, 60) for sign in (1, -1)]
            if self.low < at < self.high and all(abs(at - t) >= self.apart for t in self.taken)
        ]
        if not free or (optional and free[0] != y):
            return None
        at = next((at for at in free if at > above), free[0])
        self.taken.append(at)
        self.ax.annotate(
            text,
            (self.x, at),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=8,
            **words,
        )
        return at
