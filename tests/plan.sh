#!/bin/sh
# `regulon plan`: figures of a small deck against numbers worked out here, those of the shape of Mixtral-8x7B against known
# ones, grids, refusals and exit codes, and advice that is followed. (planned.np* compares memory with what is allocated.)
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
built() { grep -q "^#define $1 " "$(dirname "$regulon")/config.h"; }
attention=cudnn # in a build without CUDA, too
if built HAVE_CUDA && ! built HAVE_CUDNN; then attention=own; fi
cd "$work" || exit 99
plan() { # CODE WORD...
    code=$1
    shift
    "$regulon" plan "$@" >out 2>err
    got=$?
    [ $got = "$code" ] || { echo "# exit $got:" && sed 's/^/# /' out err && false; }
}
has() { # PYTHON: a condition on the JSON, as d; m is memory with the deck's shard
    "$PYTHON3" - "$1" <<'EOP' >py.out 2>&1 || { sed 's/^/# /' py.out && false; }
import json, sys
d = json.load(open("out"))
m, sent = d["memory"][d["shard"]], d["sent_bytes"]
assert eval(sys.argv[1]), (d, m)
EOP
}
refused() { # CODE MESSAGE WORD...: the message once, nothing on stdout
    code=$1 message=$2
    shift 2
    plan "$code" "$@" && [ "$(cat err)" = "regulon: $message" ] && [ ! -s out ]
    ok $? "exit $code: $message"
}

# D 64, H 4, G 2, K 16, F 32, E 4, A 2, L 2, V 128; N 256 in windows of 64
cat >small.yaml <<'EOY'
num_train_steps: 2
grad_acc_steps: 3
model: {vocab_size: 128, hidden_size: 64, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 4,
  num_key_value_heads: 2, num_local_experts: 4}
dataset: {path: none.fa, max_seq_length: 64, token_micro_batch_size: 256}
EOY
# embedding and head 2 x 8192; a layer: q and o 4096 each, k and v 2048 each, router 256, norms 128, experts 4 x 6144;
# the last norm 64. The dense part: 16384 + 2 x 12672 + 64 = 41792; experts: 49152.
plan 0 ./small.yaml --json && has 'd["parameters"] == 90944 and d["active_parameters"] == 41792 + 49152 / 2'
ok $? 'parameters'
has 'd["backend"] == "cuda" and d["attention"] == "'$attention'" and d["limit_bytes"] == 141e9 and d["total_bytes"] == d["memory"]["optimizer"]["total"] and d["fits"] and d["would_fit"] == []'
ok $? "auto is cuda, attention $attention"
has 'm["weights"] == 90944 * 2 and m["gradients"] == 90944 * 4 and m["masters"] == 90944 * 4 and m["moments"] == 90944 * 8'
ok $? 'weights, gradients, masters, moments of one rank'
# stream: x1, xn1, x2, xn2 of each layer, x and xn: 10 x N D; rstd 5 x N. attention: qkv N 128, attended N 64, lse N H.
has 'm["stream"] == 10 * 256 * 64 * 2 + 5 * 256 * 4 and m["attention"] == 2 * (256 * (128 + 64) * 2 + 256 * 4 * 4)'
ok $? 'activations: stream and attention'
# router: probs N E, lse N, ids and p N A. experts: R = N A rows of 2F in each layer, of D and F that all share (F is no
# multiple of 64: not for the grouped kernels, whose rows would be padded)
has 'm["router"] == 2 * 4 * 256 * (4 + 1 + 2 + 2) and m["experts"] == (2 * 64 + 64 + 32) * 512 * 2'
ok $? 'activations: router and experts'
# delta, dx, dxn N D, y R D, dattended N 64, dqkv N 128; FP32: logits N E, dp N A, dp_rows R
has 'm["passing"] == 2 * (256 * (64 * 3 + 64 + 128) + 512 * 64) + 4 * (256 * 4 + 256 * 2 + 512)'
ok $? 'between layers'
# a layer: E + 1 offsets, E ends, two arrays of R
has 'm["exchange"] == 2 * 4 * (5 + 4 + 2 * 512)'
ok $? 'exchange'
# 5 x 32 MiB of cuBLASLt, 4 Mi floats staged, [N, V] logits FP32 and BF16, losses, RoPE, 2 (N + 1) places; scratch: a
# norm's 1056 rows of D floats are more than the others'
has 'm["workspace"] == 5 * 2**25 + 2**24 + 256 * 128 * 6 + 256 * 8 + 256 * 16 * 4 + 2 * 257 * 4 + 1056 * 64 * 4'
ok $? 'work space'
# shared where not kept: of 10 arrays of the stream, xn1 and xn2 of one layer (activation), and x2 and rstd1 and rstd2 too
has 'd["totals_by_recompute"]["none"]["optimizer"] == m["total"]' && plan 0 ./small.yaml --json memory.recompute=activation &&
    has 'm["stream"] == 8 * 256 * 64 * 2 + 5 * 256 * 4 and m["experts"] == (2 * 64 + 64 + 32) * 512 * 2' &&
    plan 0 ./small.yaml --json memory.recompute=layer && has 'm["attention"] == 256 * (128 + 64) * 2 + 256 * 4 * 4 and m["experts"] == 512 * 160 * 2' &&
    has 'm["stream"] == 7 * 256 * 64 * 2 + 3 * 256 * 4 and d["totals_by_recompute"]["layer"]["optimizer"] == m["total"]'
