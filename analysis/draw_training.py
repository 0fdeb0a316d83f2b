"""Figures of training: the loss beside the Markov chains, learning rate and gradient norm, auxiliary losses."""

import math

import numpy as np

import figures as fig
import summary

NATS = math.log(2)  # of a bit


def loss(runs, time):
    """Training and held-out loss, nats on the left, bits on the right."""
    height = 3.1
    figure, (ax,) = fig.panels(_loss_title(runs), runs, time, [height], room=0.3)
    for i, run in enumerate(runs):
        fig.trend(ax, time.of(run, run.steps.step), run.steps["loss"], run.style, f"loss {i}")
        ax.plot(
            time.of(run, run.validation.step),
            run.validation["loss"],
            color=_held_out_colour(runs, run),
            lw=1.1 if len(runs) == 1 else run.style.width,
            ls=run.style.line,
            marker=run.style.marker,
            ms=run.style.size,
            mec="white",
            mew=0.6,
            zorder=3,
            gid=f"validation {i}",
        )
    low, high = _loss_range(runs)
    ax.set_ylim(low - 0.05 * (high - low), high + 0.04 * (high - low))
    margin = fig.Margin(ax, time.end, height)
    _name_ends(margin, runs)
    _draw_markov(ax, margin, runs, time)
    _name_training(margin, runs)
    behind = max(_beginning_above(run, time, ax.get_ylim()[1]) for run in runs) / ax.get_xlim()[1]
    losses = [table["loss"] for run in runs for table in (run.steps, run.validation)]
    fig.say_cut(ax, *losses, at=min(0.5, behind + 0.02))
    ax.set_ylabel("loss [nats/token]")
    right = ax.secondary_yaxis("right", functions=(lambda nats: nats / NATS, lambda bits: bits * NATS))
    right.set_ylabel(f"loss [{summary.bits_unit(runs[0])}]")
    fig.name_runs(ax, runs, markers=True)
    caption = f"Cross-entropy. Training loss: {fig.rows_words(runs)}Points: held-out loss. "
    if any(run.markov for run in runs):
        caption += (
            "Dashed: Markov chains of the orders named, fitted on the training share, on the same held-out targets."
        )
    return fig.Drawing("loss", figure, _loss_title(runs), caption)


def _held_out_colour(runs, run):
    return fig.ORANGE if len(runs) == 1 else run.style.colour


def _loss_title(runs):
    best = [
        (run.validation["loss"][row], i)
        for i, run in enumerate(runs)
        for row in [summary.best_validation(run)]
        if row is not None
    ]
    if not best:
        ends = [
            run.steps["loss"][row]
            for run in runs
            for row in [summary.last_finite(run.steps["loss"])]
            if row is not None
        ]
        return f"Training loss ends at {', '.join(f'{e:.4f}' for e in ends)} nats/token" if ends else "Training loss"
    run = runs[min(best)[1]]
    row, unit, markov = summary.best_validation(run), summary.bits_unit(run), run.best_markov()
    bits = run.validation["bits_per_base"][row]
    if len(runs) > 1:
        return f"{run.label} reaches the lowest held-out loss: {bits:.4f} {unit}"
    last = row == summary.last_finite(run.validation["loss"])
    text = f"Held-out loss: {bits:.4f} {unit}" if last else f"Lowest held-out loss: {bits:.4f} {unit}"
    if markov:
        text += f", {abs(markov[1] - bits):.4f} {'below' if bits < markov[1] else 'above'} the best Markov chain"
    return text


