#!/bin/sh
# `regulon score` and `regulon embed`: log-likelihoods against the golden logits, eval, one whole context and each other;
# formats; variants; embeddings against the golden hidden states; what is refused.
srcdir=${srcdir:-.}
# shellcheck disable=SC2086 # a launcher may come with options
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/score_lib.sh
. "$(dirname "$0")/score_lib.sh"
fixtures=$(cd "$srcdir/tests/fixtures" && pwd)
cd "$work" || exit 99
export CUDA_VISIBLE_DEVICES='' # backend auto is cpu here
unset SLURM_JOB_GPUS SLURM_GPUS_ON_NODE
"$PYTHON3" -c 'import h5py' 2>/dev/null || { echo '1..0 # SKIP no h5py' && exit 0; }

# against the golden logits
py 'the golden tokens as bytes' "$golden" <<'EOF'
ids = tensors(sys.argv[1] + "/tiny/reference.safetensors")["input_ids"]
assert not (ids == 1).any()
open("ids.bin", "wb").write(b"".join(bytes(list(row)) + b"\1" for row in ids))
EOF
regulon 1 pack --tokens u8 ids.bin --eos 1 -o ids.h5 >out &&
    regulon 1 score "$golden/tiny" ids.h5 --per-base --window 48 -o tiny.h5 dataset.bos_eos=none
ok $? 'a Hugging Face folder, a corpus, to HDF5'
py 'the log-likelihoods are those of the golden logits' "$golden" <<'EOF'
r = tensors(sys.argv[1] + "/tiny/reference.safetensors")
x, ids, f = r["logits"].astype(float), r["input_ids"], h5py.File("tiny.h5")
logp = x - np.log(np.exp(x).sum(-1, keepdims=True))
want = np.full(ids.shape, np.nan)
for b in range(2):
    want[b, 1:] = logp[b, np.arange(47), ids[b, 1:]]
near(f["log_likelihood"][:].reshape(ids.shape), want, 2e-5)
near(f["records/log_likelihood"][:], np.nansum(want, 1), 2e-4)
near(f["records/bits_per_base"][:], -np.nanmean(want, 1) / np.log(2), 2e-5)
assert f.attrs["format"] == "regulon scores" and f.attrs["format_version"] == 1 and f.attrs["window"] == 48
assert list(f["records/scored"]) == [47, 47] and list(f["records/offset"]) == [0, 48] and list(f["records/length"]) == [48, 48]
for d in [f["log_likelihood"]] + list(f["records"].values()):
    assert d.attrs["units"] and d.attrs["long_name"]
assert f["code"].attrs["version"] and f["run"].attrs["start"].endswith("Z")
EOF

# one whole context: a layer of windowed_top1 sees 8 tokens back, both 16
regulon 1 score "$golden/windowed_top1" "$lambda" --per-base --window 48503 -o whole.tsv &&
    regulon 2 score "$golden/windowed_top1" "$lambda" --per-base --window 512 --stride 400 -o windows.tsv
ok $? 'phage lambda in one context, and in windows on two ranks'
py 'are the same where windows do not matter' <<'EOF'
a, b = bases("whole.tsv"), bases("windows.tsv")
assert len(a) == 48502 and not np.isnan(a).any()
near(a[:16384], b[:16384], 1e-5)
near(a, b, 5e-5) # the angles of RoPE are FP32, at places up to 48502
EOF

# a trained model
regulon 2 train L0_sanity checkpoint.ckpt_dir=run checkpoint.save_final_model=true >train.out
ok $? 'a run'
regulon 1 score run "$lambda" --window 128 --stride 100 >lambda.tsv &&
    regulon 1 eval run "validation.data_path=$lambda" dataset.stride=28 --json >eval.json
py 'the mean is what eval prints for the same windows' <<'EOF'
(r,), e = table("lambda.tsv"), json.load(open("eval.json"))
assert int(r["length"]) == int(r["scored"]) == e["targets"] == 48502
near(-float(r["log_likelihood_per_base"]), e["loss"], 2e-6)
near(float(r["log_likelihood"]), -e["loss"] * 48502, 1e-6 * 48502)
near(float(r["bits_per_base"]), e["bits_per_base"], 2e-6)
EOF
regulon 1 score run/final_model "$lambda" --window=128 --stride=100 >final.tsv && cmp -s final.tsv lambda.tsv
ok $? 'its final_model says the same'