ok $? 'memory.recompute'
plan 0 ./small.yaml --json
has 'sum(v for k, v in m.items() if k != "total") == m["total"]'
ok $? 'the sum'
# 6 N_active per token without embedding and norms, 6 L H K sum(len^2): 3 micro-batches of 4 windows
has 'd["tokens_per_step"] == 768 and d["flops_per_step"] == 6 * 768 * (2 * (12288 + 256 + 2 * 6144) + 8192) + 6 * 2 * 64 * 12 * 64**2'
ok $? 'tokens and FLOPs of a step'
has 'd["checkpoint_bytes"] == 12 * 90944 + 4 * 2 * 4 and d["copy_bytes"] == 12 * 90944 and set(sent.values()) == {0}'
ok $? 'the checkpoint; one rank sends nothing'

# two ranks: shares are halves, but the norms' one row, which both have
plan 0 ./small.yaml --ranks 2 --json && has 'd["dp_size"] == 2 and m["masters"] == 4 * (90944 + 5 * 64) / 2 and d["memory"]["none"]["masters"] == 4 * 90944'
ok $? 'dp 2: masters are shared, with parallelism.shard none they are not'
has 'sent == {"tokens": 0, "dense_gradients": 4 * (41792 + 5 * 64) / 2, "dense_weights": (41792 - 5 * 64), "expert_gradients": 2 * 49152, "expert_weights": 49152}'
ok $? 'dp 2: what a rank sends'
plan 0 ./small.yaml --ranks 2 --json parallelism.shard=none && has 'sent["dense_gradients"] == 4 * 41792 and sent["dense_weights"] == 0 and d["shard"] == "none"'
ok $? 'dp 2, shard none: all-reduces'
# full: a rank keeps halves, and whole the norms; rooms for the head or a layer's tensors but the norms, 12544 + 24576, in BF16
# and FP32, and whole pieces of 2 MB where others read them; then two rooms for parts of sums, too, and a communicator less. Of a step's 3 micro-batches each forward and backward pass gathers every layer, but that a backward pass finds the
# last one, and a forward pass after it the first; the embedding 4 times, the head 3; each adds up the gradients of all.
plan 0 ./small.yaml --ranks 2 --json parallelism.shard=full && has 'm["weights"] == 2 * (90944 + 5 * 64) / 2 and m["gradients"] == 2 * m["weights"]' &&
    has 'm["rooms"] == 4 * (2**21 - 256) and m["exchange"] - d["memory"]["optimizer"]["exchange"] == 2 * 2**26 + 2**21 - 256 and d["memory"]["optimizer"]["rooms"] == 0 and m["moments"] == d["memory"]["optimizer"]["moments"]' &&
    has 'sent["dense_weights"] == 7 * 8192 + (4 + 3) * 12544 and sent["expert_weights"] == (4 + 3) * 24576' &&
    has 'sent["dense_gradients"] == 2 * (3 * (41792 - 5 * 64) + 2 * 5 * 64) and sent["expert_gradients"] == 2 * 3 * 49152'
ok $? 'dp 2, shard full: memory, and what a rank sends'
cp out a && plan 0 ./small.yaml --ranks 2 --json parallelism.shard=full engine.collectives=nccl &&
    has 'm["rooms"] == 2 * (2 + 4) * (12544 + 24576) and m["exchange"] == d["memory"]["optimizer"]["exchange"] and 0.5e9 < m["libraries"] - json.load(open("a"))["memory"]["full"]["libraries"] < 0.7e9 and json.load(open("a"))["sent_bytes"] == sent'
ok $? 'the same through NCCL'
plan 0 ./small.yaml --ranks 2 --node-ranks 1 --json parallelism.shard=full && has 'm["exchange"] == d["memory"]["optimizer"]["exchange"]' &&
    plan 0 ./small.yaml --ranks 2 --node-ranks 1 engine.collectives=peer && plan 0 ./small.yaml parallelism.shard=full engine.collectives=peer
