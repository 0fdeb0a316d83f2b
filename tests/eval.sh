#!/bin/sh
# `regulon eval --records` and `--routing`: losses by record against `score` and the printed mean, experts against the golden
# router's logits, on any number of ranks; what is refused.
srcdir=${srcdir:-.}
# shellcheck disable=SC2086 # a launcher may come with options
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/score_lib.sh
. "$(dirname "$0")/score_lib.sh"
cd "$work" || exit 99
"$PYTHON3" -c 'import h5py' 2>/dev/null || { echo '1..0 # SKIP no h5py' && exit 0; }

# against the golden router's logits
py 'the golden tokens as bytes' "$golden" <<'EOP'
ids = tensors(sys.argv[1] + "/tiny/reference.safetensors")["input_ids"]
open("ids.bin", "wb").write(b"".join(bytes(list(row)) + b"\1" for row in ids))
EOP
regulon 1 pack --tokens u8 ids.bin --eos 1 -o ids.h5 >out &&
    regulon 2 eval "$golden/tiny" dataset.path=ids.h5 validation.data_path=ids.h5 dataset.max_seq_length=48 dataset.bos_eos=none --routing golden.h5 >out
ok $? 'a Hugging Face folder, a corpus'
py 'the experts are those of the largest golden logits, weights their softmax' "$golden" <<'EOP'
r, f = tensors(sys.argv[1] + "/tiny/reference.safetensors"), h5py.File("golden.h5")
assert f["expert"].shape == f["weight"].shape == (96, 2, 2) and f["expert"].dtype == np.uint8
for layer in range(2):
    x = r[f"router_logits.{layer}"].astype(float)
    best = np.argsort(-x, axis=1, kind="stable")[:, :2]
    assert (f["expert"][:, layer] == best).all()
    p = np.exp(np.take_along_axis(x, best, 1))
    near(f["weight"][:, layer], p / p.sum(1, keepdims=True), 1e-5)
assert (f["token"][:] == r["input_ids"].ravel()).all()
assert list(f["position"]) == list(range(48)) * 2 and list(f["segments/offset"]) == [0, 48] and list(f["segments/length"]) == [48, 48]
for d in [f["expert"], f["weight"], f["token"], f["position"], f["layer"], f["choice"]] + list(f["segments"].values()):
    assert d.attrs["units"] and d.attrs["long_name"]
a = f.attrs
assert (a["format"], a["format_version"], a["experts"], a["window"], a["stride"]) == ("regulon routing", 1, 4, 48, 0)
assert f["code"].attrs["version"] and f["run"].attrs["start"].endswith("Z")
try:
    import xarray
except ImportError:
    sys.exit()
d = xarray.open_dataset("golden.h5")
assert d.expert.dims == ("position", "layer", "choice") and (d.expert.values == f["expert"][:]).all()
assert (xarray.open_dataset("golden.h5", group="segments").record.dims) == ("segment",)
EOP

# losses by record
regulon 2 train L0_sanity checkpoint.ckpt_dir=run checkpoint.save_final_model=true >train.out
ok $? 'a run'
{
    gzip -dc "$lambda" | head -n 60
    printf '>odd a comment\nacgtNNNNRYACGTACGTTTGACnacgt\n>empty\n>one\nA\n>masked\nNNNN\n>last\nACGTTTAGCACGTTTAGCACGT\n'
} >a.fa
for ranks in 1 2; do
    regulon "$ranks" eval run validation.data_path=a.fa dataset.stride=28 parallelism.ep_size=1 dataset.token_micro_batch_size=8192 --records "$ranks.tsv" >"$ranks.out" &&
        regulon "$ranks" eval run validation.data_path=a.fa dataset.stride=28 parallelism.ep_size=1 dataset.token_micro_batch_size=512 --records "cut.$ranks.tsv" \
            --routing="$ranks.h5" --json >"cut.$ranks.json"
done
regulon 2 eval run validation.data_path=a.fa dataset.stride=28 dataset.token_micro_batch_size=512 --records records.h5 --routing ep.h5 >out &&
    regulon 1 score run a.fa --window 128 --stride 100 >score.tsv
