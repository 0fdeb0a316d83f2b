#!/bin/sh
# One job owns a run folder: what `train` does when another job has it, has died in it, or takes it away. The lock itself
# is tests/lock.c's.
# shellcheck disable=SC2086 # $train is several words, $MPIEXEC may be
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
trap 'kill_run; rm -rf "$work"' EXIT
cd "$work" || exit 99
regulon() { # WORD...: on two ranks; how long it took, in $took
    begin=$(date +%s.%N)
    timeout -s KILL 200 $MPIEXEC -n 2 "$regulon" "$@" >out 2>err
    code=$?
    took=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')
    return $code
}
kill_run() { # kill -9 of all ranks that train in a folder below here
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/exe")" = "$(readlink -f "$regulon")" ] && [ "$(readlink "$process/cwd")" = "$work" ] &&
            kill -9 "${process#/proc/}"
    done 2>/dev/null
}
base="train L0_sanity train.verdict=false checkpoint.save_every_n_steps=2"
short="$base checkpoint.ckpt_dir=short"
train="$base checkpoint.ckpt_dir=run"
start_run() { # in the background, until it has saved; it is too long to end by itself
    : >run.err # not what an earlier one said
    timeout -s KILL 200 $MPIEXEC -n 2 "$regulon" $train num_train_steps=100000 >run.out 2>run.err &
    job=$!
    i=0
    until grep -q 'step [0-9]* saved' run.err || [ $i = 600 ]; do
        sleep 0.1 && i=$((i + 1))
    done
}

regulon $short num_train_steps=2 && ! ls short/lock.* >/dev/null 2>&1
ok $? 'a run that ends leaves no lock'
echo '{"host": "elsewhere", "pid": 1}' >short/lock.5
regulon $short num_train_steps=2 && grep -q 'the run in .*short has finished' err && [ -e short/lock.5 ]
ok $? 'a finished run needs none'
startup=$took
rm short/lock.5
regulon $short num_train_steps=4 seed=5
[ $? = 78 ] && grep -q '^regulon: seed: ' err && ! ls short/lock.* >/dev/null 2>&1
ok $? 'one that is refused leaves none'

start_run
for more in '' --fresh; do
    regulon $train num_train_steps=100000 $more
    [ $? = 78 ] && grep -q "^regulon: checkpoint.ckpt_dir: .*/run is in use by \(job .*, \)*host $(uname -n), pid [0-9]*, whose heartbeat is [0-9.]* s old" err &&
        awk -v t="$took" -v s="$startup" 'BEGIN { exit t - s >= 5 }' && kill -0 $job
    status=$?
    ok $status "${more:-a second job} is refused: $took s, $startup of them to start at all"
    [ $status = 0 ] || sed 's/^/# /' err
done

kill_run
wait $job
[ "$(echo run/lock.*)" = run/lock.1 ]
ok $? 'a killed run leaves its lock'
regulon $train num_train_steps=100000 train.max_hours=0.0001 train.reserve_minutes=0
[ $? = 75 ] && grep -q 'takes .*/run over from .*: its process has ended' err && grep -q 'goes on after step' err &&
    sed -n 's/^\[0\]\[\([0-9.]*\)\] lock: takes .*/\1/p' err | awk '{ exit $1 >= 5 }' && ! ls run/lock.* >/dev/null 2>&1
status=$?
ok $status 'which does not block the next start, at once'
[ $status = 0 ] || sed 's/^/# /' err

rm -f run/status.json
start_run
echo '{"job": "77", "host": "elsewhere", "pid": 1}' >run/lock.tmp && mv run/lock.tmp run/lock.9
wait $job
[ $? = 78 ] && grep -q 'lock: .*/run has been taken over by job 77, host elsewhere' run.err &&
    grep -q '^regulon: another job has taken over the run in .*/run; stopped after step [0-9]*$' run.err
status=$?
ok $status 'an owner whose folder is taken over stops, exit 78'
[ $status = 0 ] || tail -5 run.err | sed 's/^/# /'
[ "$(echo run/lock.*)" = run/lock.9 ] && [ ! -e run/status.json ]
ok $? "and leaves what is the other's alone"

# a file system without hard links: exclusive creation serves
if strace -o trace true 2>err; then
    strace -f -o trace -e trace='?link,linkat' -e inject='?link,linkat:error=EPERM' "$regulon" $base parallelism.ep_size=1 \
        num_train_steps=1 checkpoint.ckpt_dir=plain >out 2>err && grep -q 'link.*lock.1.*EPERM.*INJECTED' trace && ! ls plain/lock.* >/dev/null 2>&1
    ok $? 'without hard links a run locks its folder too'
else
    n=$((n + 1))
    echo "ok $n # SKIP there is no strace that works"
fi
echo "1..$n"
