#!/bin/sh
# `regulon import` and `regulon export`: both ways and back, of both generations of names; what a Hugging Face folder from a checkpoint, a run or another folder holds, on any number of ranks;
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
on='1 2'
refused() { # CODE MESSAGE WORD...: said once, on each number of ranks in $on; the folder `new` is not there, whole or in part
    code=$1 message=$2
    shift 2
    status=0
    for ranks in $on; do
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
# shellcheck disable=SC3045 # the shells of Debian, Red Hat and macOS have it
(ulimit -n 40 && "$regulon" export one -o many --file-gb 0.00001 && "$regulon" import many -o many.ckpt) 2>err &&
    [ "$(find many -name 'model-*.safetensors' | wc -l)" -gt 30 ] && does export many.ckpt -o many.back && cmp one/model.safetensors many.back/model.safetensors
ok $? 'more files than a process may open, out and in'
does export half -o joined && hf same half joined
ok $? 'the files, joined to one again'
regulon 2 train run/used.yaml checkpoint.ckpt_dir=tuned checkpoint.init_from=half checkpoint.save_final_model=true num_train_steps=1 optimizer.lr=0 >out &&
    hf same half tuned/final_model
ok $? 'a run begins from several files'

# import, and back
build=$(dirname "$regulon")
# the loops read from 3: a launcher takes what is on stdin
while read -r name ranks <&3; do
    from=$srcdir/tests/golden/$name
    regulon $ranks import "$from" -o ckpt.$name >out && "$regulon" info --verify ckpt.$name >out && does export ckpt.$name -o back.$name &&
        hf same "$from" back.$name && hf same-config "$from" back.$name && hf config back.$name
    ok $? "$name: imported on $ranks ranks and exported, tensors and config are the same"
done 3<<'EOP'
tiny 1
finegrained_tied 2
packed 3
windowed_top1 2
all_experts_tied 1
EOP
tiny=$srcdir/tests/golden/tiny
while read -r how <&3; do
    rm -rf made ckpt back again
    hf make "$tiny" made $how && regulon 2 import made -o ckpt >out && does export ckpt -o back && does export made -o again && hf same made back && hf same made again
    ok $? "a folder made with: $how"
done 3<<'EOP'
f16
bf16
fused
fused f16
files=3
fused bf16 files=2
EOP
rm -rf made && hf make "$tiny" made fused && cp "$tiny/reference.safetensors" made && "$build/tests/golden.np1" made >golden.out
grep -q '^ok .* - logits within 2e-5' golden.out
ok $? 'the fused names give the reference logits'
hf change made swapped 'for n in t:
    if n.endswith("gate_up_proj"): t[n] = np.concatenate(np.split(t[n], 2, axis=1)[::-1], axis=1)' &&
    cp "$tiny/reference.safetensors" swapped && "$build/tests/golden.np1" swapped >golden.out
grep -q '^not ok .* - logits within 2e-5' golden.out
ok $? 'gate and up swapped do not'
genome=$srcdir/input/genomes/lambda_virus.fa.gz
regulon 2 train ckpt.tiny/used.yaml checkpoint.init_from=ckpt.tiny checkpoint.ckpt_dir=begun dataset.path="$genome" dataset.max_seq_length=64 num_train_steps=1 \
    optimizer.lr=0 checkpoint.save_final_model=true parallelism.ep_size=2 >out && hf same "$tiny" begun/final_model
ok $? 'a run begins with it'
! grep -q 'where the weights are from' err
ok $? 'and has its keys'
for origin in ckpt.tiny "$tiny"; do
    regulon 2 train ckpt.tiny/used.yaml checkpoint.init_from="$origin" checkpoint.ckpt_dir=other dataset.path="$genome" dataset.max_seq_length=64 \
        num_train_steps=1 parallelism.ep_size=2 model.rope_theta=1e4 model.num_experts_per_tok=1 --fresh >out &&
        [ "$(sed -n 's/^.*checkpoint: model\.\(.*\) (.*/\1/p' err)" = "rope_theta is 10000 here and 1e+06 where the weights are from
num_experts_per_tok is 1 here and 2 where the weights are from" ]
    ok $? "keys of the model that are other than those of ${origin##*/}: said"
done
regulon 2 eval ckpt.tiny --json dataset.path="$genome" validation.data_path="$genome" dataset.max_seq_length=512 >a.json &&
    regulon 1 eval begun --json validation.data_path="$genome" dataset.max_seq_length=512 >b.json && [ -s a.json ] && cmp a.json b.json
ok $? 'eval reads it'
does import back.tiny -o words dataset.alphabet=protein optimizer.lr=0.5 && grep -q '^  alphabet: protein$' words/used.yaml && grep -q '^  lr: 0.5$' words/used.yaml &&
    grep -q '^  max_seq_length: 512$' words/used.yaml && grep -q '^  alphabet: dna$' ckpt.tiny/used.yaml && grep -q '^  alphabet: bytes$' ckpt.windowed_top1/used.yaml
ok $? 'what the folder says of tokens, and key=value, are in used.yaml'
[ -e back.tiny/tokenizer.json ] && [ ! -e back.windowed_top1/tokenizer.json ] && ! grep -q eos back.windowed_top1/config.json
ok $? 'no tokeniser where tokens are not known to be characters'
hf change "$tiny" bare 'del c["rope_parameters"]' && does import bare -o bare.ckpt && grep -q 'config.json has no rope_theta; 1e6 is taken$' err
ok $? 'no rope_theta: 1e6, and it is said'
hf change "$srcdir/tests/golden/finegrained_tied" both 't["lm_head.weight"] = t["model.embed_tokens.weight"].copy()' && does import both -o both.ckpt
ok $? 'tied, with a head that is the embedding'

# a dense model becomes a mixture: experts from one golden expert a layer
dense='for l in range(2):
    a = f"model.layers.{l}."
    for n, name in (1, "gate"), (3, "up"), (2, "down"):
        t[f"{a}mlp.{name}_proj.weight"] = t[f"{a}block_sparse_moe.experts.0.w{n}.weight"]
for n in [n for n in t if "block_sparse" in n]: del t[n]
for k in "num_local_experts", "num_experts_per_tok", "router_aux_loss_coef": c.pop(k, None)
c.update(model_type="mistral", architectures=["MistralForCausalLM"])'
hf change "$tiny" dense "$dense" && hf change "$tiny" lone 'for n in [n for n in t if "experts." in n and "experts.0." not in n]: del t[n]
for n in [n for n in t if "gate.weight" in n]: t[n] = t[n][:1].copy()
c["num_local_experts"] = c["num_experts_per_tok"] = 1' && regulon 2 import dense -o up --experts 8 model.num_experts_per_tok=3 >out
ok $? 'a dense model, imported as a mixture of 8 experts'
grep -q 'import: dense, a dense model, is now the checkpoint up of 403 k parameters, 8 copies of each feed-forward block$' err && grep -q '^  num_local_experts: 8$' up/used.yaml &&
    grep -q '^  num_experts_per_tok: 3$' up/used.yaml
ok $? 'said, and in its deck'
gzip -dc "$genome" | head -n 20 >a.fa
for model in up lone; do "$regulon" score $model a.fa --per-base --window 256 >$model.tsv 2>err || echo failed >$model.tsv; done
"$PYTHON3" - <<'EOF'
import csv, sys
a, b = ([float(r["log_likelihood"]) for r in csv.DictReader(open(n + ".tsv"), delimiter="\t")] for n in ("up", "lone"))
worst = max(abs(x - y) for x, y in zip(a, b))
sys.exit(not (len(a) == len(b) > 1000 and worst <= 2e-6 and len(set(a)) > 500))
EOF
ok $? 'without noise it computes what the dense model does, a mixture of one'
does export up -o up.hf && hf upcycled dense up.hf 8 0 && "$regulon" import dense -o up1 --experts 8 model.num_experts_per_tok=3 2>err && does export up1 -o up1.hf && hf same up.hf up1.hf
ok $? 'every expert is a copy; routers are not all alike; one rank makes the same'
regulon 2 import dense -o noisy --experts 4 --noise 0.01 seed=7 >out && does export noisy -o noisy.hf && hf upcycled dense noisy.hf 4 0.01 &&
    "$regulon" import dense -o noisy1 --experts 4 --noise 0.01 seed=7 2>err && does export noisy1 -o noisy1.hf && hf same noisy.hf noisy1.hf
ok $? 'noise of the deviation that was asked for, other in each copy, the same on one rank'
regulon 2 train up/used.yaml checkpoint.init_from=up checkpoint.ckpt_dir=upped dataset.path="$genome" dataset.max_seq_length=64 num_train_steps=1 optimizer.lr=0 \
    checkpoint.save_final_model=true parallelism.ep_size=2 >out && hf same up.hf upped/final_model
ok $? 'a run begins with it'
hf change dense bare.dense 'c.pop("rope_parameters", None); c.pop("rope_theta", None); c.pop("rms_norm_eps"); c["model_type"] = "llama"' &&
    does import bare.dense -o bare.up --experts 2 && grep -q 'config.json has no rope_theta; 1e4 is taken$' err && grep -q '^  rms_norm_eps: 1.0e-06$' bare.up/used.yaml
ok $? "Llama's own defaults"

# refusals of import
refused 65 'dense: a dense model (mistral); --experts N makes a mixture of N copies of it' import dense -o new
refused 65 'made: not a dense model: it has no mlp.gate_proj' import made -o new --experts 4
refused 65 'dense: a dense model, without experts; regulon import --experts N makes a mixture of N copies of it' eval dense dataset.path="$genome" \
    validation.data_path="$genome" model.num_local_experts=2 parallelism.ep_size=1
refused 64 "import: --experts: '0' is not a whole number from 1 to 65536" import dense -o new --experts 0
refused 64 'import: --experts needs a value' import dense -o new --experts
refused 64 "import: --noise: '-1' is no number from 0 on" import dense -o new --experts 4 --noise -1
refused 64 'import: --noise needs --experts' import made -o new --noise 0.1
refused 78 'model.num_experts_per_tok (2) is above model.num_local_experts (1)' import dense -o new --experts 1
hf change dense biased.dense 'c["attention_bias"] = True'
refused 78 'attention_bias: true is not something regulon does; it must be 0 (config.json)' import biased.dense -o new --experts 4
hf change dense holed 'del t["model.layers.1.mlp.up_proj.weight"]'
refused 65 "holed: 1 tensor does not fit the model: 'model.layers.1.mlp.up_proj.weight' is missing" import holed -o new --experts 4
refused 64 'import: which folder? regulon import FOLDER -o CKPT' import
refused 64 'import: -o CKPT is missing: the folder to make' import made
refused 64 'import: -o needs a value' import made -o
refused 64 "import: unknown option '--dtype'; see regulon import --help" import made --dtype bf16 -o new
refused 64 'import: -o one is there already; give another name or remove it' import made -o one
refused 64 "'words' is not of the form key=value" import made words -o new
refused 65 'run: not a Hugging Face folder: no model.safetensors, no model.safetensors.index.json' import run -o new
refused 78 'optimizer.lrr: unknown key; did you mean optimizer.lr? (command line)' import made -o new optimizer.lrr=1
refused 74 'import: rank 0 on '"$(hostname)"': /proc/new.tmp: No such file or directory' import made -o /proc/new
mkdir weights && cp one/model.safetensors weights
refused 65 'weights: no config.json in it' import weights -o new
on=1
layer=model.layers
while IFS='|' read -r code message change <&3; do # of the fused names
    rm -rf wrong && hf change made wrong "$change" && refused "$code" "$message" import wrong -o new
done 3<<EOP
65|wrong: the names of two generations are mixed: '$layer.0.block_sparse_moe.gate.weight' and '$layer.0.mlp.experts.down_proj'|t["$layer.0.block_sparse_moe.gate.weight"] = t.pop("$layer.0.mlp.gate.weight")
65|wrong: 1 tensor does not fit the model: 'model.norm.weight' is missing|del t["model.norm.weight"]
65|wrong: 2 tensors do not fit the model: '$layer.1.mlp.gate.weight' is missing; the model has no '$layer.2.mlp.gate.weight'|t["$layer.2.mlp.gate.weight"] = t.pop("$layer.1.mlp.gate.weight")
65|wrong: 1 tensor does not fit the model: the model has no '$layer.0.self_attn.q_proj.bias'|t["$layer.0.self_attn.q_proj.bias"] = np.zeros(64)
65|wrong: 1 tensor does not fit the model: 'lm_head.weight' is 64 x 256, the model's 256 x 64|t["lm_head.weight"] = t["lm_head.weight"].T.copy()
65|wrong: 1 tensor does not fit the model: '$layer.0.mlp.gate.weight' is 256, the model's 4 x 64|t["$layer.0.mlp.gate.weight"] = t["$layer.0.mlp.gate.weight"].ravel()
65|wrong: 1 tensor does not fit the model: 'lm_head.weight' is not the embedding, and the config says that they are tied|c["tie_word_embeddings"] = True
65|wrong: 9 tensors do not fit the model: '$layer.1.input_layernorm.weight' is missing; '$layer.1.self_attn.q_proj.weight' is missing; '$layer.1.self_attn.k_proj.weight' is missing; '$layer.1.self_attn.v_proj.weight' is missing; '$layer.1.self_attn.o_proj.weight' is missing; '$layer.1.post_attention_layernorm.weight' is missing; '$layer.1.mlp.gate.weight' is missing; '$layer.1.mlp.experts.gate_up_proj' is missing; ...|for n in [n for n in t if ".1." in n]: del t[n]
78|rope_scaling.type: "linear" is not something regulon does; positions are rotated without scaling (config.json)|c["rope_scaling"] = {"type": "linear", "factor": 2.0}
78|rope_theta is 5 but rope_parameters.rope_theta is 1000000 (config.json)|c["rope_theta"] = 5.0
78|attention_bias: true is not something regulon does; it must be 0 (config.json)|c["attention_bias"] = True
78|hidden_act: "gelu" is not something regulon does; it must be 'silu' (config.json)|c["hidden_act"] = "gelu"
78|attention_dropout: 0.1 is not something regulon does; it must be 0 (config.json)|c["attention_dropout"] = 0.1
78|model_type: "llama" is not something regulon does; it must be 'mixtral' (config.json)|c["model_type"] = "llama"
78|model.hidden_size: required, but not given (config.json)|del c["hidden_size"]
EOP
rm -rf cut && hf make "$tiny" cut files=2
index=cut/model.safetensors.index.json at=model-00001-of-00002.safetensors # that lm_head.weight is in
cp $index whole
while IFS='|' read -r message change <&3; do
    sed "$change" whole >$index && ! cmp -s whole $index && refused 65 "cut$message" import cut -o new
done 3<<EOP
/model.safetensors.index.json: 'lm_head.weight' is in '../$at', which is no safetensors file of this folder|s#"lm_head.weight": "#&../#
/model.safetensors.index.json: the file of 'lm_head.weight' is not a name|s#"lm_head.weight": "[^"]*"#"lm_head.weight": 2#
/model.safetensors.index.json: no weight_map from tensors to files|s#weight_map#weight map#
/model.safetensors.index.json: not JSON: duplicate object key near '"lm_head.weight"' (line 1)|s#"lm_head.weight": "[^"]*"#&, &#
: tensor 'lm_head.weight' lies in $at, and model.safetensors.index.json lists it nowhere|s#"lm_head.weight": "[^"]*"#"x": "$at"#
: tensor 'lm_head.weight' lies in $at, and model.safetensors.index.json lists it in model-00002-of-00002.safetensors|s#"lm_head.weight": "model-00001#"lm_head.weight": "model-00002#
: model.safetensors.index.json lists tensor 'other', which $at does not have|s#"lm_head.weight": #"other": "$at", &#
/none.safetensors: No such file or directory|s#"lm_head.weight": #"other": "none.safetensors", &#
EOP
cp whole $index && cp one/model.safetensors cut
on=2
refused 65 'cut: has both model.safetensors and model.safetensors.index.json; one of them must go' import cut -o new
rm cut/model.safetensors && cp cut/$at cut/third.safetensors && sed 's|"lm_head.weight": |"other": "third.safetensors", &|' whole >$index
"$regulon" import cut -o new >out 2>err
[ $? = 65 ] && grep -q "^regulon: cut: tensor '.*' lies in .*safetensors and in .*safetensors\$" err && [ ! -e new.tmp ]
ok $? '65: a tensor in two files'
hf broken "$tiny" "$regulon"
while read -r status what; do
    if [ "$status" = '#' ]; then echo "# $what"; else ok "$status" "65, and flat memory: $what"; fi
done <py.out

# refusals of export
on='1 2'
refused 64 'export: which model? regulon export MODEL -o FOLDER' export
refused 64 'export: -o FOLDER is missing: the folder to make' export run
refused 64 'export: -o needs a value' export run -o
refused 64 "export: one model at a time, not 'run' and 'half'" export run half -o new
refused 64 "export: unknown option '--fp8'; see regulon export --help" export run -o new --fp8
on=1
refused 64 "export: --dtype: 'fp16' is neither fp32 nor bf16" export run -o new --dtype fp16
refused 64 "export: --file-gb: '0' is no number above 0" export run -o new --file-gb 0
refused 64 'export: -o one is there already; give another name or remove it' export run -o one
on='1 2'
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
hf big big
for verb in import export; do
    (ulimit -f 20000 && trap '' XFSZ && "$regulon" $verb big -o new) >out 2>err
    [ $? = 74 ] && grep -q "^regulon: $verb: rank 0 on .*: new.tmp/.*: File too large\$" err && [ ! -e new ] && [ ! -e new.tmp ]
    ok $? "74: $verb without room for a file: nothing left behind"
done
# a folder of somebody else's under the name that it would have meanwhile
mkdir new.tmp && touch new.tmp/mine
for verb in import export; do
    regulon 2 $verb made -o new >out
    [ $? = 74 ] && grep -q "^regulon: $verb: rank 0 on .*: new.tmp is there: of an $verb that goes on, or was killed; remove it\$" err && [ -e new.tmp/mine ] && [ ! -e new ]
    ok $? "74: $verb leaves what is there"
done
echo "1..$n"
