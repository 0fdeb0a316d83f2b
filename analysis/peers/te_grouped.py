#!/usr/bin/env python3
"""The products of the experts by Transformer Engine's GroupedLinear on one GPU, as CSV: product,tflops. Untried so far.

Forward, and forward with both gradients (", all three"), which the module makes together; BF16, counts that the host
knows, random normal numbers. Gradients of weights are BF16.
"""
import peer
import torch
from transformer_engine.pytorch import GroupedLinear


def main():
    p = peer.words(__doc__)
    p.add_argument("--routing", default="balanced", help="as of regulon bench gemm")
    a = p.parse_args()
    s = peer.shape_of(a)
    counts = peer.counts_of(a.routing, s.E, s.N * s.A)
    torch.manual_seed(0)
    print("product,tflops")
    for half, matrices in peer.HALVES.items():
        K, N = (s.D, 2 * s.F) if half == "up" else (s.F, s.D)
        layer = GroupedLinear(s.E, K, N, bias=False, params_dtype=torch.bfloat16, device="cuda")
        rows = torch.randn(s.N * s.A, K, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        gradient = torch.randn(s.N * s.A, N, device="cuda", dtype=torch.bfloat16)

        def forward():
            with torch.no_grad():
                layer(rows, counts)

        def all_three():
            layer(rows, counts).backward(gradient)
            layer.zero_grad(set_to_none=True)
            rows.grad = None

        flops = 2 * matrices * s.N * s.A * s.D * s.F
        for name, run, n in [(half, forward, 1), (half + peer.SUM, all_three, 3)]:
            print(f'"{name}",{n * flops / peer.sustained(run, a.seconds) / 1e12:.2f}', flush=True)


if __name__ == "__main__":
    main()