ok $? 'on two hosts, too; of no account without shard full, or on one rank'
refused 78 'engine.collectives: peer: the ranks are on several hosts' ./small.yaml --ranks 2 --node-ranks 1 parallelism.shard=full engine.collectives=peer
refused 78 'engine.collectives: peer: 17 ranks, it serves 16' ./small.yaml --ranks 17 --node-ranks 17 parallelism.shard=full engine.collectives=peer
# 4 experts on 2 ranks, any 2 of them: the other rank has one of them with probability 1 - 2/4 1/3
plan 0 ./small.yaml --json parallelism.ep_size=2 && has 'd["ranks"] == 2 and m["weights"] == 2 * (41792 + 49152 / 2) and abs(sent["tokens"] / (5 / 6 * 3 * 2 * 256 * (4 * 128 + 24)) - 1) < 1e-6'
ok $? 'ep 2: weights, and tokens on their way'
# of 64 columns a code each and a scale, which takes 8 bytes with what pads it
for way in '' engine.exchange=nccl; do
    plan 0 ./small.yaml --json parallelism.ep_size=2 $way && cp out plain && plan 0 ./small.yaml --json parallelism.ep_size=2 precision.fp8_dispatch=true $way &&
        has 'abs(sent["tokens"] / (5 / 6 * 3 * 2 * 256 * (2 * (128 + 72) + 24)) - 1) < 1e-6 and d["memory"] == json.load(open("plain"))["memory"]'
    ok $? "precision.fp8_dispatch $way: fewer bytes on their way, the same memory"
done
plan 0 ./small.yaml --json --ranks 2 parallelism.ep_size=2 --link 3 && cp out plain && plan 0 ./small.yaml --json --ranks 2 parallelism.ep_size=2 --link 3 precision.fp8_dispatch=true &&
    has 'abs(d["step_seconds"]["tokens"] / json.load(open("plain"))["step_seconds"]["tokens"] - (2 * (128 + 72) + 24) / (4 * 128 + 24)) < 1e-6'
ok $? 'and less time'
plan 0 ./small.yaml backend=cpu --json && has 'd["attention"] == "own" and m["weights"] == 4 * 90944 and m["masters"] == 0 and m["copies"] == 12 * 90944'
ok $? 'cpu: FP32, the weights are the masters'
plan 0 ./small.yaml precision.recipe=fp32 --json && has 'd["attention"] == "own" and m["weights"] == 4 * 90944 and m["masters"] == 0 and m["copies"] == 0'
ok $? 'cuda in FP32'
# On the CPU operands are rounded into buffers: gradients of queries, keys and values are the largest, N 128, and the other one
# is N 64 in gradients of weights.
plan 0 ./small.yaml backend=cpu --json && before=$("$PYTHON3" -c 'import json; d = json.load(open("out")); print(d["memory"][d["shard"]]["workspace"])') &&
    plan 0 ./small.yaml backend=cpu precision.recipe=mxfp8 precision.emulate=true --json && has 'm["workspace"] == '"$before"' + 256 * (128 + 64) * 4'
ok $? 'eight bits: two buffers'
plan 0 ./small.yaml backend=cpu precision.recipe=mxfp8 precision.emulate=true && grep -q '^eight bits  *mxfp8, emulated, in layers 0 to 1 of 0 to 1$' out
ok $? 'and a line'
# On a GPU fp8_block takes multiples of 128. With D and F 128 and K 32 a layer's matrices have 256 x 128, 128 x 128, 4 x 256 x 128 and
# 4 x 128 x 128 elements: 245760, each a byte and 1/32 in scales, in both orders. Rows begin at multiples of 128, for 4 experts 512 +
# 4 x 127 of them at most: 7 x 128 = 896. Operands have rooms for rows of 2F twice, and for rows of D twice; in a forward pass for D.
# Statistics are nine sums of twelve operands of a layer.
sed 's/hidden_size: 64, intermediate_size: 32/hidden_size: 128, intermediate_size: 128/' small.yaml >wide.yaml
eight=precision.recipe=fp8_block
plan 0 ./wide.yaml --json && cp out bf16 &&
    plan 0 ./wide.yaml --json $eight && has 'm["eight_bits"] == 2 * 2 * (245760 + 4 * 256)' &&
    has 'm["experts"] == (2 * 256 + 128 + 128) * 896 * 2 and m["exchange"] == 2 * 4 * (5 + 4 + 512 + 896)' &&
    has '[m["workspace"] - b["workspace"] == 2 * 896 * (256 + 128) * 33 / 32 and m["weights"] == b["weights"] and m["other"] == b["other"] + 2 * 12 * 9 * 8 and b["eight_bits"] == 0 and m["total"] > b["total"] + m["eight_bits"] for b in [json.load(open("bf16"))["memory"]["optimizer"]]][0]'
ok $? 'eight bits on a GPU: copies of weights, rows, rooms for operands'
plan 0 ./wide.yaml --json $eight precision.fp8_activations=true && has 'm["experts"] == (2 * 256 * 33 / 32 + (128 + 128) * 2) * 896' &&
    plan 0 ./wide.yaml --json $eight precision.fp8_activations=true precision.last_layers_bf16=1 && has 'm["experts"] == (256 * 33 / 32 + (256 + 128 + 128) * 2) * 896' &&
    plan 0 ./wide.yaml --json $eight precision.fp8_activations=true memory.recompute=layer && has 'm["experts"] == (256 * 33 / 32 + (128 + 128) * 2) * 896'
