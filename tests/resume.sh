#!/bin/sh
# Runs that stop and go on: on the same grid bit for bit, on another with the same batches; signals, the stop file and the
# wall-clock limit end a run with 75; what the folder holds must be the same run.
# shellcheck disable=SC2086 # $train is several words, $MPIEXEC may be
srcdir=${srcdir:-.}
genome=$(cd "$srcdir" && pwd)/input/genomes/ecoli_536.fna.gz
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
same_model() { cmp -s "$1/final_model/model.safetensors" "$2/final_model/model.safetensors"; }

base="train L0_sanity train.verdict=false checkpoint.save_final_model=true grad_acc_steps=2
    dataset.token_micro_batch_size=256 dataset.holdout_by=block dataset.holdout_share=0.1 dataset.holdout_block=1000"
train="$base checkpoint.save_every_n_steps=4 validation.enabled=true validation.eval_interval=5 validation.num_batches=4"
regulon 2 $train num_train_steps=12 checkpoint.ckpt_dir=whole >whole.out
ok $? 'a run without a stop'
[ -e whole/step_000000004/index.h5 ] && [ -e whole/step_000000012/checksums ] && ! ls -d whole/*.tmp >/dev/null 2>&1
ok $? 'it saved at steps 4, 8 and 12'

mkdir whole12 && cp -r whole/final_model whole12
for stop in 1 4 5 11; do
    again=
    [ $stop = 4 ] && again=memory.recompute=layer
    regulon 2 $train checkpoint.ckpt_dir=s$stop num_train_steps=$stop >one.out &&
        regulon 2 $train $again num_train_steps=12 checkpoint.ckpt_dir=s$stop >two.out &&
        numbers whole.out >a && numbers one.out two.out >b && cmp -s a b && same_model whole s$stop
    status=$?
    ok $status "stopped after step $stop and continued${again:+ with $again}: the same lines, the same model to the bit"
    [ $status = 0 ] || sed 's/^/# /' err
done
[ "$(cat one.out two.out | grep -c '^# step')" = 4 ]
ok $? 'validations are made where they are due, and at each end'

regulon 1 $train parallelism.ep_size=1 checkpoint.ckpt_dir=s5 num_train_steps=14 >other.out &&
    grep -q 'grad_acc_steps becomes 4, so that a step keeps its 4 micro-batches' err && [ "$(numbers other.out | wc -l)" = 2 ]
ok $? 'on one rank it goes on with the same batches'
regulon 2 $train checkpoint.ckpt_dir=whole num_train_steps=14 >more.out && numbers more.out >a && numbers other.out >b &&
    paste -d ' ' a b | awk '{ d = $3 - $9; if (d < 0) d = -d; bad += $2 != $8 || d > 0.0002 } END { exit NR != 2 || bad }'
ok $? 'and prints the same losses as on two'

regulon 2 $train checkpoint.ckpt_dir=s5 num_train_steps=20 seed=9 >no.out
[ $? = 78 ] && grep -q '^regulon: seed: 9, but [0-9]* in the unfinished run in ' err
ok $? 'another seed is refused'
regulon 2 $train checkpoint.ckpt_dir=s5 num_train_steps=2 seed=9 --fresh >no.out && [ -e s5/previous-1/step_000000014/index.h5 ] &&
    [ -e s5/step_000000002/index.h5 ]
ok $? '--fresh moves the checkpoints aside'

# signals and the stop file; the run is too long to end by itself
long="$base num_train_steps=100000"
three_lines() { [ "$(awk '/^ *[0-9]/ { n++ } END { print n + 0 }' $1.out)" -ge 3 ]; }
# waits until a command succeeds, 90 s at most
until_true() { # COMMAND...
    i=0
    until "$@" >/dev/null 2>&1; do
        i=$((i + 1))
        [ $i -lt 900 ] || return 1
        sleep 0.1
    done
}
# starts RUN with these words in the background; returns after its third line
begin() { # NAME WORD...
    name=$1
    shift
    : >$name.out
    timeout -s KILL 300 $MPIEXEC -n 2 "$regulon" $long checkpoint.ckpt_dir=$name "$@" >$name.out 2>err &
    job=$!
    until_true three_lines $name
}
# the process of one rank of a run
rank_of() { # NAME
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/exe")" = "$(readlink -f "$regulon")" ] || continue
        tr '\000' ' ' <"$process/cmdline" | grep -q "ckpt_dir=$1 " && echo "${process#/proc/}" && break
    done 2>/dev/null
}
for signal in TERM USR1; do
    begin long$signal
    process=$(rank_of long$signal)
    kill -$signal "$process" && kill -$signal "$process" # a second one does no harm
    wait $job
    [ $? = 75 ] && grep -q '"code": 75' long$signal/status.json && grep -q 'start it again to go on' err
    ok $? "$signal to one rank: saved, exit 75"
done
lines_above() { [ "$(wc -l <$1.out)" -gt "$2" ]; }
begin user2
kill -USR2 "$(rank_of user2)"
until_true sh -c 'ls user2/step_*[0-9]' && until_true lines_above user2 "$(wc -l <user2.out)"
went_on=$?
touch user2/stop
wait $job
[ $? = 75 ] && [ $went_on = 0 ] && [ "$(ls -d user2/step_*[0-9] | wc -l)" = 2 ]
ok $? 'USR2: saved, and training went on; a file named stop: saved, exit 75'
regulon 2 $long checkpoint.ckpt_dir=user2 >again.out
[ $? = 75 ] && [ ! -s again.out ] && grep -q 'there is a file .*user2/stop: remove it to go on' err
ok $? 'while the file is there nothing starts'
regulon 2 $long checkpoint.ckpt_dir=limit train.max_hours=0.0001 train.reserve_minutes=0 >limit.out
[ $? = 75 ] && ls limit/step_*/checksums >/dev/null 2>&1
ok $? 'the wall-clock limit: saved, exit 75'
# in the middle of a validation, which is longer than the test
held="dataset.path=$genome validation.enabled=true validation.eval_interval=3"
begin validating $held validation.num_batches=0
sleep 1
kill -TERM "$(rank_of validating)"
wait $job
[ $? = 75 ] && [ -e validating/step_000000003/checksums ] && ! grep -q '^# step' validating.out
ok $? 'a signal during a validation: given up, saved, exit 75'
begin validating $held validation.num_batches=2
touch validating/stop
wait $job
[ "$(awk '/^# step|^ *[0-9]/' validating.out | head -n 1 | grep -c '^# step 3:')" = 1 ]
ok $? 'the next start makes that validation first'

