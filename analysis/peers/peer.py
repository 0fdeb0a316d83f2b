"""What the scripts about peers share: shapes, the rows of each expert, how long is measured. Letters as in src/model/shape.h."""
import argparse
import collections
import math
import statistics
import struct

Shape = collections.namedtuple("Shape", "N D F E A H G V")  # H heads, G of them for keys and values
SHAPES = {  # as src/bench/ops.c has them
    "mixtral": Shape(8192, 4096, 14336, 8, 2, 32, 8, 32000),
    "fine": Shape(8192, 2048, 1024, 64, 8, 16, 16, 32000),
    "sonic": Shape(32768, 4096, 2048, 64, 4, 32, 8, 32000),
}
HALVES = {"up": 2, "down": 1}  # matrices of D x F numbers an expert
KINDS = ["", " backward", " weights"]  # forward, gradient of the rows, gradient of the weights
SUM = ", all three"  # of the three
BLOCKS = 4  # of a measurement, after one that warms up


def words(text):
    p = argparse.ArgumentParser(description=text.splitlines()[0])
    p.add_argument("--shape", choices=SHAPES, default="mixtral")
    p.add_argument("--tokens", type=int, help="N (the shape's)")
    p.add_argument("--seconds", type=float, default=2, help="of each measurement")
    return p


def shape_of(a):
    shape = SHAPES[a.shape]
    return shape._replace(N=a.tokens or shape.N)


def _normal(e):
    """random_normal(7, RANDOM_TEST, e) of src/base/random.c: Philox 4x32-10, then Box and Muller, in FP32."""
    low = 0xFFFFFFFF
    c, k0, k1 = [e, 0, 5, 0], 7, 0
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & low, p0 >> 32 ^ c[3] ^ k1, p0 & low]
        k0, k1 = k0 + 0x9E3779B9 & low, k1 + 0xBB67AE85 & low
    u, v = (((hi << 21 ^ lo >> 11) + 0.5) * 2.0**-53 for hi, lo in (c[:2], c[2:]))
    return struct.unpack("f", struct.pack("f", math.sqrt(-2 * math.log(u)) * math.cos(6.283185307179586 * v)))[0]


def weights_of(routing, E):
    """The expected shares of a routing, to a factor; ValueError: no such one."""
    name, _, sigma = routing.partition(":")
    sigma = float(sigma) if name == "skew" else 0.0
    if routing not in ("balanced", "half", "empty", "one") and not (name == "skew" and 0 <= sigma <= 5):
        raise ValueError(routing)
    one = {"half": lambda e: 1 if e or E == 1 else E - 1, "empty": lambda e: e % 3 != 1, "one": lambda e: e == E // 2}
    return [float(one[name](e)) if name in one else math.exp(sigma * _normal(e)) for e in range(E)]


def counts_of(routing, E, rows):
    """Rows of each expert, as `regulon bench gemm` spreads them."""
    weights = weights_of(routing, E)
    total, before, counts = sum(weights), 0.0, []
    for weight in weights:
        before += weight / total
        counts.append(math.floor(before * rows + 0.5) - sum(counts))
    counts[max(e for e in range(E) if weights[e])] += rows - sum(counts)  # what rounding left over
    return counts


def sustained(run, seconds):
    """Median seconds of a call, of BLOCKS blocks of calls by the device's clock."""
    import torch

    def block(calls):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / calls

    block(2)
    calls = 1 + int(seconds / BLOCKS / block(2))
    return statistics.median([block(calls) for _ in range(1 + BLOCKS)][1:])