ok $? 'activations in eight bits: z takes a byte and its scales, in the layers that have the recipe'
plan 0 ./wide.yaml --json $eight precision.statistics_every_n_steps=0 && has 'm["other"] == json.load(open("bf16"))["memory"]["optimizer"]["other"]'
ok $? 'without statistics no sums of them'
plan 0 ./wide.yaml --json $eight precision.last_layers_bf16=1 && has 'm["eight_bits"] == 2 * (245760 + 4 * 256)' &&
    plan 0 ./wide.yaml --json $eight model.num_hidden_layers=5 --ranks 2 && has 'm["eight_bits"] == 5 * 2 * (245760 + 4 * 256) and d["memory"]["full"]["eight_bits"] == 2 * 2 * (245760 + 4 * 256)' &&
    plan 0 ./wide.yaml --json $eight model.num_hidden_layers=5 --ranks 2 precision.layers_bf16=2 && has 'm["eight_bits"] == 4 * 2 * (245760 + 4 * 256) and d["memory"]["full"]["eight_bits"] == 2 * 2 * (245760 + 4 * 256)' &&
    plan 0 ./wide.yaml --json $eight parallelism.ep_size=2 && has 'm["eight_bits"] == 2 * 2 * (49152 + 196608 / 2 + 4 * 256)' &&
    plan 0 ./wide.yaml --json $eight backend=cpu precision.emulate=true && has 'm["eight_bits"] == 0'
ok $? 'of the layers that have it, with shard full of two, of half of the experts, and none on the CPU'
# Of 4 x 128 x (256 + 128) weights of experts in each layer none are kept in BF16; there is room for one tensor, 4 x 128 x 256.
less() { # BYTES WORD...: weights are so many bytes less with precision.fp8_weights, and nothing else that is asked for changes
    bytes=$1
    shift
    plan 0 ./wide.yaml --json $eight "$@" && cp out kept && plan 0 ./wide.yaml --json $eight precision.fp8_weights=true "$@" &&
        has '[all(m[k] == b[k] - (('"$bytes"') if k == "weights" else 0) for k in m if k not in ("libraries", "total")) and m["total"] <= b["total"] and sent == json.load(open("kept"))["sent_bytes"] for b in [json.load(open("kept"))["memory"][d["shard"]]]][0]'
}
less '2 * (2 * 196608 - 131072)' && less '2 * (196608 - 131072)' precision.last_layers_bf16=1 && less '2 * (2 * 196608 - 131072) / 2' parallelism.ep_size=2 &&
    less '2 * (2 * 196608 - 131072)' --ranks 2 && less '2 * (2 * 196608 - 131072)' --ranks 2 parallelism.shard=none &&
    less '2 * (2 * 196608 - 131072)' 'train.freeze=*.experts.*'
ok $? 'precision.fp8_weights: 2 bytes less for a weight of experts in eight bits, but for the largest tensor'
less '2 * 2 * 196608 / 2' --ranks 2 parallelism.shard=full && less '2 * (2 * 196608 - 131072)' parallelism.shard=full && less 0 backend=cpu precision.emulate=true
ok $? 'with shard full, where they are split, of all; on the CPU of none'
plan 0 ./wide.yaml precision.recipe=auto8 && grep -q '^eight bits  *fp8_block, in layers 0 to 1 of 0 to 1$' out && grep -q '^  weights in eight bits  ' out
ok $? 'auto8 is fp8_block'
while IFS='|' read -r key words; do
    refused 78 "$key: with a precision.recipe of eight bits it must be a multiple of 128 on a GPU" ./wide.yaml $eight "$words"
done <<'EOT'
model.hidden_size is 192|model.hidden_size=192
model.intermediate_size is 64|model.intermediate_size=64
model.num_attention_heads * model.head_dim is 64|model.head_dim=16
2 * model.num_key_value_heads * model.head_dim is 64|model.num_key_value_heads=1
EOT
refused 78 'precision.recipe: the grouped kernels compute in eight bits, and cannot here: engine.experts says so' ./wide.yaml $eight engine.experts=cublaslt
refused 78 "precision.recipe is 'mxfp8', which GPUs of compute capability 9.0 cannot compute fast: precision.emulate=true gives the same numbers slowly, precision.recipe=fp8_block is fast" ./small.yaml precision.recipe=mxfp8
# Emulated: weights in BF16, rounded in either direction; rooms for 704 rows, at multiples of 64, of 2F and of D.
plan 0 ./wide.yaml --json && cp out bf16 && plan 0 ./wide.yaml --json precision.recipe=mxfp8 precision.emulate=true &&
    has '[m["eight_bits"] == 2 * 4 * 245760 and m["workspace"] - b["workspace"] == 704 * 2 * (256 + 128) and m["experts"] == b["experts"] for b in [json.load(open("bf16"))["memory"]["optimizer"]]][0]'
