"""The report as one HTML page: figures inside, nothing loaded from elsewhere, no script."""

import base64
import html
import time

import summary
from figures import count_text

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", "Liberation Sans", Arial, sans-serif; color: #222; background: #fff;
  max-width: 62rem; margin: 0 auto; padding: 1.5rem 1.2rem 4rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
p.lead { color: #555; margin: 0 0 1rem; }
table { border-collapse: collapse; font-size: .87rem; } .scroll { overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .22rem .9rem .22rem 0; border-bottom: 1px solid #ddd; }
th { font-weight: 600; } td.key, td.mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .8rem; }
td { overflow-wrap: anywhere; } td.mono:first-child { white-space: nowrap; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(11.5rem, 1fr)); gap: .6rem 1.2rem; margin: 1rem 0; }
dt { color: #555; font-size: .8rem; } dd { margin: 0; font-size: 1.02rem; font-weight: 600; }
dd small { font-weight: 400; color: #555; }
figure { margin: 1.6rem 0 2.2rem; } figure img { width: 100%; height: auto; display: block; }
figcaption { color: #555; font-size: .85rem; margin-top: .3rem; }
summary { cursor: pointer; font-weight: 600; margin: .6rem 0; }
.dot { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .4em; }
@media print { body { max-width: none; padding: 0; } figure { break-inside: avoid; } }
"""


def escape(text):
    return html.escape(str(text))


def table(head, rows, mono=False):
    if not rows:
        return ""
    cells = "".join(f"<th>{escape(h)}</th>" for h in head)
    kind = ' class="mono"' if mono else ""
    body = "\n".join("<tr>" + "".join(f"<td{kind}>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead>\n<tbody>{body}</tbody></table></div>\n'


def figure(drawing, svg):
    data = base64.b64encode(svg).decode()
    return (
        f'<figure id="{drawing.name}"><img src="data:image/svg+xml;base64,{data}" alt="{escape(drawing.title)}">\n'
        f"<figcaption>{escape(drawing.caption)}</figcaption></figure>\n"
    )


def utc(seconds):
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if abs(seconds) < 1e11 else "?"


def facts(run):
    """What was reached, as (name, figure, remark)."""
    steps, row = run.steps, summary.best_validation(run)
    of = run.config.get("num_train_steps", "?")
    out = [
        ("steps", f"{steps.step[-1] if steps.n else 0}", f"of {of}"),
        ("tokens read", count_text(float(steps['tokens'][-1])) if steps.n else "0", ""),
    ]
    last = summary.last_finite(steps["loss"])
    if last is not None:
        out.append(("training loss", f"{steps['loss'][last]:.4f}", f"nats/token at step {steps.step[last]}"))
    if row is not None:
        out.append(
            (
                "best held-out loss",
                f"{run.validation['bits_per_base'][row]:.4f}",
                f"{summary.bits_unit(run)} at step {run.validation.step[row]}",
            )
        )
    if run.best_markov():
        order, bits = run.best_markov()
        out.append(("best Markov chain", f"{bits:.4f}", f"{summary.bits_unit(run)}, order {order}"))
    if steps.n:
        out.append(("speed", count_text(summary.finite_median(steps["tokens_per_s"])), "tokens/s, median"))
        out.append(("time in steps", duration(_seconds_in_steps(run)), "estimate"))
    mfu = summary.finite_median(steps["mfu"])
    if mfu == mfu:
        out.append(("MFU", f"{100 * mfu:.3g} %", "median"))
    bad = sum(e.kind == "skipped_step" for e in run.events)
    if bad:
        out.append(("skipped steps", str(bad), "numbers not finite"))
    return out


def _seconds_in_steps(run):
    """Each row stands for the steps since the row before."""
    gaps = [int(s) for s in run.steps.step[:1]] + [int(b - a) for a, b in zip(run.steps.step, run.steps.step[1:])]
    return sum(g * s for g, s in zip(gaps, run.steps["step_s"]) if s == s)


def duration(seconds):
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def _experts(run):
    if run.n_experts == 1:
        return "dense"
    return f"{run.n_experts} experts in each, {run.config.get('model.num_experts_per_tok', '?')} for a token"


def origin(run):
    """Deck, grid, code and device, as (name, value)."""
    code = run.code
    return [
        (
            "deck",
            f"{run.config.get('model.num_hidden_layers', run.n_layers)} layers of width "
            f"{run.config.get('model.hidden_size', '?')}, {_experts(run)}; "
            f"data {run.config.get('dataset.path', '?')}",
        ),
        ("grid", run.run.get("grid", "?")),
        ("device", f"{run.run.get('backend', '?')} on {run.run.get('host', '?')}"),
        (
            "code",
            f"regulon {code.get('version', '?')} ({code.get('revision', '?')}), {code.get('compiler', '?')}, "
            f"{code.get('mpi', '?')}, HDF5 {code.get('hdf5', '?')}",
        ),
        ("configured", code.get("configure_line", "?")),
        ("started", run.run.get("start", "?")),
        ("run id", run.run.get("run_id", "?")),
        ("file", run.path),
    ]


def differing(runs):
    """Keys whose values differ between runs: (key, value of each run)."""

    def flat(run):
        return run.config | {
            "grid": run.run.get("grid", ""),
            "backend": run.run.get("backend", ""),
            "host": run.run.get("host", ""),
            "code": run.code.get("revision", ""),
        }

    values = [flat(run) for run in runs]
    keys = sorted(set().union(*values), key=lambda k: (k in ("grid", "backend", "host", "code"), k))
    return [
        [key] + [v.get(key, "") for v in values]
        for key in keys
        if len({v.get(key) for v in values}) > 1 and key != "checkpoint.ckpt_dir"
    ]


def page(title, runs, drawings, now):
    """The whole page; drawings: list of (Drawing, its SVG)."""
    out = [f"<h1>{escape(title)}</h1>\n<p class='lead'>Regulon report, {utc(now)}</p>\n"]
    for run in runs:
        if len(runs) > 1:
            out.append(f"<h2><span class='dot' style='background:{run.style.colour}'></span>{escape(run.label)}</h2>\n")
        out.append(
            "<dl>"
            + "".join(
                f"<div><dt>{escape(n)}</dt><dd>{escape(v)} <small>{escape(r)}</small></dd></div>\n"
                for n, v, r in facts(run)
            )
            + "</dl>\n"
        )
        if not run.steps.n:
            out.append("<p>No step has been logged yet.</p>\n")
        elif run.n_experts == 1:
            out.append("<p>Dense (one expert a layer), so it is in no figure of router and experts.</p>\n")
        if len(runs) == 1:
            out.append(table(("", ""), origin(run)))
    if len(runs) > 1:
        out.append("<h2>What differs</h2>\n")
        out.append(
            table(["key"] + [run.label for run in runs], differing(runs), mono=True)
            or "<p>All keys, grid and code are the same.</p>"
        )
        if drawings:
            out.append("<p>Above each figure: events; of each kind a lane a run, in the order of the runs.</p>\n")
    out += [figure(drawing, svg) for drawing, svg in drawings]
    for run in runs:
        out.append(f"<h2>{escape(run.label)}: details</h2>\n" if len(runs) > 1 else "<h2>Details</h2>\n")
        out.append(_details(run, with_origin=len(runs) > 1))
    return (
        f"<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>\n"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'>\n<style>{STYLE}</style></head>\n"
        f"<body>\n{''.join(out)}</body></html>\n"
    )


def _details(run, with_origin):
    events = [(utc(e.time), e.step, e.kind.replace("_", " "), e.text) for e in run.events]
    hidden = max(0, len(events) - 1000)
    markov = [(order, f"{bits:.4f}") for order, bits in sorted(run.markov.items())]
    parts = [
        ("Origin", table(("", ""), origin(run)) if with_origin else ""),
        (
            f"Events ({len(events)}{f', the first {hidden} not shown' if hidden else ''})",
            table(("time", "step", "event", "details"), events[hidden:]),
        ),
        ("Markov chains", table(("order", summary.bits_unit(run)), markov)),
        ("Deck, as used", table(("key", "value"), sorted(run.config.items()), mono=True)),
    ]
    return "".join(f"<details><summary>{escape(name)}</summary>\n{body}</details>\n" for name, body in parts if body)
