#!/bin/sh
# How fast is a save? `save_speed.sh [TIMES [FOLDER]]`, from a build folder: 3.2 GB of state saved to FOLDER (here), beside
# dd with fsync of as many bytes, in turn, TIMES (5) times; and how long training stands still for an asynchronous save,
# beside a memcpy of the bytes. Medians at the end.
MPIEXEC=${MPIEXEC:-mpiexec}
PYTHON3=${PYTHON3:-python3}
regulon=$PWD/regulon
times=${1:-5}
work=$(mktemp -d "${2:-.}/save_speed.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
cat >deck.yaml <<'YAML'
num_train_steps: 2
model: {hidden_size: 1024, intermediate_size: 2688, num_hidden_layers: 4, num_attention_heads: 8, num_local_experts: 8}
dataset: {path: a.fa, max_seq_length: 64}
checkpoint: {ckpt_dir: run, save_final_model: false}
YAML
awk 'BEGIN { print ">a"; for (i = 0; i < 4000; i++) { x = (x * 1103 + 12345) % 65521; printf "%s", substr("ACGT", x % 4 + 1, 1) } print "" }' >a.fa
i=0
while [ $i -lt "$times" ]; do
    i=$((i + 1))
    rm -rf run
    $MPIEXEC -n 1 "$regulon" train ./deck.yaml checkpoint.save_every_n_steps=2 >out 2>err || { cat err && exit 1; }
    sync
    bytes=$(cat run/step_000000002/* | wc -c)
    seconds=$(sed -n 's/.*step 2 saved: .* in \([0-9.]*\) s (.*/\1/p' err)
    stall=$(sed -n 's/.*stood still for \([0-9.]*\) s.*/\1/p' err)
    rm -rf run
    sync
    begin=$(date +%s.%N)
    dd if=/dev/zero of=dd bs=16M count=$((bytes / 16777216)) conv=fsync 2>/dev/null
    dd_seconds=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')
    rm -f dd
    copy=$("$PYTHON3" -c "
import numpy, time
a, b = numpy.ones($bytes // 4, numpy.float32), numpy.zeros($bytes // 4, numpy.float32)
b[:] = 2
t = time.time(); numpy.copyto(b, a); print(f'{time.time() - t:.3f}')")
    echo "$bytes $seconds $dd_seconds $stall $copy" | tee -a figures |
        awk '{ printf "save %.2f s (%.0f MB/s), dd %.2f s (%.0f MB/s), ratio %.2f; stall %.3f s, memcpy %.3f s, ratio %.2f\n",
            $2, $1 / $2 / 1e6, $3, $1 / $3 / 1e6, $3 / $2, $4, $5, $4 / $5 }'
done
median() { sort -n | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
echo "median ratio of the rates, save to dd: $(awk '{ print $3 / $2 }' figures | median); of stall to memcpy: $(awk '{ print $4 / $5 }' figures | median)"