# damage
regulon 2 $train checkpoint.ckpt_dir=hurt num_train_steps=8 >hurt.out
shard=hurt/step_000000008/shard_d000_e001.h5
printf x | dd of=$shard bs=1 seek=$(($(wc -c <$shard) / 2)) conv=notrunc 2>/dev/null
regulon 2 $train checkpoint.ckpt_dir=hurt num_train_steps=12 >hurt.out && same_model whole12 hurt && grep -q 'goes on after step 4 ' err &&
    grep -q 'step_000000008/shard_d000_e001.h5: damaged: /' err && [ -e hurt/step_000000008.damaged/index.h5 ] && [ -e hurt/step_000000012/index.h5 ] &&
    "$regulon" info --verify hurt/step_000000008 >verify
ok $? 'a damaged checkpoint is named and set aside, the one before is taken, and the step is saved again'

truncate -s 3000 hurt/metrics.h5
regulon 2 $train checkpoint.ckpt_dir=hurt num_train_steps=14 >hurt.out && grep -q 'metrics.h5 cannot be read; it is now metrics.h5.damaged' err &&
    [ "$(numbers hurt.out | wc -l)" = 2 ]
ok $? 'so is a damaged metrics.h5: the run goes on with a new one'
other=$(echo "$train" | sed 's/grad_acc_steps=2/grad_acc_steps=3/')
regulon 2 $other checkpoint.ckpt_dir=hurt num_train_steps=20 >no.out
[ $? = 78 ] && grep -q '^regulon: grad_acc_steps: 3, but 2 in the unfinished run' err
ok $? 'another batch is refused'
rm hurt/status.json
other=$(echo "$train" | sed 's/verdict=false/verdict=true/')
regulon 2 $other checkpoint.ckpt_dir=hurt num_train_steps=14 >hurt.out && [ "$(numbers hurt.out)" = '' ]
ok $? 'killed after its last save, a run has only to end: no verdict on steps that were not made'

