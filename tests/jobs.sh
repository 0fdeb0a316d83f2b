#!/bin/sh
# The scripts in jobs/: through shellcheck, the job scripts with a stand-in srun, setup.sh where things are missing.
top=$(cd "${srcdir:-.}" && pwd)
built=$(pwd -P)
MPIEXEC=${MPIEXEC:-mpiexec}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
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

# the job scripts; the stand-in srun notes its words and starts two ranks, or what the test wants
mkdir bin clone
ln -s "$built" clone/build
ln -s "$top/jobs" clone/jobs
# shellcheck disable=SC2016 # for the script that is written
script bin/srun 'echo "$@" >"$SRUN_WORDS"' 'while [ "$1" != regulon ]; do shift; done' "exec $MPIEXEC -n 2 \"\$@\""
job=train-cpu
rm -rf run
mkdir run
PATH=$folder/bin:$PATH SRUN_WORDS=$folder/words SLURM_SUBMIT_DIR=$folder/clone SLURM_CPUS_PER_TASK=3 \
    bash "$top/jobs/$job.sbatch" L0_sanity num_train_steps=2 train.verdict=false "checkpoint.ckpt_dir=$folder/run" >out 2>&1
ok $? "$job.sbatch trains from a clone"
[ -f run/metrics.h5 ] && grep -q '^ *2 ' out
status=$?
ok $status "$job.sbatch hands the deck and the keys on"
[ $status -eq 0 ] || sed 's/^/# /' out
grep -q -- '--mpi=pmi2 --kill-on-bad-exit=0 --cpus-per-task=3 regulon train L0_sanity' words
ok $? "$job.sbatch: srun's options"
PATH=$folder/bin:$PATH SRUN_WORDS=$folder/words SLURM_SUBMIT_DIR=$folder/clone \
    bash "$top/jobs/$job.sbatch" L0_sanity sed=1 >out 2>&1
[ $? -eq 78 ] && grep -q 'sed: unknown key' out
ok $? "$job.sbatch ends with the program's exit code"
mkdir -p prefix/bin prefix/share/regulon/jobs
cp "$top"/jobs/*.sbatch prefix/share/regulon/jobs
echo 'FROM_ENV=seen; export FROM_ENV' >prefix/share/regulon/jobs/env.sh
# shellcheck disable=SC2016 # for the script that is written
script prefix/bin/regulon 'echo "$FROM_ENV: $*"'
# shellcheck disable=SC2016 # for the script that is written
script bin/srun 'while [ "$1" != regulon ]; do shift; done' 'exec "$@"'
PATH=$folder/bin:$folder/prefix/bin:$PATH SLURM_SUBMIT_DIR=$folder \
    bash prefix/share/regulon/jobs/train-cpu.sbatch "a deck" x=1 >out 2>&1
[ "$(cat out)" = 'seen: train a deck x=1' ]
ok $? 'installed: env.sh beside the program is read'

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
