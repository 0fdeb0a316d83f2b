#!/bin/sh
# jobs/bench-8x7b.sbatch as a whole with a cut model on two ranks: every grid, the table and the figure of `regulon grids`, and
# a run that is saved, killed, gone on with on the other grid and exported. What does not fit, fails or takes too long.
srcdir=$(cd "${srcdir:-.}" && pwd)
# shellcheck source=tests/lib.sh
. "$srcdir/tests/lib.sh"
for python in "$PYTHON3" /usr/bin/python3 python3; do "$python" -c 'import h5py, numpy, matplotlib' 2>/dev/null && break; done
"$python" -c 'import h5py, numpy, matplotlib' 2>/dev/null || { echo '1..0 # SKIP no Python with h5py and matplotlib' && exit 0; }
PATH=$(dirname "$(command -v "$python")"):$PATH # for `regulon grids`
for name in $(env | sed -n 's/^\(SLURM[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done
cd "$work" || exit 99
mkdir -p clone/build bin && ln -s "$regulon" clone/build/regulon && ln -s "$srcdir/input" clone/input && cp -R "$srcdir/jobs" clone/jobs && chmod -R u+w clone/jobs
cd clone || exit 99
bench() { # WORD...: on the CPU, whatever there is
    bash jobs/bench-8x7b.sbatch ranks=2 cut backend=cpu "$@" >out 2>err
}
judge() { # STATUS TEXT
    ok "$1" "$2"
    [ "$1" = 0 ] || sed 's/^/# /' out err
}
driver() { # COMMAND: of a driver that says how much memory its GPUs have
    printf '#!/bin/sh\n%s\n' "$1" >"$work/bin/nvidia-smi" && chmod +x "$work/bin/nvidia-smi"
}
lines() { grep -c "$@" out; }

bench out=all
status=$?
[ $status = 0 ] && [ "$(lines '^bench-8x7b: [12]x[12]-.* planned, ')" = 8 ] && [ "$(lines '^[12]x[12] .* finished$')" = 9 ]
judge $? 'both grids, FP32 and eight bits, small and large micro-batches, run to their end: 0'
! ls -d all/[12]x*/run/step_* all/[12]x*/run/final_model >no 2>&1 && [ "$(find all/[12]x*/run -maxdepth 1 -name metrics.h5 | wc -l)" = 8 ]
judge $? 'nothing of them is saved'
grep -q '^bench-8x7b: saves: 1x2: step [0-9]* saved: .* ([0-9.]* [kMG]B/s), training stood still .*; killed$' out &&
    grep -q 'saves: 2x1: goes on after step [0-9]* (saved on dp 1 x ep 2), .* GB/s$' out && grep -q 'saves: exported: .* GB/s, ' out &&
    grep -q 'its process has ended' all/saves/err && "$regulon" export all/saves/run -o hf --dtype bf16 2>no && cmp -s hf/model.safetensors all/saves/hf/model.safetensors &&
    [ "$(lines '^1x2, then 2x1 .* finished$')" = 1 ]
judge $? 'a run is saved, killed, gone on with on the other grid, and exported, with rates'
[ "$(lines '^losses, .* bar 0.5 %: met$')" = 5 ] && grep -q '^losses, fp32, .* 1x2 beside 1x2, then 2x1; ' out && grep -q '^memory beside plan: .* bar 5 %: ' out
judge $? 'losses of the grids agree, also of the run that was killed with one that was not'
grids() { "$python" "$srcdir/tests/analysis_grids.py" "$@" >checks 2>&1; } # WHAT FOLDER
grids csv all
status=$?
judge $status 'a line a case in the CSV, with the numbers of its metrics.h5 and plan'
[ $status = 0 ] || sed 's/^/# /' checks
grids figure all && grep -q '<svg' all/grids.svg
status=$?
ok $status 'a bar a case; figures of others only beside the whole model'
[ $status = 0 ] || sed 's/^/# /' checks

# the table again, of files that were changed
cp -R all changed && grids spoil changed/2x1-fp32-64/run/metrics.h5 && ! "$regulon" grids changed >out 2>err &&
    grep -q '^losses, fp32, 64 tokens: 2 runs within 0.99 % (step 2, 1x2 beside 2x1; 3 steps); bar 0.5 %: missed$' out && [ "$(lines 'bar 0.5 %: met$')" = 4 ]
judge $? 'losses that part at one step: missed, 1'
grids whole changed/1x2-fp8_block-256/run/metrics.h5 && "$regulon" grids changed --figure whole.svg >out 2>err
grep -q '^fp8_block: [0-9]* tokens/s/rank (1x2-fp8_block-256); bar 9050: missed$' out && grep -q 'MXFP8, B200: 9,050' whole.svg &&
    grep -q '4,096' whole.svg && grep -q '4,447' whole.svg
judge $? 'the whole Mixtral-8x7B beside its bars, and figures of others in the chart'

bench out=large 1x2 fp32 64 model.num_hidden_layers=512 model.hidden_size=4096 model.intermediate_size=14336 && grep -q '^bench-8x7b: 1x2-fp32-64: skipped, it does not fit: [0-9.]* of [0-9.]* GB planned, 512 of 512 layers' out && [ "$(lines '^1x2 .* no room$')" = 1 ]
judge $? 'what does not fit is skipped, with the memory that it would need'
PATH=$work/bin:$PATH
driver 'exit 9'
bash jobs/bench-8x7b.sbatch plan >out 2>err && [ "$(lines '^bench-8x7b: .* GB planned, ')" = 16 ] && grep -q 'x7b: 1x8-fp8_block-16384: skipped, .* 158.6 of 149.0 GB' out &&
    grep -q '8x1-bf16-4096: 147.4 of 149.0 GB planned, 0 of 32 layers' out && grep -q '8x1-bf16-16384: 135.7 of 149.0 GB planned, 32 of 32 layers' out &&
    grep -q '1x8-bf16-4096: 146.3 of 149.0 GB planned, 8 of 32 layers' out
judge $? 'plan says what would run on eight GPUs'
bash jobs/bench-8x7b.sbatch plan 1x8 fp8_block mxfp8 4096 memory.recompute=layer memory.recompute_layers=30 >out 2>err &&
    [ "$(lines ' of 149.0 GB planned, 30 of 32 layers recomputed$')" = 2 ]
judge $? 'recomputed is what the command line says; MXFP8 is emulated'
bash jobs/bench-8x7b.sbatch plan num_train_steps=20 >out 2>err
[ $? = 64 ] && grep -q "num_train_steps=20: steps and saves are this job's own" err
judge $? 'keys that are not for the command line: 64'
driver 'printf "143771\n81559\n"'
bash jobs/bench-8x7b.sbatch ranks=4 plan 2x2 bf16 4096 model.num_hidden_layers=8 >out 2>err && [ "$(lines ' ')" = 1 ] &&
    grep -q '^bench-8x7b: 2x2-bf16-4096: [0-9.]* of 84.7 GB planned, 0 of 8 layers' out
judge $? 'or into those that there are: the smallest counts'
for capability in 9.0 10.0; do
    driver "case \$* in *compute_cap*) echo $capability ;; *) echo 183359 ;; esac"
    bash jobs/bench-8x7b.sbatch plan 1x8 mxfp8 4096 memory.recompute=layer memory.recompute_layers=30
done >out 2>err
[ "$(lines ' of 190.3 GB planned, 30 of 32 layers')" = 2 ] && [ "$(uniq out | wc -l)" = 2 ]
judge $? 'and how they compute MXFP8'

# a launcher that fails on one grid
cat >"$work/bin/launcher" <<END
#!/bin/sh
case "\$*" in *ep_size=2*) echo 'no such luck' >&2 && exit 9 ;; esac
exec $MPIEXEC "\$@"
END
chmod +x "$work/bin/launcher"
MPIEXEC=$work/bin/launcher bench out=partly fp32 64
[ $? = 70 ] && grep -q '^bench-8x7b: 1x2-fp32-64: exit code 9: no such luck$' err && grep -q '1 did not come to their end' err &&
    grep -q '^1x2 .* exit code 9$' out && grep -q '^2x1 .* finished$' out