def _loss_range(runs):
    """Of all that matters: the steep beginning may leave the figure, and what is worse than the start and
    than guessing among all tokens does."""
    low, high, worst = [], [], []
    for run in runs:
        train, held_out = run.steps["loss"], run.validation["loss"]
        low += [fig.span(train, low=0.5)[0]] if np.isfinite(train).any() else []
        low += [fig.span(held_out)[0]] if np.isfinite(held_out).any() else []
        settled = train[len(train) // 20 :] if len(train) >= 20 else train
        high += [fig.span(settled, high=98)[1]] if np.isfinite(settled).any() else []
        high += [fig.span(held_out[1:])[1]] if np.isfinite(held_out[1:]).any() else []
        worst += [math.log(int(run.config.get("model.vocab_size", 256))), *train[np.isfinite(train)][:1]]
        if run.best_markov():
            low.append(run.best_markov()[1] * NATS)
            high.append(run.best_markov()[1] * NATS)
    low, high = min(low, default=0), min(max(high, default=1), max(worst))
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _beginning_above(run, time, high):
    """Where on the time axis the rows from the first one on no longer have a loss above `high`."""
    below = np.flatnonzero(~(run.steps["loss"] > high))
    return time.of(run, run.steps.step[below[:1]])[0] if len(below) else 0


def _name_ends(margin, runs):
    """Of held-out losses and the best Markov chain, from the lowest up, so that they keep their order."""
    names = []
    for run in runs:
        row = summary.last_finite(run.validation["loss"])
        if row is not None:
            name = f"{run.label if len(runs) > 1 else 'held-out'} {run.validation['bits_per_base'][row]:.4f}"
            names.append((run.validation["loss"][row], name, _held_out_colour(runs, run), "bold"))
    markov = _markov_of(runs).best_markov()
    if markov:
        names.append((markov[1] * NATS, _markov_name(*markov), fig.INK, "normal"))
    below = -np.inf
    for loss, name, colour, weight in sorted(names, key=lambda entry: entry[0]):
        at = margin.add(loss, name, colour, above=below, weight=weight)
        below = below if at is None else at


def _name_training(margin, runs):
    """Where training ends: of one run, and of those without held-out data."""
    for run in runs:
        bare = summary.last_finite(run.validation["loss"]) is None
        if (len(runs) == 1 or bare) and np.isfinite(run.steps["loss"]).any():
            end = fig.rolling_median(run.steps["loss"])[1][-1]
            margin.add(end, f"{run.label if len(runs) > 1 else 'training'} {end / NATS:.4f}", run.style.colour)


def _markov_of(runs):
    """The first run that has chains, else the first."""
    return next((run for run in runs if run.markov), runs[0])


def _markov_name(order, bits):
    return f"Markov order {order} {bits:.4f}"


def _draw_markov(ax, margin, runs, time):
    """The best, in black, and the others where there is room for their names."""
    run = _markov_of(runs)
    low, high = ax.get_ylim()
    for order, bits in sorted(run.markov.items(), key=lambda item: item[1]):
        best, y = order == run.best_markov()[0], bits * NATS
        if low < y < high and (best or margin.add(y, _markov_name(order, bits), fig.GREY, optional=True) is not None):
            ax.plot(
                [0, time.end],
                [y, y],
                color=fig.INK if best else fig.GREY,
                lw=1.1 if best else 0.7,
                ls=(0, (5, 2)),
                zorder=1.5,
                gid=f"markov {order}",
            )


def optimizer(runs, time):
    """Learning rate and gradient norm."""
    norms = [run.steps["grad_norm"] for run in runs]
    highest = np.max(runs[0].steps["learning_rate"])
    title = f"Gradient norm {summary.finite_median(norms[0]):.3g}, learning rate up to {highest:.3g}"
    if len(runs) > 1:
        title = "Learning rate and gradient norm"
    figure, (rate, norm) = fig.panels(title, runs, time, [1.3, 1.9])
    for i, run in enumerate(runs):
        style, x = run.style, time.of(run, run.steps.step)
        fig.trend(rate, x, run.steps["learning_rate"], style, f"learning_rate {i}", smooth=False)
        fig.trend(norm, x, run.steps["grad_norm"], style, f"grad_norm {i}")
    fig.from_zero(rate, *[run.steps["learning_rate"] for run in runs])
    norm.set_yscale("log")
    low, high = fig.span(*[n[n > 0] for n in norms], low=0.2, high=99.8)
    norm.set_ylim(low / 1.3, high * 1.3)
    fig.plain_log(norm)
    fig.say_cut(norm, *norms)
    limits = {run.config.get("optimizer.max_grad_norm") for run in runs}
    limit = float(limits.pop() or 0) if len(limits) == 1 else 0
    if limit and low / 1.3 < limit < high * 1.3:
        fig.level(norm, limit, f"clipped to {limit:g} above")
    fig.name_runs(norm, runs)
    rate.set_ylabel("learning rate [1]")
    norm.set_ylabel("gradient norm [1]")
    return fig.Drawing(
        "optimizer",
        figure,
        title,
        "Learning rate of each logged step. Norm of the whole gradient before clipping, on a logarithmic scale. "
        "Lines: " + fig.rows_words(runs),
    )


def auxiliary(runs, time):
    """Load-balancing and z-loss."""
    kind = runs[0].config.get("router.aux_loss", "layer")
    even = float(runs[0].n_layers) if kind == "layer" else float(runs[0].config.get("model.num_experts_per_tok", 0))
    late = summary.finite_median(runs[0].steps["aux_loss"][-max(1, runs[0].steps.n // 10) :])
    title = f"Load-balancing loss {late:.3g}, where {even:g} is even" if even else f"Load-balancing loss {late:.3g}"
    if len(runs) > 1:
        title = "Auxiliary losses of the router"
    figure, (aux, z) = fig.panels(title, runs, time, [1.6, 1.6])
    for i, run in enumerate(runs):
        x = time.of(run, run.steps.step)
        fig.trend(aux, x, run.steps["aux_loss"], run.style, f"aux_loss {i}")
        fig.trend(z, x, run.steps["z_loss"], run.style, f"z_loss {i}")
    low, high = fig.span(*[run.steps["aux_loss"] for run in runs], high=99.5)
    low = min([low] + [even] * bool(even))
    aux.set_ylim(low - 0.12 * (high - low or 1), high + 0.12 * (high - low or 1))
    fig.say_cut(aux, *[run.steps["aux_loss"] for run in runs])
    if even and len({(run.n_layers, run.config.get("router.aux_loss")) for run in runs}) == 1:
        fig.level(aux, even, f"evenly loaded: {even:g}", fig.INK, (-3, -3), "top")
    fig.from_zero(z, *[run.steps["z_loss"] for run in runs])
    fig.name_runs(z, runs)
    aux.set_ylabel("load-balancing\nloss [1]")
    z.set_ylabel("z-loss [1]")
    return fig.Drawing(
        "auxiliary",
        figure,
        title,
        "Both without their coefficients, means over the micro-batches of a step. Lines: " + fig.rows_words(runs),
    )
