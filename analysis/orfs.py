"""Open reading frames: from the first start codon behind a stop to the next stop, in all six frames."""

import numpy as np

STOPS = ("TAA", "TAG", "TGA")
STARTS = {"standard": ("ATG",), "bacterial": ("ATG", "GTG", "TTG")}  # of the genetic codes 1 and 11
OTHER, START, STOP, BREAK = range(4)  # a codon with a letter that is none of the four breaks a frame
CODES = np.full(256, 64, np.uint8)
for _value, _letters in enumerate(("Aa", "Cc", "Gg", "TtUu")):
    for _letter in _letters:
        CODES[ord(_letter)] = _value


def _kinds(code):
    """What each of the 64 codons is; a number above: BREAK."""
    kinds = np.full(256, BREAK, np.uint8)
    kinds[:64] = OTHER
    for words, kind in ((STARTS[code], START), (STOPS, STOP)):
        for word in words:
            a, b, c = CODES[np.frombuffer(word.encode(), np.uint8)]
            kinds[16 * int(a) + 4 * int(b) + int(c)] = kind
    return kinds


def _frame(codes, frame, kinds):
    """(first base, base behind the last) of all frames from a start to a stop, both included; codes[n] of letters."""
    n = (len(codes) - frame) // 3
    codons = codes[frame : frame + 3 * n].reshape(n, 3).astype(np.uint16)
    words = np.where((codons > 3).any(axis=1), 64, 16 * codons[:, 0] + 4 * codons[:, 1] + codons[:, 2])
    kind = kinds[words]
    starts, ends = np.flatnonzero(kind == START), np.flatnonzero(kind >= STOP)
    if not len(starts) or not len(ends):
        return np.zeros((0, 2), np.int64)
    before = np.append(-1, ends[:-1])
    first = np.append(starts, n)[np.searchsorted(starts, before + 1)]
    good = (kind[ends] == STOP) & (first < ends)
    return np.stack([frame + 3 * first[good], frame + 3 * ends[good] + 3], axis=1)


def find(letters, code, shortest):
    """[(first, stop, strand)] in letters[n] (ASCII), at least `shortest` bases with the stop, longest first; strand 1:
    first..stop-1 read backwards and complemented."""
    codes, kinds, found = CODES[letters], _kinds(code), []
    turned = np.where(codes < 4, 3 - codes, codes)[::-1]
    for strand, text in enumerate((codes, turned)):
        for frame in range(3):
            for first, stop in _frame(text, frame, kinds):
                if stop - first >= shortest:
                    found.append((len(codes) - stop, len(codes) - first, 1) if strand else (first, stop, 0))
    return sorted(found, key=lambda f: (f[0] - f[1], f[0], f[2]))


def codon_positions(letters, code="bacterial", shortest=300):
    """(position[n], frames): 0, 1, 2 for a base's place in its codon on the forward strand, 3, 4, 5 on the reverse one,
    -1 outside. Where frames overlap the longest has the bases; one that keeps fewer than `shortest` is left out."""
    position, frames = np.full(len(letters), -1, np.int8), 0
    for first, stop, strand in find(letters, code, shortest):
        free = np.flatnonzero(position[first:stop] < 0) + first
        if len(free) < shortest:
            continue
        position[free] = 3 + (stop - 1 - free) % 3 if strand else (free - first) % 3
        frames += 1
    return position, frames
