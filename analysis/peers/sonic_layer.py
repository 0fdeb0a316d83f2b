#!/usr/bin/env python3
"""A mixture-of-experts layer of SonicMoE on one GPU, as `regulon bench moe` has it, as CSV: experts,both_seconds.
Untried so far.

Forward and backward with its router, which chooses, so that tokens are spread almost evenly; BF16, random normal numbers.
"""
import peer
import torch
from sonicmoe import MoE
from sonicmoe.enums import ActivationType


def main():
    p = peer.words(__doc__)
    p.add_argument("--experts", type=int, required=True)
    a = p.parse_args()
    s, E = peer.shape_of(a), a.experts
    torch.manual_seed(0)
    torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    x, gradient = torch.randn(s.N, s.D, requires_grad=True), torch.randn(s.N, s.D)
    layer = MoE(num_experts=E, num_experts_per_tok=min(s.A, E), hidden_size=s.D, intermediate_size=s.F,
                activation_function=ActivationType.SWIGLU, add_bias=False, std=0.02)

    def both():
        layer(x)[0].backward(gradient)
        layer.zero_grad(set_to_none=True)
        x.grad = None

    print(f"experts,both_seconds\n{E},{peer.sustained(both, a.seconds):.9g}")


if __name__ == "__main__":
    main()
