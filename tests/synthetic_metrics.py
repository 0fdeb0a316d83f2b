"""SOURCE OUT STEPS LAYERS EXPERTS: a metrics.h5 of so many steps with made-up rows, laid out as the program does; its
attributes, Markov chains and the rest are those of SOURCE. For sizes that no test can train."""

import sys

import h5py
import numpy as np

source, out = sys.argv[1:3]
n, L, E = map(int, sys.argv[3:])
rng = np.random.default_rng(0)
step = np.arange(1, n + 1)
t = step / n
rows = {
    "step": step,
    "tokens": step * 2**20,
    "loss": 1.3 + 4 * np.exp(-t * 200) + 0.1 * np.exp(-t * 3) + 0.02 * rng.standard_normal(n),
    "aux_loss": L * (1 + 0.3 * np.exp(-t * 20) + 0.01 * rng.random(n)),
    "z_loss": L * (1 + rng.random(n) / 10),
    "grad_norm": np.exp(0.4 * rng.standard_normal(n) - 0.5),
    "learning_rate": 1.5e-4 * (1 + np.cos(np.pi * t)),
    "step_s": 1 + 0.05 * rng.random(n),
    "tokens_per_s": 1e6 / (1 + 0.05 * rng.random(n)),
    "tflops": 400 + rng.random(n),
    "mfu": 0.4 + 0.02 * rng.random(n),
    "memory_bytes": np.full(n, 7e10),
    "useful_tokens": np.full(n, 10**6),
    "padded_tokens": np.full(n, 100),
}
rows["loss"][n // 3] = np.nan
events = sorted(
    [(0, "start"), (n // 4, "preemption"), (n // 4, "resume"), (n // 3 + 1, "skipped_step"), (n // 2, "spike")]
    + [(s, "checkpoint") for s in range(n // 200, n, n // 200)]
)
with h5py.File(source, "r") as old, h5py.File(out, "w", libver="earliest") as f:
    for name in ("/", "code", "config", "run"):
        group = f.require_group(name)
        for key, value in old[name].attrs.items():
            group.attrs[key] = value
    f["config"].attrs["num_train_steps"] = str(n)
    for name, values in rows.items():
        f["steps/" + name] = values
    f["experts/step"] = f["timing/step"] = step
    f["experts/entropy"] = (np.log(E) * (0.9 - 0.3 * t[:, None]) * np.linspace(0.9, 1, L)).astype("f4")
    tokens = f.create_dataset("experts/tokens", (n, L, E), "u4")
    start = np.exp(0.4 * rng.standard_normal((L, E)))
    for i in range(0, n, 1000):
        late = 1 - np.exp(-10 * t[i : i + 1000, None, None])
        share = start * (1 - late) + late * (1 + 0.1 * rng.random((1, L, E)))
        tokens[i : i + 1000] = share / share.mean(axis=2, keepdims=True) * 2**21 / E
    seconds = dict(
        data=0.01, forward=0.25, backward=0.5, exchange=0.15, reduce=0.05, optimizer=0.04, checkpoint=0, total=1.03
    )
    for name, s in seconds.items():
        f["timing/" + name] = s * np.sort(1 + 0.05 * rng.random((n, 3)), axis=1)
    at = np.arange(n // 50, n + 1, n // 50)
    f["validation/step"], f["validation/tokens"], f["validation/loss"] = (
        at,
        at * 2**20,
        1.31 + 0.1 * np.exp(-3 * at / n),
    )
    f["validation/bits_per_base"] = f["validation/loss"][:] / np.log(2)
    f["validation/markov_bits_per_base"] = old["validation/markov_bits_per_base"][:]
    f["events/step"], f["events/time"] = [s for s, _ in events], 1.79e9 + 100.0 * np.arange(len(events))
    for name, width, texts in (("kind", 16, [k for _, k in events]), ("text", 240, len(events) * ["made up"])):
        padded = b"".join(text.encode().ljust(width, b"\0") for text in texts)
        f["events/" + name] = np.frombuffer(padded, "S1").reshape(-1, width)
