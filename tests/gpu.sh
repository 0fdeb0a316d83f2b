#!/bin/sh
# What `make check-gpu` runs: the CUDA backend on one GPU against the CPU backend and the golden cases, and whole runs. In a
# build folder; skipped without a GPU, or when built without CUDA.
srcdir=$(cd "${srcdir:-.}" && pwd)
build=$PWD
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
needs_gpu
cd "$work" || exit 99
TEST_BACKEND=cuda
export TEST_BACKEND
# program NAME TEXT: a test program, on two ranks where its name ends in np2; its failures are shown
program() {
    # shellcheck disable=SC2086 # a launcher may come with options
    (cd "$srcdir" && timeout -s KILL 500 $MPIEXEC -n "${1##*np}" "$build/tests/$1") >out 2>err
    status=$?
    grep -E '^not ok|worst' out | grep -v '^ok' | sed 's/^/# /'
    [ $status = 0 ] || sed 's/^/# /' err
    ok $status "$2: $(grep -c '^ok' out) checks"
}
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1)
hopper() { [ "$capability" = 9.0 ]; } # else there are no grouped kernels, and no graphs
program ops.np1 'operations, BF16'
if hopper; then
    grep -q '^ok.*experts (grouped)' out
    ok $? 'the grouped kernels were among them'
fi
TEST_ATTENTION=own TEST_EXPERTS=cublaslt program ops.np1 'operations, BF16, attention of our own, a product an expert'
TEST_FP32=1 program ops.np1 'operations, FP32'
program grouped.np1 'the grouped products of the experts by themselves'
program recompute.np1 'recomputation, BF16'
TEST_EXPERTS=cublaslt program recompute.np1 'recomputation, BF16, a product an expert'
TEST_ATTENTION=own program recompute.np1 'recomputation, BF16, attention of our own'
TEST_FP32=1 program recompute.np1 'recomputation, FP32'
program golden.np1 'golden cases, BF16'
TEST_FP32=1 program golden.np1 'golden cases, FP32'
TEST_FP32=1 program generate.np1 'generation, FP32'

train="train $srcdir/input/L0_sanity.yaml train.verdict=false logger.frequency=1 checkpoint.save_final_model=true"
same_model() { cmp -s "$1/final_model/model.safetensors" "$2/final_model/model.safetensors"; }
# losses of two outputs within a relative tolerance at every step
close_losses() { # A B TOLERANCE
    numbers "$1" >a && numbers "$2" >b && [ -s a ] &&
        paste -d ' ' a b | awk -v most="$3" '{ d = $3 / $9 - 1; if (d < 0) d = -d; if (d > worst) { worst = d; at = $1 } bad += $1 != $7 || !(d <= most) }
            END { printf "# %d steps, worst relative difference of the loss %.1e, step %d\n", NR, worst, at; exit bad > 0 }'
}
run_on() { # RANKS FOLDER STEPS WORD...
    on=$1 folder=$2 steps=$3
    shift 3
    # shellcheck disable=SC2086 # several words
    regulon "$on" $train checkpoint.ckpt_dir="$folder" num_train_steps="$steps" "$@" >"$folder.$steps.out"
    status=$?
    [ $status = 0 ] || sed 's/^/# /' err
    return $status
}
run() { run_on 1 "$@" parallelism.ep_size=1; }
# A choice of two experts makes the curve chaotic: at this learning rate errors of 1e-5 in the activations, far below BF16's,
# move it by half a per cent, and with BF16 imitated on the CPU one run in four is off by more than 1 % somewhere. Where each
# token goes to all four, imitated BF16 stays within 0.2 %.
run cpu4 50 backend=cpu model.num_experts_per_tok=4 && run bf4 50 backend=cuda model.num_experts_per_tok=4 && close_losses cpu4.50.out bf4.50.out 0.005
ok $? 'L0_sanity with all experts, 50 steps: losses in BF16 within 0.5 % of the CPU'
run cpu 50 backend=cpu && run bf16 50 backend=cuda && close_losses cpu.50.out bf16.50.out 0.02
ok $? 'L0_sanity, 50 steps: losses in BF16 within 2 % of the CPU'
run fp32 50 backend=cuda precision.recipe=fp32 && close_losses cpu.50.out fp32.50.out 0.001
ok $? 'in FP32 within 0.1 %'

