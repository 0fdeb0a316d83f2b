#!/bin/sh
# The decks that ship, and each way in which a deck or the command line ends the program: message and exit code.
top=$(pwd)
deck=$top/tests/deck
here=$(cd "${srcdir:-.}" && pwd)
work=$(pwd -P)/decks-test.$$
n=0
mkdir "$work" || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

ok() { # CONDITION TEXT
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}

refused() { # CODE MESSAGE ARGUMENT...
    code=$1 message=$2
    shift 2
    got=$("$deck" "$@" 2>&1)
    seen=$?
    [ "$seen" = "$code" ] && [ "$got" = "regulon: $message" ]
    status=$?
    ok $status "exit $code: $message"
    [ $status = 0 ] || echo "# exit $seen: $got"
}

# every deck parses, by path and by name, and shows what it says
for file in "$here"/input/*.yaml; do
    name=$(basename "$file" .yaml)
    [ "$name" = reference ] && continue
    "$deck" "$file" >a 2>&1 && "$deck" "$name" >b 2>&1 && cmp -s a b && grep -q "^# $name\$" a
    ok $? "$name parses"
    "$deck" --info "$name" >info 2>&1 && grep -q '^parameters' info
    ok $? "info $name: $(sed -n 's/^parameters *//p' info)"
done
"$deck" --info L1_8x7B_ep | grep -q '46.7 G, of them 45.1 G in experts; 12.9 G work on a token'
ok $? 'Mixtral-8x7B has 46.7 G parameters'
"$deck" L1_8x7B_ep memory.recompute=layer memory.recompute_layers=20 precision.recipe=auto8 precision.fp8_activations=true precision.fp8_weights=true |
    sed 's/L1_8x7B_ep/L1_8x7B_auto8/' >a && "$deck" L1_8x7B_auto8 | cmp - a 1>&2
ok $? 'L1_8x7B_auto8 is L1_8x7B_ep but for precision and memory'

# reference.yaml
"$deck" --reference >reference.yaml && cmp reference.yaml "$here/input/reference.yaml" 1>&2
ok $? 'input/reference.yaml is what the program prints (tests/deck --reference)'
missing=$(sed -n '/^struct config {/,/not a key/p' "$here/src/config/config.h" | sed 's|/\*.*\*/||; s|/\*.*||; s|.*\*/||' |
    tr ',;' '\n' | sed -n 's/^ *\([a-z0-9_ ]*[ *]\)\{0,1\}\([a-z0-9_]*\) *$/\2/p' |
    grep -v -x -e '' -e n_sources -e deck_name | while read -r member; do
    grep -q "^ *#* *$member:" reference.yaml || echo "$member"
done)
[ -z "$missing" ]
ok $? "every member of struct config is in it${missing:+, but not: $missing}"
shape='model.hidden_size=8 model.intermediate_size=8 model.num_hidden_layers=1 model.num_attention_heads=2 model.num_local_experts=2'
# shellcheck disable=SC2086
"$deck" ./reference.yaml num_train_steps=1 $shape >filled && echo 'num_train_steps: 1' >bare.yaml &&
    "$deck" ./bare.yaml $shape >plain && sed 1d filled | sed 's/reference//' >a && sed 1d plain | sed 's/bare//' >b && cmp a b 1>&2
ok $? 'its values are the defaults'
"$deck" --keys | grep -c '^  [a-z]' >keys && [ "$(cat keys)" = "$(grep -c '^ *#* *[a-z_0-9]*: ' reference.yaml)" ]
ok $? "help lists as many keys: $(cat keys)"

# a used.yaml is a deck
"$deck" L0_sanity seed=7 >used.yaml && "$deck" ./used.yaml | sed 1d >again && sed 1d used.yaml | cmp - again
ok $? 'what config_write wrote loads to the same'
if [ -n "$MPIEXEC" ]; then
    $MPIEXEC -n 2 "$deck" --all L0_sanity seed=7 >all 2>&1 && cmp used.yaml all
    ok $? 'the last of two ranks has the same deck'
    $MPIEXEC -n 2 "$deck" --all L0_sanity sed=7 >all 2>&1
    [ $? = 78 ] && [ "$(grep -c '^regulon: sed: unknown key; did you mean seed? (command line)$' all)" = 1 ]
    ok $? 'a mistake ends both ranks with 78 and one message'
    $MPIEXEC -n 1 "$deck" --all L0_sanity dataset.path= >all 2>&1
    [ $? = 78 ] && grep -q 'dataset.path or dataset.sources: one of them is required for training' all
    ok $? 'training needs data'
fi

# what ends the program
sed 's/^num_train_steps.*/num_train_steps: ten/' "$here/input/L0_sanity.yaml" >L0_sanity.yaml
refused 78 "num_train_steps: 'ten' is not a whole number (L0_sanity.yaml:3)" ./L0_sanity.yaml
refused 78 "optimizer.lr: 'x' is not a finite number (command line)" L0_sanity optimizer.lr=x
refused 78 'seed: given twice (command line)' L0_sanity seed=1 seed=2
refused 78 'adamw_kwargs.lr: this is optimizer.lr here (command line)' L0_sanity adamw_kwargs.lr=1
refused 78 'dataset.sources[0].weight: required, but not given' L0_sanity dataset.path= 'dataset.sources=[{path: a}]'
refused 64 "'now' is not of the form key=value" L0_sanity now
refused 64 "'=1' is not of the form key=value" L0_sanity =1
refused 78 "no installed deck is named 'L0_santy'; did you mean 'L0_sanity'? ($here/input)" L0_santy
refused 78 "no installed deck is named 'zzzzzzzzz' ($here/input)" zzzzzzzzz
refused 78 "no installed deck is named 'filled'; did you mean ./filled?" filled
refused 78 "no installed deck is named 'bare'; did you mean ./bare.yaml?" bare
refused 78 './none.yaml: No such file or directory' ./none.yaml
refused 78 "$work/none.json: No such file or directory" L0_sanity model.config=none.json
echo 'model.config: none.json' | cat - "$here/input/L0_sanity.yaml" >named.yaml
refused 78 "$work/none.json: No such file or directory" ./named.yaml
"$deck" ./named.yaml model.config= | grep -q '^  config: null$'
ok $? 'null on the command line takes model.config back'
echo '{"num_local_experts": 6, "attention_bias": true}' >config.json
refused 78 'attention_bias: true is not something regulon does; it must be 0 (config.json)' ./named.yaml model.config=.
head -c 1100000 /dev/zero | tr '\0' '#' >large.yaml
refused 78 './large.yaml: larger than 1 MB' ./large.yaml
refused 78 'dataset.path: a text that is not UTF-8 (command line)' L0_sanity "dataset.path=$(printf 'a\377')"
echo "1..$n"
