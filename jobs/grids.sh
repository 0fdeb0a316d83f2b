# shellcheck shell=bash
# shellcheck disable=SC2154 # what bench-8x7b.sbatch sets at its top
# What bench-8x7b.sbatch is made of: its words; a case, which is a run on a grid; the saves. A case has a folder in $out:
# case.json (what it is, how it ended), plan.json, out and err (the program's lines), run (its run folder); `regulon grids`
# reads them.

# Sets ranks, all_grids, what the cases are (grids, recipes, tokens; saves: yes, no) and the words of the program: model,
# keys (those of the command line), gpu (plan's limit).
read_words() { # WORD...
    local word ep mib folder=''
    ranks=${SLURM_NTASKS:-${SLURM_NTASKS_PER_NODE:-8}} cut=no only_plan=no saves='' layers=''
    grids=() recipes=() tokens=() keys=() all_grids=() model=() gpu=()
    for word in "$@"; do
        case $word in
        ranks=*) ranks=${word#*=} ;;
        out=*) folder=${word#*=} ;;
        model.num_hidden_layers=*) layers=${word#*=} ;;
        cut) cut=yes ;;
        plan) only_plan=yes ;;
        saves) saves=yes ;;
        num_train_steps=* | checkpoint.*=*) stop 64 "$word: steps and saves are this job's own" ;;
        *=*) keys+=("$word") ;;
        bf16 | fp32 | fp8_block | mxfp8) recipes+=("$word") ;;
        [1-9]*x[1-9]*) grids+=("$word") ;;
        *[!0-9]* | '') stop 64 "'$word' is no grid, recipe, number of tokens, key=value, nor cut, plan or saves" ;;
        *) tokens+=("$word") ;;
        esac
    done
    [[ $ranks =~ ^[1-9][0-9]*$ ]] || stop 64 "ranks=$ranks is no number of ranks"
    for ep in 8 4 2 1; do
        [ $((ranks % ep)) -ne 0 ] || all_grids+=("$((ranks / ep))x$ep")
    done
    for word in "${grids[@]}"; do
        [[ " ${all_grids[*]} " = *" $word "* ]] || stop 64 "$word is no grid of $ranks ranks: ${all_grids[*]}"
    done
    # a case that is named leaves the saves out, `saves` alone the cases
    if [ ${#grids[@]} -gt 0 ] || [ ${#recipes[@]} -gt 0 ] || [ ${#tokens[@]} -gt 0 ]; then
        saves=${saves:-no}
        [ ${#grids[@]} -gt 0 ] || grids=("${all_grids[@]}")
    elif [ "$saves" != yes ]; then
        saves=yes grids=("${all_grids[@]}")
    fi
    if [ $cut = yes ]; then # all that the whole model goes through, on any machine
        out=$out-cut layers=${layers:-2} saved_layers=2 steps=3 skip=1 tokens_per_rank=256
        model=(model.hidden_size=128 model.intermediate_size=128 model.num_attention_heads=4 model.num_key_value_heads=2
            model.vocab_size=256 dataset.max_seq_length=64)
        [ ${#tokens[@]} -gt 0 ] || tokens=(64 256)
    fi
    out=${folder:-$out} layers=${layers:-$((layers_per_rank * ranks))}
    [ ${#tokens[@]} -gt 0 ] || tokens=(4096 16384)
    mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null) || mib=''
    if [[ " ${keys[*]} " = *' backend=cpu '* ]] || { [ -z "$mib" ] && [ $only_plan = no ]; }; then
        gpu_gb='' model+=(backend=cpu precision.emulate=true)
        [ ${#recipes[@]} -gt 0 ] || recipes=(fp32 fp8_block)
    elif [ -n "$mib" ]; then # of the smallest, less 1 %: for the driver, and for what plan does not know
        gpu_gb=$(echo "$mib" | awk 'NR == 1 || $1 < least { least = $1 } END { printf "%.1f", least * 1.048576e-3 * 0.99 }')
    fi
    [ ${#recipes[@]} -gt 0 ] || recipes=(bf16 fp8_block)
    [ -z "$gpu_gb" ] || gpu=(--gpu-memory "$gpu_gb")
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -V | head -n 1) || capability=''
    if [[ -n $mib && -n $gpu_gb && $capability =~ ^[0-9]+\.[0-9]$ ]]; then gpu+=(--capability "$capability"); else capability=9.0; fi
    [ $only_plan = no ] || { saves=no out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT; } # what there is stays
}

# Sets words, those of a case without memory.recompute; the command line's replace others. MXFP8 is emulated on GPUs without it.
set_words() { # GRID RECIPE TOKENS LAYERS
    local dp=${1%x*} shard=full word eight=()
    [ "$dp" -gt 1 ] || shard=optimizer
    [ "$2" != mxfp8 ] || [ "${capability%.*}" -ge 10 ] || [[ " ${model[*]} " = *' precision.emulate=true '* ]] || eight=(precision.emulate=true)
    case $2 in fp8_block | mxfp8 | auto8) eight+=(precision.fp8_weights=true precision.fp8_activations=true) ;; esac
    words=(L1_8x7B_ep)
    for word in "parallelism.dp_size=$dp" "parallelism.ep_size=${1#*x}" parallelism.shard=$shard "precision.recipe=$2" \
        dataset.micro_batch_size= "dataset.token_micro_batch_size=$3" "grad_acc_steps=$(((tokens_per_rank + $3 - 1) / $3))" \
        "dataset.path=$jobs/input/genomes/ecoli_536.fna.gz" "model.num_hidden_layers=$4" "${eight[@]}" "${model[@]}" \
        scheduler.kind=constant "scheduler.warmup_steps=$skip" logger.frequency=1 checkpoint.save_final_model=false; do
        [[ " ${keys[*]%%=*} " = *" ${word%%=*} "* ]] || words+=("$word")
    done
    words+=("${keys[@]}")
}

# Sets recomputed, the layers that must be, and adds them to words: none, else of all only what memory-bound operations make
# again (where experts are not spread that at least), else the fewest quarters of them with which the case fits; or what the
# command line says. FOLDER/plan.json gets the plan, ended `planned`; else ended says why not.
fit() { # FOLDER GRID LAYERS
    local code way ways='none activation 1 2 3 4' some
    [ "${2#*x}" -gt 1 ] || ways='activation 1 2 3 4'
    [[ " ${keys[*]}" != *' memory.recompute'* ]] || ways=said
    for way in $ways; do
        recomputed=0 some=("memory.recompute=$way")
        case $way in
        said)
            [[ " ${keys[*]} " != *' memory.recompute=layer '* ]] || recomputed=$3
            [[ " ${keys[*]} " =~ ' memory.recompute_layers='([0-9]+)' ' ]] && recomputed=${BASH_REMATCH[1]}
            some=()
            ;;
        [1-4])
            recomputed=$((way * $3 / 4))
            [ $recomputed -gt 0 ] || continue # 0 would be all
            some=(memory.recompute=layer "memory.recompute_layers=$recomputed")
            ;;
        esac
        regulon plan "${words[@]}" "${some[@]}" --ranks "$ranks" "${gpu[@]}" --json >"$1/plan.json" 2>>"$1/err"
        code=$?
        [ $code -eq 1 ] || break
    done
    words+=("${some[@]}")
    case $code in
    0) ended=planned ;;
    1) ended='no room' ;;
    *) ended=refused ;;
    esac
    [ "$ended" = planned ]
}
gb() { sed -n "s/^ *\"$2_bytes\": *\([0-9]*\).*/\1/p" "$1/plan.json" | awk '{ printf $1 < 1e10 ? "%.3g" : "%.1f", $1 / 1e9 }'; } # FOLDER total|limit

# Notes in case.json what a case is and how it ended.
note() { # FOLDER PART GRID RECIPE TOKENS LAYERS
    printf '{"part": "%s", "grid": "%s", "recipe": "%s", "tokens": %d, "layers": %d, "recomputed": %d, "ranks": %d, "steps": %d, "skip": %d, "ended": "%s"}\n' \
        "$2" "$3" "$4" "$5" "$6" "$recomputed" "$ranks" "$steps" "$skip" "$ended" >"$1/case.json"
}

# Starts the program on all ranks, behind this script: job. Weights are drawn by the cores, of which a rank gets its share.
launch() { # WORD...
    local threads
    if [ -n "${SLURM_JOB_ID:-}" ]; then
        srun --mpi="$mpi" --kill-on-bad-exit=1 --gpu-bind=none --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" regulon "$@" &
    else
        threads=$((($(nproc) + ranks - 1) / ranks))
        OMP_NUM_THREADS=${OMP_NUM_THREADS:-$threads} ${MPIEXEC:-mpiexec} -n "$ranks" regulon "$@" &
    fi
    job=$!
}

# Kills a run as a machine that fails does: the process of rank 0, which the lock names. Its launcher ends the others, or they
# do. (TERM would have it save.)
lose() { # RUN
    local limit=$((SECONDS + 30)) pid
    while [ $SECONDS -lt $limit ]; do # a start has no lock yet
        pid=$(printf '%s\n' "$1"/lock.* | sort -V | tail -n 1 | xargs -d '\n' sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' 2>/dev/null)
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != regulon ] || { kill -KILL "$pid" && return; }
        kill -0 "$job" 2>/dev/null || return 0
        sleep 0.1
    done
    kill "$job"
}

# Trains with $words in FOLDER/run until SECONDS says END, or `until_that` is true of FOLDER. Sets ended.
train() { # FOLDER END UNTIL_THAT WORD...
    local folder=$1 end=$2 until_that=$3
    shift 3
    launch train "${words[@]}" checkpoint.ckpt_dir="$folder/run" "$@" >>"$folder/out" 2>>"$folder/err"
    watch_job "$folder" "$end" "$until_that"
}

# Waits for what was launched, as train says of its run.
watch_job() { # FOLDER END UNTIL_THAT
    local folder=$1 end=$2 until_that=$3 code
    trap 'lose "$folder/run"; wait "$job"; exit 130' INT TERM # what is started behind a script hears no Ctrl-C
    ended=''
    while [ -z "$ended" ] && kill -0 "$job" 2>/dev/null; do
        sleep 0.1
        if "$until_that" "$folder"; then
            ended=killed
        elif [ $SECONDS -ge "$end" ]; then
            ended='out of time'
        fi
    done
    [ -z "$ended" ] || lose "$folder/run"
    wait "$job" 2>/dev/null
    code=$?
    trap - INT TERM
    [ -n "$ended" ] || [ $code -ne 0 ] || ended=finished
    ended=${ended:-exit code $code}
}
has_saved() { grep -q 'checkpoint: step .* saved: ' "$1/err"; }

# One case; 0 also where it does not fit.
speed() { # GRID RECIPE TOKENS LIMIT_S
    local name=$1-$2-$3 folder=$out/$1-$2-$3 end=$((SECONDS + $4)) planned
    rm -rf "${folder:?}" && mkdir -p "$folder" || exit 78
    set_words "$1" "$2" "$3" "$layers"
    fit "$folder" "$1" "$layers"
    planned="$(gb "$folder" total) of $(gb "$folder" limit) GB planned, $recomputed of $layers layers recomputed"
    case $ended in
    planned) say "$name: $planned" ;;
    'no room') say "$name: skipped, it does not fit: $planned" ;;
    esac
    if [ "$ended" = planned ] && [ "$only_plan" = no ]; then
        train "$folder" "$end" false num_train_steps="$steps" checkpoint.save_every_n_steps=0
        [ "$ended" != finished ] || say "$name: $(tail -n 1 "$folder/out")"
    fi
    note "$folder" speed "$1" "$2" "$3" "$layers"
    case $ended in finished | planned | 'no room') ;; *) failed "$folder" ;; esac
}

