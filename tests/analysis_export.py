"""convert-metrics: CSV, JSON lines and TensorBoard's files hold what metrics.h5 holds, under the names of README.md."""

import csv
import json
import os
import re
import struct

import h5py
import numpy as np
from analysis_runs import command, ok, regulon

PHASES = "data forward backward exchange reduce optimizer checkpoint total".split()
RENAMED = {
    "loss": "train/loss",
    "aux_loss": "train/aux_loss",
    "z_loss": "train/z_loss",
    "learning_rate": "lr",
    "step_s": "step_seconds",
    "tokens_per_s": "tokens_per_second",
}
EIGHT_BITS = "nonzero underflow at_largest nonfinite amax scale_min scale_max error".split()
SAME = "tokens grad_norm tflops mfu mfu_6n memory_bytes useful_tokens padded_tokens".split()


def expected(path):
    """{name: {step: value}} by plain h5py."""
    want = {}
    with h5py.File(path) as f:

        def add(name, group, values):
            steps = f[group + "/step"][:]
            n = (steps >= 0).sum()
            want[name] = dict(zip(steps[:n].tolist(), values[:n].tolist()))

        for name in [*RENAMED, *SAME]:
            add(RENAMED.get(name, name), "steps", f["steps"][name][:])
        for phase in PHASES:
            for i, statistic in enumerate(("min", "median", "max")):
                add(f"timing/{phase}/{statistic}", "timing", f["timing"][phase][:, i])
        tokens = f["experts/tokens"][:]
        for layer in range(tokens.shape[1]):
            add(f"moe/router_entropy/layer_{layer}", "experts", f["experts/entropy"][:, layer])
            load = tokens[:, layer].astype(float)
            with np.errstate(invalid="ignore"):
                add(f"moe/load_imbalance/layer_{layer}", "experts", load.max(axis=1) / load.mean(axis=1))
            for expert in range(tokens.shape[2]):
                add(f"moe/expert_load/layer_{layer}/expert_{expert}", "experts", tokens[:, layer, expert])
        for name in EIGHT_BITS if f["eight_bits/step"][0] >= 0 else ():
            for layer in range(tokens.shape[1]):
                for i, kind in enumerate(f["eight_bits/kind"][:]):
                    add(f"eight_bits/{name}/layer_{layer}/{kind.decode()}", "eight_bits", f["eight_bits"][name][:, layer, i])
        for name in ("loss", "bits_per_base", "tokens"):
            add("eval/" + name, "validation", f["validation"][name][:])
        events = [bytes(k.tobytes()).rstrip(b"\0").decode() for k in f["events/kind"][:][f["events/step"][:] >= 0]]
    return want, events


def agree(found, want, single=False, null=False):
    """A list of what is wrong. single: float32; null: no value for what is not finite."""
    bad = [f"names {sorted(set(found) ^ set(want))}"] if set(found) != set(want) else []
    for name in set(found) & set(want):
        if list(found[name]) != list(want[name]):
            bad.append(f"{name}: steps {list(found[name])} not {list(want[name])}")
            continue
        for step, value in want[name].items():
            have = found[name][step]
            if null and not np.isfinite(value):
                good = have is None
            elif name.startswith("moe/load_imbalance"):
                good = np.isclose(have, value, rtol=1e-6 if single else 1e-14, equal_nan=True)
            else:
                with np.errstate(over="ignore"):
                    a, b = (np.float32(have), np.float32(value)) if single else (have, value)
                good = a == b or (a != a and b != b)
            if not good:
                bad.append(f"{name} at {step}: {have} not {value}")
    return bad


def read_csv(text):
    lines = list(csv.reader(text.splitlines()))
    found = {name: {} for name in lines[0][1:]}
    for line in lines[1:]:
        for name, cell in zip(lines[0][1:], line[1:], strict=True):
            if cell:
                found[name][int(line[0])] = float(cell)
    return found


