"""For hf.sh: Hugging Face folders, read and written without regulon.
    hf.py same A B           the tensors of two folders are equal, under the per-expert names, as FP32
    hf.py rounded A B        those of B are those of A rounded to BF16
    hf.py make A B [fused] [bf16|f16] [files=N]   folder B from A: fused names, another type, N files and an index
    hf.py big FOLDER         a model of 25 MB in FP32
    hf.py tokenizer FOLDER   one token a byte; with the tokenizers library, where it is there, else by its rules
    hf.py config FOLDER      both generations of keys
    hf.py same-config A B    two config.json mean the same
    hf.py change A B CODE    folder B from A, where Python's CODE has changed `t` (tensors) and `c` (config)
    hf.py upcycled A B E STD every expert of B is the feed-forward block of A, with noise of that deviation, all else is the same
    hf.py broken A REGULON   imports A with files that break the format: "0 TEXT" or "1 TEXT" a line, 0: refused as it should be
"""
import json
import os
import re
import resource
import shutil
import subprocess
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


def change(a, b, code):
    c, t = json.load(open(os.path.join(a, "config.json"))), {n: wide(*x) for n, x in read_folder(a).items()}
    exec(code, {"c": c, "t": t, "np": np})
    os.makedirs(b)
    json.dump(c, open(os.path.join(b, "config.json"), "w"))
    write_file(os.path.join(b, "model.safetensors"), t, "F32")


def one(name, dtype, shape, first, last):
    return {name: {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}}