# A run that is saved while it goes on, killed, and gone on with on another grid; its export; and a run of the first grid
# that nobody disturbs, to whose losses `regulon grids` compares.
saves() { # GRID OTHER_GRID RECIPE TOKENS LIMIT_S
    local folder=$out/saves end=$((SECONDS + $5)) run=$out/saves/run step bytes start
    rm -rf "${folder:?}" "${out:?}/undisturbed" && mkdir -p "$folder" "$out/undisturbed" || exit 78
    set_words "$1" "$3" "$4" "$saved_layers"
    fit "$folder" "$1" "$saved_layers" &&
        train "$folder" "$end" has_saved num_train_steps=1000 checkpoint.save_every_n_steps=4 checkpoint.max_checkpoints=1
    step=$(saved_step)
    if [ "$ended" = killed ]; then
        say "saves: $1: $(said "$folder" 'step [0-9]* saved: .*'); killed"
        bytes=$(du -sb "$run/step_"*[0-9] | awk '{ print $1 }')
        set_words "$2" "$3" "$4" "$saved_layers"
        fit "$folder" "$2" "$saved_layers" && train "$folder" "$end" false num_train_steps=$((step + 4)) checkpoint.save_every_n_steps=0
    fi
    note "$folder" saves "$1, then $2" "$3" "$4" "$saved_layers"
    [ "$ended" = finished ] || failed "$folder" || return
    say "saves: $2: $(said "$folder" 'goes on .*'): $(rate "$bytes" "$(said "$folder" 'checked and read in .*' | awk '{ print $5 }')")"

    start=$(date +%s.%N)
    launch export "$run" -o "$folder/hf" --dtype bf16 2>>"$folder/err"
    watch_job "$folder" "$end" false
    [ "$ended" = finished ] || ended="export: $ended"
    note "$folder" saves "$1, then $2" "$3" "$4" "$saved_layers"
    [ "$ended" = finished ] || failed "$folder" || return
    say "saves: exported: $(rate "$(du -sb "$folder/hf" | awk '{ print $1 }')" "$(echo "$(date +%s.%N) $start" | awk '{ print $1 - $2 }')"), its start included"

    folder=$out/undisturbed
    set_words "$1" "$3" "$4" "$saved_layers"
    fit "$folder" "$1" "$saved_layers" && train "$folder" "$end" false num_train_steps=$((step + 4)) checkpoint.save_every_n_steps=0
    note "$folder" saves "$1" "$3" "$4" "$saved_layers"
    [ "$ended" = finished ] || failed "$folder"
}
failed() { # FOLDER
    say "${1##*/}: $ended: $(tail -n 1 "$1/err")" >&2
    return 1
}
said() { grep -oh "$2" "$1/err" | tail -n 1; } # FOLDER PATTERN: the last that the program said of it
rate() { echo "$1 $2" | awk '{ printf "%.3g GB in %.3g s, %.3g GB/s", $1 / 1e9, $2, $1 / 1e9 / $2 }'; } # BYTES SECONDS