def no_constant(name):
    raise ValueError(f"{name} is not JSON")


def read_jsonl(text):
    found, events = {}, []
    for line in text.splitlines():
        row = json.loads(line, parse_constant=no_constant)
        step = row.pop("step")
        if "event" in row:
            events.append(row["event"])
            continue
        for name, value in row.items():
            found.setdefault(name, {})[step] = value
    return found, events


def crc32c(data):
    """Bit by bit, as RFC 3720 defines it; 0xe3069283 of '123456789'."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def records(data):
    def check(part, masked):
        crc = crc32c(part)
        if (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF != masked:
            raise ValueError("a wrong checksum")

    at = 0
    while at < len(data):
        (length,), (crc,) = struct.unpack_from("<Q", data, at), struct.unpack_from("<I", data, at + 8)
        check(data[at : at + 8], crc)
        body = data[at + 12 : at + 12 + length]
        check(body, struct.unpack_from("<I", data, at + 12 + length)[0])
        yield body
        at += 16 + length


def fields(data):
    """(number, value) of a message: int, bytes, or for fixed sizes their bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            if at + size > len(data):
                raise ValueError("a field beyond its message")
            yield key >> 3, data[at : at + size]
            at += size


def read_events_file(path):
    """{tag: {step: float}}, [text tags], [(step, wall time)]."""
    found, texts, times = {}, [], []
    for i, record in enumerate(records(open(path, "rb").read())):
        event = dict(fields(record))
        if i == 0:
            assert event[3] == b"brain.Event:2", event
            continue
        times.append((event[2], struct.unpack("<d", event[1])[0]))
        for number, value in fields(event[5]):
            value = dict(fields(value))
            assert number == 1 and (2 in value or 8 in value)
            tag = value[1].decode()
            if 2 in value:
                found.setdefault(tag, {})[event[2]] = struct.unpack("<f", value[2])[0]
            else:
                texts.append(tag)
    return found, texts, times


