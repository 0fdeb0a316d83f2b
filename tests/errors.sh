#!/bin/sh
# What a user can get wrong with `train`, `eval` and `info`: one message, one exit code, on one rank and on two; and
# what looks wrong but is not. (pack.sh has pack's, decks.sh the deck's.)
# shellcheck disable=SC2086 # $train is several words, $MPIEXEC may be
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
export CUDA_VISIBLE_DEVICES='' # backend auto is cpu here
unset SLURM_JOB_GPUS SLURM_GPUS_ON_NODE
# refused RANKS CODE MESSAGE WORD...: the code, the message once, no abort, and nothing on stdout
refused() {
    ranks=$1 code=$2 message=$3
    shift 3
    $MPIEXEC -n "$ranks" "$regulon" "$@" >out 2>err
    got=$?
    [ $got = "$code" ] && [ "$(grep '^regulon: ' err)" = "regulon: $message" ] && ! grep -q -i abort err && [ ! -s out ]
    status=$?
    ok $status "$ranks: exit $code: $message"
    [ $status = 0 ] || { echo "# exit $got"; sed 's/^/# /' out err; }
}
both() { # the same on one rank and on two
    refused 1 "$@"
    refused 2 "$@"
}
runs() { # RANKS TEXT WORD...: ends with 0
    ranks=$1 text=$2
    shift 2
    $MPIEXEC -n "$ranks" "$regulon" "$@" >out 2>err
    status=$?
    ok $status "$ranks: $text"
    [ $status = 0 ] || sed 's/^/# /' err
}

cat >deck.yaml <<'EOF'
num_train_steps: 2
model: {hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_local_experts: 4}
dataset: {path: a.fa, max_seq_length: 64, token_micro_batch_size: 128}
checkpoint.ckpt_dir: run
EOF
bases=$(awk 'BEGIN { for (i = 0; i < 2000; i++) { x = (x * 1103 + 12345) % 65521; printf "%s", substr("ACGT", x % 4 + 1, 1) } }')
printf '>a\n%s\n' "$bases" >a.fa
printf '>short\nACGTACG\n' >short.fa
printf '>n\n%0500d\n' 0 | tr 0 N >n.fa
: >empty.fa
printf '>a\n>b\n' >none.fa
printf '\001\000\002\000\003\000\011\000' >tokens.bin
"$regulon" pack a.fa -o a.h5 >out && head -c 2000 a.h5 >cut.h5 && "$regulon" pack --tokens u16 tokens.bin --eos 9 -o tokens.h5 >out
ok $? 'corpora for what follows'
train="train ./deck.yaml"

# the command line
both 64 "'trian' is not a verb; did you mean 'train'?" trian
both 64 "'x' is not a verb; regulon --help names them" x
both 64 'train: which deck? regulon train DECK [key=value ...]' train
both 64 "train: unknown option '--frsh'; see regulon train --help" train --frsh
refused 2 64 "'now' is not of the form key=value" $train now
both 78 './none.yaml: No such file or directory' train ./none.yaml
both 78 'modle.hidden_size: unknown key; did you mean model.hidden_size? (command line)' $train modle.hidden_size=1
both 64 'eval: which model? regulon eval RUN [key=value ...]' eval
both 64 "eval: unknown option '--jsn'; see regulon eval --help" eval --jsn
both 65 '.: neither a run folder (it has no used.yaml) nor a step folder of one, nor a Hugging Face folder' eval .
both 65 './nowhere: neither a run folder (it has no used.yaml) nor a step folder of one, nor a Hugging Face folder' eval ./nowhere
both 64 'info: which file? regulon info DECK|CORPUS|METRICS|RUN|CHECKPOINT ...' info
both 78 './nothing.yaml: No such file or directory' info ./nothing.yaml

# sizes that do not go together
both 78 'train.max_hours (0.05 h) leaves no time beside train.reserve_minutes (5 min)' $train train.max_hours=0.05
both 78 'model.num_experts_per_tok (5) is above model.num_local_experts (4)' $train model.num_experts_per_tok=5
both 78 'model.num_local_experts (4) is not a multiple of parallelism.ep_size (3)' $train parallelism.ep_size=3
both 78 'model.num_attention_heads (4) is not a multiple of model.num_key_value_heads (3)' $train \
    model.num_attention_heads=4 model.num_key_value_heads=3
