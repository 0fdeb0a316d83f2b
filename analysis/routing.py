"""Reads what `regulon eval --routing` wrote (docs/formats.md).

    file = routing.read("out.h5")                # raises Refused with one clear line
    file.expert[layer, base], file.n_experts     # the first choice; n_experts where no window held the base
    file.letter[base]                            # ASCII codes, in the case of the source
    for segment in file.segments: ...            # record (name), start (in it), first, stop (among the bases)
"""

import os

import command

os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")  # before HDF5 is loaded
command.need("numpy", "h5py")
import h5py  # noqa: E402
import numpy as np  # noqa: E402

from command import Refused  # noqa: E402

FORMAT, VERSION = "regulon routing", 1
DATASETS = {"expert": 3, "token": 1, "segments/record": 1, "segments/start": 1, "segments/length": 1, "segments/offset": 1}
PIECE_BYTES = 32 << 20


class Segment:
    def __init__(self, record, start, first, length):
        self.record, self.start, self.first, self.stop = record, start, first, first + length


class Routing:
    def __init__(self, path, file):
        self.path, self.alphabet, self.model = path, _text(file.attrs["alphabet"]), _text(file.attrs["model"])
        self.n_experts, self.letter = int(file.attrs["experts"]), file["token"][:]
        columns = [file["segments"][name][:] for name in ("record", "start", "offset", "length")]
        self.segments = [Segment(_text(r), int(s), int(o), int(n)) for r, s, o, n in zip(*columns)]
        self.expert = _first_choices(file["expert"], self.n_experts)


def _first_choices(dataset, n_experts):
    n, layers, _ = dataset.shape
    found = np.empty((layers, n), dataset.dtype if n_experts < 256 else np.uint16)
    rows = max(1, PIECE_BYTES // max(1, dataset[:1].nbytes))
    for row in range(0, n, rows):
        found[:, row : row + rows] = dataset[row : row + rows, :, 0].T
    return np.minimum(found, n_experts, out=found)  # the fill value is above


def _text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def read(path):
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    if not h5py.is_hdf5(path):
        raise Refused(f"{path}: not an HDF5 file")
    try:
        with h5py.File(path, "r") as file:
            _check(path, file)
            return Routing(path, file)
    except (OSError, KeyError, RuntimeError) as error:
        raise Refused(f"{path}: an HDF5 file, but damaged or cut short ({str(error).splitlines()[0]})") from None


def _check(path, file):
    found, version = _text(file.attrs.get("format", "")), file.attrs.get("format_version", 0)
    if not found:
        raise Refused(f"{path}: no '{FORMAT}' file: it has no attribute 'format'")
    if found != FORMAT:
        raise Refused(f"{path}: a '{found}' file where '{FORMAT}' is wanted")
    if version > VERSION:
        raise Refused(f"{path}: format_version {version} of '{FORMAT}' is newer than this program reads ({VERSION})")
    for name, dimensions in DATASETS.items():
        if not isinstance(file.get(name), h5py.Dataset) or file[name].ndim != dimensions:
            raise Refused(f"{path}: no dataset /{name} of {dimensions} dimensions")
