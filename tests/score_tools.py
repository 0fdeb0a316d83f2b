"""What the programs within score.sh share."""
import csv, json, struct, sys
import h5py
import numpy as np


def tensors(path):
    f = open(path, "rb").read()
    n = struct.unpack("<Q", f[:8])[0]
    types = {"F32": "<f4", "I32": "<i4"}
    header = {k: v for k, v in json.loads(f[8:8 + n]).items() if k != "__metadata__"}
    data = f[8 + n:]
    return {k: np.frombuffer(data[slice(*v["data_offsets"])], types[v["dtype"]]).reshape(v["shape"]) for k, v in header.items()}


def table(path):
    return list(csv.DictReader(open(path), delimiter="\t", quoting=csv.QUOTE_NONE))


def bases(path):
    return np.array([float(r["log_likelihood"]) for r in table(path)])


def by_name(path):
    found = {}
    for r in table(path):
        found.setdefault(r["name"], []).append(float(r["log_likelihood"]))
    return found


def near(a, b, most):
    """a and b agree within `most`, and are NaN at the same places."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    assert a.shape == b.shape and (np.isnan(a) == np.isnan(b)).all(), (a.shape, b.shape)
    worst = np.nanmax(abs(a - b))
    assert worst <= most, worst