both 78 "model.vocab_size (100) is too small for dataset.alphabet: the letter 't' is token 116" $train model.vocab_size=100
both 78 'memory.recompute_layers (1) needs memory.recompute activation or layer' $train memory.recompute_layers=1
need() { echo "needs $1 ranks, this job has $2: start it with mpiexec -n $1 (or srun -n $1), or change the sizes"; }
refused 1 78 "parallelism.dp_size 3 x parallelism.ep_size 1 $(need 3 1)" $train parallelism.dp_size=3
refused 2 78 "parallelism.dp_size 2 x parallelism.ep_size 2 $(need 4 2)" $train parallelism.dp_size=2 parallelism.ep_size=2
refused 1 78 'parallelism.ep_size: 2 does not divide the 1 ranks of this job' $train parallelism.ep_size=2
both 78 'validation.enabled needs dataset.holdout_share above 0 or validation.data_path' $train validation.enabled=true
both 78 "checkpoint.ckpt_dir: cannot make the folder $work/a.fa/run: Not a directory" $train checkpoint.ckpt_dir=a.fa/run
both 78 "checkpoint.ckpt_dir: cannot make the folder /proc/regulon: No such file or directory" $train checkpoint.ckpt_dir=/proc/regulon
[ ! -e run ]
ok $? 'none of these touched the run folder'
runs 1 'an earlier run, finished' $train

# what a backend does not have, named in the deck or settled by auto (a new folder: that is known only when a run begins)
both 78 "engine.experts is 'loop', which backend 'cuda' does not have" $train backend=cuda engine.experts=loop
both 78 "engine.exchange is 'mpi', which backend 'cuda' does not have" $train backend=cuda engine.exchange=mpi
both 78 "engine.attention is 'cudnn', which backend 'cpu' does not have" $train engine.attention=cudnn checkpoint.ckpt_dir=auto
both 78 "precision.recipe is 'bf16', which backend 'cpu' does not have" $train precision.recipe=bf16 checkpoint.ckpt_dir=auto
both 78 "precision.recipe is 'mxfp8', which the CPU cannot compute fast: precision.emulate=true gives the same numbers slowly, precision.recipe=fp32 is fast" $train precision.recipe=mxfp8 checkpoint.ckpt_dir=auto
both 78 "precision.recipe is 'auto8', and there is no recipe of eight bits for the CPU: mxfp8 is for GPUs of compute capability 10.0 and later, fp8_block for 9.0, bf16 for other GPUs, fp32 for the CPU" $train precision.recipe=auto8 precision.emulate=true checkpoint.ckpt_dir=auto
both 78 "precision.recipe: 'fp8' is not one of auto | fp32 | bf16 | fp8_block | mxfp8 | auto8 (command line)" $train precision.recipe=fp8
both 78 'precision.fp8_activations needs a precision.recipe of eight bits' $train precision.recipe=bf16 precision.fp8_activations=true checkpoint.ckpt_dir=auto
both 78 'precision.fp8_activations together with layers that stay out of the recipe (precision.first_layers_bf16, last_layers_bf16, layers_bf16) needs parallelism.ep_size=1' $train precision.recipe=mxfp8 precision.emulate=true precision.fp8_activations=true precision.first_layers_bf16=1 parallelism.ep_size=2 checkpoint.ckpt_dir=auto
both 78 'precision.first_layers_bf16 (99) and precision.last_layers_bf16 (0) are more than model.num_hidden_layers (1)' $train precision.recipe=mxfp8 precision.emulate=true precision.first_layers_bf16=99 checkpoint.ckpt_dir=auto
both 78 "precision.layers_bf16: '1' is not a layer: they are 0 to 0" $train precision.recipe=mxfp8 precision.emulate=true 'precision.layers_bf16=[0, 1]' checkpoint.ckpt_dir=auto
both 78 "precision.layers_bf16 ('0') and precision.first_layers_bf16 (1) or last_layers_bf16 (0): give the list or the two numbers" $train precision.recipe=mxfp8 precision.emulate=true precision.layers_bf16=0 precision.first_layers_bf16=1 checkpoint.ckpt_dir=auto
both 78 'engine.fused: false is for bf16 and fp32; precision.recipe is one of eight bits' $train engine.fused=false precision.recipe=mxfp8 precision.emulate=true checkpoint.ckpt_dir=auto
for recipe in auto fp32; do
    both 78 'precision.fp8_weights needs a precision.recipe of eight bits' $train precision.recipe=$recipe precision.fp8_weights=true checkpoint.ckpt_dir=auto
