#!/bin/sh
# The job scripts under a real Slurm of one node (slurm-rig.sh): signals, the time limit, preemption, requeueing, codes.
# shellcheck disable=SC2086 # $small is several words
top=$(cd "${srcdir:-.}" && pwd)
regulon=$PWD/regulon
for command in slurmctld slurmd munged sbatch; do
    command -v $command >/dev/null || { echo "1..0 # SKIP no $command" && exit 0; }
done
[ "$(id -u)" = 0 ] || { echo '1..0 # SKIP a Slurm of its own needs root' && exit 0; }
! ${MPIEXEC:-mpiexec} --version 2>&1 | grep -qi 'open.\?mpi' || { echo "1..0 # SKIP not with Open MPI: Debian's Slurm has no PMIx" && exit 0; }

work=$(mktemp -d) || exit 99
trap 'sh "$top/tests/slurm-rig.sh" stop "$work/rig"; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# a test that itself runs in a job is not part of it
for name in $(env | sed -n 's/^\(\(SLURM\|SBATCH\|SRUN\|SALLOC\|PMI\)[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done
SLURM_CONF=$(sh "$top/tests/slurm-rig.sh" start "$work/rig") || { echo 'Bail out! Slurm does not start' && exit 99; }
export SLURM_CONF
mkdir -p "$work/clone/build" && cd "$work/clone" || exit 99
ln -s "$regulon" build/regulon
ln -s "$top/jobs" jobs

n=0
ok() { # STATUS TEXT [FILE...]
    n=$((n + 1)) status=$1
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
    shift 2
    [ "$status" = 0 ] || tail -n 20 "$@" 2>&1 | sed 's/^/# /'
}
wait_for() { # SECONDS COMMAND...
    tries=$(($1 * 5))
    shift
    until "$@"; do
        [ $tries -gt 0 ] || return 1
        tries=$((tries - 1))
        sleep 0.2
    done
}
job_is() { scontrol show job "$1" -o | grep -q "$2"; } # JOB PATTERN
last_step() { awk '/^ *[0-9]+ +[0-9]+ / { n = $1 } END { print n + 0 }' "$1" 2>/dev/null; }
has_step() { [ "$(last_step "$1")" -ge "$2" ] 2>/dev/null; } # LOG STEP
says() { grep -q "$2" "$1" 2>/dev/null; }                    # LOG PATTERN
# submit SCRIPT NAME SBATCH_OPTIONS WORD...: the job's id; it writes NAME.out, its run is in NAME
submit() {
    script=$1 name=$2 options=$3
    shift 3
    sbatch --parsable --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 -o "$name.out" $options "$script" L0_sanity train.verdict=false \
        dataset.token_micro_batch_size=256 "checkpoint.ckpt_dir=$work/clone/$name" "$@"
}
endless=num_train_steps=1000000
one_step='train.max_hours=0.000000001 train.reserve_minutes=0'
# the next start goes on where the last one stopped: LOG
goes_on() {
    wait_for 60 says "$1" 'requeued after step'
    saved=$(sed -n 's/.*: requeued after step //p' "$1" | tail -n 1)
    [ -n "$saved" ] && wait_for 90 says "$1" "goes on after step $saved " && wait_for 60 has_step "$1" $((saved + 1))
}

# the time limit: Slurm looks at it every 30 s, so that this one waits while the next tests run
limit=$(submit jobs/train-cpu.sbatch limit '--ntasks-per-node=1 --time=1 --signal=USR1@60' $endless parallelism.ep_size=1)

srun -n 2 "$regulon" train L0_sanity checkpoint.ckpt_dir=alone >alone.out 2>&1
[ $? = 78 ] && says alone.out 'srun --mpi=pmi2' && [ ! -e alone ]
ok $? 'srun without PMI: 78' alone.out

# ranks that leave 2 s apart
mkdir -p late/build
ln -s "$top/jobs" late/jobs
cat >late/build/regulon <<END
#!/bin/sh
"$regulon" "\$@"
code=\$?
[ "\${SLURM_PROCID:-0}\$1" != 1train ] || sleep 2
exit \$code
END
chmod +x late/build/regulon
sed 's/^kill_on_bad_exit=0/kill_on_bad_exit=1/' "$top/jobs/train-cpu.sbatch" >late/kill.sbatch
cd late || exit 99
late=$(submit jobs/train-cpu.sbatch late --no-requeue $endless $one_step)
wait_for 60 job_is "$late" JobState=FAILED && job_is "$late" ExitCode=75:0
ok $? 'ranks leave 2 s apart: the job ends with 75' late.out
late=$(submit kill.sbatch kill --no-requeue $endless $one_step)
wait_for 60 job_is "$late" JobState=FAILED && job_is "$late" ExitCode=75:0
ok $? 'and also with kill_on_bad_exit=1, where srun says another' kill.out
cd ..

# signals
usr=$(submit jobs/train-cpu.sbatch usr '' $endless)
wait_for 60 has_step usr.out 2
scancel -s USR2 "$usr"
wait_for 30 says usr.out 'step [0-9]* saved'
at=$(last_step usr.out)
wait_for 30 has_step usr.out $((at + 5)) && ls usr/step_*/checksums >ls.out && job_is "$usr" 'JobState=RUNNING.*Restarts=0'
ok $? 'scancel -s USR2: saved, and it goes on' usr.out
scancel -s USR1 "$usr"
wait_for 15 says usr/status.json '"code": 75' && goes_on usr.out && job_is "$usr" Restarts=1
ok $? 'scancel -s USR1: saved at once, requeued, and it goes on' usr.out
touch usr/stop
wait_for 30 job_is "$usr" JobState=FAILED && job_is "$usr" ExitCode=75:0
ok $? 'the file stop: 75, and not requeued' usr.out

goes_on limit.out && job_is "$limit" 'Restarts=[1-9]' && ! says limit.out 'TIME LIMIT'
ok $? '--signal: saved before the time limit, requeued, and it goes on' limit.out
scancel "$limit"
wait_for 30 job_is "$limit" JobState=CANCELLED && sleep 2 && job_is "$limit" JobState=CANCELLED
ok $? 'scancel ends a job for good' limit.out

# one rank dies; srun is told to leave the others alone
dead=$(submit jobs/train-cpu.sbatch dead '' $endless)
wait_for 60 has_step dead.out 2
for process in /proc/[0-9]*; do
    [ "$(readlink "$process/exe")" = "$(readlink -f "$regulon")" ] && tr '\000' ' ' <"$process/cmdline" | grep -q '/clone/dead ' &&
        tr '\000' '\n' <"$process/environ" | grep -qx SLURM_PROCID=1 && kill -KILL "${process#/proc/}" && break
done 2>/dev/null
wait_for 40 says dead.out 'requeued after step' && says dead.out 'rank 1 (.*) has died' && wait_for 40 job_is "$dead" Restarts=1
ok $? 'a rank is killed: the job ends with its name, and is started again' dead.out
scancel "$dead"

# a job that wants the node
low=$(submit jobs/train-cpu.sbatch low '' $endless)
wait_for 60 has_step low.out 2
high=$(sbatch --parsable -p high -o high.out --cpus-per-task=4 --wrap 'sleep 1')
wait_for 60 job_is "$high" JobState=COMPLETED && goes_on low.out && job_is "$low" Restarts=1
ok $? 'preempted: saved, requeued, and it goes on' low.out
scancel "$low"

# arrays and chains
printf 'seed=1\nseed=2\n' >seeds.txt
array=$(sbatch --parsable --array=1-2 --nodes=1 --ntasks-per-node=1 --cpus-per-task=1 -o 'sweep_%a.out' jobs/sweep.sbatch L0_sanity seeds.txt \
    train.verdict=false parallelism.ep_size=1 num_train_steps=2 $one_step)
first=$(submit jobs/chain.sbatch pair '--gpus-per-node=0 -J pair' num_train_steps=2 $one_step)
second=$(submit jobs/chain.sbatch pair '--gpus-per-node=0 -J pair' num_train_steps=2 $one_step)
wait_for 60 job_is "$second" JobState=COMPLETED && job_is "$first" ExitCode=75:0 && says pair.out 'goes on after step 1 ' && says pair/status.json '"code": 0, "step": 2'
ok $? 'a chain: each goes on where the one before stopped' pair.out
for task in 1 2; do
    wait_for 60 job_is "${array}_$task" 'JobState=COMPLETED' && job_is "${array}_$task" Restarts=1 &&
        says "runs/seeds/$task/status.json" '"code": 0, "step": 2' && says "runs/seeds/$task/used.yaml" "^seed: $task"
    ok $? "an array: task $task is requeued by itself and finishes" "sweep_$task.out"
done
echo "1..$n"
