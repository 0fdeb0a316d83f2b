"""Figure of what a recipe of eight bits does to the operands of products: their error, and what underflows."""

import warnings

import numpy as np

import figures as fig

ROLES = {"input": (fig.BLUE, "inputs"), "weight": (fig.GREEN, "weights"), "gradient": (fig.ORANGE, "gradients")}
PANELS = {"error": "error [%]", "underflow": "become 0 [%]"}


def sampled(run):
    return run.eight_bits.n > 0


def percent(run, name):
    """[row, layer, kind]"""
    return 100 * run.eight_bits[name]


def eight_bits(runs, time, alone=True):
    """One run: by what an operand is, over layers and products. Several: the operand with most, of each. alone: the
    report has no other run."""
    title, one = _title(runs), len(runs) == 1
    if one and not alone:
        title = f"{runs[0].label}: {title[0].lower()}{title[1:]}"
    figure, axes = fig.panels(title, runs, time, [1.9, 1.9])
    for ax, name in zip(axes, PANELS):
        for i, run in enumerate(runs):
            x, values = time.of(run, run.eight_bits.step), percent(run, name)
            if one:
                for role, (colour, words) in ROLES.items():
                    of_role = values[:, :, [kind.endswith("_" + role) for kind in run.kinds]]
                    _band(ax, x, of_role, colour, words, f"{name} {role}")
            else:
                _curve(ax, x, _over(np.nanmax, values), run.style.colour, run.style.line, None, f"{name} {i}")
        fig.from_zero(ax, *[_over(np.nanmax, percent(run, name)) for run in runs])
        ax.set_ylabel(PANELS[name])
    if one:
        axes[0].legend(loc="upper right", ncol=3, bbox_to_anchor=(1, 1.02))
    fig.name_runs(axes[-1], runs)
    shown = (
        "Lines: median over layers and the four products; shaded: from the lowest to the highest. "
        if one
        else "Lines: the operand with most, of all layers. "
    )
    return fig.Drawing(
        "eight_bits",
        figure,
        title,
        "What eight bits do to the operands of products, in the steps that were sampled. Top: norm of the error over "
        "that of the values. Bottom: share of the values that become 0, of those that are not. " + shown,
    )


def _over(function, values):
    """Over layers and kinds, of what is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row without any
        return function(values.reshape(len(values), -1), axis=1)


def _curve(ax, x, y, colour, line, label, name):
    ax.plot(x, y, color=colour, ls=line, lw=1.4, marker="o" if len(x) < 30 else None, ms=3, label=label, gid=name)


def _band(ax, x, values, colour, words, name):
    low, middle, high = (_over(f, values) for f in (np.nanmin, np.nanmedian, np.nanmax))
    ax.fill_between(x, low, high, color=colour, alpha=0.18, lw=0, gid=f"{name} range")
    _curve(ax, x, middle, colour, "-", words, name)


def _most(run, name):
    """(percent, kind, layer) of the operand with most in the last row; None: there is none."""
    last = percent(run, name)[-1]
    if not np.isfinite(last).any():
        return None
    layer, kind = np.unravel_index(np.nanargmax(last), last.shape)
    return last[layer, kind], run.kinds[kind], layer


def _title(runs):
    error, zero = _most(runs[0], "error"), _most(runs[0], "underflow")
    if len(runs) > 1 or not error or not zero:
        return "What eight bits do to the operands of products"
    return (
        f"In eight bits: errors up to {error[0]:.3g} % ({error[1]}, layer {error[2]}), "
        f"up to {zero[0]:.2g} % become 0 ({zero[1]}, layer {zero[2]})"
    )
