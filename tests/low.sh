#!/bin/sh
# Training in eight bits, emulated on the CPU: the recipes change the numbers a little, layers can stay out, two runs have the
# same bits, also with layers made again; on two ranks the losses are those of one; runs go on from checkpoints, on another
# grid, and with another recipe.
srcdir=$(cd "${srcdir:-.}" && pwd)
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
train="train $srcdir/input/L0_sanity.yaml backend=cpu train.verdict=false checkpoint.save_final_model=true checkpoint.save_every_n_steps=1000"
held_out="validation.data_path=$srcdir/input/genomes/ecoli_536.fna.gz validation.num_batches=4"
run() { # RANKS FOLDER STEPS WORD...: onto FOLDER.out
    ranks=$1 folder=$2 steps=$3
    shift 3
    # shellcheck disable=SC2086 # several words
    regulon "$ranks" $train checkpoint.ckpt_dir="$folder" num_train_steps="$steps" parallelism.ep_size="$ranks" "$@" >>"$folder.out"
}
same() { cmp -s "$1/final_model/model.safetensors" "$2/final_model/model.safetensors"; }
# the last losses differ by these relative differences, or what lies between
apart() { # A B LEAST MOST
    tail -n 1 "$1.out" >a && tail -n 1 "$2.out" >b && paste -d ' ' a b | awk -v least="$3" -v most="$4" '
        { d = $3 / $12 - 1; if (d < 0) d = -d; printf "# loss %s and %s: %.1e\n", $3, $12, d; exit !(d >= least && d <= most) }'
}
after() { grep -q "goes on after step $1 " err; }
said() { grep -q "precision: $1\$" err; }

run 1 whole 20 precision.recipe=fp32 && ! said '.*'
ok $? 'without'
for recipe in fp8_block mxfp8; do
    eight="precision.recipe=$recipe precision.emulate=true"
    # shellcheck disable=SC2086 # several words
    {
        run 1 $recipe 20 $eight && said "$recipe, emulated, in layers 0 to 1 of 0 to 1" && ! same whole $recipe && apart whole $recipe 0 0.01
        ok $? "$recipe: the loss after 20 steps within 1 %, another model"
        run 1 again 20 $eight memory.recompute=layer && same $recipe again
        ok $? "$recipe: the same model to the bit with layers made again"
        run 1 kept 20 $eight precision.fp8_activations=true && ! same $recipe kept && apart $recipe kept 0 0.01 &&
            run 1 kept_again 20 $eight precision.fp8_activations=true memory.recompute=layer && same kept kept_again
        ok $? "$recipe: with activations in eight bits another model, the loss within 1 %, the same to the bit with layers made again"
        run 1 alone 20 $eight precision.fp8_weights=true && same $recipe alone && said "$recipe, emulated, in layers 0 to 1 of 0 to 1" &&
            said 'fp8_weights changes nothing: no experts have weights in eight bits here'
        ok $? "$recipe: precision.fp8_weights changes nothing where it is emulated, which is said"
        run 1 parts 7 $eight && run 1 parts 20 $eight && after 7 && same $recipe parts
        ok $? "$recipe: the same model to the bit after a stop"
        run 1 out 20 $eight precision.first_layers_bf16=1 precision.last_layers_bf16=1 && said "$recipe, emulated, in no layer" && same whole out
        ok $? "$recipe: all layers out of it: the model of fp32 to the bit"
        run 1 first 20 $eight precision.first_layers_bf16=1 && said "$recipe, emulated, in layers 1 of 0 to 1" &&
            run 1 last 20 $eight precision.last_layers_bf16=1 && ! same whole first && ! same $recipe first && ! same whole last && ! same first last
        ok $? "$recipe: the first or the last layer out of it: other models"
        run 1 listed 20 $eight precision.layers_bf16=0 && said "$recipe, emulated, in layers 1 of 0 to 1" && same first listed &&
            run 1 listed 22 $eight 'precision.layers_bf16=[1]' && after 20 && grep -q 'changed: .*precision.layers_bf16 from 0 to 1$' err &&
            grep -q 'layers_bf16: "1"' listed/used.yaml && said "$recipe, emulated, in layers 0 of 0 to 1" &&
            run 1 first 22 $eight precision.last_layers_bf16=1 && after 20 && same first listed
        ok $? "$recipe: layers of a list out of it, and another list when it goes on: the same bits as without a list"
        run 2 two 10 $eight && run 2 twice 10 $eight && same two twice && run 1 one 10 $eight grad_acc_steps=2 && ! same one two && apart one two 0 0.001
        ok $? "$recipe: on two ranks twice the same bits, and the loss of one rank with the same batches within 0.1 %"
        run 2 two 14 $eight && cp -r two moved && cp two.out moved.out && run 2 two 20 $eight &&
            run 1 moved 20 $eight && after 14 && grep -q 'grad_acc_steps becomes 2' err && apart two moved 0 0.001
        ok $? "$recipe: goes on on another grid"
        run 1 late 10 precision.recipe=fp32 && run 1 late 20 $eight && after 10 &&
            grep -q "changed: .*precision.recipe from fp32 to $recipe, precision.emulate from false to true" err &&
            grep -q "recipe: $recipe" late/used.yaml && ! same late whole && ! same late $recipe && apart late $recipe 0 0.01
        ok $? "$recipe: a run in fp32 goes on in it"
        run 1 late 24 precision.recipe=fp32 precision.emulate=false && after 20 && grep -q "precision.recipe from $recipe to fp32" err && ! said '.*'
        ok $? "$recipe: and back"
        regulon 1 $train checkpoint.ckpt_dir=late num_train_steps=24 parallelism.ep_size=1 $eight >/dev/null
        [ $? = 78 ] && grep -q 'precision.recipe' err
        ok $? "$recipe: a run that is finished is not one of another recipe"
        timeout -s KILL 100 "$regulon" eval $recipe $held_out --json >plain 2>err && said "$recipe, emulated, in layers 0 to 1 of 0 to 1" &&
            timeout -s KILL 100 "$regulon" eval $recipe $held_out --json precision.recipe=fp32 >other 2>err && ! said '.*' && ! cmp -s plain other
        ok $? "$recipe: eval takes the run's recipe, or another"
        for folder in alone kept; do
            timeout -s KILL 100 "$regulon" eval $folder $held_out --json precision.recipe=fp32 >$folder.other 2>err || sed 's/^/# /' err
        done
        cmp -s other alone.other && [ -s kept.other ] && ! cmp -s other kept.other
        ok $? "$recipe: or another where the run keeps things in eight bits"
    }
    for folder in kept kept_again again alone parts out first listed last two twice one moved late; do rm -rf $folder $folder.out; done
done
echo "1..$n"