judge $? 'a case that fails is said, the others go on: 70'
sed -i 's/ steps=3 / steps=100000 /; s/100000 skip=1/100000 skip=0/' jobs/grids.sh && sed -i 's/^limit_s=560 /limit_s=8 /' jobs/bench-8x7b.sbatch
bench out=slow 1x2 fp32 64
[ $? = 70 ] && grep -q '^1x2 .* out of time$' out && [ "$(awk '/^1x2/ { print $5 }' out)" -gt 0 ] && ! ls -d slow/*/run/step_* >no 2>&1 &&
    ! grep -q '"code"' slow/1x2-fp32-64/run/status.json 2>no && ! grep -qs 'ckpt_dir=[s]low/' /proc/[0-9]*/cmdline
judge $? 'one that takes too long is killed, and nothing saved; what it measured counts: 70'
bash jobs/bench-8x7b.sbatch ranks=2 cut backend=cpu out=stopped 1x2 fp32 64 >out 2>err &
job=$! tries=300
until grep -q '^ *1 ' stopped/1x2-fp32-64/out 2>/dev/null || [ $tries = 0 ]; do sleep 0.1 && tries=$((tries - 1)); done
kill $job
wait $job
[ $? = 130 ] && ! grep -qs 'ckpt_dir=[s]topped/' /proc/[0-9]*/cmdline && ! ls -d stopped/*/run/step_* >no 2>&1
judge $? 'stopped by a signal it leaves nothing behind that goes on'
cp "$srcdir"/jobs/grids.sh "$srcdir"/jobs/bench-8x7b.sbatch jobs

# as a job
cat >"$work/bin/srun" <<END
#!/bin/sh
echo "\$@" >>"$work/srun"
while [ "\$1" != regulon ]; do shift; done
exec $MPIEXEC -n 2 "\$@"
END
chmod +x "$work/bin/srun"
(export SLURM_JOB_ID=7 SLURM_JOB_NAME=night SLURM_NTASKS=2 SLURM_CPUS_PER_TASK=3 SLURM_SUBMIT_DIR="$work/clone" &&
    bash jobs/bench-8x7b.sbatch cut backend=cpu out=job 2x1 fp32 64 >out 2>err) &&
    grep -q '^--mpi=pmi2 --kill-on-bad-exit=1 --gpu-bind=none --cpus-per-task=3 regulon train L1_8x7B_ep .*parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=full .*memory.recompute=activation .*num_train_steps=3 ' "$work/srun" &&
    [ "$(lines '^2x1 .* finished$')" = 1 ]
judge $? 'as a job: by srun, on as many ranks as it has tasks'
for word in 3x1 nonsense ranks=two; do
    bench out=none $word
    [ $? = 64 ] && grep -q "^bench-8x7b: '\{0,1\}$word'\{0,1\} is no " err && [ ! -e none ]
    judge $? "$word is refused: 64"
done
"$regulon" grids none >out 2>err
[ $? = 65 ] && grep -q '^regulon-grids: none: no case in it' err
judge $? 'a folder without cases: 65'
echo "1..$n"