def tensorboard_reads(folder):
    """The same by TensorBoard's own reader; ImportError where it is not installed."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    tags = reader.Tags()
    return {tag: {e.step: e.value for e in reader.Scalars(tag)} for tag in tags["scalars"]}, tags["tensors"]


def test_formats(run):
    want, kinds = expected(f"{run}/metrics.h5")
    want = {name: rows for name, rows in want.items() if rows}  # a name without rows is in no row
    out = regulon("convert-metrics", run, "--csv")
    found = {name: rows for name, rows in read_csv(out.stdout).items() if rows}
    bad = agree(found, want)
    ok(
        out.returncode == 0 and not out.stderr and not bad,
        f"{run}: CSV, {len(want)} names",
        "\n".join(bad[:9]) + out.stderr,
    )
    out = command("convert-metrics", run, "--jsonl", f"{run}.jsonl")
    found, events = read_jsonl(open(f"{run}.jsonl").read())
    bad = agree(found, want, null=True) + ([f"events {events} not {kinds}"] if events != kinds else [])
    ok(
        out.returncode == 0 and not out.stdout and not bad,
        f"{run}: JSON lines, with events",
        "\n".join(bad[:9]) + out.stderr,
    )
    out = command("convert-metrics", run, "--tensorboard", "tb")
    (name,) = os.listdir(f"tb/{run}")
    found, texts, times = read_events_file(f"tb/{run}/{name}")
    bad = agree(found, want, single=True)
    if texts != ["config"] + [f"events/{kind}" for kind in kinds]:
        bad.append(f"texts {texts}")
    with h5py.File(f"{run}/metrics.h5") as f:
        begin = f["events/time"][0]
    if any(not 0 <= t - begin < 600 for _, t in times):
        bad.append(f"times {times}")
    ok(
        out.returncode == 0 and not bad,
        f"{run}: TensorBoard's file, by a decoder of our own",
        "\n".join(bad[:9]) + out.stderr,
    )
    what = f"{run}: TensorBoard's file, by its own reader"
    try:
        found, tensors = tensorboard_reads(f"tb/{run}")
    except ImportError as absent:
        return print(f"# {absent}: not {what}", flush=True)
    ok(not agree(found, want, single=True) and set(tensors) == set(texts), what, agree(found, want, single=True)[:9])


def test_options():
    whole, some = read_csv(command("convert-metrics", "ep", "--csv").stdout), command(
        "convert-metrics", "ep/metrics.h5", "--csv", "--every", 7, "--no-experts"
    )
    found = read_csv(some.stdout)
    want = {
        name: {s: v for s, v in rows.items() if s % 7 == 0 or name.startswith("eval")}
        for name, rows in whole.items()
        if "expert_load" not in name
    }
    ok(found == want and "moe/router_entropy/layer_1" in found, "--every 7 --no-experts of a file", some.stderr)
    whole, some = (read_csv(command("convert-metrics", "eight", "--csv", *more).stdout) for more in ([], ["--no-eight-bits"]))
    thin = read_csv(command("convert-metrics", "eight", "--csv", "--every", 7).stdout)
    sampled = {name: rows for name, rows in whole.items() if name.startswith("eight_bits/")}
    ok(
        some == {name: rows for name, rows in whole.items() if name not in sampled}
        and len(sampled) == 8 * 2 * 12
        and repr({name: thin[name] for name in sampled}) == repr(sampled)  # NaN
        and list(thin["lr"]) == [7]
        and all(list(rows) == [1, 3, 6, 8] for rows in sampled.values()),
        "eight bits: 96 names a layer at the steps that are sampled, whatever --every; none with --no-eight-bits",
        {name: list(rows) for name, rows in thin.items() if name in [*sampled][:3] + ["lr"]},
    )
    out = command("convert-metrics", "dp", "ep", "--tensorboard", "both")
    ok(out.returncode == 0 and sorted(os.listdir("both")) == ["dp", "ep"], "two runs, a folder each")
    for words in (
        ["dp"],
        ["dp", "--csv", "--jsonl"],
        ["dp", "ep", "--csv"],
        ["dp", "dp", "--tensorboard", "x"],
        ["dp", "--csv", "--every", "0"],
        ["dp", "--csv", ""],
        ["--csv", "dp/metrics.h5", "ep"],
    ):
        out = command("convert-metrics", *words)
        ok(
            out.returncode == 64 and re.fullmatch("regulon-convert-metrics: .*\n", out.stderr),
            f"convert-metrics {' '.join(words)}: 64",
            out.stderr,
        )
    ok(h5py.is_hdf5("dp/metrics.h5"), "a run given as the file to write is still a run")
    out = command("convert-metrics", "dp", "--csv", "no/such/file")
    ok(
        out.returncode == 74
        and out.stderr == "regulon-convert-metrics: no/such/file: No such file or directory\n",
        "a file that cannot be: 74",
        out.stderr,
    )
    os.mkfifo("pipe")
    os.symlink("linked.csv", "link.csv")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    for path in ("pipe", "link.csv"):
        command("convert-metrics", "dp", "--csv", path, "--no-experts", "--every", 7)
    want = command("convert-metrics", "dp", "--csv", "--no-experts", "--every", 7).stdout
    ok(os.path.exists("pipe") and not os.path.isfile("pipe"), "a pipe stays a pipe")
    ok(os.read(reader, 1 << 16).decode() == want, "and gets the rows")
    os.close(reader)
    ok(os.path.islink("link.csv") and open("linked.csv").read() == want, "a link stays one, its file gets the rows")


def run_all():
    ok(crc32c(b"123456789") == 0xE3069283, "the decoder's CRC32C")
    for run in ("dp", "resumed", "skipped", "empty", "begun", "eight"):
        test_formats(run)
    test_options()
