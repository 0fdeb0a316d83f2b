#!/bin/sh
# Two steps of a cut of og2_moe_7b (2 of its 32 layers, narrower) on a JSONL file as OpenGenome2's are.
n=0
ok() { # CONDITION TEXT
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
here=$(cd "${srcdir:-.}" && pwd)
run=$(pwd)/og2-test.$$
trap 'rm -rf "$run"' EXIT
$MPIEXEC -n 2 ./regulon train og2_moe_7b parallelism.ep_size=2 grad_acc_steps=2 num_train_steps=2 scheduler.warmup_steps=1 \
    model.num_hidden_layers=2 model.hidden_size=64 model.intermediate_size=32 model.num_attention_heads=4 \
    model.num_key_value_heads=2 dataset.max_seq_length=1024 "dataset.path=$here/tests/fixtures/opengenome2.jsonl" \
    "validation.data_path=$here/tests/fixtures/opengenome2.jsonl" logger.frequency=1 "checkpoint.ckpt_dir=$run" \
    >"$run.out" 2>&1
ok $? 'two steps of a cut of og2_moe_7b'
sed 's/^/# /' "$run.out"
steps=$(grep -c '^ *[12]  *[0-9]' "$run.out")
ok "$([ "$steps" = 2 ]; echo $?)" 'two steps are printed'
# 8 records of 11740 letters, 20 of them N, in one micro-batch, so that no document is cut
targets=$($MPIEXEC -n 2 ./regulon eval "$run" --json dataset.micro_batch_size=null dataset.token_micro_batch_size=16384 2>&1 |
    sed -n 's/.*"targets": \([0-9]*\).*/\1/p')
ok "$([ "$targets" = 11720 ]; echo $?)" "targets are letters, not tags or N: $targets"
rm -f "$run.out"
echo "1..$n"