exact="backend=cuda deterministic=true"
# shellcheck disable=SC2086 # several words
{
    run once 100 $exact checkpoint.save_every_n_steps=10 && run twice 100 $exact checkpoint.save_every_n_steps=10 && same_model once twice &&
        "$build/regulon" info --diff once/step_000000100 twice/step_000000100 >out && grep -q '^equal' out
    ok $? 'deterministic: the same bits after 100 steps, moments included'
    run stopped 37 $exact checkpoint.save_every_n_steps=37 && run stopped 100 $exact checkpoint.save_every_n_steps=37 && same_model once stopped &&
        cat stopped.37.out stopped.100.out | numbers >b && numbers once.100.out >a && cmp -s a b
    ok $? 'deterministic: stopped after 37 steps and continued: the same lines, the same model to the bit'
}
# shellcheck disable=SC2086 # several words
run again 100 $exact memory.recompute=layer && same_model once again && numbers once.100.out >a && numbers again.100.out >b && cmp -s a b
ok $? 'deterministic: layers made again: the same lines, the same model to the bit'
# A micro-batch's work is recorded and replayed where the experts are grouped; engine.cuda_graph=false does it as it is written.
run recorded 50 backend=cuda grad_acc_steps=3 && { ! hopper || grep -q 'graph: backward pass of 1024 tokens: its [0-9]* operations' err; } && cp recorded.50.out a.out &&
    run written 50 backend=cuda grad_acc_steps=3 engine.cuda_graph=false && ! grep -q 'graph: ' err &&
    numbers a.out >a && numbers written.50.out >b && [ -s a ] && cmp -s a b && same_model recorded written
ok $? 'recorded and replayed: the same lines, the same model to the bit'
run moved 20 backend=cpu checkpoint.save_every_n_steps=10 && run moved 40 backend=cuda checkpoint.save_every_n_steps=10 &&
    run moved 50 backend=cpu checkpoint.save_every_n_steps=10 && cat moved.20.out moved.40.out moved.50.out >moved.out &&
    close_losses cpu.50.out moved.out 0.02
ok $? 'from the CPU to the GPU and back: losses within 2 % of the CPU'

run profiled 4 backend=cuda profiler.start_step=2 profiler.end_step=3 && grep -q 'profiler: recorded steps 2 to 3$' err
ok $? 'steps for a profiler'
run ended 3 backend=cuda profiler.start_step=2 profiler.end_step=9 && grep -q 'profiler: recorded steps 2 to 3$' err
ok $? 'and of a run that ends before them'
regulon 1 bench ops --shape small backend=cuda >out
status=$?
[ $status = 0 ] && [ "$(grep -c -v '^#' out)" -gt 20 ]
ok $? 'bench ops: nothing wrong'
[ $status = 0 ] || sed 's/^/# /' out err
regulon 1 bench mlp --shape small --seconds 0.1 backend=cuda >out && [ "$(grep -c -v '^#' out)" -ge 1 ]
ok $? 'bench mlp'
# six grouped products, and the sum of the probabilities' gradient; six products an expert, the activation and its gradient
regulon 1 bench moe --shape small --experts 1,16 --seconds 0.05 backend=cuda >out &&
    awk '!/^#/ { n++; bad += NF != 7 || !($3 > 0) || !($5 > 0) || !($2 == "grouped" ? $7 == 7 : $7 >= 6 * $1 + 2) } END { exit bad > 0 || n < 2 }' out
status=$?
ok $status 'bench moe: launches by number of experts'
[ $status = 0 ] || sed 's/^/# /' out err
if hopper; then
    regulon 1 bench gemm --shape small --routing half --seconds 0.05 backend=cuda >out && [ "$(awk '!/^#/ { n += $(NF - 1) > 0 } END { print n }' out)" = 10 ]
    ok $? 'bench gemm: ten products'
fi
# without the grouped kernels the host waits for the counts of both layers
regulon 1 bench step "$srcdir/input/L0_sanity.yaml" parallelism.ep_size=1 --seconds 0.2 backend=cuda >out &&
    awk '!/^#/ { n++; bad += !($9 > 5.45 && $9 < 5.8) || $11 != ($1 == "grouped" ? 1 : 3) } END { exit bad > 0 || n == 0 }' out
