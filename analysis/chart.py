"""Curves and bars made of characters, for a terminal: Braille and blocks where it can show them, else ASCII."""

import math

import numpy as np

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a Braille character: two columns of four
MOST_MARKS = 20
LABEL = 6  # characters of a number on the left
BLOCKS = "▁▂▃▄▅▆▇█"


def can_show(encoding):
    """Whether a stream of this encoding takes the characters above."""
    try:
        ("⣿" + BLOCKS + "·").encode(encoding or "ascii")
        return True
    except (UnicodeEncodeError, LookupError):
        return False


def curve(x, y, marks, width, height, fancy=True):
    """Lines of a chart of y against x, the mean of what falls into a column, and of `marks` = (x, y), drawn as 'o'."""
    good = np.isfinite(y)
    x, y = x[good], y[good]
    good = np.flatnonzero(np.isfinite(marks[1]))
    good = good[:: -max(1, len(good) // MOST_MARKS)]  # with the last one
    marks = marks[0][good], marks[1][good]
    if not len(x) or height < 3:
        return []
    rows, columns = height - 1, max(8, width - LABEL - 3)
    left, right = np.min([x[0], *marks[0]]), np.max([x[-1], *marks[0]])
    scale = 1 / max(right - left, 1)
    across, down = (columns * 2, rows * 4) if fancy else (columns, rows)  # dots
    at, y = _columns(((x - left) * scale * (across - 1)).round().astype(int), y)
    low, high = _limits(y, marks[1])
    dots = np.zeros((down, across), bool)
    height_of = _down(y, low, high, down)
    for column, here, before in zip(at, height_of, [height_of[0], *height_of]):  # joined with the one before
        first, last = sorted((here, before + np.sign(here - before)))
        dots[first : last + 1, column] = True
    grid = _braille(dots, rows, columns) if fancy else [["*" if dot else " " for dot in row] for row in dots]
    places = ((marks[0] - left) * scale * (columns - 1)).round().astype(int)
    for column, row in zip(places, _down(marks[1], low, high, rows)):
        grid[row][column] = "o"
    labels = {row: high - (high - low) * row / (rows - 1) for row in (0, (rows - 1) // 2, rows - 1)}
    labels = {row: _label(value, low, high) for row, value in labels.items()}
    side = "│" if fancy else "|"
    lines = [f" {labels.get(i, ''):>{LABEL}}{side}{''.join(row)}" for i, row in enumerate(grid)]
    ends = f"{left:.0f}", f"{right:.0f}"
    return lines + [" " * (LABEL + 2) + ends[0] + "step".center(columns - len("".join(ends))) + ends[1]]


def _columns(at, y):
    """Each column from the first to the last of `at`, and the mean of its values; interpolated where it has none."""
    n, total = np.bincount(at), np.bincount(at, weights=y)
    have = np.flatnonzero(n)
    every = np.arange(have[0], have[-1] + 1)
    return every, np.interp(every, have, total[have] / n[have])


def _limits(y, marks):
    """The curve's range without its highest tenth: the fall at the start would flatten the rest."""
    low, high = np.min([y.min(), *marks]), max(np.quantile(v, 0.9) for v in (y, marks) if len(v))
    room = 0.05 * (high - low) or 0.01 * abs(high) or 1.0
    return max(low - room, min(low, 0)), high + room  # no room for a loss below 0


def _down(y, low, high, n):
    """Rows from the top, 0 to n-1; what lies outside is on the edge."""
    return np.clip(((high - y) / (high - low) * (n - 1)).round(), 0, n - 1).astype(int)


def _label(value, low, high):
    digits = max(0, min(6, 1 - math.floor(math.log10(high - low))))
    return f"{value:.{digits}f}"


def _braille(dots, rows, columns):
    cells = np.zeros((rows, columns), int)
    for i in range(2):
        for j in range(4):
            cells += DOTS[i][j] * dots[j::4, i::2]
    return [[chr(0x2800 + c) if c else " " for c in row] for row in cells]


def bars(load, fancy=True):
    """A character an expert: half height where the load is the mean, full at twice that; a dot for no token."""
    mean = load.mean()
    if mean == 0:
        return ("·" if fancy else ".") * len(load)
    level = np.clip((load / mean * 4).round(), 1, 8).astype(int)
    heights = BLOCKS if fancy else "12345678"
    return "".join((("·" if fancy else ".") if n == 0 else heights[k - 1]) for n, k in zip(load, level))


def progress(share, width, fancy=True):
    full = int(max(0.0, min(1.0, share)) * width)
    return ("█" * full + "░" * (width - full)) if fancy else "[" + "#" * full + "." * (width - full) + "]"
