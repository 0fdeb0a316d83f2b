"""What `regulon watch` shows: a run as lines of text."""

import json
import os
import textwrap
import time

import chart
import names
import numpy as np
import summary

RECENT_ROWS = 20  # that rates and loads are of
MOST_SILENCE_S = 30  # between two signs of a job (docs/formats.md, lock.N)
ENDED = {
    0: "finished",
    70: "ended by a failure",
    74: "ended: input or output failed",
    75: "saved and unfinished",
    76: "stopped on numbers that are not finite",
    78: "refused its deck or launch",
}


class State:
    """Whether a job owns the run folder now, and how the last one ended."""

    def __init__(self, folder):
        self.ended, self.text = False, "no job"
        lock, status = _newest_lock(folder), _json(os.path.join(folder, "status.json"))
        heartbeat, written = _changed(lock), _changed(os.path.join(folder, "status.json"))
        silent = max(0.0, time.time() - heartbeat) if heartbeat else None
        if silent is not None and silent < MOST_SILENCE_S:
            self.text = f"running on {_json(lock).get('host', '?')}"
        elif "code" in status and (silent is None or written > heartbeat - MOST_SILENCE_S):
            code = status["code"]
            self.ended = True
            self.text = f"{ENDED.get(code, 'ended')} at step {status.get('step')} (exit code {code})"
        elif silent is not None:
            self.text = f"no sign of its job for {duration(silent)}: killed, or this clock is not the file server's"


def _newest_lock(folder):
    try:
        numbers = [name[5:] for name in os.listdir(folder) if name.startswith("lock.")]
    except OSError:
        return ""
    newest = max((int(n) for n in numbers if n.isdigit()), default=None)
    return "" if newest is None else os.path.join(folder, f"lock.{newest}")


def _changed(path):
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _json(path):
    try:
        with open(path) as file:
            found = json.load(file)
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def duration(seconds):
    seconds = int(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02} s"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02} min"
    return f"{seconds // 86400} d {seconds % 86400 // 3600:02} h"


def _recent(values):
    values = values[-RECENT_ROWS:]
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else float("nan")


def _total_steps(run):
    text = str(run.config.get("num_train_steps", ""))
    return int(text) if text.isdigit() else 0


def _fit(parts, width):
    """Lines of parts beside each other. No value is cut: what does not fit goes on in the next line."""
    lines = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += "   " + part
        else:
            lines += textwrap.wrap(part, max(4, width), initial_indent=" ", subsequent_indent="  ")
    return lines


def _cut(line, width, fancy):
    """A line of words and bars, with a sign where its end is missing."""
    return line if len(line) <= width else line[: width - 1] + ("…" if fancy else ">")


def _progress(run, state, width, fancy):
    step, total = int(run.steps.step[-1]), _total_steps(run)
    if not total:
        return [f"step {step}"]
    bar = chart.progress(step / total, max(6, min(30, width - 60)), fancy)
    left = (total - step) * _recent(run.steps["step_s"])
    return [f"step {step} of {total}", f"{bar} {100 * step / total:.1f} %"] + (
        [f"time left {duration(left)}"] if not state.ended and left > 0 else []
    )


def _numbers(run, width):
    steps = run.steps
    lines = _fit(
        [
            f"loss {steps['loss'][-1]:.4f} nats/token",
            f"gradient norm {steps['grad_norm'][-1]:.3g}",
            f"learning rate {steps['learning_rate'][-1]:.3g}",
        ],
        width,
    )
    mfu = _recent(steps["mfu"])
    lines += _fit(
        [f"{_recent(steps['tokens_per_s']):.0f} tokens/s", f"{1000 * _recent(steps['step_s']):.1f} ms a step"]
        + ([f"mfu {100 * mfu:.1f} %"] if mfu == mfu else [])
        + [f"{steps['tokens'][-1]} tokens read"],
        width,
    )
    if run.validation.n:
        bits, best = run.validation["bits_per_base"][-1], run.best_markov()
        held_out = f"held-out {bits:.4f} {summary.bits_unit(run)} at step {run.validation.step[-1]}"
        lines += _fit([held_out] + ([f"best Markov chain {best[1]:.4f}"] if best else []), width)
    return lines


def recent_load(run):
    """Tokens [layer, expert] of the last rows."""
    return run.expert_tokens(max(0, run.experts.n - RECENT_ROWS), run.experts.n).sum(axis=0, dtype=np.int64)


def _loads(rows, load, size, fancy):
    """Bars of the layers, or of those that are most out of balance where not all fit."""
    width, height = size
    ratio = names.imbalance(load[None])[0]
    half = chart.BLOCKS[3] if fancy else "4"
    none = "·" if fancy else "."
    head = [f"expert load of the last {rows} rows: max/mean, and a bar an expert; {half} even, {none} none"]
    head = head if len(head[0]) < width else [f"expert load, {rows} rows"]
    order = np.argsort(-np.nan_to_num(ratio), kind="stable")[: max(0, height - len(_fit(head, width)))]
    if not len(order):
        return []
    if len(order) < len(load):
        head += [f"{len(order)} of {len(load)} layers, those furthest from even"]
    word = "layer " if width >= 40 else ""
    return _fit(head, width) + [
        _cut(f" {word}{layer:<3} {ratio[layer]:.2f} {chart.bars(load[layer], fancy)}", width, fancy)
        for layer in sorted(order)
    ]


def _events(run, n, width, fancy):
    lines = []
    for e in run.events[len(run.events) - n :] if n > 0 else ():
        at = time.strftime("%m-%d %H:%M:%S  ", time.localtime(e.time)) if width >= 60 else ""
        lines.append(_cut(f" {at}step {e.step}  {e.kind}: {e.text}", width, fancy))
    return lines


def compose(run, load, state, size, note="", fancy=True):
    """Lines of at most size = (width, height). load: recent_load(run). note: what is wrong with the frame, instead of
    the state."""
    width, height = size
    lines = _fit([run.name, str(run.run.get("grid", "")), str(run.run.get("backend", ""))], width)
    lines += _fit([note or state.text], width)
    events = _events(run, min(len(run.events), 4 if height >= 20 else 1), width, fancy)
    if not run.steps.n:
        return [line[:width] for line in (lines + [" no step is done yet"] + events)[:height]]
    lines += _fit(_progress(run, state, width, fancy), width) + _numbers(run, width)
    room = height - len(lines) - len(events)
    loads, plot, title = [], [], []
    if run.n_experts > 1 and run.experts.n and room >= 5:
        most = min(run.n_layers + 2, max(3, room // 3))
        loads = _loads(min(RECENT_ROWS, run.experts.n), load, (width, most), fancy)
    room -= len(loads)
    if room >= 6:
        held_out = run.validation.step, run.validation["bits_per_base"]
        plot = chart.curve(run.steps.step, run.steps["loss"] / np.log(2), held_out, width - 1, min(room - 1, 24), fancy)
        unit = summary.bits_unit(run)
        title = [f" training loss (curve), held-out loss (o) [{unit}]"]
        title = [title[0] if len(title[0]) <= width else f" loss [{unit}]"]
    return [line[:width] for line in (lines + title * bool(plot) + plot + loads + events)[:height]]
