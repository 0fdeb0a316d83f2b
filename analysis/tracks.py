"""Intervals of BED and GFF files, plain or gzip, as marks on the bases of a routing file."""

import gzip
import os

import numpy as np

from command import Refused


def _lines(path):
    """(number, columns) of the lines with data."""
    try:
        with open(path, "rb") as start:
            opened = gzip.open if start.read(2) == b"\x1f\x8b" else open
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\r\n")
                if line == "##FASTA":
                    return
                if line and not line.startswith(("#", "track", "browser")):
                    yield number, line.split("\t")
    except (OSError, EOFError) as error:
        raise Refused(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _interval(path, number, begin, end, one_based):
    try:
        begin, end = int(begin) - one_based, int(end)
    except ValueError:
        raise Refused(f"{path}:{number}: '{begin}' and '{end}' are not whole numbers") from None
    if not 0 <= begin <= end:
        raise Refused(f"{path}:{number}: from {begin + one_based} to {end} is no interval")
    return begin, end


def read(path, kind):
    """{name: {record: [(begin, end)]}}, from 0, the end not included; kind: bed, gff. The names are the types of a GFF
    file, or `bed`."""
    found = {}
    for number, columns in _lines(path):
        if len(columns) < (3 if kind == "bed" else 8):
            raise Refused(f"{path}:{number}: {len(columns)} columns between tabs are too few for {kind.upper()}")
        begin, end = columns[1:3] if kind == "bed" else columns[3:5]
        name = "bed" if kind == "bed" else columns[2]
        interval = _interval(path, number, begin, end, one_based=kind == "gff")
        found.setdefault(name, {}).setdefault(columns[0], []).append(interval)
    return found


def marks(file, track):
    """1 on the bases of a routing file that lie in an interval of {record: [(begin, end)]}, else 0."""
    mark = np.zeros(len(file.letter), np.int8)
    for s in file.segments:
        n = s.stop - s.first
        for begin, end in track.get(s.record, ()):
            mark[s.first + max(0, begin - s.start) : s.first + min(max(0, end - s.start), n)] = 1
    return mark


def features(file, path, kind, only=()):
    """{bed:FILE or gff:TYPE: marks} of a file; only: types of a GFF file to take."""
    tracks = read(path, kind)
    records = {s.record for s in file.segments}
    if not any(records & track.keys() for track in tracks.values()):
        seen = sorted({record for track in tracks.values() for record in track})
        raise Refused(
            f"{path}: none of its records is in {file.path}: "
            f"{', '.join(seen[:3]) or 'it has none'}; {', '.join(sorted(records)[:3])}"
        )
    for name in only:
        if name not in tracks:
            raise Refused(f"{path}: no feature of type '{name}'")
    names = only or sorted(tracks)
    return {f"{kind}:{os.path.basename(path) if kind == 'bed' else name}": marks(file, tracks[name]) for name in names}
