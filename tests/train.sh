#!/bin/sh
# Runs from end to end: the loss falls, a run folder describes its run, evaluation agrees with training, other grids
# agree with both; a run that went wrong ends with 76.
srcdir=${srcdir:-.}
# shellcheck disable=SC2086 # a launcher may come with options
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
last_loss() { awk '!/^#/ { loss = $3 } END { print loss }' "$1"; }
below() { awk -v x="$1" -v y="$2" 'BEGIN { exit !(x != "" && x + 0 < y) }'; }
# "1.2345 nats/token, 1.7810 bits/base" of the last validation, or of an evaluation
held_out() { sed -n 's|.*held-out loss *\([0-9.]* nats/token, [0-9.]* bits/base\).*|\1|p' "$1" | tail -n 1; }

# 60 records of a chain in which A C G T mostly follow each other in this order: 0.78 nats a base
awk 'BEGIN {
    x = 1
    for (r = 0; r < 60; r++) {
        printf ">record%d\n", r
        for (i = 0; i < 150 + r; i++) {
            x = x * 16807 % 2147483647
            base = x % 1000 < 700 ? (base + 1) % 4 : x % 4
            printf "%s", substr("ACGT", base + 1, 1)
        }
        print ""
    }
}' >a.fa
cat >deck.yaml <<'EOF'
num_train_steps: 30
parallelism.ep_size: 2
model: {vocab_size: 128, hidden_size: 32, intermediate_size: 32, num_hidden_layers: 2, num_attention_heads: 2, num_local_experts: 4}
optimizer.lr: 1e-2
dataset: {path: a.fa, max_seq_length: 64, token_micro_batch_size: 256, holdout_by: record, holdout_share: 0.2}
validation: {enabled: true, eval_interval: 20}
checkpoint.ckpt_dir: run
EOF

regulon 2 train ./deck.yaml >first
ok $? 'a run on two ranks'
below "$(last_loss first)" 1.1
ok $? "its loss falls below 1.1: $(last_loss first)"
[ "$(numbers first | wc -l)" = 30 ] && grep -q '^# *step *tokens *loss *grad_norm *lr *balance *ms *tokens/s *mfu%$' first
ok $? 'a legend and a line a step'
[ "$(grep -c '^# step [23]0: held-out loss .* bits/base (best Markov chain [0-9.]*)$' first)" = 2 ]
ok $? 'a validation when one is due and at the end, beside the Markov chain'
[ "$(cat run/status.json)" = '{"code": 0, "step": 30, "num_train_steps": 30}' ]
ok $? 'status.json'
[ -e run/used.yaml ] && [ -e run/metrics.h5 ] && [ -e run/final_model/model.safetensors ] && [ -e run/final_model/config.json ]
ok $? 'the run folder has what it should'

# evaluation
regulon 2 eval run >eval2
ok $? 'eval'
[ "$(held_out first)" = "$(held_out eval2)" ] && [ -n "$(held_out eval2)" ]
ok $? "eval prints what the last validation printed: $(held_out eval2)"
regulon 1 eval run parallelism.ep_size=1 >eval1
regulon 2 eval run parallelism.ep_size=1 >evaldp
[ "$(held_out eval1)" = "$(held_out eval2)" ] && [ "$(held_out evaldp)" = "$(held_out eval2)" ]
ok $? 'and so it does on 1 x 1 and on 2 x 1'
mv run moved && regulon 2 eval moved >evalmoved && [ "$(held_out evalmoved)" = "$(held_out eval2)" ] && [ ! -e run ] && mv moved run
ok $? 'and of a folder that was moved, leaving nothing at its old place'
regulon 2 eval run --json >json && grep -q '^{"loss": [0-9.]*, "bits_per_base": [0-9.]*, "targets": [0-9]*, "markov_bits_per_base": \[[0-9., ]*\]}$' json
ok $? 'eval --json'
cp -r run/final_model hf && regulon 2 eval hf dataset.path=a.fa dataset.holdout_by=record dataset.holdout_share=0.2 dataset.max_seq_length=64 \
    dataset.token_micro_batch_size=256 >evalhf && [ "$(held_out evalhf)" = "$(held_out eval2)" ]