ok $? 'mxfp8 emulated on a GPU: copies of weights, rooms for operands'
plan 0 ./wide.yaml --json precision.recipe=mxfp8 precision.emulate=true engine.experts=cublaslt && plan 0 ./wide.yaml --json precision.recipe=mxfp8 precision.emulate=true model.intermediate_size=96
ok $? 'by a product an expert, and where the grouped kernels do not serve'
# As such, on another GPU: a byte for a weight and 1/32 in scales, in both orders; rows at multiples of 128, 896 of them, rooms for 2F
# of them twice and for D.
mxfp8='precision.recipe=mxfp8 --capability 10.0'
# shellcheck disable=SC2086 # several words
plan 0 ./wide.yaml --json $mxfp8 &&
    has '[m["eight_bits"] == 2 * 2 * 245760 * 33 / 32 and m["workspace"] - b["workspace"] == 896 * (2 * 256 + 128) * 33 / 32 and m["experts"] == (2 * 256 + 128 + 128) * 896 * 2 for b in [json.load(open("bf16"))["memory"]["optimizer"]]][0]'
ok $? 'mxfp8 on GPUs of compute capability 10.0'
# Tiles of scales are whole: with F 96 gate and up have 192 rows, two tiles of them, down 96 columns, one.
# shellcheck disable=SC2086
plan 0 ./wide.yaml --json $mxfp8 model.intermediate_size=96 && has 'm["eight_bits"] == 2 * 2 * ((256 + 128 + 4 * 192 + 4 * 96) * 128 + (2 + 1 + 4 * 2 + 4) * 512)'
ok $? 'in whole tiles of scales'
# shellcheck disable=SC2086
plan 0 ./wide.yaml $mxfp8 && grep -q '^eight bits  *mxfp8, by cuBLASLt: compiled, never run before, in layers 0 to 1 of 0 to 1$' out &&
    plan 0 ./wide.yaml precision.recipe=auto8 --capability 10.3 && grep -q '^eight bits  *mxfp8, by cuBLASLt' out &&
    plan 0 ./wide.yaml --json $mxfp8 precision.emulate=true && has 'm["eight_bits"] == 2 * 4 * 245760' &&
    plan 0 ./wide.yaml $mxfp8 precision.emulate=true && grep -q '^eight bits  *mxfp8, emulated, ' out
ok $? 'auto8 is mxfp8 there; it is emulated when that is asked for'
# shellcheck disable=SC2086
plan 0 ./wide.yaml $mxfp8 engine.experts=grouped && refused 78 'engine.experts: grouped: model.intermediate_size must be a multiple of 128 in mxfp8' ./wide.yaml $mxfp8 engine.experts=grouped model.intermediate_size=96
# shellcheck disable=SC2086
refused 78 'engine.experts: grouped: it needs compute capability 10.0' ./wide.yaml ${mxfp8%0.0}0.3 engine.experts=grouped
refused 78 'engine.experts: grouped: it needs compute capability 9.0' ./wide.yaml --capability 8.0 engine.experts=grouped
refused 78 'precision.fp8_dispatch needs GPUs of compute capability 8.9 or more; these have 8.0: with false tokens travel as they are' ./wide.yaml --capability 8.0 precision.fp8_dispatch=true
plan 0 ./wide.yaml --json --capability 8.0 && cp out other && plan 0 ./wide.yaml --json engine.experts=cublaslt && has 'd["memory"] == json.load(open("other"))["memory"]'
ok $? 'other GPUs have no grouped products'
refused 78 "precision.recipe is 'fp8_block', which this version does not compute on GPUs of compute capability 10.0: precision.recipe=bf16 is fast there" ./wide.yaml $eight --capability 10.0
# with layers that stay out of the recipe, activations in eight bits are for one rank's experts alone
stay="L1_8x7B_ep --ranks 2 $eight precision.first_layers_bf16=1 parallelism.dp_size=2 parallelism.ep_size=1 model.num_hidden_layers=8"
# shellcheck disable=SC2086 # several words
plan 1 $stay && grep -q 'GB  *parallelism.ep_size=2 parallelism.dp_size=1$' out && plan 1 $stay precision.fp8_activations=true && grep -q 'parallelism.shard=full$' out && ! grep -q ep_size=2 out
ok $? 'advice is not a deck that is refused'
plan 0 ./small.yaml 'train.freeze=*.experts.*' --ranks 2 --json && has 'sent["expert_gradients"] == 0 and sent["expert_weights"] == 0'
ok $? 'frozen experts are not sent'
# of gradients there is room for one frozen tensor, the experts' gate and up
plan 0 ./small.yaml 'train.freeze=*.experts.*' --json && has 'm["moments"] == 8 * 41792 and m["masters"] == 4 * 90944' &&
    has 'm["gradients"] == 4 * (41792 + 4 * 2 * 32 * 64) and d["checkpoint_bytes"] == 12 * 90944 + 4 * 2 * 4'
