"""What `regulon watch` shows: a run as lines of text."""

import json
import os
import time

import chart
import names
import numpy as np

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


def _progress(run, state, width, fancy):
    step, total = int(run.steps.step[-1]), _total_steps(run)
    if not total:
        return f" step {step}"
    bar = chart.progress(step / total, max(10, min(30, width - 60)), fancy)
    line = f" step {step} of {total}  {bar} {100 * step / total:.1f} %"
    left = (total - step) * _recent(run.steps["step_s"])
    return line + (f"   time left {duration(left)}" if not state.ended and left > 0 else "")


def _numbers(run):
    steps = run.steps
    lines = [
        f" loss {steps['loss'][-1]:.4f} nats/token   gradient norm {steps['grad_norm'][-1]:.3g}   "
        f"learning rate {steps['learning_rate'][-1]:.3g}"
    ]
    rate = f" {_recent(steps['tokens_per_s']):.0f} tokens/s   {1000 * _recent(steps['step_s']):.1f} ms a step"
    mfu = _recent(steps["mfu"])
    lines.append(rate + (f"   mfu {100 * mfu:.1f} %" if mfu == mfu else "") + f"   {steps['tokens'][-1]} tokens read")
    if run.validation.n:
        best = run.best_markov()
        lines.append(
            f" held-out {run.validation['bits_per_base'][-1]:.4f} bits/base at step {run.validation.step[-1]}"
            + (f"   best Markov chain {best[1]:.4f}" if best else "")
        )
    return lines


def recent_load(run):
    """Tokens [layer, expert] of the last rows."""
    return run.expert_tokens(max(0, run.experts.n - RECENT_ROWS), run.experts.n).sum(axis=0, dtype=np.int64)


def _loads(rows, load, height, fancy):
    """Bars of the layers, or of those that are most out of balance where not all fit."""
    ratio = names.imbalance(load[None])[0]
    order = np.argsort(-np.nan_to_num(ratio), kind="stable")[: max(0, height - 1)]
    which = "" if len(order) == len(load) else f", {len(order)} of {len(load)} layers, those furthest from even"
    half = chart.BLOCKS[3] if fancy else "4"
    lines = [f" expert load of the last {rows} rows{which}; {half} even, {'·' if fancy else '.'} none"]
    return lines + [
        f" layer {layer:<3} {chart.bars(load[layer], fancy)}  max/mean {ratio[layer]:.2f}" for layer in sorted(order)
    ]


def _events(run, n):
    lines = []
    for e in run.events[len(run.events) - n :] if n > 0 else ():
        lines.append(f" {time.strftime('%m-%d %H:%M:%S', time.localtime(e.time))}  step {e.step}  {e.kind}: {e.text}")
    return lines


def compose(run, load, state, size, note="", fancy=True):
    """Lines of at most size = (width, height). load: recent_load(run). note: what is wrong with the frame, instead of
    the state."""
    width, height = size
    lines = [f" {run.name}   {run.run.get('grid', '')}   {run.run.get('backend', '')}", f" {note or state.text}"]
    events = _events(run, min(len(run.events), 4 if height >= 20 else 1))
    if not run.steps.n:
        return (lines + [" no step is done yet"] + events)[:height]
    lines += [_progress(run, state, width, fancy)] + _numbers(run)
    room = height - len(lines) - len(events)
    loads = []
    if run.experts.n and room >= 5:
        loads = _loads(min(RECENT_ROWS, run.experts.n), load, min(run.n_layers + 1, max(2, room // 3)), fancy)
    room -= len(loads)
    bits = np.log(2)
    plot = (
        chart.curve(
            run.steps.step,
            run.steps["loss"] / bits,
            (run.validation.step, run.validation["bits_per_base"]),
            width - 1,
            min(room - 1, 24),
            fancy,
        )
        if room >= 6
        else []
    )
    title = [" training loss (curve), held-out loss (o) [bits per base]"] if plot else []
    return [line[:width] for line in (lines + title + plot + loads + events)[:height]]