ok $? "eval of a Hugging Face folder, with the run's data: $(held_out evalhf)"
regulon 2 eval run/final_model >evalfinal && [ "$(held_out evalfinal)" = "$(held_out eval2)" ]
ok $? 'and of final_model in its run, which has a deck'
regulon 1 eval hf >evalhf
[ $? = 78 ] && grep -q '^regulon: dataset.path or dataset.sources: one of them is required for training' err
ok $? 'a Hugging Face folder has no data of its own'

# with a selection bias, which is no weight
regulon 2 train ./deck.yaml router.bias_rate=0.05 checkpoint.ckpt_dir=bias >bias.out && regulon 2 eval bias >evalbias
[ "$(held_out bias.out)" = "$(held_out evalbias)" ] && [ -n "$(held_out evalbias)" ]
ok $? "a router with a selection bias is evaluated as it was trained: $(held_out evalbias)"
cp -r bias/final_model biashf && regulon 2 eval biashf dataset.path=a.fa dataset.holdout_by=record dataset.holdout_share=0.2 dataset.max_seq_length=64 \
    dataset.token_micro_batch_size=256 >evalbiashf && [ "$(held_out evalbiashf)" = "$(held_out evalbias)" ]
ok $? 'also as a Hugging Face folder, whose config.json does not speak of it'
regulon 2 train ./deck.yaml checkpoint.init_from=biashf checkpoint.ckpt_dir=unbiased num_train_steps=1 optimizer.lr=0 >out && regulon 2 eval unbiased >evalun
[ "$(held_out evalun)" = "$(held_out evalbias)" ] && cmp bias/final_model/router_bias.safetensors unbiased/final_model/router_bias.safetensors
ok $? 'a run that begins from it keeps it, unmoved'
rm bias/final_model/router_bias.safetensors && regulon 2 eval bias >evalbias && [ "$(held_out bias.out)" != "$(held_out evalbias)" ]
ok $? "and without its bias is another model: $(held_out evalbias)"

# the same run again
cp run/metrics.h5 before.h5
regulon 2 train ./deck.yaml >again && [ ! -s again ] && grep -q 'the run in .* has finished; --fresh starts it anew' err && cmp -s run/metrics.h5 before.h5
ok $? 'a finished run, started again, is left alone: exit 0'
regulon 2 train run/used.yaml checkpoint.ckpt_dir=copy >copy.out && [ "$(numbers copy.out)" = "$(numbers first)" ]
ok $? 'used.yaml is a deck: the same numbers'
sed '/ckpt_dir/d' run/used.yaml >a && sed '/ckpt_dir/d' copy/used.yaml >b && cmp a b
ok $? 'and the same used.yaml'
regulon 2 train ./deck.yaml --fresh >fresh && [ "$(numbers fresh)" = "$(numbers first)" ]
ok $? '--fresh runs it again: the same numbers'
cmp -s run/previous-1/metrics.h5 before.h5 && [ -e run/previous-1/used.yaml ] && [ -e run/previous-1/status.json ] &&
    [ -e run/previous-1/final_model/model.safetensors ] && [ ! -e run/previous-2 ]
ok $? 'and moves the earlier run into previous-1'
regulon 2 train ./deck.yaml --fresh num_train_steps=2 >fresh && [ -e run/previous-2/metrics.h5 ] && cmp -s run/previous-1/metrics.h5 before.h5
ok $? 'the next one into previous-2'

