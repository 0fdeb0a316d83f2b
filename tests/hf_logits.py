"""hf_logits.py golden FOLDER REFERENCE | score FOLDER FASTA JSONL | tokens FOLDER FASTA | dense FOLDER | alike A B: what hf_logits.sh asks transformers. Prints
the largest difference, and the versions; ends with 1 where it is above 1e-5."""

import json
import sys

import torch
import transformers
from safetensors.torch import load_file

MOST, WINDOW = 1e-5, 128


def model_of(folder):
    torch.set_num_threads(1)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=ids.long(), use_cache=False).logits


def golden(folder, reference):
    model, r = model_of(folder), load_file(reference)
    ids, cuts = r["input_ids"], r.get("cu_seqlens")
    if cuts is None:
        return (logits_of(model, ids) - r["logits"]).abs().max()
    pairs = zip(cuts[:-1].tolist(), cuts[1:].tolist())  # documents, one by one
    return max((logits_of(model, ids[:, a:b]) - r["logits"][:, a:b]).abs().max() for a, b in pairs if b > a)


def letters_of(fasta):
    return "".join(line.strip() for line in open(fasta) if not line.startswith(">"))


def score(folder, fasta, jsonl):
    """Of the first window, which begins at BOS, and whose labels are upper case."""
    text, want = letters_of(fasta).upper()[: WINDOW - 1], json.loads(open(jsonl).readline())["bases"][: WINDOW - 1]
    ids = torch.tensor([[2] + [ord(c) for c in text]])
    log_p = logits_of(model_of(folder), ids).double().log_softmax(-1)[0, :-1]
    found = log_p.gather(1, ids[0, 1:, None])[:, 0]
    return (found - torch.tensor(want, dtype=torch.float64)).abs().max()


def tokens(folder, fasta):
    text = letters_of(fasta)
    found = transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    assert found == [2] + [ord(c) for c in text], found[:9]
    return 0.0


def dense(folder):
    """A random Mistral model."""
    torch.manual_seed(1)
    sizes = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.MistralConfig(num_key_value_heads=2, sliding_window=None, initializer_range=0.1, **sizes)
    transformers.MistralForCausalLM(config).save_pretrained(folder)
    return 0.0


def alike(a, b):
    ids = torch.randint(4, 256, (2, 96), generator=torch.Generator().manual_seed(2))
    return (logits_of(model_of(a), ids) - logits_of(model_of(b), ids)).abs().max()


worst = float({"golden": golden, "score": score, "tokens": tokens, "dense": dense, "alike": alike}[sys.argv[1]](*sys.argv[2:]))
print(f"{worst:.1e} (transformers {transformers.__version__}, torch {torch.__version__})")
sys.exit(not worst <= MOST)
