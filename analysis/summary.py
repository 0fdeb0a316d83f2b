"""The numbers of a run that its report states in words: what was reached, how fast, how even the experts are loaded."""

import command

command.need("numpy")
import numpy as np  # noqa: E402

import metrics  # noqa: E402
import names  # noqa: E402

LOAD_BINS = 200
STARVED = 0.01  # of the even share


def finite_median(x):
    x = np.asarray(x, float)
    x = x[np.isfinite(x)]
    return float(np.median(x)) if len(x) else float("nan")


def bits_unit(run):
    return {"dna": "bits/base", "rna": "bits/base", "protein": "bits/residue"}.get(
        run.config.get("dataset.alphabet", "dna"), "bits/token"
    )


def best_validation(run):
    """The row of the lowest held-out loss, or None."""
    loss = run.validation["loss"]
    return int(np.nanargmin(loss)) if np.isfinite(loss).any() else None


def last_finite(x):
    rows = np.flatnonzero(np.isfinite(x))
    return int(rows[-1]) if len(rows) else None


class Load:
    """What the expert counts say, from one pass over them.

    edges      [bins + 1]               of the stretches of rows, in steps
    share      [bins, layer, expert]    tokens of the expert over its even share; NaN: no tokens at all
    imbalance  [row, layer]             tokens of the busiest expert over the mean
    starved    [bins]                   experts, of all layers, below STARVED of their even share
    idle       [bins]                   experts without a single token
    """

    def __init__(self, run):
        starts, self.edges = run.bins(LOAD_BINS)
        tokens = np.zeros((len(starts), run.n_layers, run.n_experts), np.int64)
        self.imbalance = np.full((run.experts.n, run.n_layers), np.nan)
        for row, piece in run.expert_pieces():
            metrics.add_rows(tokens, starts, row, piece)
            self.imbalance[row : row + len(piece)] = names.imbalance(piece)
        with np.errstate(invalid="ignore"):
            self.share = tokens * run.n_experts / tokens.sum(axis=2, keepdims=True)
        self.starved = (self.share < STARVED).sum(axis=(1, 2))
        self.idle = (self.share == 0).sum(axis=(1, 2))

    def late_imbalance(self):
        """Median of the last tenth of the rows, a layer each."""
        late = self.imbalance[-max(1, len(self.imbalance) // 10) :]
        return np.array([finite_median(late[:, layer]) for layer in range(late.shape[1])])


def phases(run):
    """{phase: median rank's seconds [row]}, `other`: what is left of the step, and the time of saving apart."""
    seconds = {name: run.timing[name][:, 1] for name in metrics.PHASES if name != "checkpoint"}
    whole = step_seconds(run)
    other = whole - sum(seconds.values())
    return seconds | {"other": np.maximum(other, 0)}


def step_seconds(run):
    """Time of a step on the median rank; files that lack it have that of rank 0."""
    if "total" in run.timing and np.isfinite(run.timing["total"]).any():
        return run.timing["total"][:, 1]
    n = min(run.timing.n, run.steps.n)
    return np.append(run.steps["step_s"][:n], np.full(run.timing.n - n, np.nan))


def settled_rows(run):
    """bool[row of timing]: without the first step after a start, which is slow; all, if there are no others."""
    starts = [e.step + 1 for e in run.events if e.kind in ("start", "resume")]
    settled = ~np.isin(run.timing.step, starts)
    return settled if settled.any() else np.ones(len(settled), bool)


def saving_seconds(run):
    """Seconds that training stood still for checkpoints, slowest rank, all logged rows."""
    return float(np.nansum(run.timing["checkpoint"][:, 2]))
