"""Figures of the router: load of every expert over time, how uneven it is, entropy, starved experts."""

import math

import numpy as np

import figures as fig
import summary

# from light to dark throughout, so that it can be read in grey; yellow: less than an even share, blue: more
COLOURS = fig.matplotlib.colormaps["cividis_r"]


def load(run, stats, time, name="expert_load", alone=True):
    """A panel a layer: experts upwards, time to the right, colour the share of tokens."""
    clipped = np.log2(np.clip(stats.share, 0.25, 4))
    known = clipped[np.isfinite(clipped)]
    most = 1 if not len(known) or np.abs(known).max() <= 1 else 2
    title, ends = _load_words(stats)
    if not alone:
        title = f"{run.label}: {title[0].lower()}{title[1:]}"
    columns = 1 if run.n_layers == 1 else 2 if run.n_layers <= 8 else 4
    rows = -(-run.n_layers // columns)
    height = min(1.6, max(0.55, 0.13 * run.n_experts, 3.2 / rows))
    kinds = fig.event_kinds([run])
    strip = [fig.strip_height(kinds)] if kinds else []
    figure = fig.Figure(figsize=(fig.WIDTH, sum(strip) + rows * height + 1.0), constrained_layout=fig.PADS)
    grid = figure.add_gridspec(len(strip) + rows, columns, height_ratios=strip + [height] * rows)
    axes, x = [], time.of(run, stats.edges)
    for layer in range(run.n_layers):
        first = axes[0] if axes else None
        ax = figure.add_subplot(grid[len(strip) + layer // columns, layer % columns], sharex=first, sharey=first)
        mesh = ax.pcolorfast(
            x, np.arange(run.n_experts + 1) - 0.5, clipped[:, layer].T, cmap=COLOURS, vmin=-most, vmax=most
        )
        mesh.set_gid(f"load {layer}")
        _mark_starved(ax, x, stats.share[:, layer], f"starved {layer}")
        ax.set_xlim(x[0], x[-1])
        _layer_axes(ax, run, layer, columns, time)
        axes.append(ax)
    for column in range(min(columns, run.n_layers) if kinds else 0):
        strip_ax = figure.add_subplot(grid[0, column], sharex=axes[0])
        fig.draw_events(strip_ax, axes[column::columns], kinds, [run], time)
        strip_ax.tick_params(labelleft=column == 0)
    bar = figure.colorbar(mesh, ax=axes, shrink=min(1, 2.6 / (rows * height)), aspect=22, pad=0.015)
    ticks = [-2, -1, 0, 1, 2] if most == 2 else [-1, -0.5, 0, 0.5, 1]
    bar.set_ticks(ticks)
    bar.set_ticklabels([("≤ " if t == -most else "≥ " if t == most else "") + f"{2.0**t:.3g}" for t in ticks])
    bar.set_label("tokens over the even share [1]")
    bar.outline.set_visible(False)
    if (stats.share < summary.STARVED).any():
        mark = f"black line: less than {100 * summary.STARVED:g} % of an even share"
        figure.supxlabel(mark, x=0.99, ha="right", size=8)
    figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")
    return fig.Drawing(
        name,
        figure,
        title,
        f"Tokens routed to each expert over tokens / experts of its layer, in at most {summary.LOAD_BINS} stretches of "
        f"the run, on a logarithmic scale. Light: less than its even share; dark: more. A black line: less than "
        f"{100 * summary.STARVED:g} %. {ends}",
    )


def _mark_starved(ax, edges, share, name):
    """A line along each stretch in which an expert has next to nothing; share[bin, expert]."""
    starved = np.pad(share < summary.STARVED, ((1, 1), (0, 0)))
    change = np.diff(starved.astype(np.int8), axis=0)
    lines = [
        [(edges[a], e), (edges[b], e)]
        for e in range(share.shape[1])
        for a, b in zip(np.flatnonzero(change[:, e] > 0), np.flatnonzero(change[:, e] < 0))
    ]
    if lines:
        collection = fig.matplotlib.collections.LineCollection
        ax.add_collection(collection(lines, colors=fig.INK, linewidths=1, capstyle="butt", gid=name))


def _late_load(stats):
    """Least and most loaded expert of the last tenth: [(share, layer, expert)] * 2, or None."""
    late = stats.share[-max(1, len(stats.share) // 10) :].mean(axis=0)
    if not np.isfinite(late).any():
        return None
    return [(late[at], *at) for at in (np.unravel_index(f(late), late.shape) for f in (np.nanargmin, np.nanargmax))]


def _load_words(stats):
    late = _late_load(stats)
    if late is None:
        return "No tokens were routed", ""
    (least, l0, e0), (most, l1, e1) = late
    return (
        f"Expert load at the end: {least:.2f} to {most:.2f} of an even share",
        f"At the end (the last tenth) expert {e0} of layer {l0} has least, expert {e1} of layer {l1} most.",
    )


def _layer_axes(ax, run, layer, columns, time):
    ax.set_title(f"layer {layer}", fontsize=8, fontweight="normal", pad=2)
    ax.patch.set(facecolor="white", edgecolor=fig.GREY, hatch="////", lw=0)  # where nothing is known
    ax.grid(False)
    ax.yaxis.set_major_locator(fig.MaxNLocator(min(4, run.n_experts), integer=True))
    ax.xaxis.set_major_locator(fig.MaxNLocator(5 if columns < 4 else 2))
    ax.xaxis.set_major_formatter(fig.FuncFormatter(fig.count_text))
    lowest = layer + columns >= run.n_layers
    ax.tick_params(labelbottom=lowest, labelleft=layer % columns == 0)
    if layer % columns == 0:
        ax.set_ylabel("expert")
    if lowest:
        ax.set_xlabel(time.label)


def balance(runs, loads, time):
    """Load imbalance, router entropy and starved experts."""
    late = [load.late_imbalance() for load in loads]
    title = _balance_title(runs, late, loads)
    figure, (uneven, entropy, starved) = fig.panels(title, runs, time, [1.7, 1.5, 1.1])
    one = len(runs) == 1
    for i, (run, stats) in enumerate(zip(runs, loads)):
        x, style = time.of(run, run.experts.step), run.style
        _layers(uneven, x, stats.imbalance, style, f"imbalance {i}", one)
        _layers(entropy, x, run.experts["entropy"] / math.log(2), style, f"entropy {i}", one)
        edges = time.of(run, stats.edges)
        starved.step(
            edges,
            np.append(stats.starved, stats.starved[-1:]),
            where="post",
            color=style.colour,
            ls=style.line,
            lw=style.width,
            gid=f"starved {i}",
        )
    sizes = {run.n_experts for run in runs}
    high = max(fig.span(stats.imbalance, high=99.8)[1] for stats in loads)
    uneven.set_ylim(1 - 0.04 * max(high - 1, 0.1), high + 0.12 * max(high - 1, 0.1))
    most = math.log2(max(2, max(sizes)))
    if len(sizes) == 1:
        fig.level(entropy, most, f"undecided: log₂ {max(sizes)} = {most:.3g}", place=(-3, 2))
    entropy.set_ylim(0, 1.3 * most)
    top = max(1.0, 1.15 * max(np.max(stats.starved, initial=0) for stats in loads))
    starved.set_ylim(-0.05 * top, top)
    starved.yaxis.set_major_locator(fig.MaxNLocator(3, integer=True))
    uneven.set_ylabel("busiest expert\nover mean [1]")
    entropy.set_ylabel("router\nentropy [bits]")
    starved.set_ylabel("starved\nexperts [1]")
    fig.name_runs(starved, runs)
    middle = fig.median_words([run.experts.n for run in runs])
    caption = (
        "Top: tokens of a layer's busiest expert over the mean of its experts; 1 is even. Middle: entropy of the "
        f"router's probabilities, mean over tokens. Lines: mean over layers, as a {middle}"
        + ("; shaded: from the lowest to the highest layer. " if one else ". ")
    )
    return fig.Drawing(
        "balance",
        figure,
        title,
        caption + f"Bottom: experts of all layers that get less than "
        f"{100 * summary.STARVED:g} % of an even share in a stretch of the run "
        f"({', '.join(str(int(s.idle[-1])) if len(s.idle) else '0' for s in loads)} without a single token "
        f"in the last one).",
    )


def _balance_title(runs, late, loads):
    if not all(np.isfinite(layers).any() for layers in late):
        return "How evenly the experts are loaded"
    if len(runs) > 1:
        return "Busiest experts over the mean: " + ", ".join(
            f"{run.label} {np.nanmean(layers):.2f}" for run, layers in zip(runs, late)
        )
    worst, count = int(np.nanargmax(late[0])), int(loads[0].starved[-1])
    total = runs[0].n_layers * runs[0].n_experts
    return (
        f"Busiest experts get {np.nanmean(late[0]):.2f} times the mean (layer {worst}: {late[0][worst]:.2f}); "
        f"{'none' if not count else count} of {total} starved"
    )


def _layers(ax, x, values, style, name, shaded):
    """Mean over layers as a running median; between the running medians of the lowest and the highest layer, shade."""
    if not len(x):
        return
    with np.errstate(invalid="ignore"):
        mean = np.nanmean(values, axis=1) if np.isfinite(values).any() else np.full(len(values), np.nan)
    at, middle = fig.rolling_median(mean)
    if shaded and values.shape[1] > 1:
        low, high = (fig.rolling_median(f(values, axis=1))[1] for f in (np.min, np.max))
        ax.fill_between(x[at], low, high, color=style.colour, alpha=0.22, lw=0, gid=f"{name} layers")
    ax.plot(
        x[at],
        middle,
        color=style.colour,
        ls=style.line,
        lw=style.width,
        marker="o" if len(at) < 3 else None,
        ms=4,
        gid=f"{name} median",
    )
