"""`regulon experts`: reading frames by hand, planted signals found and no others, tracks, what is refused, a real model."""

import csv
import gzip
import os
import sys
import tempfile

import analysis_runs
import h5py
import numpy as np
from analysis_runs import command, ok, regulon

sys.path.insert(0, analysis_runs.ANALYSIS)
import orfs  # noqa: E402

N, E = 20000, 4


def letters(text):
    return np.frombuffer(text.encode(), np.uint8)


def turned(text):
    return text[::-1].translate(str.maketrans("ACGT", "TGCA"))


def test_frames():
    gene = "ATG" + "GCC" * 5 + "TAA"  # 21 bases
    found = orfs.find(letters("CC" + gene + "CC"), "standard", 21)
    ok(found == [(2, 23, 0)], "a frame on the forward strand", found)
    found = orfs.find(letters("CCC" + turned(gene) + "C"), "standard", 21)
    ok(found == [(3, 24, 1)], "on the reverse strand", found)
    ok(orfs.find(letters("CC" + gene), "standard", 22) == [], "one that is too short")
    ok(orfs.find(letters(gene[:-3]), "standard", 6) == [], "one without a stop")
    found = orfs.find(letters("TAA" + "CCC" + gene.lower()), "standard", 6)
    ok(found == [(6, 27, 0)], "the first start behind a stop, in lower case", found)
    found = orfs.find(letters("ATG" + "NNN" + "GCC" * 3 + "TAA"), "standard", 6)
    ok(found == [], "a letter that is none of the four breaks it", found)
    for code, count in (("standard", 0), ("bacterial", 1)):
        found = orfs.find(letters("GTG" + "GCC" * 3 + "TGA"), code, 6)
        ok(len(found) == count, f"GTG begins {count} frames of the {code} code", found)
    found = orfs.find(letters(gene.replace("T", "U")), "standard", 21)
    ok(found == [(0, 21, 0)], "rna", found)
    position, n = orfs.codon_positions(letters("C" + gene + "G" + turned(gene)), "standard", 21)
    want = [-1] + [0, 1, 2] * 7 + [-1] + [5, 4, 3] * 7
    ok(n == 2 and list(position) == want, "positions in the codon: from the strand's own beginning", list(position))
    long = "ATG" + "GCC" * 20 + "TAA"
    position, n = orfs.codon_positions(letters(long + turned(gene)[:0]), "standard", 21)
    ok(n == 1 and list(position) == [0, 1, 2] * 22, "the longest frame has the bases of those within it", (n, list(position)))


def genome(rng):
    """Random letters with 26 genes of 451 bases and more, half of them on the reverse strand, without frames of other places."""
    text = "".join(rng.choice(list("ACGT"), N))
    codons = [a + b + c for a in "AG" for b in "ACG" for c in "CG"]  # neither a start nor a stop, on both strands
    for i, first in enumerate(range(100, N - 700, 740)):
        gene = "ATG" + "".join(rng.choice(codons, 149 + i % 7)) + "TAA"
        gene = turned(gene) if i % 2 else gene
        text = text[:first] + gene + text[first + len(gene) :]
    return text


def write(path, text, layers, segments=None, **attributes):
    """A routing file of version 1; layers[layer][base]: the first choice, its neighbour the second."""
    expert = np.stack([np.stack([x, (x + 1) % E], axis=1) for x in layers], axis=1).astype(np.uint8)
    names, starts, lengths = zip(*(segments or [("chr", 0, len(text))]))
    with h5py.File(path, "w") as f:
        words = {"format": "regulon routing", "format_version": 1, "model": "planted", "alphabet": "dna", "experts": E}
        for key, value in (words | attributes).items():
            f.attrs[key] = value
        f["expert"], f["token"] = expert, letters(text)
        f["segments/record"] = np.array([name.encode() for name in names], object)
        f["segments/start"], f["segments/length"] = np.array(starts), np.array(lengths)
        f["segments/offset"] = np.cumsum(lengths) - lengths


def run(*words):
    return command("experts", *words)


def rows(path):
    with open(path, newline="") as file:
        return {(r["feature"], int(r["layer"])): {k: float(v) if v else np.nan for k, v in r.items() if k != "feature"} for r in csv.DictReader(file)}


