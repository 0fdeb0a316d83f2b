#!/usr/bin/env python3
"""The training step of Hugging Face's Mixtral on one GPU, cut to some layers: what BENCHMARKS.md compares with.

    hf_mixtral.py --impl eager|grouped_mm [--layers 4] [--batch 2] [--ga 8] [--seq 4096] ...

Random weights and tokens in BF16, fused AdamW with moments in BF16 and no FP32 masters. Prints one line: tokens a second
and TFLOP/s by Regulon's count, the median of --steps steps after three. Needs torch and transformers 5.
"""
import argparse
import statistics
import time

import torch
from transformers import MixtralConfig, MixtralForCausalLM


def words():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in [("layers", 4), ("hidden", 4096), ("ffn", 14336), ("experts", 8), ("topk", 2), ("heads", 32), ("kv", 8),
                        ("seq", 4096), ("batch", 1), ("vocab", 32000), ("steps", 6), ("ga", 1)]:
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--impl", default="eager", help="of the experts: eager (a loop) or grouped_mm")
    return p.parse_args()


def model_of(a):
    config = MixtralConfig(vocab_size=a.vocab, hidden_size=a.hidden, intermediate_size=a.ffn, num_hidden_layers=a.layers,
                           num_attention_heads=a.heads, num_key_value_heads=a.kv, num_local_experts=a.experts,
                           num_experts_per_tok=a.topk, use_cache=False, output_router_logits=False, max_position_embeddings=131072)
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = MixtralForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.set_experts_implementation(a.impl)
    return model.train()


def flops_of(a, tokens):
    """6 times the weights that a token meets, the embedding and the norms aside, and causal attention."""
    width = a.hidden // a.heads
    layer = 2 * a.hidden * a.hidden + 2 * a.hidden * a.kv * width + a.topk * 3 * a.hidden * a.ffn + a.hidden * a.experts
    return 6 * (a.layers * layer + a.hidden * a.vocab) * tokens + 6 * a.layers * tokens * a.seq * a.hidden


def main():
    a = words()
    torch.manual_seed(0)
    model = model_of(a)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(0, a.vocab, (a.batch, a.seq), device="cuda")
    times = []
    for _ in range(3 + a.steps):
        start = time.perf_counter()
        for _ in range(a.ga):
            loss = model(input_ids=ids, labels=ids).loss / a.ga
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    step, tokens = statistics.median(times[3:]), a.batch * a.seq * a.ga
    print(f"experts {a.impl}, {a.layers} layers, batch {a.batch} x {a.seq}, ga {a.ga}: {tokens / step:.0f} tokens/s, "
          f"{flops_of(a, tokens) / step / 1e12:.1f} TFLOP/s, {step * 1e3:.1f} ms a step, "
          f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
