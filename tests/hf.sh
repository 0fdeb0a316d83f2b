#!/bin/sh
# `regulon export`: what a Hugging Face folder from a checkpoint, a run or another folder holds, on any number of ranks;
# what is refused, and that nothing is left behind then.
# shellcheck disable=SC2086 # $train is several words, $MPIEXEC may be
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
srcdir=$(cd "${srcdir:-.}" && pwd)
"$PYTHON3" -c 'import numpy' 2>/dev/null || { echo '1..0 # SKIP no Python with numpy' && exit 0; }
export PYTHONDONTWRITEBYTECODE=1
cd "$work" || exit 99
hf() { "$PYTHON3" "$srcdir/tests/hf.py" "$@" >py.out 2>&1 || { sed 's/^/# /' py.out && false; }; }
does() { # WORD...: one rank, without a line on stdout
    if "$regulon" "$@" >out 2>err && [ ! -s out ]; then return 0; fi
    sed 's/^/# /' out err
    false
}
refused() { # CODE MESSAGE WORD...: said once, on one rank and on two; the folder `new` is not there, whole or in part
    code=$1 message=$2
    shift 2
    status=0
    for ranks in 1 2; do
        $MPIEXEC -n $ranks "$regulon" "$@" >out 2>err
        got=$?
        if [ $got != "$code" ] || [ "$(grep '^regulon: ' err)" != "regulon: $message" ] || grep -q -i abort err || [ -s out ] || [ -e new ] ||
            [ -e new.tmp ]; then
            echo "# $ranks ranks, exit $got" && sed 's/^/# /' out err && status=1
        fi
    done
    ok $status "$code: $message"
}

train='train L0_sanity train.verdict=false dataset.token_micro_batch_size=256 checkpoint.save_every_n_steps=2 num_train_steps=4 checkpoint.save_final_model=true'
$MPIEXEC -n 2 "$regulon" $train checkpoint.ckpt_dir=run >out 2>err
ok $? 'a run with two checkpoints and a final model'
step=run/step_000000004

# export
does export run -o one && diff -r one run/final_model && grep -q "export: the model of $step, after step 4, is in one\$" err
ok $? 'the newest checkpoint of a run: the bytes of its final model'
for ranks in 2 3; do
    regulon $ranks export $step -o on$ranks >out && diff -r one on$ranks
    ok $? "a step folder, on $ranks ranks: the same bytes"
done
(cd $step && "$regulon" export ../final_model/ -o ../../again/ 2>err) && diff -r one again
ok $? 'from a Hugging Face folder: the same bytes'
does export run/step_000000002 -o earlier && ! cmp -s one/model.safetensors earlier/model.safetensors && grep -q '"regulon_step": 2,' earlier/config.json
ok $? 'an earlier step'
hf config one && hf tokenizer one
ok $? 'config.json with old and new keys, generation_config.json, a tokeniser of one token a byte'
regulon 2 export run -o half --dtype bf16 --file-gb 0.0001 >out && [ "$(find half -name 'model-0000?-of-00004.safetensors' | wc -l)" = 4 ] &&
    [ ! -e half/model.safetensors ] && hf rounded one half && grep -q '"dtype": "bfloat16",' half/config.json && hf config half
ok $? 'BF16, in files of 100 kB and an index: rounded to nearest'
does export half -o joined && hf same half joined
ok $? 'the files, joined to one again'
regulon 2 train run/used.yaml checkpoint.ckpt_dir=tuned checkpoint.init_from=half checkpoint.save_final_model=true num_train_steps=1 optimizer.lr=0 >out &&
    hf same half tuned/final_model
ok $? 'a run begins from several files'

# refusals
rm -rf new new.tmp
refused 64 'export: which model? regulon export MODEL -o FOLDER' export
refused 64 'export: -o FOLDER is missing: the folder to make' export run
refused 64 'export: -o needs a value' export run -o
refused 64 "export: one model at a time, not 'run' and 'half'" export run half -o new
refused 64 "export: unknown option '--fp8'; see regulon export --help" export run -o new --fp8
refused 64 "export: --dtype: 'fp16' is neither fp32 nor bf16" export run -o new --dtype fp16
refused 64 "export: --file-gb: '0' is no number above 0" export run -o new --file-gb 0
refused 64 'export: -o one is there already; give another name or remove it' export run -o one
refused 65 'nowhere: no weights in it: neither a run folder with a checkpoint or a final_model, nor a step folder, nor a Hugging Face folder' export nowhere -o new
cp -R $step alone
refused 65 'alone: what model is it? There is no used.yaml with its checkpoint, nor a config.json' export alone -o new
refused 74 'export: rank 0 on '"$(hostname)"': /proc/new.tmp: No such file or directory' export run -o /proc/new
mkdir bad && cp run/used.yaml bad && cp -R $step bad && : >bad/step_000000004/shard_d000_e001.h5
refused 65 'bad/step_000000004: its weights cannot be used for this model' export bad -o new
regulon 2 train run/used.yaml checkpoint.ckpt_dir=biased router.bias_rate=0.001 num_train_steps=2 >out
refused 65 "export: the router has a selection bias ($("$PYTHON3" -c 'import sys; sys.path.insert(0, sys.argv[1] + "/tests"); import hf
print((hf.read_file("biased/final_model/router_bias.safetensors")["router_bias"][1] != 0).sum())' "$srcdir") of 8 values are not 0), which a Hugging Face folder cannot hold; --drop-bias leaves it out, and tokens go to other experts" \
    export biased -o new
does export biased -o dropped --drop-bias && [ ! -e dropped/router_bias.safetensors ] && cmp dropped/model.safetensors biased/final_model/model.safetensors
ok $? '--drop-bias'
# a file of 10 or 20 MB at most, by the shell's idea of a block; MPI needs some itself
hf big big && (ulimit -f 20000 && trap '' XFSZ && "$regulon" export big -o new) >out 2>err
[ $? = 74 ] && grep -q '^regulon: export: rank 0 on .*: new.tmp/model.safetensors: File too large$' err && [ ! -e new ] && [ ! -e new.tmp ]
ok $? '74: no room for a file: nothing left behind'
echo "1..$n"
