"""For hf.sh: Hugging Face folders, read and written without regulon.
    hf.py same A B           the tensors of two folders are equal, under the per-expert names, as FP32
    hf.py rounded A B        those of B are those of A rounded to BF16
    hf.py make A B [fused] [bf16|f16] [files=N]   folder B from A: fused names, another type, N files and an index
    hf.py big FOLDER         a model of 25 MB in FP32
    hf.py tokenizer FOLDER   one token a byte; with the tokenizers library, where it is there, else by its rules
    hf.py config FOLDER      both generations of keys
    hf.py same-config A B    two config.json mean the same
"""
import json
import os
import re
import shutil
import sys

import numpy as np

TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def read_file(path):
    """{name: (dtype, array)} of one file."""
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(n))
        data = f.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]], TYPES[t["dtype"]]).reshape(t["shape"]))
            for name, t in header.items()}


def read_folder(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_file(os.path.join(folder, "model.safetensors"))
    tensors, weight_map = {}, json.load(open(index))["weight_map"]
    for name in sorted(set(weight_map.values())):
        for key, value in read_file(os.path.join(folder, name)).items():
            assert weight_map[key] == name and key not in tensors, key
            tensors[key] = value
    assert set(tensors) == set(weight_map)
    return tensors


def wide(dtype, x):
    return (x.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else x.astype(np.float32)


def to_bf16(x):
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def old_names(tensors):
    """FP32 under the per-expert names."""
    out = {}
    for name, (dtype, x) in tensors.items():
        x = wide(dtype, x)
        at = re.match(r"(model\.layers\.\d+)\.mlp\.(.*)", name)
        if not at:
            out[name] = x
        elif at[2] == "gate.weight":
            out[at[1] + ".block_sparse_moe.gate.weight"] = x
        else:
            for e in range(len(x)):
                to = f"{at[1]}.block_sparse_moe.experts.{e}."
                if at[2] == "experts.down_proj":
                    out[to + "w2.weight"] = x[e]
                else:
                    out[to + "w1.weight"], out[to + "w3.weight"] = np.split(x[e], 2)
    return out


def fused_names(tensors):
    out = {n.replace(".block_sparse_moe.gate.", ".mlp.gate."): x for n, x in tensors.items() if ".experts." not in n}
    for layer in range(sum(n.endswith(".block_sparse_moe.gate.weight") for n in tensors)):
        at, e = f"model.layers.{layer}.block_sparse_moe.experts.", 0
        up, down = [], []
        while f"{at}{e}.w1.weight" in tensors:
            up.append(np.concatenate([tensors[f"{at}{e}.w1.weight"], tensors[f"{at}{e}.w3.weight"]]))
            down.append(tensors[f"{at}{e}.w2.weight"])
            e += 1
        out[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = np.stack(up)
        out[f"model.layers.{layer}.mlp.experts.down_proj"] = np.stack(down)
    return out


def write_file(path, tensors, dtype):
    header, data = {}, b""
    for name, x in tensors.items():
        x = to_bf16(x) if dtype == "BF16" else x.astype(TYPES[dtype])
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


def make(a, b, *how):
    os.makedirs(b)
    shutil.copy(os.path.join(a, "config.json"), b)
    tensors = old_names(read_folder(a))
    if "fused" in how:
        tensors = fused_names(tensors)
    dtype = "BF16" if "bf16" in how else "F16" if "f16" in how else "F32"
    n = next((int(h[6:]) for h in how if h.startswith("files=")), 0)
    if not n:
        return write_file(os.path.join(b, "model.safetensors"), tensors, dtype)
    weight_map = {}
    for k in range(n):
        name = f"model-{k + 1:05d}-of-{n:05d}.safetensors"
        part = dict(list(tensors.items())[k::n])
        write_file(os.path.join(b, name), part, dtype)
        weight_map.update({t: name for t in part})
    json.dump({"metadata": {}, "weight_map": weight_map}, open(os.path.join(b, "model.safetensors.index.json"), "w"))


def big(folder):
    D, F, E, V = 256, 1024, 8, 256
    os.makedirs(folder)
    json.dump({"model_type": "mixtral", "hidden_size": D, "intermediate_size": F, "num_local_experts": E, "num_hidden_layers": 1,
               "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": V, "tie_word_embeddings": True},
              open(os.path.join(folder, "config.json"), "w"))
    at = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), at + "input_layernorm.weight": (D,),
              at + "post_attention_layernorm.weight": (D,), at + "mlp.gate.weight": (E, D),
              at + "mlp.experts.gate_up_proj": (E, 2 * F, D), at + "mlp.experts.down_proj": (E, D, F),
              **{f"{at}self_attn.{x}_proj.weight": (D, D) for x in "qkvo"}}
    rng = np.random.default_rng(1)
    write_file(os.path.join(folder, "model.safetensors"), {n: rng.standard_normal(x, dtype=np.float32) for n, x in shapes.items()}, "BF16")


def equal(a, b):
    assert set(a) == set(b), set(a) ^ set(b)
    for name, x in a.items():
        assert x.shape == b[name].shape and x.tobytes() == b[name].tobytes(), name


def same(a, b):
    equal(old_names(read_folder(a)), old_names(read_folder(b)))


def rounded(a, b):
    tensors = read_folder(b)
    assert {dtype for dtype, _ in tensors.values()} == {"BF16"}
    equal({n: wide("BF16", to_bf16(x)) for n, x in old_names(read_folder(a)).items()}, old_names(tensors))


def tokenizer(folder):
    path = os.path.join(folder, "tokenizer.json")
    t, extra = json.load(open(path)), json.load(open(os.path.join(folder, "tokenizer_config.json")))
    text = "".join(map(chr, range(4, 128))) + "ACGTNacgtn"
    try:
        from tokenizers import Tokenizer
        one = Tokenizer.from_file(path)
        assert one.encode(text, add_special_tokens=False).ids == [ord(c) for c in text]
        assert one.encode("ACGT").ids == [2, 65, 67, 71, 84] and one.decode([2, 65, 67, 71, 84]) == "ACGT"
        assert one.get_vocab_size() == 256
    except ImportError:
        pass
    # the byte-level alphabet: a byte that can be seen is itself, the others follow from 256 on
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in seen]
    spelled = {b: chr(b) if b in seen else chr(256 + hidden.index(b)) for b in range(4, 256)}
    marks = {"<eos>": 0, "<pad>": 1, "<bos>": 2, "<unk>": 3}
    assert t["model"]["vocab"] == {**marks, **{c: b for b, c in spelled.items()}}
    assert t["model"]["type"] == "BPE" and t["model"]["merges"] == [] and t["model"]["unk_token"] == "<unk>"
    assert t["pre_tokenizer"] == {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    assert t["decoder"]["type"] == "ByteLevel" and t["normalizer"] is None
    assert {(a["content"], a["id"], a["special"]) for a in t["added_tokens"]} == {(w, i, True) for w, i in marks.items()}
    assert t["post_processor"]["special_tokens"]["<bos>"]["ids"] == [2]
    assert t["post_processor"]["single"][0]["SpecialToken"]["id"] == "<bos>" and len(t["post_processor"]["single"]) == 2
    assert extra["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert [extra[k + "_token"] for k in ("eos", "pad", "bos", "unk")] == list(marks)


def config(folder):
    c, g = (json.load(open(os.path.join(folder, f))) for f in ("config.json", "generation_config.json"))
    assert c["rope_theta"] == c["rope_parameters"]["rope_theta"] and c["rope_parameters"]["rope_type"] == "default"
    assert c["dtype"] == c["torch_dtype"] and c["architectures"] == ["MixtralForCausalLM"]
    assert [g.get(k) for k in ("eos_token_id", "pad_token_id", "bos_token_id")] == [c.get(k) for k in ("eos_token_id", "pad_token_id", "bos_token_id")]


def same_config(a, b):
    """What a model computes, of any generation of keys."""
    def meaning(folder):
        c = json.load(open(os.path.join(folder, "config.json")))
        c["rope_theta"] = c.get("rope_theta") or c["rope_parameters"]["rope_theta"]
        c["head_dim"] = c["head_dim"] or c["hidden_size"] // c["num_attention_heads"]
        return {k: c[k] for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                  "num_key_value_heads", "head_dim", "num_local_experts", "num_experts_per_tok", "rms_norm_eps", "rope_theta",
                                  "sliding_window", "tie_word_embeddings", "max_position_embeddings", "initializer_range", "router_aux_loss_coef")}
    assert meaning(a) == meaning(b), (meaning(a), meaning(b))


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