# records of every kind: long, with N and lower case, empty, short
{
    gzip -dc "$lambda" | head -n 30
    printf '>odd a comment\nacgtNNNNRYACGTACGTTTGACnacgt\n>empty\n>one\nA\n>"quoted"\nACGTTTAGC\n>last\n'
} >a.fa
bad=0
for strand in forward reverse mean; do
    regulon 1 score run a.fa --window 64 --per-base --strand $strand >$strand.tsv || bad=1
    regulon 1 score run a.fa --window 64 --strand $strand >$strand.sum || bad=1
done
ok $bad 'three strands'
py 'the mean is the mean of the strands, records are the sums of their bases, degenerate bases are not scored' <<'EOF'
near(bases("mean.tsv"), (bases("forward.tsv") + bases("reverse.tsv")) / 2, 2e-6)
for strand in "forward", "reverse", "mean":
    rows = table(strand + ".tsv")
    for r in table(strand + ".sum"):
        mine = [float(x["log_likelihood"]) for x in rows if x["name"] == r["name"]]
        near(float(r["log_likelihood"]), np.nansum(mine), 2e-3)
        assert len(mine) == int(r["length"]) and np.isfinite(mine).sum() == int(r["scored"])
    odd = [(x["base"], float(x["log_likelihood"])) for x in rows if x["name"] == "odd"]
    assert "".join(b for b, _ in odd) == "acgtNNNNRYACGTACGTTTGACnacgt"
    assert all(np.isnan(v) == (b not in "ACGTacgt") for b, v in odd), odd
    assert [int(x["position"]) for x in rows if x["name"] == "odd"] == list(range(1, 29))
names = ["odd", "empty", "one", '"quoted"', "last"]
assert [r["name"] for r in table("mean.sum")][1:] == names
assert [r["bits_per_base"] == "nan" for r in table("mean.sum")][1:] == [n in ("empty", "last") for n in names]
text, name = {}, None
for line in open("a.fa"):
    if line[0] == ">":
        name = line[1:].split()[0]
    text[name] = text.get(name, "") + (line.strip() if line[0] != ">" else "")
with open("turned.fa", "w") as f:
    for n in text:
        print(">" + n, text[n][::-1].translate(str.maketrans("ACGTacgtRY", "TGCAtgcaYR")), sep="\n", file=f)
EOF
regulon 1 score run turned.fa --window 64 --per-base >turned.tsv
py 'the reverse strand is the forward one of reverse complements' <<'EOF'
a, b = by_name("reverse.tsv"), by_name("turned.tsv")
assert a.keys() == b.keys() and len(a) == 4
for name in a:
    near(a[name], b[name][::-1], 2e-6)
EOF
bad=0
for format in tsv jsonl h5; do
    regulon 1 score run a.fa --window 64 --per-base --strand mean -o one.$format || bad=1
    regulon 2 score run a.fa --window 64 --per-base --strand mean -o two.$format || bad=1
