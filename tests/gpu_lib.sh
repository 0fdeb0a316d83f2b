# shellcheck shell=sh
# What the scripts of `make check-gpu` share, sourced behind lib.sh in the build folder: they go on in the work folder.
# shellcheck disable=SC2034,SC2154 # for those who source it; lib.sh has $work
srcdir=$(cd "${srcdir:-.}" && pwd)
build=$PWD
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
# sizes that fp8_block takes on a GPU, all experts: see gpu.sh
wide="model.hidden_size=128 model.intermediate_size=128"
all_experts="$wide model.num_experts_per_tok=4"
held_out="parallelism.ep_size=1 validation.data_path=$srcdir/input/genomes/ecoli_536.fna.gz"
said_eight() { grep -q "precision: fp8_block, in $1\$" err; }
