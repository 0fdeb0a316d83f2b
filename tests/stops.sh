#!/bin/sh
# A run that is told to stop again and again, at any moment, in mid-accumulation and in validations: every line and the
# final weights are those of the run that nobody disturbed. `stops.sh N`: N stops instead of 20.
# shellcheck disable=SC2086 # $train is several words, $MPIEXEC may be
MPIEXEC=${MPIEXEC:-mpiexec}
regulon=$PWD/regulon
stops=${1:-20}
[ -w /dev/shm ] && TMPDIR=/dev/shm
export TMPDIR
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

train="train L0_sanity train.verdict=false checkpoint.save_final_model=true grad_acc_steps=4 dataset.token_micro_batch_size=256
    dataset.holdout_by=block dataset.holdout_share=0.1 dataset.holdout_block=1000 validation.enabled=true validation.eval_interval=2 validation.num_batches=16
    num_train_steps=150 checkpoint.save_every_n_steps=7"
# all of a line that does not depend on time
numbers() { awk '/^# step/ { print } !/^#/ { print $1, $2, $3, $4, $5, $6 }' "$@"; }
timeout -s KILL 300 $MPIEXEC -n 2 "$regulon" $train checkpoint.ckpt_dir=whole >whole.out 2>err || { sed 's/^/# /' err && echo 'Bail out! no run'; exit 1; }

: >stopped.out
made=0 in_validation=0
while :; do
    : >out
    timeout -s KILL 300 $MPIEXEC -n 2 "$regulon" $train checkpoint.ckpt_dir=stopped >out 2>err &
    job=$!
    # some time after the first line, one rank is told
    while ! grep -q '^ *[0-9]\|^# step' out && kill -0 $job 2>/dev/null; do sleep 0.02; done
    sleep "$(awk -v seed="$made" 'BEGIN { srand(seed); printf "%.3f", 0.3 * rand() }')"
    if [ $made -lt "$stops" ]; then
        for process in /proc/[0-9]*; do
            [ "$(readlink "$process/exe")" = "$(readlink -f "$regulon")" ] && [ "$(readlink "$process/cwd")" = "$(readlink -f "$work")" ] || continue
            kill -TERM "${process#/proc/}" && break
        done 2>/dev/null
    fi
    wait $job
    code=$?
    cat out >>stopped.out
    [ $code = 75 ] || break
    made=$((made + 1))
    # stopped in a validation: it was due after the last step, and is not there
    tail -n 1 out | awk '/^ *[0-9]/ && $1 % 2 == 0 { found = 1 } END { exit !found }' && in_validation=$((in_validation + 1))
done
numbers whole.out >a && numbers stopped.out >b
[ $code = 0 ] && cmp a b
status=$?
if [ $status = 0 ]; then echo "ok 1 - $made stops, $in_validation of them in a validation: the same lines"; else echo "not ok 1 - exit $code after $made stops"; fi
[ $status = 0 ] || { sed 's/^/# /' err && diff a b | head -n 10 | sed 's/^/# /'; }
if cmp whole/final_model/model.safetensors stopped/final_model/model.safetensors; then echo 'ok 2 - the same weights to the bit'; else echo 'not ok 2 - other weights'; fi
if [ $made -ge $((stops / 2)) ]; then echo 'ok 3 - the run was stopped often enough'; else echo "not ok 3 - stopped $made times"; fi
echo 1..3