done
refused 1 78 'bench ops: precision.recipe is fp32 or bf16 here; bench gemm and step have those of eight bits' bench ops precision.recipe=mxfp8

# a cuBLASLt without products of MXFP8, on a GPU that should have them
mx=${regulon%/*}/tests/mxfp8_products.np1
if [ -x "$mx" ]; then
    $MPIEXEC -n 1 "$mx" refuse >out 2>err
    [ $? = 78 ] && grep -q 'precision.recipe: cuBLASLt has no algorithm for a product of 173 x 224 x 256 in MXFP8 here: precision.emulate: true gives the same numbers by products in BF16' err
    ok $? 'no products of MXFP8'
fi
# srun without a PMI, another MPI's mpiexec: every task is alone
for variable in SLURM_STEP_NUM_TASKS PMI_SIZE OMPI_COMM_WORLD_SIZE; do
    env $variable=2 SLURM_PROCID=0 "$regulon" $train checkpoint.ckpt_dir=alone >out 2>err
    first=$?
    env $variable=2 SLURM_PROCID=1 "$regulon" $train checkpoint.ckpt_dir=alone >>out 2>second
    [ "$first $?" = '78 78' ] && [ ! -s out ] && [ ! -s second ] && [ "$(grep -c 'regulon: .*each sees one MPI rank' err)" = 1 ] && [ ! -e alone ]
    ok $? "two tasks that see one rank each ($variable): 78, one message, no file touched"
done
env SLURM_NTASKS=2 "$regulon" $train checkpoint.ckpt_dir=batch >out 2>err
ok $? 'a batch script of two tasks may start one process'

# data: the run is to be longer, so that the finished one does not count
train="$train num_train_steps=3"
both 65 "$work/empty.fa: no records" $train dataset.path=empty.fa
both 65 "$work/none.fa: no tokens, all 2 records are empty" $train dataset.path=none.fa
both 65 "$work/missing.fa: cannot be opened: No such file or directory" $train dataset.path=missing.fa
both 65 "$work/cut.h5: an HDF5 file, but damaged or cut short" $train dataset.path=cut.h5
both 65 "$work/a.fa: token 84 does not fit model.vocab_size 70" $train dataset.alphabet=bytes model.vocab_size=70
both 78 "dataset.reverse_complement: needs text, and $work/tokens.h5 holds ready tokens" $train \
    dataset.path=tokens.h5 dataset.reverse_complement=true
both 78 "validation.enabled: the held-out part has no targets; try dataset.holdout_by block or a larger dataset.holdout_share" \
    $train dataset.holdout_share=0.001 validation.enabled=true
grep -q '"code": 0, "step": 2' run/status.json && [ -e run/metrics.h5 ] && ! ls -d run/previous-* >out 2>&1
ok $? 'none of these touched the earlier run'
train="train ./deck.yaml"
for ranks in 1 2; do
    runs $ranks 'a corpus shorter than one window trains' $train dataset.path=short.fa checkpoint.ckpt_dir=short$ranks
    runs $ranks 'a corpus of N alone trains' $train dataset.path=n.fa checkpoint.ckpt_dir=n$ranks
    grep -q '^ *2 *[0-9]* *0\.0000 ' out
    ok $? "$ranks: and its loss is 0"
    runs $ranks 'as many experts a token as there are' $train model.num_experts_per_tok=4 checkpoint.ckpt_dir=all$ranks
done

# a run of two ranks and its evaluation
runs 2 'experts on two ranks' $train parallelism.ep_size=2 checkpoint.ckpt_dir=two
refused 1 78 'parallelism.ep_size: 2 does not divide the 1 ranks of this job' eval two validation.data_path=a.fa parallelism.ep_size=2
runs 1 'evaluation on fewer ranks than it was trained on' eval two validation.data_path=a.fa
both 78 'validation.enabled: nothing is held out; set dataset.holdout_share or validation.data_path' eval two parallelism.ep_size=1
runs 1 'evaluation on another grid' eval two parallelism.ep_size=1 validation.data_path=a.fa
head -c 10000 two/final_model/model.safetensors >short.tmp && mv short.tmp two/final_model/model.safetensors
both 65 "two/final_model/model.safetensors: tensor 'model.embed_tokens.weight' lies beyond the end of the file" eval two parallelism.ep_size=1 validation.data_path=a.fa
rm -r two/final_model
both 65 'two: a run folder with neither a final_model nor a checkpoint: it has not saved its weights' eval two
echo "1..$n"