ok $? 'records as text and HDF5, and their scores'
cmp 1.tsv 2.tsv && cmp cut.1.tsv cut.2.tsv && ! ls ./*.tmp >/dev/null 2>&1
ok $? 'the same bytes on one rank and two'
py 'a record has the loss that score gives it, all of them the mean that is printed' <<'EOP'
rows, scores = table("1.tsv"), {r["name"]: r for r in table("score.tsv")}
assert [r["name"] for r in rows] == [n for n in scores if n != "empty"] and len(rows) == 5
for r in rows:
    s = scores[r["name"]]
    assert r["bases"] == s["length"] and r["targets"] == s["scored"]
    if s["scored"] == "0":
        assert r["loss"] == r["bits_per_base"] == r["markov_0"] == "nan"
        continue
    near(float(r["loss"]), -float(s["log_likelihood_per_base"]), 2e-6)
    near(float(r["bits_per_base"]), float(s["bits_per_base"]), 2e-6)
rows, e = table("cut.1.tsv"), json.load(open("cut.1.json"))
n = np.array([int(r["targets"]) for r in rows])
assert n.sum() == e["targets"]
def mean(key):
    return np.nansum(n * [float(r[key]) for r in rows]) / n.sum()
near(mean("loss"), e["loss"], 2e-6)
near([mean(f"markov_{k}") for k in range(9)], e["markov_bits_per_base"], 2e-6)
f = h5py.File("records.h5")
assert [x.decode() for x in f["records/name"][:]] == [r["name"] for r in rows]
for key, name in ("bases", "bases"), ("targets", "targets"), ("loss", "loss"), ("bits_per_base", "bits_per_base"):
    near(f["records"][key][:], [float(r[name]) for r in rows], 2e-5)
near(f["records/markov_bits_per_base"][:], [[float(r[f"markov_{k}"]) for k in range(9)] for r in rows], 1e-6)
assert f.attrs["format"] == "regulon evaluation" and f.attrs["format_version"] == 1
for d in f["records"].values():
    assert d.attrs["units"] and d.attrs["long_name"]
EOP
py 'experts are the same on one rank and two, and nearly all with experts on two ranks; every base has them' <<'EOP'
one, two, ep = (h5py.File(f"{n}.h5") for n in ("1", "2", "ep"))
for name in "expert", "weight", "token", "position":
    assert one[name][:].tobytes() == two[name][:].tobytes()
assert one["expert"].attrs["_FillValue"][0] == 255 and one["expert"][:].max() < one.attrs["experts"]
assert (one["expert"][:] == ep["expert"][:]).mean() > 0.999
near(one["weight"][:].sum(2), np.ones(one["weight"].shape[:2]), 1e-6)
assert (one["weight"][:, :, 0] >= one["weight"][:, :, 1]).all()
text = "".join(line.strip() for line in open("a.fa") if line[0] != ">")
assert bytes(one["token"][:]).decode() == text
names = [x.decode() for x in one["segments/record"][:]]
assert names[1:] == ["odd", "one", "masked", "last"]
EOP
regulon 2 eval run validation.data_path=a.fa dataset.token_micro_batch_size=512 validation.num_batches=3 --routing some.h5 >out
py 'what validation.num_batches leaves out has the fill value' <<'EOP'
f = h5py.File("some.h5")
left_out = (f["expert"][:] == 255).all(axis=(1, 2))
assert 0 < left_out.sum() < len(left_out) and not (f["expert"][:][~left_out] == 255).any()
assert (np.isnan(f["weight"][:]).all(axis=(1, 2)) == left_out).all()
assert 1500 < (~left_out).sum() <= 3 * 512
EOP
regulon 1 eval run --records blocks.tsv --routing blocks.h5 dataset.holdout_by=block dataset.holdout_share=0.2 dataset.holdout_block=1000 >out
py 'held-out blocks are segments of their record' <<'EOP'
f, (r,) = h5py.File("blocks.h5"), table("blocks.tsv")
start, n, at = (f["segments"][k][:] for k in ("start", "length", "offset"))
assert len(n) > 5 and (start % 5000 == 4000).all() and (n[:-1] == 1000).all() and int(r["bases"]) == n.sum() == len(f["token"])
assert (f["position"][:] == np.concatenate([np.arange(s, s + k) for s, k in zip(start, n)])).all() and (at == np.cumsum(n) - n).all()
EOP
regulon 1 info blocks.h5 >out && grep -q '^routing  *of 2 layers of 4 experts, 2 of them a base, under run$' out && grep -q '^segments  *[0-9]*, of [0-9]* bases$' out &&
    regulon 1 info records.h5 >out && grep -q '^evaluation  *of 5 records under run$' out && grep -q '^loss  *[0-9.]* nats/token over [0-9]* targets$' out
ok $? 'info'

refused 64 'eval: --routing needs a value: FILE' eval run --routing
refused 64 'eval: --records and --routing: both to no.h5' eval run --records no.h5 --routing no.h5
held=validation.data_path=a.fa
refused 74 'no/file.h5: cannot be written: No such file or directory' eval run $held --routing no/file.h5
refused 74 'no/file.tsv: cannot be written: No such file or directory' eval run $held --routing no.h5 --records no/file.tsv
refused 64 '.: not a plain file' eval run $held --records .
refused 78 'dataset.token_micro_batch_size: micro-batches of 500000000 tokens are too large to be told base by base' eval run $held --records no.tsv \
    dataset.token_micro_batch_size=500000000
regulon 2 eval --help >help && grep -q -- '--records FILE' help && grep -q -- '--routing FILE' help && [ "$(grep -c '^regulon eval' help)" = 1 ]
ok $? 'help'
echo "1..$n"