status=$?
ok $status 'bench step: losses of random tokens, once a step the host waits'
[ $status = 0 ] || sed 's/^/# /' out err

regulon 2 train "$srcdir/input/L0_sanity.yaml" backend=cuda checkpoint.ckpt_dir=two >out
status=$?
gpus=$(nvidia-smi -L | grep -c '^GPU')
if [ "$gpus" = 1 ]; then
    [ $status = 78 ] && grep -q 'ranks 0 and 1 of this host would share .* UUID' err
    ok $? 'two ranks on one GPU are refused'
else
    grep -q 'exchange peer memory' err
    ok $((status + $?)) 'two GPUs, expert parallel over peer memory, as the deck is'
    shares="backend=cuda model.num_experts_per_tok=4"
    # shellcheck disable=SC2086 # several words
    {
        run whole 50 $shares grad_acc_steps=2
        for shard in none optimizer full; do
            run_on 2 "$shard" 50 $shares parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=$shard checkpoint.save_every_n_steps=50 &&
                close_losses whole.50.out "$shard.50.out" 0.002
            ok $? "two GPUs, data parallel, shard $shard: losses of one GPU with the same batches within 0.2 %"
        done
        run_on 2 again2 50 $shares parallelism.dp_size=2 parallelism.ep_size=1 && same_model optimizer again2
        ok $? 'two GPUs twice: the same model to the bit'
        run_on 2 again3 50 $shares parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=full && same_model full again3
        ok $? 'two GPUs twice, shard full: the same model to the bit'
        run optimizer 60 $shares && run none 60 $shares && same_model optimizer none &&
            numbers optimizer.60.out >optimizer.60 && numbers none.60.out >none.60 && [ -s none.60 ] && cmp -s optimizer.60 none.60
        ok $? 'checkpoints of both continue on one GPU, the same to the bit'
        run full 60 $shares && close_losses optimizer.60.out full.60.out 0.002 &&
            run_on 2 full 70 $shares parallelism.dp_size=2 parallelism.ep_size=1 && run_on 2 none 70 $shares parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=full &&
            close_losses full.70.out none.70.out 0.002
        ok $? 'from shard full to one GPU and to shard optimizer, and from one GPU to shard full'
        TEST_FP32=1 program stage.np1 'shard full, one GPU' && TEST_FP32=1 program stage.np2 'two GPUs, shard full'
        TEST_FP32=1 program golden.np2 'two GPUs, golden cases, FP32, data and expert parallel'
        TEST_EXCHANGE=nccl TEST_FP32=1 program golden.np2 'the same through NCCL'
        program recompute.np2 'two GPUs, recomputation'
        TEST_EXCHANGE=nccl program recompute.np2 'two GPUs, recomputation, through NCCL'
        TEST_EXPERTS=cublaslt program recompute.np2 'two GPUs, recomputation, a product an expert'
        run_on 2 spread 50 $shares parallelism.ep_size=2 && close_losses whole.50.out spread.50.out 0.005 &&
            grep -q 'graph: backward pass of 1024 tokens: its [0-9]* operations' err
        ok $? 'two GPUs, expert parallel, recorded: losses of one GPU with the same batches within 0.5 %'
        run_on 2 spread2 50 $shares parallelism.ep_size=2 && same_model spread spread2
        ok $? 'expert parallel twice: the same model to the bit'
        run_on 2 nccl 50 $shares parallelism.ep_size=2 engine.exchange=nccl && same_model spread nccl
        ok $? 'expert parallel through NCCL: the same model to the bit'
    }
fi
regulon 1 train "$srcdir/input/L0_sanity.yaml" parallelism.ep_size=1 backend=cuda model.intermediate_size=36 checkpoint.ckpt_dir=odd >out
[ $? = 78 ] && grep -q 'model.intermediate_size is 36: on a GPU it must be a multiple of 8' err
ok $? 'sizes that the kernels cannot take are refused'
for engine in experts=grouped attention=cudnn; do
    regulon 1 train "$srcdir/input/L0_sanity.yaml" parallelism.ep_size=1 backend=cuda precision.recipe=fp32 engine.$engine checkpoint.ckpt_dir=odd >out
    [ $? = 78 ] && grep -q "^regulon: engine.${engine%=*}: ${engine#*=}: " err
    ok $? "engine.$engine in FP32 is refused"
done
echo "1..$n"
