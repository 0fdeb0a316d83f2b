"""Figures of how fast a run was: tokens per second and MFU, where the time of a step went, memory."""

import numpy as np

import figures as fig
import summary

PHASES = {  # what computes in one colour, what communicates in another, hatched so that it shows in grey
    "forward": ("#56b4e9", ""),
    "backward": ("#0072b2", ""),
    "optimizer": ("#1c3f5c", ""),
    "exchange": ("#e69f00", "///"),
    "reduce": ("#d55e00", "\\\\\\"),
    "data": ("#009e73", ".."),
    "other": ("#cccccc", ""),
}
WORDS = {"exchange": "exchange of tokens", "reduce": "sum of gradients", "other": "all else"}
TIME_BINS = 100


def speed(runs, time):
    """Tokens per second; MFU where it is known."""
    with_mfu = any(np.isfinite(run.steps["mfu"]).any() for run in runs)
    rates = [summary.finite_median(run.steps["tokens_per_s"]) for run in runs]
    title = f"{fig.count_text(rates[0])} tokens/s"
    if len(runs) > 1:
        title = "Tokens per second: " + ", ".join(f"{run.label} {fig.count_text(r)}" for run, r in zip(runs, rates))
    elif with_mfu:
        title += f", {100 * summary.finite_median(runs[0].steps['mfu']):.3g} % of what the ranks can compute"
    figure, axes = fig.panels(title, runs, time, [1.9, 1.5] if with_mfu else [2.4])
    for i, run in enumerate(runs):
        x = time.of(run, run.steps.step)
        fig.trend(axes[0], x, run.steps["tokens_per_s"], run.style, f"tokens_per_s {i}")
        if with_mfu:
            fig.trend(axes[1], x, 100 * run.steps["mfu"], run.style, f"mfu {i}")
    fig.from_zero(axes[0], *[run.steps["tokens_per_s"] for run in runs])
    axes[0].set_ylabel("tokens per second [1/s]")
    if with_mfu:
        fig.from_zero(axes[1], *[100 * run.steps["mfu"] for run in runs])
        axes[1].set_ylabel("MFU [%]")
    fig.name_runs(axes[-1], runs)
    return fig.Drawing(
        "speed",
        figure,
        title,
        "Tokens of the whole grid a second, without padding, and model FLOPs "
        "utilisation: model FLOPs per second and rank over what a rank reached in a matrix product at the "
        "start. Lines: " + fig.rows_words(runs),
    )


def time_split(runs, time):
    """One run: the phases of a step, stacked, over time. Several: a bar each."""
    return _time_bars(runs) if len(runs) > 1 else _time_area(runs[0], time)


def _shares(seconds):
    """In percent, of the sum over all phases and rows."""
    total = sum(np.nansum(s) for s in seconds.values()) or 1
    return {name: 100 * np.nansum(s) / total for name, s in seconds.items()}


def _time_bins(run, rows, time, seconds):
    """(edges on the time axis, {phase: mean ms a bin}) of seconds[phase] in the rows chosen."""
    n = int(rows.sum())
    starts = np.arange(min(n, TIME_BINS)) * n // min(n, TIME_BINS)
    ends = np.append(starts[1:], n)
    means = {name: 1e3 * np.add.reduceat(np.nan_to_num(s), starts) / (ends - starts) for name, s in seconds.items()}
    first = np.flatnonzero(rows)[0]
    before = run.timing.step[first - 1] if first else 0  # a bin lasts from the row before it to its own last row
    return time.of(run, np.append(before, run.timing.step[rows][ends - 1])), means


