#!/bin/sh
# /eight_bits of metrics.h5, of runs that are emulated on the CPU: what it holds, on which grid the run was, where it went on,
# and that nothing else depends on it. The numbers are looked at in low_statistics.py.
srcdir=$(cd "${srcdir:-.}" && pwd)
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
for python in "$PYTHON3" /usr/bin/python3 python3 ''; do
    [ -n "$python" ] && "$python" -c 'import h5py' 2>/dev/null && break
done
[ -n "$python" ] || { echo '1..0 # SKIP no Python with h5py' && exit 0; }
cd "$work" || exit 99
train="train $srcdir/input/L0_sanity.yaml backend=cpu train.verdict=false checkpoint.save_final_model=true"
every=precision.statistics_every_n_steps
run() { # RANKS EP FOLDER STEPS WORD...
    ranks=$1 ep=$2 folder=$3 steps=$4
    shift 4
    # shellcheck disable=SC2086 # several words
    regulon "$ranks" $train checkpoint.ckpt_dir="$folder" num_train_steps="$steps" parallelism.ep_size="$ep" "$@" >>"$folder.out" || sed 's/^/# /' err
}
holds() { "$python" "$srcdir/tests/low_statistics.py" "$@"; }
same() { cmp -s "$1/final_model/model.safetensors" "$2/final_model/model.safetensors"; }

for recipe in fp8_block mxfp8; do
    eight="precision.recipe=$recipe precision.emulate=true"
    rm -rf ./*
    # shellcheck disable=SC2086 # several words
    {
        run 1 1 one 3 $eight $every=2 grad_acc_steps=2 && holds sane $recipe one 1 2 3
        ok $? "$recipe: values, shares, scales and errors as they must be"
        run 2 1 data 3 $eight && run 2 2 experts 3 $eight && holds alike one data && holds alike one experts
        ok $? "$recipe: the first step's numbers are the same, data or expert parallel"
        run 2 1 full 3 $eight parallelism.shard=full && run 2 2 again 3 $eight memory.recompute=layer && holds alike one full && holds equal experts again
        ok $? "$recipe: with parallelism.shard full, and layers made again"
        run 1 1 whole 10 $eight $every=2 && run 1 1 parts 7 $eight $every=2 checkpoint.save_every_n_steps=7 && holds steps parts 1 2 4 6 7 &&
            run 1 1 parts 10 $eight $every=2 checkpoint.save_every_n_steps=7 && holds steps parts 1 2 4 6 7 8 10 && holds equal whole parts && same whole parts
        ok $? "$recipe: a run that goes on continues the series, with the rows of one that did not stop"
        run 1 1 never 10 $eight $every=0 && holds steps never && same whole never && [ "$(grep -v '^#' whole.out | awk '{ print $1, $3, $4 }')" = "$(grep -v '^#' never.out | awk '{ print $1, $3, $4 }')" ]
        ok $? "$recipe: without it no rows, and the same losses and model to the bit"
        run 1 1 partly 2 $eight precision.first_layers_bf16=1 && holds out partly
        ok $? "$recipe: nothing of a layer that stays out"
    }
done
# shellcheck disable=SC2086 # several words
regulon 1 $train checkpoint.ckpt_dir=whole num_train_steps=10 parallelism.ep_size=1 precision.recipe=mxfp8 precision.emulate=true $every=5 >/dev/null
ok $? 'a finished run may be asked for again with another number'
"$regulon" info whole/metrics.h5 >said && grep -Eq '^eight bits   6 rows; at step 10, error up to 0\.0[0-9]+ \([a-z]+_[a-z]+, layer [01]\), underflow ' said
ok $? 'regulon info has a line of it'
run 1 1 plain 2 && holds steps plain
ok $? 'without a recipe no rows'
if "$python" -c 'import matplotlib' 2>/dev/null; then
    report() { "$python" "$srcdir/analysis/regulon-report" "$@" >out; }
    holds drawn "$srcdir" whole && report whole && [ -s whole/report/eight_bits.svg ] && grep -q 'In eight bits: errors up to [23]\.[0-9]* % (' whole/report/report.html
    ok $? 'regulon report draws it'
    report plain whole partly -o several && grep -q 'the operand with most' several/report.html && report plain whole -o several &&
        grep -q 'whole: in eight bits: errors up to' several/report.html && report plain never -o several && [ ! -e several/eight_bits.svg ]
    ok $? 'of those of several runs that have it, and else not'
fi
echo "1..$n"