done
ok $bad 'every format on one rank and two'
cmp -s one.tsv two.tsv && cmp -s one.jsonl two.jsonl && cmp -s one.tsv mean.tsv && ! ls ./*.tmp >/dev/null 2>&1
ok $? 'the same bytes on one rank and on two, in a file as on stdout'
regulon 2 score run a.fa --window 64 --per-base --strand mean parallelism.ep_size=2 >ep.tsv
regulon 1 score run a.fa --window 64 --per-base --strand mean dataset.token_micro_batch_size=64 >small.tsv
py 'all formats hold the same; so do experts on two ranks, and micro-batches of one window, but for rounding' <<'EOF'
lines, one, two = [json.loads(l) for l in open("one.jsonl")], h5py.File("one.h5"), h5py.File("two.h5")
assert one["log_likelihood"][:].tobytes() == two["log_likelihood"][:].tobytes()
near(one["log_likelihood"][:], bases("one.tsv"), 1e-6)
near([np.nan if x is None else x for l in lines for x in l["bases"]], bases("one.tsv"), 1e-6)
sums = table("mean.sum")
assert [x.decode() for x in one["records/name"][:]] == [l["name"] for l in lines] == [r["name"] for r in sums]
near(one["records/log_likelihood"][:], [l["log_likelihood"] for l in lines], 1e-6)
near([float(r["log_likelihood"]) for r in sums], [l["log_likelihood"] for l in lines], 1e-6)
assert [l["bits_per_base"] is None for l in lines] == [False, False, True, False, False, True]
assert one.attrs["strand"] == "mean" and one.attrs["stride"] == 32
near(bases("ep.tsv"), bases("one.tsv"), 1e-5)
near(bases("small.tsv"), bases("one.tsv"), 1e-5)
EOF
regulon 1 score run a.fa --per-base --window 64 --stride 16 dataset.bos_eos=window >wrapped.tsv &&
    regulon 1 score run a.fa --per-base --window 64 --stride 16 dataset.bos_eos=none >bare.tsv
py 'BOS before every window, or nowhere: then the first base of a record has no score' <<'EOF'
rows, w, b = table("bare.tsv"), bases("wrapped.tsv"), bases("bare.tsv")
unscored = np.array([r["base"] not in "ACGTacgt" for r in rows])
first = np.array([r["position"] == "1" for r in rows])
assert (np.isnan(w) == unscored).all() and (np.isnan(b) == (unscored | first)).all()
EOF

# variants: each passage as a record of its own; c2 is shorter than the window, so that its passages are whole records
py 'variants, and their passages as records' <<'EOF'
c1 = "".join(open("a.fa").read().split(">")[1].split("\n")[1:])[:2000]
c2 = "acgtTTGACCAGTGANNACGATCAGGTTACA"
open("c.fa", "w").write(f">c1 x\n{c1}\n>c2\n{c2}\n>c3\n>c3\nA\n")
def other(b): return "ACGT"[("ACGT".index(b) + 1) % 4]
rows = [("c1", 1000, "snv", c1[999], other(c1[999])),
        ("c1", 1500, "ins", c1[1499], c1[1499] + "GATTACA"),
        ("c1", 700, "del", c1[699:705], c1[699]),
        ("c1", 701, "two", c1[700:702], f"{c1[700]},{c1[700]}{other(c1[701])}C"),
        ("c1", 2, "start", c1[1], other(c1[1])), ("c1", 1999, "end", c1[1998], other(c1[1998])),
        ("c2", 1, "first", "A", "T"), ("c2", 2, "soft", "c", "G"), ("c2", 5, "cut", "TTGACC", "T"), ("c2", 31, "last", "A", "C"),
        ("c1", 20, "symbol", c1[19], "<DEL>"), ("c1", 21, "star", c1[20], "*,."), ("c1", 22, "end", c1[21], c1[21] + "[c2:3["),
        ("c2", 16, "n", "N", "A"), ("c2", 20, "iupac", "G", "R"), ("c1", 100, "long", c1[99], c1[99] + "ACGT" * 9)]
with open("v.vcf", "w") as f:
    print("##fileformat=VCFv4.3\n##contig=<ID=c1>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO", file=f)
    for r in rows:
        print(*r, ".", "PASS", ".", sep="\t", file=f)
# a window of 64: half of what the longer allele leaves lies before it, the rest behind, as far as the record goes
with open("passages.fa", "w") as f, open("left.txt", "w") as lefts:
    for contig, pos, name, ref, alts in rows:
        c, p = {"c1": c1, "c2": c2}[contig], pos - 1
        for i, alt in enumerate(alts.split(",")):
            room, rest = 64 - max(len(ref), len(alt)), len(c) - p - len(ref)
            left = min(p, room // 2)
            right = min(rest, room - left)
            left = min(p, room - right)
            if not set(alt + ref.upper()) <= set("ACGT") or max(len(alt), len(ref)) > 32:
                continue
            behind = c[p + len(ref):p + len(ref) + right]
            alt = alt.lower() if c[p].islower() else alt # case is the sequence's
            print(f">{contig}.{pos}.{i}.ref\n{c[p - left:p] + c[p:p + len(ref)] + behind}\n>{contig}.{pos}.{i}.alt\n{c[p - left:p] + alt + behind}", file=f)
            print(f"{contig}.{pos}.{i}", left, right, contig, file=lefts)
EOF
bad=0
for strand in forward reverse mean; do
    regulon 1 score run c.fa --variants v.vcf --window 64 --strand $strand dataset.bos_eos=none >v.$strand || bad=1
    regulon 1 score run c.fa --variants v.vcf --window 64 --strand $strand >bos.$strand || bad=1
    regulon 1 score run passages.fa --per-base --window 65 --strand $strand dataset.bos_eos=none >p.$strand || bad=1
    regulon 1 score run passages.fa --window 65 --strand $strand >pbos.$strand || bad=1
done
ok $bad 'scored on each strand'
py 'ratios are differences of two scores' <<'EOF'
status = "scored scored scored scored scored scored scored scored scored scored scored symbolic symbolic no_alt symbolic degenerate degenerate too_long"
for strand in "forward", "reverse", "mean":
    rows, passages = table("v." + strand), by_name("p." + strand)
    bare = {"forward": ["c2.1.0"], "reverse": ["c2.31.0"], "mean": ["c2.1.0", "c2.31.0"]}[strand] # nothing precedes them
    want = ["no_context" if r["contig"] + "." + r["position"] + ".0" in bare else s for r, s in zip(rows, status.split(), strict=True)]
    assert [r["status"] for r in rows] == want, [r["status"] for r in rows]
    scored = [r for r in rows if r["status"] == "scored"]
    all_lefts = [l.split() for l in open("left.txt")]
    lefts = [l for l in all_lefts if l[0] not in bare]
    assert len(all_lefts) == 11 and len(lefts) == len(scored)
    for r, (name, left, right, _) in zip(scored, lefts):
        assert name.split(".")[:2] == [r["contig"], r["position"]]
        ref, alt = np.array(passages[name + ".ref"]), np.array(passages[name + ".alt"])
        near(float(r["log_likelihood_ratio"]), float(r["alt_log_likelihood"]) - float(r["ref_log_likelihood"]), 2e-6)
        part = slice(int(left), None) if strand == "forward" else slice(0, len(ref) - int(right))
        if strand != "mean": # below: without BOS a passage's ends have a score on one strand only
            near(float(r["log_likelihood_ratio"]), np.nansum(alt) - np.nansum(ref), 2e-4)
            near(float(r["ref_log_likelihood"]), np.nansum(ref[part]), 2e-4)
    assert all(np.isnan(float(r["log_likelihood_ratio"])) for r in rows if r["status"] != "scored")
    # whole records, with BOS
    whole = {r["name"]: float(r["log_likelihood"]) for r in table("pbos." + strand)}
    short = [r for r in table("bos." + strand) if r["contig"] == "c2" and r["status"] == "scored"]
    assert len(short) == 4
    for r, (name, *_) in zip(short, [l for l in all_lefts if l[3] == "c2"]):
        near(float(r["log_likelihood_ratio"]), whole[name + ".alt"] - whole[name + ".ref"], 2e-4)
a, b = [float(r["log_likelihood_ratio"]) for r in table("v.forward")], [float(r["log_likelihood_ratio"]) for r in table("v.reverse")]
near([float(r["log_likelihood_ratio"]) for r in table("v.mean")], (np.array(a) + b) / 2, 2e-6)
EOF
# by hand: an independent forward pass, which gives the golden logits
printf '>g\nACGGATTACAGATTACCAGT\n' >g.fa
{ head -n 3 v.vcf && printf 'g\t6\t.\tT\tG\ng\t9\t.\tC\tCAA\ng\t11\t.\tGAT\tG\n'; } >g.vcf
regulon 1 score "$golden/tiny" g.fa --variants g.vcf dataset.alphabet=dna dataset.bos_eos=record >g.tsv
py 'ratios by a forward pass of NumPy, which gives the golden logits' "$golden/tiny" <<'EOF'
r = tensors(sys.argv[1] + "/reference.safetensors")
near(mixtral(sys.argv[1], r["input_ids"][0]), r["logits"][0], 1e-5)
def score(text, first):
    ids = [2] + [ord(b) for b in text]
    x = mixtral(sys.argv[1], ids)
    logp = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return sum(logp[i - 1, ids[i]] for i in range(first, len(ids)))
text = "ACGGATTACAGATTACCAGT"
for row in table("g.tsv"):
    at, ref, alt = int(row["position"]), row["ref"], row["alt"]
    a, b = score(text, at), score(text[:at - 1] + alt + text[at - 1 + len(ref):], at)
    near([float(row[k]) for k in ("ref_log_likelihood", "alt_log_likelihood", "log_likelihood_ratio")], [a, b, b - a], 1e-4)
assert len(table("g.tsv")) == 3
EOF
printf '>d\nACGTRYNACGTKACGTACGT\n' >d.fa
{
    head -n 3 v.vcf
    printf 'd\t5\t.\tA\tC\nd\t6\t.\tN\tC\nd\t4\t.\tTACN\tT\nd\t12\t.\tG\tT\nd\t1\t.\tAC\tA\n'
} >d.vcf
regulon 1 score run d.fa --variants d.vcf dataset.bos_eos=none >d.tsv
py 'degenerate letters of the sequence, as VCF writes them; a deletion behind the first base needs nothing before it' <<'EOF'
rows = table("d.tsv")
assert [r["status"] for r in rows] == ["degenerate"] * 4 + ["scored"], rows
EOF
regulon 2 score run c.fa --variants v.vcf --window 64 --strand mean dataset.bos_eos=none -o two.vcf.tsv && cmp -s two.vcf.tsv v.mean
ok $? 'the same bytes on two ranks'
gzip -c v.vcf >v.vcf.gz && regulon 2 score run c.fa --variants v.vcf.gz --window 64 --format jsonl >v.jsonl
py 'JSON lines, from a compressed VCF' <<'EOF'
for r, l in zip(table("bos.forward"), [json.loads(l) for l in open("v.jsonl")], strict=True):
    assert {k: "nan" if v is None else v if isinstance(v, str) else f"{v:.6f}" if isinstance(v, float) else str(v) for k, v in l.items()} == r, (r, l)
EOF

printf '{"id": "a\\tb", "text": "ACGT"}\n' >tab.jsonl
for how in '' --per-base; do
    regulon 1 score run tab.jsonl $how >tab.tsv && [ "$(sed -n 2p tab.tsv | cut -f 1)" = 'a b' ] && [ "$(awk -F '\t' '{ print NF }' tab.tsv | sort -u | wc -l)" = 1 ]
    ok $? "a tab in a name is no column of its own $how"
done
regulon 1 pack a.fa -o a.h5 >out && regulon 2 score run a.h5 --window 64 --per-base --strand mean >packed.tsv && cmp -s packed.tsv mean.tsv
ok $? 'a packed corpus instead of its FASTA'
"$regulon" score run a.fa --window 64 >/dev/full 2>err
[ $? = 74 ] && grep -q 'cannot write stdout: No space left on device' err
ok $? 'a full disk behind stdout: exit 74'

# embeddings
bad=0
for layer in 0 1 2; do
    regulon 1 embed "$golden/tiny" ids.h5 -o layer$layer.h5 --layer $layer --pool none --window 48 dataset.bos_eos=none || bad=1
done
regulon 2 embed "$golden/tiny" ids.h5 -o mean.h5 --window 48 dataset.bos_eos=none || bad=1
ok $bad 'the layers of a golden model'
py 'are the golden hidden states' "$golden" <<'EOF'
r = tensors(sys.argv[1] + "/tiny/reference.safetensors")
for layer in range(3):
    f, want = h5py.File(f"layer{layer}.h5"), r[f"hidden_states.{layer}"]
    near(f["embedding"][:].reshape(want.shape), want, 1e-5)
    assert f.attrs["format"] == "regulon embeddings" and f.attrs["format_version"] == 1 and f.attrs["layer"] == layer and f.attrs["pool"] == "none"
    assert f["embedding"].attrs["units"] and f["embedding"].attrs["long_name"]
f = h5py.File("mean.h5")
near(f["embedding"][:], want.astype(float).mean(1), 1e-5)
assert f.attrs["layer"] == 2 and f.attrs["pool"] == "mean" and list(f["records/length"]) == [48, 48]
EOF
bad=0
for ranks in 1 2; do
    regulon "$ranks" embed run a.fa -o "none$ranks.h5" --pool none --window 64 --stride 24 || bad=1
    regulon "$ranks" embed run a.fa -o "mean$ranks.h5" --pool mean --window 64 --stride 24 || bad=1
done
ok $bad 'records longer than a window, on one rank and two'
py 'the means are those of the bases; the same on one rank and two' <<'EOF'
none, mean = h5py.File("none1.h5"), h5py.File("mean1.h5")
for name, f in ("none2.h5", none), ("mean2.h5", mean):
    assert h5py.File(name)["embedding"][:].tobytes() == f["embedding"][:].tobytes()
x, at, n = none["embedding"][:].astype(float), none["records/offset"][:], none["records/length"][:]
assert x.shape == (n.sum(), 64) and not np.isnan(x).any() and n.min() == 0
near(mean["embedding"][:], [x[a:a + k].mean(0) if k else np.full(64, np.nan) for a, k in zip(at, n)], 1e-5)
assert abs(x[0] - x[1]).max() > 1e-3
EOF

# info, of these and of the files of earlier programs
regulon 2 info one.h5 >said && grep -q '^scores  *of a.fa under run$' said && grep -q '^scored  *[0-9]* bases, strand mean: -[0-9.]* nats' said &&
    regulon 1 info mean1.h5 >said && grep -q '^states  *after 2 layers, pool mean$' said
ok $? 'info of scores and embeddings'
regulon 1 info "$fixtures/scores_v1.h5" >said && grep -q '^scored  *18 bases, strand forward: -48.019599 nats, -2.667755 nats/base$' said &&
    regulon 1 info "$fixtures/embeddings_v1.h5" >said && grep -q '^records  *3, of 20 bases$' said
ok $? 'and of files of version 1'
py 'a file of version 2' "$fixtures" <<'EOF'
open("newer.h5", "wb").write(open(sys.argv[1] + "/scores_v1.h5", "rb").read())
h5py.File("newer.h5", "r+").attrs.modify("format_version", 2)
EOF
refused 65 "newer.h5: format_version 2 of 'regulon scores' is newer than this program reads (1)" info newer.h5

printf '>p\nMKVLLEEQFPWWLIVE\n' >p.fa
: >empty.fa
mkdir folder
refused 64 'score: which model? regulon score MODEL FILE [option ...] [key=value ...]' score
refused 64 'score: which file? regulon score MODEL FILE [option ...] [key=value ...]' score run
refused 64 "score: unknown option '--widow'; see regulon score --help" score run a.fa --widow 3
refused 64 "score: --strand: 'both' is none of forward, reverse, mean" score run a.fa --strand both
refused 64 "score: --window: '1' is not a whole number from 2 to 16777216" score run a.fa --window 1
refused 64 'score: --window needs a value: N' score run a.fa --window
refused 64 'score: --window is given twice' score run a.fa --window 8 --window=9
refused 64 'score: --window: dataset.micro_batch_size (1000) windows of 16777216 tokens are above 2147483647 tokens' score run a.fa --window 16777216 \
    dataset.micro_batch_size=1000 dataset.token_micro_batch_size=null -o no.tsv
refused 64 'score: --stride: 64 of windows of 64 tokens leaves no context' score run a.fa --window 64 --stride 64 -o no.tsv
refused 64 'score: --strand: only text of the alphabets dna and rna has a reverse strand' score run p.fa --strand mean dataset.alphabet=protein
refused 64 'score: --format h5 needs -o FILE' score run a.fa --format h5
refused 64 'score: -o folder is a folder' score run a.fa -o folder
refused 64 'score: -o ./a.fa is a file to read' score run a.fa -o ./a.fa
refused 64 "'x' is not of the form key=value" score run a.fa x
refused 65 'folder: neither a run folder (it has no used.yaml) nor a step folder of one, nor a Hugging Face folder' score folder a.fa
refused 65 'nothing.fa: cannot be opened: No such file or directory' score run nothing.fa -o no.tsv
refused 65 'empty.fa: no records' score run empty.fa -o no.jsonl
refused 65 "p.fa: 62 % of its letters are not of the alphabet dna, most often 'E' (3 times): say what it holds by dataset.alphabet (pack: --alphabet): dna, rna, protein or bytes" \
    score run p.fa -o no.h5
# refuse_vcf MESSAGE LINE: a VCF whose fourth line this is
refuse_vcf() {
    { head -n 3 v.vcf && printf '%b\n' "$2"; } >bad.vcf
    refused 65 "$1" score run c.fa --variants bad.vcf -o no.tsv
}
refuse_vcf "bad.vcf:4: the sequences have no contig 'chr1'" 'chr1\t5\t.\tA\tC'
refuse_vcf "bad.vcf:4: the sequences have several contigs 'c3'" 'c3\t1\t.\tA\tC'
refuse_vcf "bad.vcf:4: REF is 'TTC', but the sequence has 'TTG' at c2:5" 'c2\t5\t.\tTTC\tC'
refuse_vcf "bad.vcf:4: REF is 'C', but the sequence has 'N' at c2:16" 'c2\t16\t.\tC\tA'
refuse_vcf "bad.vcf:4: the position lies outside contig 'c2'" 'c2\t31\t.\tAA\tC'
refuse_vcf "bad.vcf:4: the position lies outside contig 'c2'" 'c2\t0\t.\tA\tC'
refuse_vcf "bad.vcf:4: the position lies outside contig 'c2'" 'c2\t9223372036854775807\t.\tAA\tC'
refuse_vcf "bad.vcf:4: the position lies outside contig 'c2'" 'c2\t-9223372036854775808\t.\tAA\tC'
refuse_vcf "bad.vcf:4: POS 'x' is not a whole number" 'c2\tx\t.\tA\tC'
refuse_vcf "bad.vcf:4: REF '.' is not bases" 'c2\t1\t.\t.\tC'
refuse_vcf "bad.vcf:4: ALT 'C1' is neither bases nor a symbolic allele" 'c2\t1\t.\tA\tC1'
refuse_vcf "bad.vcf:4: ALT '' is neither bases nor a symbolic allele" 'c2\t1\t.\tA\tC,'
refuse_vcf "bad.vcf:4: fewer than five columns with tabs between them: 'c2 1 . A C'" 'c2 1 . A C'
refused 65 "c.fa:1: '>c1 x' is not the first line of a VCF, ##fileformat=VCFv4.x" score run c.fa --variants c.fa
refused 64 'score: --window: variants need one of 8 tokens' score run c.fa --variants v.vcf --window 7
refused 64 'score: variants are written as tsv or jsonl' score run c.fa --variants v.vcf -o no.h5
refused 64 'score: --variants and --per-base do not go together' score run c.fa --variants v.vcf --per-base
refused 64 'score: a variant is scored in one window: no --stride' score run c.fa --variants v.vcf --stride 5
refused 64 'score: --variants: only text without tags (dataset.mask_tags) has variants' score run c.fa --variants v.vcf dataset.mask_tags=true
refused 74 'no/folder.tsv: cannot be written: No such file or directory' score run a.fa -o no/folder.tsv
cp "$golden/tiny/config.json" folder/
refused 65 'folder: a config.json without model.safetensors' score folder a.fa
refused 64 'embed: -o FILE is missing: the HDF5 file to write' embed run a.fa
refused 64 'embed: --layer: 3, but the model has 2 layers' embed run a.fa -o no.h5 --layer 3
refused 64 "embed: --pool: 'max' is none of mean, none" embed run a.fa -o no.h5 --pool max
refused 64 "embed: unknown option '--strand'; see regulon embed --help" embed run a.fa -o no.h5 --strand mean
refused 64 "score: unknown option '--layer'; see regulon score --help" score run a.fa --layer 1
refused 74 'no/folder.h5: cannot be written: No such file or directory' embed run a.fa -o no/folder.h5
regulon 2 embed --help >help && grep -q -- '--layer' help && ! grep -q -- '--variants' help
ok $? 'help of embed'
regulon 2 score --help >help && grep -q -- '--variants' help && [ "$(grep -c '^usage' help)" = 1 ]
ok $? 'help'
(cd run/final_model && "$regulon" score . ../../a.fa) >here.tsv 2>err && regulon 1 score run/final_model a.fa >there.tsv && [ -s here.tsv ] && cmp -s here.tsv there.tsv
ok $? 'a final_model is the same whatever it is called'
mkfifo pipe
refused 64 'pipe: not a plain file' score run a.fa -o pipe
refused 64 'pipe: not a plain file' embed run a.fa -o pipe
printf '>a%%s%%n\nACGTACGTACGTAC\n' >formats.fa
{ head -n 3 v.vcf && printf 'a%%s%%n\t5\t.\tC\tG\n'; } >formats.vcf
refused 65 "formats.vcf:4: REF is 'C', but the sequence has 'A' at a%s%n:5" score run formats.fa --variants formats.vcf
rm -rf run/step_*
"$PYTHON3" - run/final_model/model.safetensors <<'EOF'
import json, sys
with open(sys.argv[1], "r+b") as f:
    n = int.from_bytes(f.read(8), "little")
    f.seek(8 + n + json.loads(f.read(n))["model.norm.weight"]["data_offsets"][0])
    f.write(b"\377\377\377\377")
EOF
refused 76 'run/final_model: what it computes is not finite' score run a.fa -o no.tsv
refused 76 'run/final_model: what it computes is not finite' score run c.fa --variants v.vcf -o no.tsv
refused 76 'run/final_model: what it computes is not finite' embed run a.fa -o no.h5
echo "1..$n"
