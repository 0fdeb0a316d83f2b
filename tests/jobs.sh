#!/bin/sh
# The scripts in jobs/: through shellcheck, the job scripts with a stand-in srun and scontrol, setup.sh where things are
# missing. (slurm.sh runs them under a real Slurm.)
top=$(cd "${srcdir:-.}" && pwd)
built=$(pwd -P)
MPIEXEC=${MPIEXEC:-mpiexec}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
# a test that itself runs in a job is not part of it
for name in $(env | sed -n 's/^\(SLURM[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done
n=0
ok() { # STATUS TEXT
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
script() { # FILE LINE...: an executable with these lines
    file=$1
    shift
    printf '%s\n' '#!/bin/sh' "$@" >"$file"
    chmod +x "$file"
}

if command -v shellcheck >/dev/null; then
    shellcheck "$top"/jobs/*.sh "$top"/jobs/*.sbatch >warnings
    ok $? 'shellcheck has nothing to say'
    sed 's/^/# /' warnings
else
    n=$((n + 1))
    echo "ok $n - shellcheck # SKIP no shellcheck"
fi

# The job scripts. The stand-in srun notes its words and does what the test wants; scontrol notes what it is asked.
mkdir -p bin clone/build prefix/bin prefix/share/regulon/jobs
ln -s "$built/regulon" clone/build/regulon
ln -s "$top/jobs" clone/jobs
# shellcheck disable=SC2016 # for the scripts that are written
script bin/srun 'echo "$@" >>"$NOTES/srun"' 'while [ "$1" != regulon ]; do shift; done' '. "$NOTES/behave"'
# shellcheck disable=SC2016 # for the scripts that are written
script bin/scontrol 'echo "$@" >>"$NOTES/scontrol"' '[ ! -e "$NOTES/refuse" ]'
# job SCRIPT WORD...: as Slurm would run it; $behave is srun's doing, $slurm more of Slurm's variables
job() {
    rm -f srun scontrol
    echo "$behave" >behave
    name=$1
    shift
    # shellcheck disable=SC2086 # several
    env PATH="$folder/bin:$PATH" NOTES="$folder" SLURM_SUBMIT_DIR="$folder/clone" SLURM_JOB_ID=7 SLURM_JOB_NAME=night \
        SLURM_CPUS_PER_TASK=3 $slurm bash "$top/jobs/$name.sbatch" "$@" >out 2>&1
}
asked() { cat "$1" 2>/dev/null; } # srun or scontrol: what was asked of it
judge() { # STATUS TEXT
    ok "$1" "$2"
    [ "$1" -eq 0 ] || sed 's/^/# /' out
}
plain='train.verdict=false dataset.token_micro_batch_size=256'
slurm=''
# shellcheck disable=SC2016 # for the script that is written
ranks="exec $MPIEXEC -n 2 \"\$@\""

behave=$ranks
# shellcheck disable=SC2086 # $plain is several words
for name in train-cpu train train-multinode chain; do
    case $name in
    train-cpu) more='' ;;
    train-multinode) more=' --gpu-bind=none --distribution=block' ;;
    *) more=' --gpu-bind=none' ;;
    esac
    job $name L0_sanity num_train_steps=2 $plain "checkpoint.ckpt_dir=$folder/$name" &&
        [ -f "$name/metrics.h5" ] && grep -q '^ *2 ' out && [ ! -e scontrol ] &&
        [ "$(asked srun)" = "--mpi=pmi2 --kill-on-bad-exit=0$more --cpus-per-task=3 regulon train L0_sanity num_train_steps=2 $plain checkpoint.ckpt_dir=$folder/$name" ]
    judge $? "$name.sbatch trains from a clone; srun's options; 0"
done
job train-cpu L0_sanity sed=1
[ $? -eq 78 ] && grep -q 'sed: unknown key' out && [ ! -e srun ]
judge $? 'a wrong deck ends the job before srun, with 78'
job bench L0_sanity dataset.token_micro_batch_size=256 && [ "$(grep -v '^[#[]' out | awk '{ print $1 }' | tr '\n' ' ')" = '16 17 18 19 20 ' ] && grep -q '^# *step' out &&
    ! ls -d runs/night-7/step_* >no 2>&1 && [ -e runs/night-7/metrics.h5 ]
judge $? 'bench.sbatch prints the last steps and saves nothing'
behave='exit 70'
job bench L0_sanity
[ $? -eq 70 ]
judge $? "bench.sbatch ends with the program's code"

# what follows srun's code: the run folder as the program would leave it
run=$folder/run
ends() { # CODE_OF_SRUN CODE STEP [SAVED]
    behave="mkdir -p $run $([ "${4:-$3}" = 0 ] || echo "$run/step_00000000${4:-$3}"); echo '{\"code\": $2, \"step\": $3, \"num_train_steps\": 9}' >$run/status.json; exit $1"
}
night() { job train-cpu L0_sanity "checkpoint.ckpt_dir=$run" "$@"; }
ends 75 75 5
night
[ $? -eq 75 ] && [ "$(asked scontrol)" = 'requeue 7' ] && grep -q 'night: requeued after step 5' out
judge $? '75: requeued'
slurm='SLURM_ARRAY_JOB_ID=6 SLURM_ARRAY_TASK_ID=2'
ends 75 75 6
night
[ $? -eq 75 ] && [ "$(asked scontrol)" = 'requeue 6_2' ]
judge $? '75 of a task of an array: this task is requeued'
slurm=''
night
[ $? -eq 75 ] && [ "$(asked scontrol)" = 'requeue 7' ]
judge $? '75 without progress, once: requeued'
night
[ $? -eq 75 ] && [ ! -e scontrol ] && grep -q 'two starts in a row saved nothing after step 6' out
judge $? '75 without progress, twice: not requeued'
ends 75 75 7
night
[ $? -eq 75 ] && [ "$(asked scontrol)" = 'requeue 7' ]
judge $? 'and after progress it is requeued again'
rm -r "$run"
ends 75 75 0
night
[ "$(asked scontrol)" = 'requeue 7' ] && night
[ $? -eq 75 ] && [ ! -e scontrol ]
judge $? 'two starts that end before the first step: the second is not requeued'
for code in 0 74 76; do
    ends $code $code 8
    night
    [ $? -eq $code ] && [ ! -e scontrol ]
    judge $? "$code: not requeued"
done
ends 70 70 9 8
night
[ $? -eq 70 ] && [ "$(asked scontrol)" = 'requeue 7' ]
judge $? '70, a rank was lost: requeued'
night
night
[ $? -eq 70 ] && [ ! -e scontrol ] && grep -q 'two starts in a row saved nothing after step 8' out
judge $? '70 again and again, with nothing saved: not requeued'
ends 143 75 9
night
[ $? -eq 75 ] && [ "$(asked scontrol)" = 'requeue 7' ]
judge $? 'srun says 143 and status.json 75: requeued'
behave='exit 137'
touch -d '1 hour ago' "$run/status.json"
night
[ $? -eq 137 ] && [ ! -e scontrol ]
judge $? 'srun says 137 and status.json is of an earlier start: not requeued'
ends 75 75 10 9
rm "$run/starts"
touch refuse
night
[ $? -eq 75 ] && [ "$(asked scontrol)" = 'requeue 7' ] && grep -q 'submit it again to go on after step 9' out
judge $? 'Slurm refuses to requeue: 75, and it says what to do'
rm refuse
job chain L0_sanity "checkpoint.ckpt_dir=$run"
[ $? -eq 75 ] && [ ! -e scontrol ]
judge $? 'chain.sbatch does not requeue'
behave="touch $run/stop; $behave"
night
[ $? -eq 75 ] && [ -e srun ] && [ ! -e scontrol ] && grep -q "remove $run/stop" out
judge $? 'stopped by the file: not requeued'
night
[ $? -eq 75 ] && [ ! -e srun ] && grep -q "remove $run/stop to go on" out
judge $? 'and not started while the file is there'
rm "$run/stop"
behave='exit 137' # before the program has begun anew
night --fresh
grep -q -- ' --fresh$' srun
judge $? '--fresh is handed on'
slurm=SLURM_RESTART_COUNT=1
ends 0 0 9
behave="rm $run/fresh; $behave"
night --fresh
grep -q -- ' --fresh$' srun
judge $? 'also when Slurm has started the job again, as long as the run has not begun anew'
night --fresh
[ -e srun ] && ! grep -q fresh srun
judge $? 'and not after that'
job chain L0_sanity --fresh "checkpoint.ckpt_dir=$run"
[ $? -eq 64 ] && [ ! -e srun ]
judge $? 'a chain refuses --fresh'

# a run for each line
printf '# two runs\n\noptimizer.lr=1e-3 seed=1\n  # the second\noptimizer.lr=2e-3  seed=2\n' >list.txt
slurm=SLURM_ARRAY_TASK_ID=2
behave='exit 0'
job sweep L0_sanity list.txt num_train_steps=3 && grep -q ' regulon train L0_sanity checkpoint.ckpt_dir=runs/list/2 optimizer.lr=2e-3 seed=2 num_train_steps=3$' srun && [ -d runs/list/2 ]
judge $? 'sweep.sbatch takes its line of the list'
slurm=SLURM_ARRAY_TASK_ID=3
job sweep L0_sanity list.txt
[ $? -eq 64 ] && [ ! -e srun ] && grep -q 'list.txt has no line 3' out
judge $? 'and says when there is none'

# installed; the program is what PATH has
cp "$top"/jobs/*.sbatch "$top/jobs/common.sh" prefix/share/regulon/jobs
echo 'FROM_ENV=seen; export FROM_ENV' >prefix/share/regulon/jobs/env.sh
# shellcheck disable=SC2016 # for the script that is written
script prefix/bin/regulon 'case $1 in info) echo run ;; *) echo "$FROM_ENV: $*" ;; esac'
# shellcheck disable=SC2016 # for the script that is written
echo 'exec "$@"' >behave
PATH=$folder/bin:$folder/prefix/bin:$PATH SLURM_SUBMIT_DIR=$folder NOTES=$folder \
    bash prefix/share/regulon/jobs/train-cpu.sbatch "a deck" x=1 >out 2>&1
[ "$(cat out)" = 'seen: train a deck x=1' ]
judge $? 'installed: common.sh and env.sh are found by the program'

set -- "$built"/jobs/*.lua
[ $# -eq 1 ] && grep -q '^prepend_path("PATH", "/.*/bin")$' "$1" && ! grep -q '@' "$1"
ok $? 'the module file puts the program into PATH'

# setup.sh on a machine of which we give it only these tools
mkdir -p tools clone2
cp -R "$top/jobs" clone2/jobs
chmod -R u+w clone2
for tool in sh dirname mkdir sed tr cat grep sort uniq rm id timeout chmod env; do
    ln -s "$(command -v $tool)" "tools/$tool"
done
PATH=$folder/tools sh clone2/jobs/quickstart.sh >out 2>&1
[ $? -eq 78 ] && grep -q 'missing: make cc MPI HDF5 pkg-config yaml-0.1 jansson zlib libxxhash git autoconf automake OpenBLAS' out &&
    grep -q 'apt-get install .*libmpich-dev' out && grep -q 'spack install .*hdf5+hl' out && grep -q 'conda-forge .*openblas' out
status=$?
ok $status 'what is missing is listed with the names for apt, Spack and conda: exit 78'
[ $status -eq 0 ] || sed 's/^/# /' out
# shellcheck disable=SC2016 # for the scripts that are written
script tools/mpicc 'printf "%s\n" "#!/bin/sh" "echo 1 ranks of mpich" >"$2"; chmod +x "$2"'
script tools/mpiexec "\$3; \$3"
# shellcheck disable=SC2016 # for the scripts that are written
PATH=$folder/tools sh clone2/jobs/quickstart.sh >out 2>&1
[ $? -eq 78 ] && grep -q 'mpiexec -n 2 does not start 2 ranks; seen: 1 ranks of mpich 1 ranks of mpich' out && grep -q 'missing: make cc MPI ' out
status=$?
ok $status 'an mpiexec that starts singletons is no MPI'
[ $status -eq 0 ] || sed 's/^/# /' out
echo "1..$n"
