#!/bin/sh
# `regulon report` on files of real runs: two grids, one resumed, one with skipped steps, one killed with -9, one under
# way, one without experts, one without a step. The checks are in analysis_report.py; `analysis_report.sh big` adds one of 200,000 steps.
srcdir=${srcdir:-.}
for python in "$PYTHON3" /usr/bin/python3 python3; do
    [ -n "$python" ] && "$python" -c 'import h5py, matplotlib' 2>/dev/null && break
    python=
done
[ -n "$python" ] || { echo "1..0 # SKIP no Python with h5py and matplotlib"; exit 0; }
srcdir=$(cd "$srcdir" && pwd)
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
writer=$PWD/tests/metrics.np1
cd "$work" || exit 99

train="train L0_sanity train.verdict=false dataset.token_micro_batch_size=256 dataset.holdout_by=block
    dataset.holdout_share=0.1 dataset.holdout_block=1000"
held_out="validation.enabled=true validation.eval_interval=4 validation.num_batches=4"
# shellcheck disable=SC2086 # several words each
{
    two="$train $held_out grad_acc_steps=2 checkpoint.save_every_n_steps=5 checkpoint.ckpt_dir=two"
    regulon 2 $two num_train_steps=7 && regulon 2 $two num_train_steps=12
    echo $? >two.code
    regulon 1 $train $held_out num_train_steps=12 grad_acc_steps=4 parallelism.ep_size=1 optimizer.lr=1e-4 \
        checkpoint.ckpt_dir=one
    echo $? >one.code
    regulon 2 $train num_train_steps=60 checkpoint.ckpt_dir=skipped optimizer.lr=10 optimizer.weight_decay=10 \
        optimizer.max_grad_norm=0 scheduler.kind=constant train.max_bad_steps=3
    echo $? >skipped.code
    regulon 1 $train $held_out num_train_steps=12 parallelism.ep_size=1 model.num_local_experts=1 \
        model.num_experts_per_tok=1 checkpoint.ckpt_dir=dense
    echo $? >dense.code
    "$writer" write none.h5 0 8 0 0
    timeout 300 $MPIEXEC -n 2 "$regulon" $train $held_out num_train_steps=100000 checkpoint.ckpt_dir=killed &
    under_way=$!
} >out 2>&1
"$python" "$srcdir/tests/analysis_report.py" "$srcdir" "$@"
code=$?
kill $under_way 2>/dev/null
wait
exit $code
