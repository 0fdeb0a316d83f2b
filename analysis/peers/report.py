"""What a comparison found: values by part, case and engine, or why there are none; as text, CSV and a figure."""
import csv
import itertools
import statistics

import command
import figures
import numpy as np
import peer
from figures import BLUE, GREEN, INK, ORANGE, PINK, SKY, WIDTH
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

STYLES = [(BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (PINK, "D"), (SKY, "v"), (INK, "P")]
HEADS = {  # of the table, of its first column, what a value is
    "gemm": ("Products of the experts, TFLOP/s of rows that are of use", "product", "TFLOP/s"),
    "experts": ("A mixture-of-experts layer, forward and backward, ms", "experts", "ms"),
    "launches": ("Launches of its experts' products, forward and backward", "experts", "launches"),
    "step": ("The training step, optimiser included", "rate", ""),
}
NOTES = {
    "gemm": "Gradients of weights: FP32 by Regulon and cuBLASLt, BF16 by the peers. cuBLASLt dense: one product of as many FLOPs. "
    "All three together: Transformer Engine's was measured so, the others' is made of the three.",
    "experts": "Routing of Regulon: balanced; SonicMoE's router chooses, almost evenly. A token goes to as many experts as the shape "
    "says, or to all where there are fewer.",
    "launches": "What cuBLASLt adds to a product of its own accord is among them.",
    "step": "The same micro-batch, window and model; random tokens.",
}
MEMORY = "Hugging Face runs with BF16 moments and no FP32 masters: 8 bytes a parameter against Regulon's 18."
UNTRIED = "What calls Transformer Engine and SonicMoE has not been tried."


class Found:
    def __init__(self):
        self.values = {}  # (part, case, engine): [one a round]
        self.reasons = {}  # (part, case or "" for all, engine): why there are none, or not all
        self.said = []  # commands, and what the GPU did during each

    def add(self, part, engine, pairs, why, case=""):
        """pairs of (case, value); why: '' or the reason why these are not all."""
        for name, value in pairs:
            self.values.setdefault((part, name, engine), []).append(value)
        if why:
            self.reasons[part, case, engine] = why

    def median(self, *key):
        return statistics.median(self.values.get(key) or [np.nan])

    def add_sums(self):
        """The rate of the three products together, of those that have the three."""
        for engine, half in itertools.product(self.engines("gemm"), peer.HALVES):
            rates = [self.median("gemm", half + kind, engine) for kind in peer.KINDS]
            if np.isfinite(rates).all():
                self.add("gemm", engine, [(half + peer.SUM, 3 / sum(1 / r for r in rates))], "")

    def engines(self, part):
        return list(dict.fromkeys(key[2] for key in [*self.values, *self.reasons] if key[0] == part))

    def cases(self, part):
        return list(dict.fromkeys(key[1] for key in [*self.values, *self.reasons] if key[0] == part and key[1])) or ["all"]

    def reason(self, part, case, engine):
        return self.reasons.get((part, case, engine)) or self.reasons.get((part, "", engine), "")

    def failed(self):
        return any(why.startswith("failed") for why in self.reasons.values())

    def cell(self, part, case, engine):
        value = self.median(part, case, engine)
        if np.isfinite(value):
            return f"{value:.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}" if value < 100 else f"{value:.1f}"
        why = self.reason(part, case, engine)
        return "not installed" if why.startswith("not installed") else "failed" if why else "-"

    def table(self, part):
        title, first, _ = HEADS[part]
        engines = self.engines(part)
        lines = [[first, *engines], *([case, *(self.cell(part, case, e) for e in engines)] for case in self.cases(part))]
        widths = [max(map(len, column)) for column in zip(*lines)]
        yield title
        for line in lines:
            yield "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))])
        for (of, case, engine), why in self.reasons.items():
            if of == part:
                yield f"{engine}{case and f', {case}'}: {why}"
        yield from (NOTES[part], MEMORY, "")

    def text(self, parts, heading):
        return "\n".join([*heading, "", *(line for part in parts for line in self.table(part)), UNTRIED])

    def write(self, parts, path, heading):
        with command.whole_file(path + ".txt") as out:
            print(self.text(parts, heading), "", *self.said, sep="\n", file=out)
        with command.whole_file(path + ".csv", newline="") as out:
            table = csv.writer(out, lineterminator="\n")
            table.writerow(["part", "case", "engine", "unit", "median", "lowest", "highest", "rounds", "note"])
            for part in parts:
                for case, engine in itertools.product(self.cases(part), self.engines(part)):
                    v = self.values.get((part, case, engine), [])
                    numbers = [statistics.median(v), min(v), max(v)] if v else [""] * 3
                    table.writerow([part, case, engine, HEADS[part][2] or case, *numbers, len(v), self.reason(part, case, engine)])
        figures.save(drawn(self, parts), path)


def drawn(found, parts):
    """A panel a part: bars of rates, or lines of time by number of experts. The legend names who is absent."""
    figure = Figure(figsize=(WIDTH, 2.6 * len(parts)), constrained_layout=figures.PADS)
    for ax, part in zip(np.ravel(figure.subplots(len(parts), 1)), parts):
        title, first, unit = HEADS[part]
        cases, engines = found.cases(part), found.engines(part)
        if part == "gemm":
            cases = [half + kind for half in peer.HALVES for kind in [*peer.KINDS, peer.SUM]]
        if part == "step":
            cases = ["tokens/s"]
        for i, (engine, (colour, marker)) in enumerate(zip(engines, itertools.cycle(STYLES))):
            y = np.array([found.median(part, case, engine) for case in cases])
            absent = [] if np.isfinite(y).any() else [found.cell(part, cases[0], engine)]
            words = {"color": colour, "label": ": ".join([engine, *absent]), "gid": f"{part} {engine}"}
            if first == "experts":
                ax.plot(np.array(cases, float), y, marker=marker, ms=5, lw=1.4, **words)
            else:
                ax.bar(np.arange(len(cases)) + (i + 0.5) / len(engines) * 0.8 - 0.4, y, 0.8 / len(engines), **words)
        ax.set_title(title)
        ax.set_ylabel(unit or cases[0])
        if first == "experts":
            dress_experts(ax, cases)
        else:
            ax.set_xticks(range(len(cases)))
            ax.set_xticklabels([case.replace(" ", "\n", 1) for case in cases] if part == "gemm" else [MEMORY], fontsize=7)
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7.5)
    return figure


def dress_experts(ax, cases):
    ax.set(xscale="log", xlabel="experts")
    ax.xaxis.set_major_locator(FixedLocator([float(case) for case in cases]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    if any(np.isfinite(line.get_ydata()).any() for line in ax.lines):
        ax.set_yscale("log")
        figures.plain_log(ax)