ok $? 'frozen experts have no moments, and next to no gradients'

# Mixtral-8x7B on eight ranks: GB of weights, gradients, masters and moments
while read -r dp ep gb; do
    "$regulon" plan L1_8x7B_ep parallelism.dp_size="$dp" parallelism.ep_size="$ep" --json >out 2>err
    has "round((m['weights'] + m['gradients'] + m['masters'] + m['moments']) / 1e9, 1) == $gb and d['ranks'] == 8 and round(d['parameters'] / 1e9, 2) == 46.70"
    ok $? "Mixtral-8x7B, dp $dp x ep $ep: $gb GB of state"
done <<'EOT'
1 8 113.5
2 4 147.3
4 2 215.0
8 1 350.3
EOT
while read -r dp ep gb; do
    "$regulon" plan L1_8x7B_ep parallelism.dp_size="$dp" parallelism.ep_size="$ep" parallelism.shard=full --json >out 2>err
    has "round((m['weights'] + m['gradients'] + m['masters'] + m['moments'] + m['rooms']) / 1e9, 1) == $gb"
    ok $? "Mixtral-8x7B, dp $dp x ep $ep, shard full: $gb GB of state"
done <<'EOT'
2 4 109.8
4 2 114.1
8 1 122.5
EOT
plan 0 L1_8x7B_ep parallelism.dp_size=8 parallelism.ep_size=1 parallelism.shard=full memory.recompute=layer && grep -q '^fits, with 1[0-9][.0-9]* GB left' out
ok $? 'dp 8 x ep 1 fits on eight GPUs of 141 GB'
plan 1 L1_8x7B_ep parallelism.dp_size=8 parallelism.ep_size=1 memory.recompute=layer && grep -q '^  12[0-9.]* GB *parallelism.shard=full$' out
ok $? 'and is advised where it is not the deck'
# at N 8192, H 32, G 8, K 128 cuDNN's scratch is 353 MiB; without it the embedding's 128 chunks of D are the largest
plan 0 L1_8x7B_ep parallelism.ep_size=8 dataset.token_micro_batch_size=8192 dataset.micro_batch_size= model.num_hidden_layers=1 engine.experts=cublaslt --json && cp out a &&
    plan 0 L1_8x7B_ep parallelism.ep_size=8 dataset.token_micro_batch_size=8192 dataset.micro_batch_size= model.num_hidden_layers=1 engine.experts=cublaslt engine.attention=own --json &&
    has 'json.load(open("a"))["memory"]["optimizer"]["workspace"] - m["workspace"] == ("'$attention'" == "cudnn") * (353 * 2**20 - (2**17 + 3 * 2**15 + 2 * 128 * 4096 * 4))'
ok $? 'scratch of cuDNN'
plan 0 og2_moe_7b --ranks 8 && grep -q '^fits, with ' out && grep -q '^  gradients, dense  *[0-9.]* GB   all: 8 ranks$' out
ok $? 'og2_moe_7b fits on eight'

# the time of a step, from rates
plan 0 ./small.yaml --json --tflops 2 && has 'abs(d["step_seconds"]["passes"] / (d["flops_per_step"] / 2e12) - 1) < 1e-9 and d["step_seconds"]["tokens"] == d["step_seconds"]["gradients"] == 0' &&
    has 'abs(d["step_seconds"]["optimizer"] / (30 * m["moments"] / 8 / 4.1e12) - 1) < 1e-9 and d["step_seconds"]["computing"] == 1'
ok $? 'the time of a step on one rank'
plan 0 ./small.yaml --json --tflops 2 memory.recompute=layer memory.recompute_layers=1 && has 'abs(d["step_seconds"]["passes"] / (d["flops_per_step"] / 2e12 * 7 / 6) - 1) < 1e-9'
ok $? 'one of two layers made again: a third of its passes more'
plan 0 ./small.yaml --json --ranks 4 parallelism.ep_size=2 --link 3 --network 2 --node-ranks 4 && has "[near(t['tokens'], sent['tokens'] / 3e9) and near(t['gradients'], (sent['dense_gradients'] + sent['expert_gradients']) / 3e9) for t, near in [(d['step_seconds'], lambda a, b: abs(a / b - 1) < 1e-9)]][0]"
ok $? 'within a node: the links'
plan 0 ./small.yaml --json --ranks 4 parallelism.ep_size=4 --link 3 --network 2 --node-ranks 2 && has "[near(t['tokens'], sent['tokens'] * 2 / 3 / 2e9) and near(t['weights'], (sent['dense_weights'] + sent['expert_weights']) / 2e9) and near(t['total'], sum(t[k] for k in ('passes', 'optimizer', 'tokens', 'gradients', 'weights'))) and near(t['tokens_per_s_of_a_rank'], d['tokens_per_step'] / 4 / t['total']) for t, near in [(d['step_seconds'], lambda a, b: abs(a / b - 1) < 1e-9)]][0]"
ok $? 'between nodes: the network, and rates of tokens'
# nodes of three: a group of two is on both of them
spread="./small.yaml --json --ranks 6 parallelism.ep_size=2 --node-ranks 3"
# shellcheck disable=SC2086 # several words
plan 0 $spread --link 3 --network 2 && has "abs(d['step_seconds']['tokens'] / (sent['tokens'] / 2e9) - 1) < 1e-9" && cp out a &&
    plan 0 $spread engine.exchange=nccl && has "json.load(open('a'))['memory'] == d['memory']" &&
    plan 0 $spread --node-ranks 4 && has "json.load(open('a'))['memory']['optimizer']['exchange'] != m['exchange']"
