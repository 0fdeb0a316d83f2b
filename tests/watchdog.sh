#!/bin/sh
# A rank that is lost ends the job: it is named with host, step and phase, and every rank ends with the same code, within
# the limit plus 5 s, though the launcher does not end them. An ordinary run is left alone.
# shellcheck disable=SC2046,SC2086 # numbers of processes; $train is several words, $MPIEXEC may be
MPIEXEC=${MPIEXEC:-mpiexec}
regulon=$(readlink -f regulon) lost=$(readlink -f tests/lost) alone=$(readlink -f "$(dirname "$0")/alone.sh")
work=$(mktemp -d) || exit 99
trap 'exit 99' HUP INT TERM
trap 'kill -9 $(cat "$work"/*.pid.* 2>/dev/null) 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 99
host=$(hostname)
limit=5
n=0
ok() { # STATUS TEXT
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
show() { for f in "$@"; do sed "s|^|# $f: |" "$f"; done; }

codes() { cat "$1".code.* 2>/dev/null | tr '\n' ' '; } # by rank
job() { # NAME RANKS WORD...
    name=$1 ranks=$2
    shift 2
    $MPIEXEC -n "$ranks" sh "$alone" "$name" "$@" >"$name.launcher" 2>&1
    left=600
    while [ "$(codes "$name" | wc -w)" -lt "$ranks" ] && [ $left -gt 0 ]; do
        sleep 0.1 && left=$((left - 1))
    done
    date +%s >"$name.end"
}
lines() { cat "$1".err.* | grep -c 'watchdog: '; }

# ---- a small job; the scenarios sleep, so they run side by side ----
for s in none hang exit abort die leave alone load; do job $s 3 "$lost" $s 1 $limit & done
job hang0 3 "$lost" hang 0 $limit &
job exit0 3 "$lost" exit 0 $limit &
job off 2 "$lost" none 1 0 &
job suspended 3 "$lost" alone 1 $limit &
(
    sleep 4
    kill -STOP $(cat suspended.pid.*)
    sleep $((limit + 4))
    kill -CONT $(cat suspended.pid.*)
) &
wait
named() { # NAME RANK CODES PATTERN
    [ "$(codes "$1")" = "$3" ] && [ "$(lines "$1")" = 1 ] && grep -q "watchdog: rank $2 ($host, pid [0-9]*) $4" "$1".err.*
}
named hang 1 '70 70 70 ' "stands still for [0-9]* s in step 1000, backward, layer 7; all ranks end with code 70"
ok $? 'a rank that hangs'
grep -q '^note: code 70, step 1000, rank 1 ' hang.out.0
ok $? 'a note is made of it'
named hang0 0 '70 70 70 ' "stands still for [0-9]* s in step 1000, backward, layer 7"
ok $? 'rank 0 hangs'
named exit 1 '70 3 70 ' 'has died; last heard of in step [0-9]*'
ok $? 'a rank whose process ends'
named exit0 0 '3 70 70 ' 'has died; last heard of in step [0-9]*.*; rank 1 and the others end'
ok $? 'the process of rank 0 ends'
named abort 1 '70 70 70 ' 'has aborted in step 1000, backward, layer 7'
ok $? 'a rank that aborts'
named leave 1 '70 70 70 ' 'left with code 65 in step 1000, the others did not'
ok $? 'a rank that leaves before the others'
[ "$(codes die)" = '74 74 74 ' ] && [ "$(lines die)" = 0 ] && grep -q 'the disk is full$' die.err.1
ok $? 'after an error of one rank all end with its code'
for s in none alone load suspended; do
    [ "$(codes $s)" = '0 0 0 ' ] && [ "$(lines $s)" = 0 ]
    ok $? "no alarm: $s"
done
[ "$(codes off)" = '0 0 ' ] && [ "$(lines off)" = 0 ]
ok $? 'no watchdog'
for s in none hang exit abort die leave alone load hang0 exit0 off suspended; do
    echo "# $s: $(codes $s)"
    show $s.err.*
done

# ---- a run that trains ----
short="train.verdict=false watchdog.timeout_s=$limit dataset.holdout_by=block dataset.holdout_share=0.1 dataset.holdout_block=1000"
job whole 2 "$regulon" train L0_sanity $short num_train_steps=4 validation.enabled=true validation.eval_interval=2 \
    checkpoint.save_every_n_steps=2 checkpoint.save_final_model=true checkpoint.ckpt_dir=whole
job eval 2 "$regulon" eval whole
job refused 2 "$regulon" train L0_sanity $short dataset.holdout_share=0 validation.enabled=true checkpoint.ckpt_dir=refused
[ "$(codes whole)" = '0 0 ' ] && [ "$(codes eval)" = '0 0 ' ] && [ "$(lines whole)" = 0 ] && [ "$(lines eval)" = 0 ]
status=$?
ok $status 'a run with validation and checkpoints, and its evaluation: no alarm'
[ $status = 0 ] || show whole.err.* eval.err.*
[ "$(codes refused)" = '78 78 ' ] && [ "$(lines refused)" = 0 ]
status=$?
ok $status "the user's mistake keeps its code"
[ $status = 0 ] || show refused.err.*
train="$regulon train L0_sanity num_train_steps=100000 train.verdict=false watchdog.timeout_s=$limit dataset.token_micro_batch_size=256"
start() { # NAME RANKS WORD...: in the background, until it has made three steps
    name=$1
    job "$@" &
    job=$! i=0
    while [ "$(cat "$name.out.0" 2>/dev/null | grep -c '^ *[0-9]')" -lt 3 ] && [ $i -lt 300 ]; do
        sleep 0.1 && i=$((i + 1))
    done
    sleep 2 # its mark is told once a second
    begin=$(date +%s)
}
took() { wait $job && [ $(($(cat "$1.end") - begin)) -le "$2" ]; } # NAME SECONDS
where='\(step\|validation after step\) [0-9]*, \(data\|forward\|backward\|reduce\|optimizer\|record\)'

start stop 2 $train checkpoint.ckpt_dir=stop
kill -STOP "$(cat stop.pid.1)"
took stop $((limit + 5)) && named stop 1 '70 137 ' "gives no sign for [0-9]* s, stopped or out of reach in $where"
status=$?
ok $status 'a stopped rank is named, and killed, since it cannot leave'
[ $status = 0 ] || show stop.err.*
grep -q '"code": 70, "step": [0-9]*, "num_train_steps": 100000, "watchdog": "rank 1 ' stop/status.json
ok $? 'status.json has it'
start killed 3 $train parallelism.ep_size=1 checkpoint.ckpt_dir=killed
kill -KILL "$(cat killed.pid.2)"
took killed 5 && named killed 2 '70 70 137 ' "has died; last heard of in $where"
status=$?
ok $status 'a killed rank is named at once'
[ $status = 0 ] || show killed.err.*
start first 2 $train checkpoint.ckpt_dir=first
kill -STOP "$(cat first.pid.0)"
took first $((limit + 5)) && named first 0 '137 70 ' "gives no sign for [0-9]* s, stopped or out of reach in $where"
status=$?
ok $status 'rank 0 is stopped: the other names it'
[ $status = 0 ] || show first.err.*
echo "1..$n"
