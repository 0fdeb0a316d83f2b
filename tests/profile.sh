#!/bin/sh
# What a profiler is told: ranges named like the phases of a step (by a library that stands in for one; needs a build with
# NVTX), and the steps to record, which only a GPU's profiler waits for.
build=$PWD
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
refused() { # TEXT WORD...: the message holds TEXT
    text=$1
    shift
    regulon 1 train L0_sanity parallelism.ep_size=1 checkpoint.ckpt_dir=refused "$@" >out
    [ $? = 78 ] && grep -q "$text" err && [ ! -e refused/used.yaml ]
    ok $? "$* is refused"
}
refused '^regulon: profiler.start_step and profiler.end_step: give both of them or none' profiler.start_step=3
refused '^regulon: profiler.start_step (4) is above profiler.end_step (3)' profiler.start_step=4 profiler.end_step=3
refused '^regulon: profiler.start_step: the run computes on the CPU' backend=cpu profiler.start_step=3 profiler.end_step=4

if [ -e "$build/tests/stand_in_nvtx.so" ]; then
    NVTX_INJECTION64_PATH=$build/tests/stand_in_nvtx.so RANGES=$work/ranges
    export NVTX_INJECTION64_PATH RANGES
    regulon 2 train L0_sanity backend=cpu num_train_steps=2 grad_acc_steps=1 checkpoint.ckpt_dir=run train.verdict=false >out
    status=$?
    [ $status = 0 ] && sed -n '/^step 1$/,/^step 2$/p' ranges | sed -n 's/^  \([a-z]\)/\1/p' | sed 's/ -*[0-9]*$//' | uniq >phases &&
        [ "$(tr '\n' ' ' <phases)" = 'data reduce forward backward reduce optimizer record ' ]
    status=$?
    ok $status 'the phases of a step, in its order'
    [ $status = 0 ] || sed 's/^/# /' err ranges
    sed -n '/^step 1$/,/^step 2$/p' ranges | grep '^  forward' | tr '\n' ' ' >forward
    [ "$(cat forward)" = '  forward -1   forward 0   forward 1 ' ]
    status=$?
    ok $status 'the layers of the forward pass'
    [ $status = 0 ] || sed 's/^/# /' forward
    grep -q '^    exchange -1$' ranges && ! grep -q 'left too often' ranges
    ok $? 'exchanges within them; no range is left twice'
else
    for text in 'the phases of a step' 'the layers of the forward pass' 'exchanges'; do
        n=$((n + 1))
        echo "ok $n - $text # SKIP built without NVTX, which comes with the GPU's toolkit"
    done
fi
echo "1..$n"
