#!/bin/sh
# `regulon info` of checkpoints: what it prints, that --verify names the file and the dataset that are damaged before HDF5
# sees them, that --diff compares; exit codes on one rank and on two.
# shellcheck disable=SC2086 # $train is several words, $MPIEXEC may be
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
info() { # EXPECTED-CODE WORD...
    code=$1
    shift
    "$regulon" info "$@" >out 2>err
    got=$?
    [ $got = "$code" ] || { echo "# exit $got:" && sed 's/^/# /' out err && false; }
}
flip() { # FILE OFFSET: another byte there
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    # shellcheck disable=SC2059 # the byte in octal
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>dd.err
}
mend() { rm -rf bad && cp -R run/step_000000004 bad; }

train='train L0_sanity train.verdict=false dataset.token_micro_batch_size=256 checkpoint.save_every_n_steps=2 num_train_steps=4'
$MPIEXEC -n 2 "$regulon" $train checkpoint.ckpt_dir=run >out 2>err
ok $? 'two checkpoints'
step=run/step_000000004

info 0 $step && grep -q '^run .*, after step 4: 4 updates, 2048 tokens$' out && grep -q '^grid  *saved by dp 1 x ep 2, 2 micro-batches a step$' out
ok $? 'run, step, grid'
grep -q '^tensors  *21, FP32$' out && grep -q '^  model.layers.\*.mlp.experts.gate_up_proj  *4 x 128 x 64  *master exp_avg exp_avg_sq  (2 layers)$' out &&
    grep -q '^  exp_avg_sq 156 k values, 626 kB$' out
ok $? 'tensors and totals'
grep -v '^#' $step/checksums >sums
awk '/^  [0-9a-f]* .* (shard_d000_e00[01]|index)\.h5$/ { print $1 "  " $NF }' out | cmp -s - sums
ok $? 'files with their hashes'
for name in $step/index.h5 $step/shard_d000_e001.h5 ./$step/; do
    cp out before && info 0 $name && grep -v '^checkpoint' before >a && grep -v '^checkpoint' out | cmp -s - a
    ok $? "the same by $name"
done
(cd $step && "$regulon" info index.h5) >out && grep -q '^checkpoint  *\.$' out
ok $? 'and by its name alone'
info 0 --verify $step && [ "$(grep -c '  ok$' out)" = 3 ] && [ ! -s err ]
ok $? '--verify: sound'
info 0 run && grep -q '^loss ' out && grep -q '^checkpoints  2$' out && grep -q '^  step 4  .*run/step_000000004$' out && grep -q '^  step 2 ' out
ok $? 'a run folder: its metrics and its checkpoints'
info 0 --json --verify $step && "${PYTHON3:-python3}" - <<'EOP' >py.out 2>&1
import json
c = json.load(open("out"))
assert (c["step"], c["dp_size"], c["ep_size"], c["micro_batches"], c["problem"]) == (4, 1, 2, 2, None), c
assert len(c["tensors"]) == 21 and {"name": "model.norm.weight", "shape": [64], "kinds": ["master", "exp_avg", "exp_avg_sq"]} in c["tensors"]
assert len(c["files"]) == 3 and all(f["bytes"] > 0 and f["problem"] is None for f in c["files"])
EOP
ok $? '--json'

# damage
while read -r dataset; do
    mend
    # a remark: # HASH  FILE DATASET OFFSET BYTES
    awk -v d="$dataset" '$1 == "#" && $4 == d { print $3, $5 + int($6 / 2) }' bad/checksums | head -n 1 >place && read -r file offset <place
    flip "bad/$file" "$offset"
    info 65 --verify bad && grep -q "^regulon: bad/$file: damaged: $dataset\$" err && grep -q "  $file  DAMAGED\$" out && [ "$(grep -c '  ok$' out)" = 2 ]
    ok $? "--verify names $dataset"
done <<'EOP'
/master/lm_head.weight
/exp_avg/model.layers.1.mlp.experts.down_proj
/exp_avg_sq/model.norm.weight
EOP
info 65 --diff $step bad && grep -q '^regulon: bad/shard_d000_e00[01].h5: damaged: /exp_avg_sq/model.norm.weight$' err
ok $? '--diff refuses it'
$MPIEXEC -n 2 "$regulon" info --verify bad >out 2>err
[ $? = 65 ] && [ "$(grep -c '^regulon: ' err)" = 1 ]
ok $? 'the same on two ranks, said once'
mend && flip bad/shard_d000_e000.h5 9 && info 65 --verify bad && grep -q '^regulon: bad/shard_d000_e000.h5: damaged: HDF5 metadata$' err
ok $? 'HDF5 metadata of a shard'
mend && flip bad/index.h5 2000 && info 65 bad && grep -q '^regulon: bad/index.h5: damaged: HDF5 metadata$' err && grep -q '^files  *3 ' out
ok $? 'the index, without --verify too'
mend && flip bad/checksums 5 && info 65 bad && [ "$(cat err)" = 'regulon: bad/checksums: damaged' ]
ok $? 'checksums'
mend && rm bad/shard_d000_e001.h5 && info 65 bad && [ "$(cat err)" = 'regulon: bad/shard_d000_e001.h5: No such file or directory' ] &&
    grep -q 'shard_d000_e001.h5  MISSING$' out && info 65 --diff bad $step
ok $? 'a missing shard'
mend && : >bad/shard_d000_e001.h5 && info 65 --verify bad && grep -q '^regulon: bad/shard_d000_e001.h5: damaged: /' err
ok $? 'an empty shard'
mend && cp run/step_000000002/shard_d000_e001.h5 bad && info 65 --verify bad && grep -q '^regulon: bad/shard_d000_e001.h5: damaged: /' err
ok $? 'the shard of another step'
mend && rm bad/checksums && info 65 bad && [ "$(cat err)" = 'regulon: bad/checksums: No such file or directory' ]
ok $? 'no checksums'
cp -R run two && flip two/step_000000002/shard_d000_e000.h5 60000 && info 65 --verify two && [ "$(grep -c '^checkpoint ' out)" = 2 ] &&
    [ "$(grep -c '  ok$' out)" = 5 ]
ok $? 'all checkpoints of a run folder, one of them damaged'

# differences
mend && info 0 --diff $step bad && grep -q '^equal$' out
ok $? '--diff: a copy is equal'
info 1 --diff run/step_000000002 $step/index.h5 && grep -q '^different: /master/lm_head.weight\[0, 0\] is .* and .*; [0-9]* of its 16384 values differ$' out
ok $? '--diff: two steps differ in a tensor'
$MPIEXEC -n 2 "$regulon" info --diff run/step_000000002 $step >out 2>err
[ $? = 1 ] && [ "$(grep -c '^different' out)" = 1 ]
ok $? 'the same on two ranks'

# usage
info 64 --diff $step && [ "$(cat err)" = 'regulon: info: --diff takes two checkpoints, not 1' ]
ok $? '--diff of one'
info 64 --verfy $step && [ "$(cat err)" = "regulon: info: unknown option '--verfy'; see regulon info --help" ]
ok $? 'an unknown option'
info 65 --verify L0_sanity && [ "$(cat err)" = 'regulon: L0_sanity: not a checkpoint: a folder step_N, its index.h5 or a shard' ]
ok $? 'a deck is no checkpoint'
echo "1..$n"
