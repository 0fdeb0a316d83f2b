"""What tests/low_statistics.sh asks of /eight_bits: CHECK WORD...; exit code 1, and why, where it does not hold."""
import sys

import h5py
import numpy as np

KINDS = [f"{of}_{what}" for of in ("qkv", "o", "up", "down") for what in ("input", "weight", "gradient")]
FIGURES = "underflow at_largest nonfinite amax scale_min scale_max error".split()


class Rows:
    def __init__(self, folder):
        with h5py.File(f"{folder}/metrics.h5", "r") as f:
            group = f["eight_bits"]
            self.step = group["step"][:][group["step"][:] >= 0]
            self.rows = {name: group[name][: len(self.step)] for name in ["nonzero"] + FIGURES}
            self.kinds = [kind.decode() for kind in group["kind"][:]]
            self.tokens = int(f["steps/tokens"][0])
            self.config = dict(f["config"].attrs)

    def __getitem__(self, name):
        return self.rows[name]

    def of(self, name, kind):
        return self.rows[name][:, :, self.kinds.index(kind)]

    def key(self, name):
        return int(self.config["model." + name])


def need(good, what):
    if not good:
        print(f"# {what}")
        sys.exit(1)


def steps(folder, *want):
    found = Rows(folder).step
    need(list(found) == [int(step) for step in want], f"steps {found}")


def sane(recipe, folder, *want):
    steps(folder, *want)
    r = Rows(folder)
    need(r.kinds == KINDS, r.kinds)
    D, F, E = r.key("hidden_size"), r.key("intermediate_size"), r.key("num_local_experts")
    heads = r.key("num_attention_heads")
    K = D // heads
    kv = int(r.config["model.num_key_value_heads"]) if r.config["model.num_key_value_heads"] != "null" else heads
    A = r.key("num_experts_per_tok")
    N = r.tokens  # of the first step
    # random weights are never 0
    weights = {"qkv": (heads + 2 * kv) * K * D, "o": D * D, "up": E * 2 * F * D, "down": E * D * F}
    rows = {"qkv": N * D, "o": N * D, "up": N * A * D, "down": N * A * F}
    for of in weights:
        need(np.all(r.of("nonzero", f"{of}_weight") == weights[of]), f"{of}_weight: {r.of('nonzero', f'{of}_weight')}")
        inputs = r.of("nonzero", f"{of}_input")[0]
        need(np.all((inputs > 0.9 * rows[of]) & (inputs <= rows[of])), f"{of}_input: {inputs} not {rows[of]}")
    need(all(np.all(np.isfinite(r[name])) for name in FIGURES), "not finite")
    need(np.all((r["underflow"] >= 0) & (r["underflow"] < 0.05)) and np.any(r["underflow"] > 0), f"underflow {r['underflow']}")
    need(np.all((r["error"] > 0.015) & (r["error"] < 0.04)), f"error {r['error']}")
    need(np.all(r["nonfinite"] == 0), f"nonfinite {r['nonfinite']}")
    need(np.all((r["at_largest"] >= 0) & (r["at_largest"] < 0.2)), f"at_largest {r['at_largest']}")
    least = r["amax"] / 448
    if recipe == "fp8_block":
        need(np.array_equal(r["scale_max"], least.astype("f4")), "scale_max is amax / 448")
        need(np.all(r["at_largest"] > 0), "each block has a largest value")
    else:
        need(np.all((r["scale_max"] >= least) & (r["scale_max"] < 2 * least)), "scale_max is that up to a power of two")
        need(np.all(np.log2(r["scale_min"]) % 1 == 0), "scale_min is a power of two")
    need(np.all(r["scale_min"] <= r["scale_max"]) and np.all(r["scale_min"] > 0), "scales")


def out(folder):
    r = Rows(folder)
    need(np.all(r["nonzero"][:, 0] == 0) and all(np.all(np.isnan(r[name][:, 0])) for name in FIGURES), "layer 0 has rows")
    need(np.all(r["nonzero"][:, 1] > 0) and np.all(r["error"][:, 1] > 0.01), "layer 1 has none")


def alike(one, other):
    """The first step, whose weights are the same: counts and scales to the bit, sums by their order."""
    a, b = Rows(one), Rows(other)
    for name in ["nonzero"] + FIGURES:
        x, y = a[name][0], b[name][0]
        good = np.allclose(x, y, rtol=1e-6, atol=0) if name == "error" else np.array_equal(x, y)
        need(good, f"{name}: {x[x != y]} and {y[x != y]}")


def equal(one, other):
    """Rows that both have, to the bit."""
    a, b = Rows(one), Rows(other)
    both = np.intersect1d(a.step, b.step)
    need(len(both) >= 2, f"steps {a.step} and {b.step}")
    for name in ["nonzero"] + FIGURES:
        need(np.array_equal(a[name][np.isin(a.step, both)], b[name][np.isin(b.step, both)]), name)


def drawn(source, folder):
    """The figure's lines are the file's numbers."""
    sys.path.insert(0, f"{source}/analysis")
    import draw_eight_bits
    import figures
    import metrics

    run, r = metrics.open_run(folder), Rows(folder)
    figures.dress([run])
    figure = draw_eight_bits.eight_bits([run], figures.TimeAxis("step", [run])).figure
    lines = {line.get_gid(): line for line in figure.findobj() if line.get_gid()}
    for name in ("error", "underflow"):
        for role in ("input", "weight", "gradient"):
            values = np.stack([r.of(name, f"{of}_{role}") for of in ("qkv", "o", "up", "down")])
            line = lines[f"{name} {role}"]
            need(list(line.get_xdata()) == list(r.step), f"{name} {role}: steps {line.get_xdata()}")
            need(np.allclose(line.get_ydata(), 100 * np.median(values, axis=(0, 2)), rtol=1e-12), f"{name} {role}")


globals()[sys.argv[1]](*sys.argv[2:])