def broken_files():
    """(what, bytes of the file, what the message ends with)"""
    def whole(header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return (len(text) if length is None else length).to_bytes(8, "little") + text + data
    good, bad = one("a", "F32", [1], 0, 4), "not a safetensors file"
    yield "an empty file", b"", bad + " (0 bytes)"
    yield "seven bytes", b"\0" * 7, bad + " (7 bytes)"
    yield "a header of 2^64 - 1 bytes", whole(b"{}", length=2**64 - 1), bad + ": a header of 18446744073709551615 bytes in a file of 10"
    yield "a header of 2^63 bytes", whole(b"{}", length=2**63), bad + ": a header of 9223372036854775808 bytes in a file of 10"
    yield "a header longer than the file", whole(b"{}", length=3), bad + ": a header of 3 bytes in a file of 10"
    yield "a header of 100 MB and a byte", 100000001, bad + ": a header of 100000001 bytes in a file of 100000009"
    yield "an empty header", whole(b""), "the header does not begin with '{'"
    yield "a blank before the header", whole(b" {}"), "the header does not begin with '{'"
    yield "a list", whole(b"[]"), "the header does not begin with '{'"
    yield "half a header", whole(b'{"a": '), "the header is not JSON: "
    yield "text behind the header", whole(b"{} x"), "the header is not JSON: "
    yield "10000 levels", whole(b'{"a":' * 10000), "tensor 'a' does not have just dtype, shape and data_offsets"
    yield "a name twice", whole(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', bytes(8)), "tensor 'a' is there twice"
    yield "an unknown type", whole(one("a", "F33", [1], 0, 4), bytes(4)), "tensor 'a' has the unknown dtype 'F33'"
    yield "a gap", whole({**good, **one("b", "F32", [1], 8, 12)}, bytes(12)), "tensor 'b' begins at 8, the one before it ends at 4"
    yield "an overlap", whole({**good, **one("b", "F32", [1], 2, 6)}, bytes(6)), "tensor 'b' begins at 2, the one before it ends at 4"
    yield "data that begin late", whole(one("a", "F32", [1], 4, 8), bytes(8)), "tensor 'a' begins at 4, the one before it ends at 0"
    yield "bytes behind the data", whole(good, bytes(5)), "5 bytes of data, the tensors take 4"
    yield "data cut short", whole(good, bytes(3)), "tensor 'a' lies beyond the end of the file"
    yield "offsets in reverse", whole(one("a", "F32", [1], 4, 0), bytes(4)), "tensor 'a': data_offsets are not [begin, end]"
    yield "offsets near 2^63", whole(one("a", "F32", [1], 2**63 - 5, 2**63 - 1), bytes(4)), "tensor 'a' lies beyond the end of the file"
    yield "a shape whose product wraps to 1", whole(one("a", "F32", [2**32, 2**32, 1], 0, 4), bytes(4)), "tensor 'a' is too large"
    yield "a shape whose bytes wrap to 4", whole(one("a", "F32", [2**62 + 1], 0, 4), bytes(4)), "tensor 'a': 4 bytes of data do not fit its shape and dtype"
    yield "a dimension below 0", whole(one("a", "F32", [-1, -1], 0, 4), bytes(4)), "tensor 'a': dimension 0 is not a whole number"
    yield "a dimension of 1.0", whole(one("a", "F32", [1.0], 0, 4), bytes(4)), "tensor 'a': dimension 0 is not a whole number"
    yield "nine dimensions", whole(one("a", "F32", [1] * 9, 0, 4), bytes(4)), "tensor 'a' has more than 8 dimensions"
    yield "another key in a tensor", whole({"a": {**good["a"], "x": 1}}, bytes(4)), "tensor 'a' does not have just dtype, shape and data_offsets"
    yield "metadata that are no strings", whole({"__metadata__": {"a": 1}}), "__metadata__: 'a' is not a string"
    yield "a key twice in a tensor", whole(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)), "tensor 'a' does not have just"
    yield "a key twice in the metadata", whole(b'{"__metadata__":{"x":"1","x":"2"}}'), "__metadata__: key 'x' is there twice"
    yield "metadata twice", whole(b'{"__metadata__":{},"__metadata__":{}}'), "__metadata__ is there twice"
    yield "a dimension of 2^63", whole(one("a", "F32", [2**63], 0, 4), bytes(4)), "tensor 'a': dimension 0 is not a whole number"
    yield "a dimension of 01", whole(b'{"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}}', bytes(4)), "tensor 'a': dimension 0 is not a whole number"
    yield "a name that is not UTF-8", whole(b'{"a\xff":1}'), "the header is not JSON: a string that is not UTF-8"
    yield "half a character in a name", whole(b'{"\\ud800":1}'), "the header is not JSON: half a character"
    yield "a comma too many", whole(b'{"__metadata__":{},}'), "the header is not JSON: "
    yield "a tensor of no elements, which is legal", whole(one("none", "F32", [0, 3], 0, 0)), "the model has no 'none'"
    for what, start, text in ("lists for a shape", b'{"a":{"dtype":"F32","shape":[', b"[],"), ("dimensions", b'{"a":{"dtype":"F32","shape":[', b"1,"), (
            "tensors that say nothing", b"{", b'"aa":{},'):  # the last ones: what they leave in memory counts for all that follow
        yield f"99 MB of {what}", (start, text), "tensor 'a"


def broken(a, regulon):
    def most():
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    os.makedirs("broken", exist_ok=True)
    subprocess.run([regulon, "--version"], stdout=subprocess.DEVNULL, check=True)
    limit = most() + (32 << 10)  # what its libraries take, and 32 MB
    shutil.copy(os.path.join(a, "config.json"), "broken")
    for what, data, message in broken_files():
        with open("broken/model.safetensors", "wb") as f:
            if isinstance(data, tuple):  # a large header
                start, text = data
                f.write((99 * 10**6).to_bytes(8, "little") + start)
                piece = text * 10**5  # not all at once: what is measured of a child begins with its parent's most
                while f.tell() < 8 + 99 * 10**6:
                    f.write(piece)
                f.truncate(8 + 99 * 10**6)
            elif isinstance(data, int):  # all of it header
                f.write(data.to_bytes(8, "little") + b"{")
                f.truncate(8 + data)
            else:
                f.write(data)
        run = subprocess.run([regulon, "import", "broken", "-o", "new"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = [line for line in run.stderr.splitlines() if line.startswith("regulon: ")]
        small = most() < limit + (97 << 10) * isinstance(data, tuple)
        ok = run.returncode == 65 and len(lines) == 1 and message in lines[0] and small and not os.path.exists("new") and not os.path.exists("new.tmp")
        if not ok:
            print("#", run.returncode, run.stderr.replace("\n", " "), most(), limit)
        print(int(not ok), what)


def equal(a, b):
    assert set(a) == set(b), set(a) ^ set(b)
    for name, x in a.items():
        assert x.shape == b[name].shape and x.tobytes() == b[name].tobytes(), name


def same(a, b):
    equal(old_names(read_folder(a)), old_names(read_folder(b)))


def upcycled(a, b, experts, deviation):
    dense, b = ({n: wide(*t) for n, t in read_folder(x).items()} for x in (a, b))
    routers = [n for n in b if "block_sparse_moe.gate" in n]
    names = {f"w{i}": f"mlp.{name}_proj" for i, name in ((1, "gate"), (2, "down"), (3, "up"))}
    noises = {}
    for name, x in b.items():
        match = re.fullmatch(r"(model.layers.[0-9]+.)block_sparse_moe.experts.([0-9]+).(w[123]).weight", name)
        if match:
            noises[name] = x - dense[f"{match[1]}{names[match[3]]}.weight"]
        elif name not in routers:
            assert (x == dense[name]).all(), name
    assert len(noises) == 3 * len(routers) * int(experts) and len(routers) == 2
    assert all(b[n].shape[0] == int(experts) and len(np.unique(b[n])) > 0.99 * b[n].size and b[n].std() < 0.1 for n in routers)
    for name, x in noises.items():
        if float(deviation) == 0:
            assert not x.any(), name
        else:
            assert abs(x.std() / float(deviation) - 1) < 0.05 and abs(x.mean()) < 0.1 * float(deviation), (name, x.std())
    if float(deviation):
        assert len({x.tobytes() for x in noises.values()}) == len(noises)
        flat = [x.ravel() for x in noises.values()]
        assert all(abs(np.corrcoef(flat[0], x)[0, 1]) < 0.1 for x in flat[1:] if x.size == flat[0].size)


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
