"""Reads metrics.h5, also while a run writes it (docs/formats.md): the one reader of the analysis commands.

    run = metrics.open_run("runs/ecoli_small")        # or a metrics.h5; raises Refused with one clear line
    run.steps["step"], run.steps["loss"]              # numpy, the rows that are whole
    run.experts["tokens"]                             # [step, layer, expert]: large; see run.expert_pieces
    for first, tokens in run.expert_pieces(): ...     # the same in pieces of some MB

What is small is read at once, from one opening of the file, so that it belongs together; the file is closed again. The
expert counts are read from the file when they are asked for.
"""

import contextlib
import os
import time

import command

os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")  # before HDF5 is loaded: a reader never stops a writer
command.need("numpy", "h5py")
import h5py  # noqa: E402
import numpy as np  # noqa: E402

from command import Refused  # noqa: E402

FORMAT, VERSION = "regulon metrics", 1
SERIES = {  # that the first files of version 1 have
    "steps": "step tokens loss aux_loss z_loss grad_norm learning_rate step_s tokens_per_s tflops mfu memory_bytes "
    "useful_tokens padded_tokens".split(),
    "experts": "step tokens entropy".split(),
    "timing": "step data forward backward exchange reduce optimizer checkpoint".split(),
    "validation": "step tokens loss bits_per_base".split(),
    "events": "step time kind text".split(),
}
ADDED = {"steps": ["mfu_6n"], "timing": ["total"]}  # and that later ones have
LATER = {  # groups that only later ones have
    "eight_bits": "step nonzero underflow at_largest nonfinite amax scale_min scale_max error".split(),
}
LARGE = ("experts", "tokens")  # is not held in memory
PHASES = ("data", "forward", "backward", "exchange", "reduce", "optimizer", "checkpoint")
PIECE_BYTES = 32 << 20
ATTEMPTS, PAUSE_S = 5, 0.1


class Missing(Refused):
    """There is no such file (yet)."""


class Passing(Refused):
    """What may be over in a moment."""


class Changed(Passing):
    """The run went on from an earlier step, or anew, since the file was opened: what was read is not true any more."""


class Event:
    def __init__(self, step, time, kind, text):
        self.step, self.time, self.kind, self.text = step, time, kind, text  # time: seconds since 1970


class Table:
    """The whole rows of a group: table["loss"] is an array [n, ...], table.step its steps, table.n their number."""

    def __init__(self, values, attributes, apart):
        self._values, self._attributes, self._apart = values, attributes, apart
        self.step, self.n = values["step"], len(values["step"])

    def __getitem__(self, name):
        return self._apart[name]() if name in self._apart else self._values[name]

    def __contains__(self, name):
        return name in self._values or name in self._apart

    def names(self):
        return list(self._values) + list(self._apart)

    def units(self, name):
        return self._attributes.get(name, {}).get("units", "1")

    def long_name(self, name):
        return self._attributes.get(name, {}).get("long_name", name)


