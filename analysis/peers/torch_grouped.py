#!/usr/bin/env python3
"""The products of the experts by torch's grouped_mm on one GPU, those of `regulon bench gemm`, as CSV: product,tflops.

BF16 random normal numbers, rows without padding, FLOPs that are of use. Gradients of weights are BF16 and overwritten
(Regulon's are FP32). An expert's rows need be no multiple of anything: they are the slow dimension of every operand.
"""
import peer
import torch

grouped_mm = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm


def operands(s, counts):
    """x[R, D] and z[R, 2F] of up, h[R, F] and y[R, D] of down, and their weights [E, 2F, D] and [E, D, F]; ends[E]."""
    def normal(*sizes, scale=1.0):
        return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16).mul_(scale)

    R = sum(counts)
    ends = torch.tensor(counts, device="cuda").cumsum(0).to(torch.int32)
    up = normal(R, s.D), normal(R, 2 * s.F), normal(s.E, 2 * s.F, s.D, scale=1 / 64)
    return {"up": up, "down": (normal(R, s.F), normal(R, s.D), normal(s.E, s.D, s.F, scale=1 / 64))}, ends


def product(kind, rows, out, w, ends):
    """rows[R, K], out[R, N], w[E, N, K]: out, the gradient of rows or that of w."""
    if kind == "":
        return grouped_mm(rows, w.transpose(1, 2), offs=ends)
    if kind == " backward":
        return grouped_mm(out, w, offs=ends)
    return grouped_mm(out.t(), rows, offs=ends)


def main():
    p = peer.words(__doc__)
    p.add_argument("--routing", default="balanced", help="as of regulon bench gemm")
    a = p.parse_args()
    s = peer.shape_of(a)
    torch.manual_seed(0)
    arrays, ends = operands(s, peer.counts_of(a.routing, s.E, s.N * s.A))
    print("product,tflops")
    for half, matrices in peer.HALVES.items():
        flops = 2 * matrices * s.N * s.A * s.D * s.F
        for kind in peer.KINDS:
            seconds = peer.sustained(lambda: product(kind, *arrays[half], ends), a.seconds)
            print(f"{half}{kind},{flops / seconds / 1e12:.2f}", flush=True)


if __name__ == "__main__":
    main()