ok $? 'a group on two nodes: the network, and room for NCCL'
# shellcheck disable=SC2086 # several words
refused 78 'engine.exchange: peer: the ranks of a group are on several hosts' $spread engine.exchange=peer
# beside the passes: T their time, a third of it forward, W and G what the links take; slow links, then fast ones
plan 0 ./small.yaml --json --ranks 2 --link 0.001 --tflops 2 parallelism.shard=full && has "[near(t['weights'], W / 2 - T / 3) and near(t['gradients'], W / 2 + G - 2 * T / 3) for t, T, W, G, near in [(d['step_seconds'], d['flops_per_step'] / 2 / 2e12, (sent['dense_weights'] + sent['expert_weights']) / 1e6, (sent['dense_gradients'] + sent['expert_gradients']) / 1e6, lambda a, b: abs(a / b - 1) < 1e-9)]][0]" &&
    plan 0 ./small.yaml --json --ranks 2 --tflops 0.001 parallelism.shard=full && has "d['step_seconds']['weights'] == d['step_seconds']['gradients'] == 0"
ok $? 'shard full: what the passes do not hide'
plan 0 ./small.yaml --ranks 2 parallelism.shard=full && grep -q '^a step would take, with passes, weights and gradients overlapping$' out
ok $? 'which is said'
plan 0 ./small.yaml --ranks 2 --link 284 && grep -q '^a step would take, with nothing overlapping$' out && grep -q '^  at 520 TFLOP/s, 284 GB/s within nodes of 8, 40 GB/s between them$' out && grep -q '^  gradients  *0.000 s$' out
ok $? 'said to people'
plan 0 ./small.yaml backend=cpu --json && has '"step_seconds" not in d'
ok $? 'on the CPU nothing is said'

# what does not fit: the advice, followed
plan 1 L1_8x7B_ep && grep -q '^does not fit, [0-9.]* [GM]B too much; it would fit with$' out && grep -q -- '--ranks 16' out
ok $? 'L1_8x7B_ep does not fit on eight of 141 GB: exit 1'
sed '1,/^does not fit/d' out >advice
plan 0 L1_8x7B_auto8 && grep -q '^eight bits  *fp8_block, in layers 0 to 31 of 0 to 31$' out && grep -q '^fits' out
ok $? 'L1_8x7B_auto8 does, in fp8_block'
while read -r _ _ words; do
    # shellcheck disable=SC2086 # several words
    plan 0 L1_8x7B_ep $words && grep -q '^fits' out
    ok $? "it fits with $words"
done <advice
[ "$(wc -l <advice)" = 3 ]
ok $? 'three ways out'
plan 0 L1_8x7B_ep --gpu-memory 200 && plan 1 L1_8x7B_ep --gpu-memory 80 --json && has 'not d["fits"] and d["limit_bytes"] == 80e9 and len(d["would_fit"]) > 0'
ok $? '--gpu-memory'
words=$("$PYTHON3" -c 'import json; print(json.load(open("out"))["would_fit"][0]["words"])')
# shellcheck disable=SC2086 # several words
plan 0 L1_8x7B_ep --gpu-memory 80 $words
ok $? "80 GB: it fits with $words"
plan 1 L1_8x7B_ep $eight memory.recompute=layer --gpu-memory 131 && grep -q '^  130 GB  *precision.fp8_weights=true$' out && grep -q -- '--ranks 16 [^ ]*$' out &&
    plan 0 L1_8x7B_ep $eight memory.recompute=layer --gpu-memory 131 precision.fp8_weights=true &&
    plan 1 L1_8x7B_ep memory.recompute=layer --gpu-memory 120 && ! grep -q fp8_weights out
ok $? 'eight bits: it fits without weights of experts in BF16'
plan 1 L1_8x7B_ep --gpu-memory 1 && grep -q '^  nothing that was tried' out
ok $? 'into 1 GB nothing fits'