def test_planted(rng):
    text = genome(rng)
    codes = orfs.CODES[letters(text)].astype(int)
    position, frames = orfs.codon_positions(letters(text))
    noise = rng.integers(0, E, N)
    codon = np.where((position >= 0) & (rng.random(N) < 0.3), position % 3, noise)  # beside the letter, in three of ten bases
    chance = np.repeat(rng.integers(0, E, N // 50), 50)  # in stretches, as a model's would be; of nothing
    write("planted.h5", text, [noise, codon, codes, chance])
    out = run("planted.h5", "--csv", "planted.csv", "--figure", "planted.svg")
    ok(out.returncode == 0 and not out.stderr, "a table, CSV and a figure", out.stderr)
    found, lines = rows("planted.csv"), out.stdout.splitlines()
    inside = int((position >= 0).sum())
    ok(
        frames > 20
        and lines[0] == f"planted: 4 layers of 4 experts, {N} bases, {frames} reading frames of 300 bases or more "
        f"(bacterial code) with {inside} bases",
        "how many frames there are",
        lines[0],
    )
    least = 1 / 1001
    x = found["codon", 1]
    share = np.array([[0.3 * (i == c) + 0.7 / E for c in range(3)] for i in range(E)]) / 3
    want = (share * np.log2(share / (share.sum(1, keepdims=True) / 3))).sum()
    ok(
        x["p"] < least + 1e-9 and x["beyond_p"] < least + 1e-9 and abs(x["bits"] - want) < 0.1 * want and x["bases"] == inside,
        f"a planted codon signal is found, of the size that was planted: {x['bits']:.4f} of {want:.4f} bits",
        x,
    )
    ok(abs(x["explained"] - (x["bits"] - x["chance_bits"]) / np.log2(3)) < 1e-3, "and its share of the entropy", x)
    for strand in "forward", "reverse":
        ok(found[f"codon_{strand}", 1]["p"] < least + 1e-9, f"on the {strand} strand alone", found[f"codon_{strand}", 1])
    quiet = [(name, layer) for name, layer in found if layer in (0, 3)]
    small = [(key, found[key]["p"], found[key]["beyond_p"]) for key in quiet if min(found[key]["p"], found[key]["beyond_p"]) < 0.002]
    ok(len(quiet) >= 12 and not small, "where there is no signal no p is small, also of experts in stretches", small)
    x = found["letter", 2]
    ok(abs(x["bits"] - x["entropy_bits"]) < 1e-6 and x["explained"] > 0.99, "experts that are the letter tell all of it", x)
    x = found["codon", 2]
    ok(
        x["p"] < 0.01 and x["beyond_bits"] < 1e-9 and x["beyond_p"] > 0.9,
        "they tell of the codon what its letters do, and nothing beyond",
        x,
    )
    figure = open("planted.svg").read()
    ok(all(f'id="{name}"' in figure for name in ("codon", "beyond_codon", "gc", "codons")), "what is in the figure")
    again = run("planted.h5", "--csv", "again.csv", "--seed", "0")
    ok(again.stdout == out.stdout and open("again.csv").read() == open("planted.csv").read(), "the same again")
    other = run("planted.h5", "--seed", "1", "--shifts", "9", "--csv", "other.csv")
    ok(other.returncode == 0 and abs(rows("other.csv")["codon", 1]["p"] - 0.1) < 1e-9, "nine shifts: p of a tenth at least")


def test_tracks(rng):
    text = "".join(rng.choice(list("ACGT"), 9000))
    mark = np.zeros(9000, int)
    for first in range(0, 9000, 900):
        mark[first + 100 : first + 400] = 1
    expert = np.where(rng.random(9000) < 0.4, mark, rng.integers(0, E, 9000))
    soft = "".join(c.lower() if m else c for c, m in zip(text, mark))
    segments = [("a", 0, 4500), ("b", 1000, 4500)]
    write("tracks.h5", soft, [expert, rng.integers(0, E, 9000)], segments)
    with open("a.bed", "w") as bed, gzip.open("a.gff.gz", "wt") as gff:
        print("track name=x", file=bed)
        print("##gff-version 3", file=gff)
        for first in range(0, 9000, 900):
            name, start = ("a", first) if first < 4500 else ("b", first - 3500)
            print(name, start + 100, start + 400, "x", sep="\t", file=bed)
            print(name, ".", "repeat", start + 101, start + 400, ".", "+", ".", "ID=1", sep="\t", file=gff)
        print("c", 0, 10, sep="\t", file=bed)
        print("b", ".", "gene", 500, 2000, ".", "+", ".", "", sep="\t", file=gff)
        print("##FASTA", ">a", "ACGT", sep="\n", file=gff)
    out = run("tracks.h5", "--bed", "a.bed", "--gff", "a.gff.gz", "--csv", "tracks.csv", "--shifts", "300")
    found = rows("tracks.csv") if out.returncode == 0 else {}
    same = [found.get((name, 0), {}).get("bits") for name in ("soft_mask", "bed:a.bed", "gff:repeat")]
    ok(len(set(same)) == 1 and same[0] and same[0] > 0.05, "soft mask, BED and GFF of the same bases", (same, out.stderr))
    ok(found and found["bed:a.bed", 0]["p"] < 0.0034 and found["bed:a.bed", 1]["p"] > 0.01, "found where it is planted alone")
    ok(("gff:gene", 0) in found, "each type of the GFF")
    out = run("tracks.h5", "--gff", "a.gff.gz", "--type", "repeat", "--shifts", "9", "--csv", "one.csv")
    ok(("gff:repeat", 0) in rows("one.csv") and ("gff:gene", 0) not in rows("one.csv"), "or those that --type names", out.stderr)


def refused(code, message, *words):
    out = run(*words)
    said = out.returncode == code and out.stderr == f"regulon-experts: {message}\n" and not out.stdout
    ok(said, f"{code}: {message}", f"{out.returncode} {out.stderr}{out.stdout}")


def test_wrong(rng):
    text = "".join(rng.choice(list("ACGT"), 600))
    one = [rng.integers(0, E, 600)]
    write("newer.h5", text, one, format_version=2)
    write("protein.h5", text, one, alphabet="protein")
    write("good.h5", text, one)
    write("alike.h5", "N" * 60, [np.zeros(60, int)])
    with h5py.File("damaged.h5", "w") as f:
        f.attrs["format"], f.attrs["format_version"] = "regulon routing", 1
    for name, text in ("short", "chr\t1\n"), ("word", "chr\tx\t5\n"), ("back", "chr\t9\t5\n"), ("other", "chr2\t1\t5\n"):
        with open(f"{name}.bed", "w") as file:
            file.write(text)
    with open("good.gff", "w") as file:
        file.write("chr\t.\tCDS\t1\t50\t.\t+\t0\t\n")
    refused(65, "nowhere.h5: No such file or directory", "nowhere.h5")
    refused(65, "good.gff: not an HDF5 file", "good.gff")
    refused(65, "newer.h5: format_version 2 of 'regulon routing' is newer than this program reads (1)", "newer.h5")
    refused(65, "damaged.h5: no dataset /expert of 3 dimensions", "damaged.h5")
    refused(65, "protein.h5: of the alphabet protein; dna or rna is wanted", "protein.h5")
    refused(65, "alike.h5: 60 bases that are all alike", "alike.h5")
    refused(65, "short.bed:1: 2 columns between tabs are too few for BED", "good.h5", "--bed", "short.bed")
    refused(65, "word.bed:1: 'x' and '5' are not whole numbers", "good.h5", "--bed", "word.bed")
    refused(65, "back.bed:1: from 9 to 5 is no interval", "good.h5", "--bed", "back.bed")
    refused(65, "other.bed: none of its records is in good.h5: chr2; chr", "good.h5", "--bed", "other.bed")
    refused(65, "none.bed: No such file or directory", "good.h5", "--bed", "none.bed")
    refused(65, "good.gff: no feature of type 'gene'", "good.h5", "--gff", "good.gff", "--type", "gene")
    help_text = "; regulon experts --help"
    refused(64, "--type needs --gff" + help_text, "good.h5", "--type", "CDS")
    refused(64, "--figure takes a file that ends in .png, .pdf or .svg" + help_text, "good.h5", "--figure", "x.doc")
    refused(64, "--shifts takes a number from 1 on, --shortest from 6, --seed from 0" + help_text, "good.h5", "--shifts", "0")
    out = run("good.h5", "--shifts", "9", "--csv", "no/table.csv")
    ok(out.returncode == 74 and out.stderr == "regulon-experts: no/table.csv: No such file or directory\n", "74: no folder", out.stderr)


def test_real():
    analysis_runs.train(1, "run", "num_train_steps=6", "parallelism.ep_size=1", "checkpoint.save_every_n_steps=6")
    out = regulon("eval", "run", "--routing", "run.h5", "validation.num_batches=all")
    ok(out.returncode == 0, "its routing", out.stderr)
    out = regulon("experts", "run.h5", "--shifts", "50", "--csv", "run.csv")
    found = rows("run.csv") if out.returncode == 0 else {}
    layers = {layer for _, layer in found}
    ok(layers == {0, 1} and found["letter", 0]["p"] < 0.02, "a table of a real model; its experts know the letter", out.stderr)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        test_frames()
        test_planted(np.random.default_rng(5))
        test_tracks(np.random.default_rng(6))
        test_wrong(np.random.default_rng(7))
        test_real()
        os.chdir("/")
    print(f"1..{analysis_runs.count}")
