"""What the series of metrics.h5 are called in exports: the names people search for. README.md has the table.

for stretch in names.step_stretches(run): ...     # rows of steps with their values, some MB at a time
"""

import numpy as np

import metrics

STEPS = {
    "tokens": "tokens",
    "loss": "train/loss",
    "aux_loss": "train/aux_loss",
    "z_loss": "train/z_loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "step_s": "step_seconds",
    "tokens_per_s": "tokens_per_second",
    "tflops": "tflops",
    "mfu": "mfu",
    "mfu_6n": "mfu_6n",
    "memory_bytes": "memory_bytes",
    "useful_tokens": "useful_tokens",
    "padded_tokens": "padded_tokens",
}
VALIDATION = {"loss": "eval/loss", "bits_per_base": "eval/bits_per_base", "tokens": "eval/tokens"}
VALUES_AT_ONCE = 300_000
STATISTICS = ("min", "median", "max")  # over the ranks


class Stretch:
    """Rows of one kind: names[n], steps[rows], columns[n] of rows values each. NaN where the file has it."""

    def __init__(self, names, steps, columns):
        self.names, self.steps, self.columns = names, steps, columns


def step_names(run, experts=True):
    """The names of what is known once a logged step, in their order."""
    names = [STEPS[name] for name in _steps(run)]
    names += [f"timing/{phase}/{s}" for phase in _phases(run) for s in STATISTICS]
    names += [f"moe/router_entropy/layer_{l}" for l in range(run.n_layers)]
    names += [f"moe/load_imbalance/layer_{l}" for l in range(run.n_layers)]
    if experts:
        names += [f"moe/expert_load/layer_{l}/expert_{e}" for l in range(run.n_layers) for e in range(run.n_experts)]
    return names


def _steps(run):
    return [name for name in STEPS if name in run.steps]  # older files lack some


def _phases(run):
    return [phase for phase in (*metrics.PHASES, "total") if phase in run.timing]


def step_stretches(run, experts=True):
    """Yields the rows that all of /steps, /experts and /timing have, some at a time."""
    names = step_names(run, experts)
    n = min(run.steps.n, run.experts.n, run.timing.n)  # of a run that goes on they may differ by the row being written
    rows_at_once = max(1, VALUES_AT_ONCE // len(names))
    for first, load in run.expert_pieces(0, n, rows_at_once * 4 * run.n_layers * run.n_experts):
        rows = slice(first, first + len(load))
        columns = [run.steps[name][rows] for name in _steps(run)]
        columns += [run.timing[phase][rows, i] for phase in _phases(run) for i in range(len(STATISTICS))]
        columns += list(run.experts["entropy"][rows].T)
        columns += list(imbalance(load).T)
        if experts:
            columns += list(load.reshape(len(load), -1).T)
        yield Stretch(names, run.steps.step[rows], columns)


def validation_stretch(run):
    return Stretch(list(VALIDATION.values()), run.validation.step, [run.validation[name] for name in VALIDATION])


def eight_bits_stretch(run):
    """Without names where nothing was sampled."""
    table, figures = run.eight_bits, metrics.LATER["eight_bits"][1:]
    if table.n == 0:
        return Stretch([], table.step, [])
    found = [(name, l, k) for name in figures for l in range(run.n_layers) for k in range(len(run.kinds))]
    names = [f"eight_bits/{name}/layer_{l}/{run.kinds[k]}" for name, l, k in found]
    return Stretch(names, table.step, [table[name][:, l, k] for name, l, k in found])


def own_stretches(run, eight_bits=True):
    """What has steps of its own, not those that are logged."""
    return [eight_bits_stretch(run)] * eight_bits + [validation_stretch(run)]


def imbalance(load):
    """[rows, layer]: tokens of the busiest expert over the mean of load[rows, layer, expert]; NaN without tokens."""
    total = load.sum(axis=2, dtype=float)
    return np.divide(load.max(axis=2) * float(load.shape[2]), total, where=total > 0, out=np.full(total.shape, np.nan))


def times(run, steps):
    """Seconds since 1970 at which these steps ended, an estimate, for the file has no time a row: the last start before
    the step, and the times of the steps since."""
    logged = run.steps.step
    # seconds spent up to each logged step, as if the steps between two rows had taken as long as the later one
    spent = np.cumsum(np.nan_to_num(run.steps["step_s"]) * np.diff(logged, prepend=0))
    at = np.concatenate([[0], logged]).astype(float)
    spent = np.concatenate([[0], spent])
    result = np.zeros(len(steps))
    for event in run.events:
        if event.kind in ("start", "resume"):  # later ones overwrite: their steps are those that the file has
            after = steps > event.step
            result[after] = event.time + np.interp(steps[after], at, spent) - np.interp(event.step, at, spent)
    return result