# fine-tuning
regulon 2 $base checkpoint.ckpt_dir=tuned checkpoint.init_from=whole num_train_steps=3 optimizer.lr=1e-2 train.freeze='*embed* *.experts.*' \
    checkpoint.save_every_n_steps=3 >tuned.out && [ "$(awk '/^ *1 / { print $2 }' tuned.out)" = "$(awk '/^ *1 / { print $2 }' whole.out)" ] &&
    awk 'FNR == NR { if ($1 == 1) first = $3; next } $1 == 1 { exit $3 < first - 0.1 ? 0 : 1 }' whole.out tuned.out
ok $? 'a new run from the weights of another starts at step 1 with a lower loss'
grep -q 'a new run, from the weights in .*whole/step_000000014$' err
ok $? 'from its newest checkpoint, which has the masters, rather than its final model'
mkdir -p older/step_000000013 && cp -r whole/final_model older && regulon 2 $base checkpoint.ckpt_dir=later checkpoint.init_from=older num_train_steps=1 >later.out &&
    grep -q 'a new run, from the weights in .*older/final_model$' err
ok $? 'but not from an older one'
"$PYTHON3" - whole/step_000000014/index.h5 tuned/step_000000003/index.h5 <<'EOF'
import sys, h5py
with h5py.File(sys.argv[1]) as a, h5py.File(sys.argv[2]) as b:
    for name in a["master"]:
        same = (a["master"][name][...] == b["master"][name][...]).all()
        frozen = "embed" in name or ".experts." in name
        assert same == frozen, name
        for kind in "exp_avg", "exp_avg_sq":
            assert (b[kind][name][...] != 0).any() != frozen, name
EOF
ok $? 'frozen parameters stay to the bit, the others do not; frozen ones have no moments'
tune="$base checkpoint.save_every_n_steps=3 checkpoint.init_from=whole optimizer.lr=1e-2"
regulon 2 $tune train.freeze='*embed* *.experts.*' checkpoint.ckpt_dir=tuned num_train_steps=6 >tuned.out &&
    regulon 2 $tune train.freeze='*embed* *.experts.*' checkpoint.ckpt_dir=tuned6 num_train_steps=6 >tuned6.out && same_model tuned tuned6
ok $? 'it goes on from there, to the bit'
regulon 2 $tune train.freeze='*embed*' checkpoint.ckpt_dir=tuned num_train_steps=9 >thawed.out && grep -q 'changed: .*train.freeze from' err &&
    [ "$(numbers thawed.out | awk '$1 == 9' | wc -l)" = 1 ]
ok $? 'and with other parameters frozen'
regulon 2 $base checkpoint.ckpt_dir=no checkpoint.init_from=/dev num_train_steps=3 >no.out
[ $? = 65 ] && grep -q '^regulon: checkpoint.init_from: /dev holds no weights' err
ok $? 'no weights in init_from: refused'
regulon 2 $base checkpoint.ckpt_dir=no train.freeze='*embd*' num_train_steps=3 >no.out
[ $? = 78 ] && grep -q "^regulon: train.freeze: no parameter is called '\*embd\*'" err
ok $? 'a pattern that fits nothing: refused'
regulon 2 eval tuned/step_000000009 --json >step.json && regulon 2 eval tuned --json >run.json && cmp -s step.json run.json
ok $? 'eval takes a step folder'
regulon 2 $base checkpoint.ckpt_dir=no checkpoint.init_from=whole/final_model model.num_key_value_heads=1 num_train_steps=3 >no.out
[ $? = 65 ] && regulon 2 $base checkpoint.ckpt_dir=no2 checkpoint.init_from=whole/step_000000014 model.num_key_value_heads=1 num_train_steps=3 >no.out
[ $? = 65 ] && grep -q "tensor 'model.layers.0.self_attn.k_proj.weight' has another shape" err
ok $? 'weights of another shape are refused'
echo "1..$n"