# refusals
refused 64 'plan: which deck? regulon plan DECK --ranks N' --ranks 2
refused 64 "plan: unknown option '--rnks'; see regulon plan --help" ./small.yaml --rnks 2
refused 64 'plan: --ranks needs a number' ./small.yaml --ranks
refused 64 "plan: --ranks: 'two' is no number of ranks" ./small.yaml --ranks two
refused 64 "plan: --gpu-memory: '-1' is no number of GB" ./small.yaml --gpu-memory -1
refused 64 'plan: --gpu-memory: the deck asks for backend: cpu' ./small.yaml --gpu-memory 80 backend=cpu
refused 64 'plan: --tflops: the deck asks for backend: cpu' ./small.yaml --tflops 500 backend=cpu
refused 64 "plan: --network: 'fast' is no number of GB/s" ./small.yaml --network fast
refused 64 "plan: --node-ranks: '0' is no number of ranks" ./small.yaml --node-ranks 0
for capability in 9.05 sm_90 0; do
    refused 64 "plan: --capability: '$capability' is no compute capability, as 9.0 is one" ./small.yaml --capability "$capability"
done
refused 78 'parallelism.ep_size: 2 does not divide the 3 ranks of this job' ./small.yaml --ranks 3 parallelism.ep_size=2
refused 78 'model.hidden_size is 36: on a GPU it must be a multiple of 8' ./small.yaml model.hidden_size=36 model.head_dim=16
why='it has no sliding window here'
[ $attention = cudnn ] || why='this build has none'
refused 78 "engine.attention: cudnn: $why" ./small.yaml engine.attention=cudnn model.sliding_window=16
refused 78 "train.freeze: no parameter is called 'nothing'" ./small.yaml train.freeze=nothing
refused 78 'engine.experts: grouped: model.intermediate_size must be a multiple of 64' ./small.yaml engine.experts=grouped
refused 78 'engine.exchange: peer: 33 experts a token, it serves 32' ./small.yaml --ranks 2 parallelism.ep_size=2 model.num_local_experts=34 model.num_experts_per_tok=33 engine.exchange=peer
refused 78 'engine.exchange: peer: 17 ranks in a group, it serves 16' ./small.yaml --ranks 17 --node-ranks 17 parallelism.ep_size=17 model.num_local_experts=17 engine.exchange=peer
# grouped: rows begin at multiples of 64, for 4 experts 512 + 4 x 63 of them at most: 11 x 64 = 704
plan 0 ./small.yaml --json model.intermediate_size=64 && has 'm["exchange"] == 2 * 4 * (5 + 4 + 512 + 704) and m["experts"] == (2 * 128 + 64 + 64) * 704 * 2' &&
    plan 0 ./small.yaml --json model.intermediate_size=64 engine.experts=cublaslt && has 'm["exchange"] == 2 * 4 * (5 + 4 + 2 * 512)'
ok $? 'rows of the grouped kernels'
# on two ranks a layer may get 2 x 512 rows and 2 x 63 that pad: 1088 in all; the stash of both layers has rows of D and 2F
# for router.capacity times 512 each, and those that pad, but never more than both may get
while read -r words rows; do
    plan 0 ./small.yaml --json --ranks 2 parallelism.ep_size=2 model.intermediate_size=64 engine.exchange=nccl "$words" && has "m['experts'] == ($rows * (64 + 128) + 1088 * 64) * 2"
    ok $? "rows of two layers in the stash, $words: $rows"
done <<'EOT'
router.capacity=1 1280
router.capacity=1.5 1792
router.capacity=9 2176
EOT
plan 0 ./small.yaml --json --ranks 2 parallelism.ep_size=2 model.intermediate_size=64 engine.exchange=nccl memory.recompute=layer && has 'm["experts"] == (1792 * 64 + 1088 * (128 + 64)) * 2' &&
    plan 0 ./small.yaml --json --ranks 2 parallelism.ep_size=2 model.intermediate_size=64 engine.exchange=nccl memory.recompute=layer memory.recompute_layers=1 && has 'm["experts"] == (1792 * 64 + 1088 * 2 * 128 + 1088 * 64) * 2'
ok $? 'layers that recompute share a room instead of the stash'
for words in engine.experts=cublaslt engine.fused=false precision.recipe=fp32 backend=cpu; do
    plan 0 ./small.yaml --json --ranks 2 parallelism.ep_size=2 model.intermediate_size=64 engine.exchange=auto $words && cp out a &&
        plan 0 ./small.yaml --json --ranks 2 parallelism.ep_size=2 model.intermediate_size=64 engine.exchange=auto $words router.capacity=1 && has 'json.load(open("a"))["memory"] == d["memory"]'
    ok $? "$words: no stash"
done
$MPIEXEC -n 2 "$regulon" plan ./small.yaml >out 2>err && [ "$(grep -c '^fits' out)" = 1 ] && [ ! -s err ]
ok $? 'on two ranks: said once'
"$regulon" plan --help >out 2>err && grep -q -- '--gpu-memory GB' out
ok $? '--help'
echo "1..$n"