def _time_area(run, time):
    rows = summary.settled_rows(run)
    seconds = {name: s[rows] for name, s in summary.phases(run).items()}
    seconds = {name: seconds[name] for name in PHASES if np.nansum(seconds[name]) > 0}
    shares = _shares(seconds)
    compute = sum(shares.get(name, 0) for name in ("forward", "backward", "optimizer"))
    talk = sum(shares.get(name, 0) for name in ("exchange", "reduce"))
    title = f"{compute:.0f} % of a step computes, {talk:.0f} % communicates"
    figure, (ax,) = fig.panels(title, [run], time, [2.7])
    edges, means = _time_bins(run, rows, time, seconds)
    base = np.zeros(len(edges) - 1)
    for name, mean in means.items():
        colour, hatch = PHASES[name]
        top = base + mean
        ax.fill_between(
            edges,
            np.append(base, base[-1]),
            np.append(top, top[-1]),
            step="post",
            facecolor=colour,
            edgecolor="white",
            lw=0.3,
            hatch=hatch,
            gid=f"time {name}",
        )
        base = top
    ax.set_ylim(0, 1.1 * (fig.span(base, high=98)[1] or 1))
    fig.say_cut(ax, base)
    ax.set_ylabel("time of a step [ms]")
    handles = [
        fig.matplotlib.patches.Patch(
            facecolor=PHASES[name][0],
            hatch=PHASES[name][1],
            edgecolor="white",
            label=f"{WORDS.get(name, name)} {shares[name]:.1f} %",
        )
        for name in reversed(list(means))
    ]
    ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=1.4)
    saving = summary.saving_seconds(run)
    caption = (
        f"Mean over at most {TIME_BINS} stretches of the run, of the median rank in each phase. Waiting for other "
        f"ranks counts where they wait. "
    )
    if not rows.all():
        slow = 1e3 * np.nanmax(summary.step_seconds(run)[~rows])
        caption += f"The first step after a start (up to {fig.count_text(slow)} ms) is left out, of the shares, too. "
    if saving:
        caption += f"Besides, training stood still for {saving:.3g} s in all while checkpoints were copied. "
    return fig.Drawing("time_split", figure, title, caption)


def _time_bars(runs):
    figure = fig.Figure(figsize=(fig.WIDTH, 0.42 * len(runs) + 1.3), constrained_layout=fig.PADS)
    ax = figure.add_subplot()
    used, totals = {}, []
    for i, run in enumerate(runs):
        # medians: the first rows of a start are slow
        medians, left = {name: 1e3 * summary.finite_median(s) for name, s in summary.phases(run).items()}, 0
        for name in PHASES:
            colour, hatch = PHASES[name]
            if medians[name] > 0:
                used[name] = ax.barh(
                    i,
                    medians[name],
                    left=left,
                    color=colour,
                    hatch=hatch,
                    edgecolor="white",
                    lw=0.3,
                    height=0.62,
                    gid=f"time {name} {i}",
                )
                left += medians[name]
        ax.text(left, i, f" {left:.3g} ms", va="center")
        totals.append(f"{left:.3g} ms ({run.label})")
    ax.set_yticks(range(len(runs)))
    ax.set_yticklabels([run.label for run in runs])
    ax.invert_yaxis()
    ax.grid(False)
    ax.margins(x=0.12)
    ax.set_xlim(left=0)
    ax.set_xlabel("time of a step, sum of the medians [ms]")
    title = f"A step takes {', '.join(totals)}"
    fig.set_title(ax, title)
    names = [name for name in PHASES if name in used]
    ax.legend(
        [used[name] for name in names],
        [WORDS.get(name, name) for name in names],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        handlelength=1.4,
    )
    return fig.Drawing(
        "time_split",
        figure,
        title,
        "Of the median rank in each phase. Waiting for other ranks counts where they wait.",
    )


def memory(runs, time):
    """The largest memory in use on a rank."""
    most = max(fig.span(run.steps["memory_bytes"])[1] for run in runs)
    unit, word = next((u, w) for u, w in ((2**30, "GiB"), (2**20, "MiB"), (1, "bytes")) if most >= u or u == 1)
    title = f"At most {most / unit:.3g} {word} of memory on a rank"
    figure, (ax,) = fig.panels(title, runs, time, [1.5])
    for i, run in enumerate(runs):
        fig.trend(
            ax,
            time.of(run, run.steps.step),
            run.steps["memory_bytes"] / unit,
            run.style,
            f"memory {i}",
            smooth=False,
        )
    fig.from_zero(ax, *[run.steps["memory_bytes"] / unit for run in runs])
    ax.set_ylabel(f"memory of a rank [{word}]")
    fig.name_runs(ax, runs)
    return fig.Drawing("memory", figure, title, "Largest memory in use on any rank until then.")