class Run:
    """A metrics file. name, path (of the file), config, code, run (their attributes), steps, experts, timing,
    validation and eight_bits (tables; the last without rows in old files), kinds (the third dimension of eight_bits), events
    (list of Event), markov ({order: bits per base}, those that were computed), n_layers, n_experts."""

    def __init__(self, path, name, file):
        self.path, self.name = path, name
        self.config, self.code, self.run = (_attributes(file.get(g)) for g in ("config", "code", "run"))
        self.n_layers, self.n_experts = file["experts/tokens"].shape[1:]
        for group in ("steps", "experts", "timing", "validation"):
            setattr(self, group, self._table(file, group))
        has = "eight_bits" in file
        self.eight_bits = self._table(file, "eight_bits") if has else Table({"step": np.zeros(0, np.int64)}, {}, {})
        self.kinds = [kind.decode() for kind in file["eight_bits/kind"][:]] if has else []
        self.events = _events(self._table(file, "events"))
        bits = file["validation/markov_bits_per_base"][:]
        self.markov = {order: float(b) for order, b in enumerate(bits) if np.isfinite(b)}

    def _table(self, file, group):
        g = file[group]
        written = g["step"][:] >= 0  # first: what these rows hold was written before
        n = len(written) if written.all() else int(np.argmin(written))
        names = (SERIES.get(group) or LATER[group]) + [name for name in ADDED.get(group, ()) if name in g]
        for name in names:
            if len(g[name]) != len(written):
                raise Passing(f"{self.path}: /{group}/{name} has another length than /{group}/step")
        values = {name: g[name][:n] for name in names if (group, name) != LARGE}
        apart = {"tokens": lambda: self.expert_tokens(0, n)} if group == "experts" else {}
        return Table(values, {name: _attributes(g[name]) for name in names}, apart)

    def best_markov(self):
        """(order, bits per base) of the best Markov chain, or None."""
        order = min(self.markov, key=self.markov.get, default=None)
        return None if order is None else (order, self.markov[order])

    def expert_tokens(self, first, stop):
        """Tokens [rows, layer, expert] of rows first..stop-1 of self.experts."""
        return np.concatenate(
            [piece for _, piece in self.expert_pieces(first, stop)]
            or [np.zeros((0, self.n_layers, self.n_experts), np.uint32)]
        )

    def expert_pieces(self, first=0, stop=None, piece_bytes=PIECE_BYTES):
        """Yields (row, tokens[rows, layer, expert]): rows of self.experts from `first` to `stop`, some MB at a time.
        Raises Changed if they are not those that self was made of."""
        stop = self.experts.n if stop is None else min(stop, self.experts.n)
        if first >= stop:
            return
        rows = max(1, piece_bytes // (4 * self.n_layers * self.n_experts))
        with _reading_on(self.path), _again(lambda: _opened(self.path), self.path) as file:
            steps, tokens = file["experts/step"], file["experts/tokens"]
            same_run = _attributes(file["run"]).get("run_id") == self.run.get("run_id") if "run" in file else True
            if not same_run or not np.array_equal(steps[: self.experts.n], self.experts.step):
                raise Changed(f"{self.path}: the run went back to an earlier step while it was read; try again")
            for row in range(first, stop, rows):
                yield row, tokens[row : min(row + rows, stop)]

    def bins(self, n_bins):
        """(first rows, step edges) of at most n_bins stretches of rows of equal length. Edges lie between rows."""
        n = self.experts.n
        starts = np.unique(np.arange(min(n, n_bins)) * n // max(1, min(n, n_bins)))
        step = self.experts.step.astype(float)
        if n == 0:
            return starts, np.zeros(0)
        gap = step[-1] - step[-2] if n > 1 else 1.0
        edges = [(step[max(0, s - 1)] + step[s]) / 2 for s in starts] + [step[-1] + gap / 2]
        edges[0] = max(0, step[0] - (step[1] - step[0]) / 2) if n > 1 else step[0] - 0.5
        return starts, np.array(edges)

    def expert_load(self, n_bins):
        """(load, edges): tokens [bin, layer, expert] summed over the rows of each bin, and the bins' edges in steps."""
        starts, edges = self.bins(n_bins)
        load = np.zeros((len(starts), self.n_layers, self.n_experts), np.int64)
        for row, tokens in self.expert_pieces():
            add_rows(load, starts, row, tokens)
        return load, edges


def add_rows(sums, starts, row, values):
    """Adds values[i] to the bin of row + i, where bin b begins at row starts[b]."""
    ends = np.append(starts[1:], row + len(values))
    for b in range(np.searchsorted(starts, row, side="right") - 1, np.searchsorted(starts, row + len(values))):
        sums[b] += values[max(0, starts[b] - row) : ends[b] - row].sum(axis=0, dtype=sums.dtype)


def open_run(path):
    """The run of a run folder or a metrics file. What fails for a moment (a file that is being replaced on a file
    server) is tried again."""
    path = os.fspath(path)
    file_path = path
    if os.path.isdir(path):
        file_path = os.path.join(path, "metrics.h5")
        if not os.path.lexists(file_path) and os.access(path, os.X_OK):  # else opening it says why not
            what = (
                "a checkpoint, not a run" if os.path.exists(os.path.join(path, "index.h5")) else "no metrics.h5 in it"
            )
            raise Missing(f"{path}: {what}")
    folder, base = os.path.split(os.path.abspath(file_path))
    name = (os.path.basename(folder) if base == "metrics.h5" else os.path.splitext(base)[0]) or "run"

    def read():
        with _opened(file_path) as file:
            return Run(file_path, name, file)

    return _again(read, file_path)


def settled(work):
    """What work() returns, which opens runs and reads all of them that it needs: done anew, a few times, where a file
    changes or is replaced meanwhile."""
    started = False
    for attempt in range(ATTEMPTS):
        try:
            return work()
        except (Changed, Missing) as reason:
            started = started or isinstance(reason, Changed)
            if not started or attempt == ATTEMPTS - 1:  # a file that never was there will not come
                raise
        time.sleep(PAUSE_S * (attempt + 1))


@contextlib.contextmanager
def _reading_on(path):
    """A file that was read before, and fails now, was moved away or replaced (a file server lets go of its data)."""
    try:
        yield
    except (OSError, RuntimeError, Missing) as error:
        raise Changed(f"{path}: it went away while it was read ({_first_line(error)})") from None


def _again(function, path):
    """What function() returns; an error that may be one of a moment is given a few more tries."""
    for attempt in range(ATTEMPTS):
        try:
            return function()
        except (OSError, KeyError, RuntimeError, Passing) as error:
            last = error
            time.sleep(PAUSE_S * (attempt + 1))
    if isinstance(last, Refused):
        raise last
    raise Refused(f"{path}: an HDF5 file, but damaged or cut short ({_first_line(last)})")


def _first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


def _opened(path):
    """The file, which is seen to be ours, open to read."""
    try:
        with open(path, "rb") as start:
            start.read(1)
    except FileNotFoundError:
        raise Missing(f"{path}: No such file or directory") from None
    except OSError as error:
        raise Passing(f"{path}: {error.strerror}") from None
    if not h5py.is_hdf5(path):
        raise Refused(f"{path}: not an HDF5 file")
    file = h5py.File(path, "r")
    try:
        _check(path, file)
    except BaseException:
        file.close()
        raise
    return file


def _check(path, file):
    found = _attributes(file)
    if not isinstance(found.get("format"), str):
        raise Refused(f"{path}: no '{FORMAT}' file: it has no attribute 'format'")
    if found["format"] != FORMAT:
        raise Refused(f"{path}: a '{found['format']}' file where '{FORMAT}' is wanted")
    version = found.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise Refused(f"{path}: it has no attribute 'format_version' that is a number from 1 on")
    if version > VERSION:
        raise Refused(f"{path}: format_version {version} of '{FORMAT}' is newer than this program reads ({VERSION})")
    wanted = [f"/{group}/{name}" for group, names in SERIES.items() for name in names]
    for dataset in wanted + ["/validation/markov_bits_per_base"]:
        if not isinstance(file.get(dataset), h5py.Dataset):
            raise Passing(f"{path}: no dataset {dataset}")
    if file["experts/tokens"].ndim != 3:
        raise Refused(f"{path}: /experts/tokens has {file['experts/tokens'].ndim} dimensions, not 3")


def _attributes(item):
    """Attributes as text and numbers of Python."""
    found = {}
    for name, value in item.attrs.items() if item is not None else ():
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, np.generic):
            value = value.item()
            value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if isinstance(value, (str, int, float)):
            found[name] = value
    return found


def _events(table):
    def text(row):
        return row.tobytes().split(b"\0", 1)[0].decode("utf-8", "replace")

    return [
        Event(int(s), float(t), text(k), text(x))
        for s, t, k, x in zip(table["step"], table["time"], table["kind"], table["text"])
    ]