# MPICH can be made to take odd and even ranks for two nodes
if $MPIEXEC --version 2>&1 | grep -q HYDRA; then
    MPIR_CVAR_ODD_EVEN_CLIQUES=1 regulon 2 train ./deck.yaml num_train_steps=2 checkpoint.ckpt_dir=nodes >out &&
        grep -q 'grid: 2 ranks on 2 nodes: ' err && grep -q 'grid: tokens travel between nodes: an expert-parallel group is on 2 of them' err
    ok $? 'a group whose tokens leave the node is told'
fi

# another grid: the same batches, so the same numbers to the digits that both have
regulon 1 train ./deck.yaml parallelism.ep_size=1 grad_acc_steps=2 checkpoint.ckpt_dir=one >one.out
numbers one.out >a && numbers first >b && paste -d ' ' a b | awk '
    function near(x, y) { return (x > y ? x - y : y - x) <= 0.0002 * (1 + y) }
    { bad += $1 != $7 || $2 != $8 || !near($3, $9) || !near($4, $10) } END { exit NR != 30 || bad }'
ok $? 'a run on one rank with twice the micro-batches prints the same losses and norms'

regulon 2 train ./deck.yaml seed=5 num_train_steps=2 >again
[ $? = 78 ] && grep -q '^regulon: seed: 5, but [0-9]* in the finished run in .*/run; --fresh runs it anew' err
ok $? 'a finished run is not taken for one with another seed'
regulon 2 train ./deck.yaml seed=5 num_train_steps=1 --fresh >again
ok $? 'which --fresh makes of it'
regulon 2 eval run validation.data_path=a.fa >other && [ -n "$(held_out other)" ]
ok $? 'other data take the place of the held-out share'

# the verdict on a machine
regulon 2 train L0_sanity checkpoint.ckpt_dir=sanity >sanity.out && [ "$(grep -c '^#   ok: ' sanity.out)" = 3 ] &&
    tail -n 1 sanity.out | grep -q '^# verdict: this machine trains as it should$'
ok $? 'L0_sanity ends with a verdict'
regulon 2 train L0_sanity num_train_steps=1 checkpoint.ckpt_dir=wrong >wrong.out
[ $? = 70 ] && grep -q '^#   WRONG: loss fell from' wrong.out && grep -q '"code": 70' wrong/status.json
ok $? 'a loss that does not fall: exit 70'

# info
regulon 1 info ./deck.yaml >said && grep -q '4 experts' said
ok $? 'info of a deck'
regulon 1 info copy/cache/*.h5 >said && grep -q '60 ' said && grep -q 'dna' said
ok $? 'info of a corpus'
regulon 1 info copy/metrics.h5 >said && grep -q '^steps  *1 to 30 in 30 rows' said && grep -q '^experts  *4 in each of 2 layers' said &&
    grep -q '^memory  *[0-9.]* [MG]B on a rank at most$' said
ok $? 'info of a metrics file'
regulon 2 info copy >both && cmp -s said both
ok $? 'info of a run folder, once, also on two ranks'

# weights that grow a hundredfold a step: numbers overflow, steps are skipped, and the run ends
regulon 2 train ./deck.yaml validation.enabled=false checkpoint.ckpt_dir=bad num_train_steps=60 optimizer.lr=10 \
    optimizer.weight_decay=10 optimizer.max_grad_norm=0 scheduler.kind=constant train.max_bad_steps=3 >bad.out
code=$?
last=$(numbers bad.out | awk 'END { print $1 }')
[ $code = 76 ] && [ "$(cat bad/status.json)" = "{\"code\": 76, \"step\": $last, \"num_train_steps\": 60}" ] && [ ! -e bad/final_model ]
ok $? "numbers that overflow end the run with 76, after step $last"
grep -q "stopped at step $last: 3 steps in a row" err && regulon 1 info bad >said &&
    grep -q "step $last  skipped_step: loss .*, 3 in a row; micro-batches" said && [ "$(numbers bad.out | tail -n 3 | grep -c nan)" = 3 ]
ok $? 'each skipped step is an event, and a line'
echo "1..$n"
