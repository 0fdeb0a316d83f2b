#!/bin/sh
# `regulon plan` beside what a GPU says that it has in use (cudaMemGetInfo, the library's and the driver's share included):
# five models, an engine and eight bits, within 5 %, and where there are two GPUs experts on both, and shares. In a build
# folder, on GPUs that nobody else uses; part of `make check-gpu`.
srcdir=$(cd "${srcdir:-.}" && pwd)
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
needs_gpu
cd "$work" || exit 99
gpu_gb=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | awk 'NR == 1 { print $1 * 1048576 / 1e9 }')

# check NAME WORD...: two steps of a deck on $gpus GPUs, the experts on as many as $ep or all; prints what the libraries would have to take for the two to be equal
gpus=1 ep=
check() {
    name=$1
    shift
    set -- "$@" backend=cuda parallelism.dp_size=$((gpus / ${ep:-$gpus})) parallelism.ep_size=${ep:-$gpus} num_train_steps=2 scheduler.warmup_steps=0 logger.frequency=1 \
        validation.enabled=false train.verdict=false checkpoint.save_final_model=false
    regulon 1 plan "$@" --gpu-memory "$gpu_gb" --json >plan.json
    if [ $? = 1 ]; then
        echo "# $name does not fit into $gpu_gb GB"
        return
    fi
    rm -rf run
    regulon $gpus train "$@" checkpoint.ckpt_dir=run >out && regulon 1 info run >said &&
        "$PYTHON3" - "$name" <<'EOP'
import json, sys
d = json.load(open("plan.json"))
planned = d["memory"][d["shard"]]
said = [line.split() for line in open("said") if line.startswith("memory ")][0]
real = float(said[1]) * {"MB": 1e6, "GB": 1e9}[said[2]]
libraries = planned["libraries"] + real - planned["total"]
print("# %s: planned %.2f GB, in use %.2f GB: libraries and rounding %.2f GB, planned %.2f GB"
      % (sys.argv[1], planned["total"] / 1e9, real / 1e9, libraries / 1e9, planned["libraries"] / 1e9))
sys.exit(not abs(real / planned["total"] - 1) <= 0.05)
EOP
    status=$?
    [ $status = 0 ] || sed 's/^/# /' err
    ok $status "$name: planned within 5 %"
}
data="dataset.path=$srcdir/input/genomes/lambda_virus.fa.gz dataset.alphabet=dna dataset.micro_batch_size="
check 'a small model' L0_sanity
check 'a deep model, 16384 tokens' ecoli_moe dataset.token_micro_batch_size=16384
check 'the same, attention of our own' ecoli_moe dataset.token_micro_batch_size=16384 deterministic=true
# shellcheck disable=SC2086 # several words
{
    check 'one billion parameters' og2_moe_7b $data dataset.token_micro_batch_size=8192 model.num_hidden_layers=5 grad_acc_steps=1 validation.data_path=
    check 'two layers of Mixtral-8x7B' L1_8x7B_ep $data dataset.token_micro_batch_size=8192 model.num_hidden_layers=2
    if [ "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1)" = 9.0 ]; then
        eight="L1_8x7B_ep $data dataset.token_micro_batch_size=8192 model.num_hidden_layers=2 precision.recipe=fp8_block"
        check 'the same in eight bits' $eight
        check 'of its experts no weights in BF16' $eight precision.fp8_weights=true
    fi
    gpus=2
    if [ "$(nvidia-smi -L | grep -c '^GPU')" -ge 2 ]; then
        check 'three layers of Mixtral-8x7B on two' L1_8x7B_ep $data dataset.token_micro_batch_size=8192 model.num_hidden_layers=3
        ep=1
        for way in peer nccl; do
            check "the same, shard full, $way" L1_8x7B_ep $data dataset.token_micro_batch_size=8192 model.num_hidden_layers=3 parallelism.shard=full engine.collectives=$way
        done
    fi
}
echo "1..$n"
