"""What the programs within score.sh share."""
import csv, json, struct, sys
import h5py
import numpy as np


def tensors(path):
    f = open(path, "rb").read()
    n = struct.unpack("<Q", f[:8])[0]
    types = {"F32": "<f4", "I32": "<i4"}
    header = {k: v for k, v in json.loads(f[8:8 + n]).items() if k != "__metadata__"}
    data = f[8 + n:]
    return {k: np.frombuffer(data[slice(*v["data_offsets"])], types[v["dtype"]]).reshape(v["shape"]) for k, v in header.items()}


def table(path):
    return list(csv.DictReader(open(path), delimiter="\t", quoting=csv.QUOTE_NONE))


def bases(path):
    return np.array([float(r["log_likelihood"]) for r in table(path)])


def by_name(path):
    found = {}
    for r in table(path):
        found.setdefault(r["name"], []).append(float(r["log_likelihood"]))
    return found


def near(a, b, most):
    """a and b agree within `most`, and are NaN at the same places."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    assert a.shape == b.shape and (np.isnan(a) == np.isnan(b)).all(), (a.shape, b.shape)
    worst = np.nanmax(abs(a - b))
    assert worst <= most, worst


def mixtral(folder, ids):
    """Logits [T, V] of a Hugging Face folder (the old names of experts) in float64, one sequence, by the definition."""
    c, w = json.load(open(folder + "/config.json")), tensors(folder + "/model.safetensors")
    w = {k: v.astype(float) for k, v in w.items()}
    h, g, eps, t = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"], len(ids)
    k = c.get("head_dim") or c["hidden_size"] // h
    theta = c.get("rope_theta") or c["rope_parameters"]["rope_theta"]
    angle = np.outer(np.arange(t), theta ** (-np.arange(0, k, 2) / k))[:, None]
    mask = np.triu(np.full((t, t), -np.inf), 1)

    def norm(x, name):
        return w[name] * x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)

    def softmax(x):
        x = np.exp(x - x.max(-1, keepdims=True))
        return x / x.sum(-1, keepdims=True)

    def rotate(x):
        a, b = x[..., :k // 2], x[..., k // 2:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    x = w["model.embed_tokens.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        at, moe = f"model.layers.{layer}.", f"model.layers.{layer}.block_sparse_moe."
        y = norm(x, at + "input_layernorm.weight")
        q, key, v = ((y @ w[f"{at}self_attn.{n}_proj.weight"].T).reshape(t, -1, k) for n in "qkv")
        q, key, v = rotate(q), np.repeat(rotate(key), h // g, axis=1), np.repeat(v, h // g, axis=1)
        p = softmax(np.einsum("thk,shk->hts", q, key) / np.sqrt(k) + mask)
        x = x + np.einsum("hts,shk->thk", p, v).reshape(t, -1) @ w[at + "self_attn.o_proj.weight"].T
        y = norm(x, at + "post_attention_layernorm.weight")
        p = softmax(y @ w[moe + "gate.weight"].T)
        for i in range(t):
            best = np.argsort(-p[i], kind="stable")[:c["num_experts_per_tok"]]
            for e in best:
                gate, up, down = (w[f"{moe}experts.{e}.w{n}.weight"] for n in (1, 3, 2))
                z = gate @ y[i]
                x[i] = x[i] + p[i, e] / p[i, best].sum() * (down @ (z / (1 + np.exp(-z)) * (up @ y[i])))
    return norm(x, "model.norm.weight") @ w["lm_head.weight"].T
