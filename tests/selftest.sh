#!/bin/sh
# `regulon selftest`, and what a run asks of its folder before it starts: that every rank can write there, that all see the
# same folder, that the checkpoints fit. Folders that are full, read-only or another one on another rank need a mount in a
# namespace of its own: as root, or where users may have one; elsewhere those checks are left out (compare.np2 has the
# decision about space).
# shellcheck disable=SC2086 # $train is several words, $MPIEXEC may be
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
is_empty() { [ -z "$(ls -A "$1")" ]; }
show() { sed 's/^/# /' out err; }

# the environment
mkdir dir
"$regulon" selftest >out 2>err && [ "$(grep -c '^ok  ' out)" = 6 ] && ! grep -q -v '^ok  ' out
ok $? 'one rank: all well'
$MPIEXEC -n 2 "$regulon" selftest --path dir --size 8 >out 2>err
status=$?
[ $status = 0 ] && [ "$(grep -c '^ok  ' out)" = 15 ] && ! grep -q -v '^ok  ' out && is_empty dir
status=$?
ok $status 'two ranks and a folder: all well, nothing left in it'
[ $status = 0 ] || show
grep -q '^ok *launch  *one world of 2 ranks on 1 node$' out && grep -q '^ok *exchange  *all pairs of ranks, .*/s out of a rank$' out &&
    grep -q '^ok *products  *.* GFLOP/s a rank$' out && grep -q '^ok *speed  *8.39 MB a rank: written with fsync at .*/s by all ranks, read back at .*/s ' out
ok $? 'with figures'
"$regulon" selftest --path nowhere >out 2>err
[ $? = 74 ] && grep -q '^FAILED *write  *rank 0 on .*: cannot create nowhere/regulon-probe-0.tmp: No such file or directory$' out
ok $? 'a folder that is not there: 74'
env PMI_SIZE=3 MPI_LOCALNRANKS=3 "$regulon" selftest >out 2>err
[ $? = 78 ]
ok $? 'no one world: 78'
"$regulon" selftest --pth dir >out 2>err
[ $? = 64 ] && [ "$(cat err)" = "regulon: selftest: unknown word '--pth'; see regulon selftest --help" ]
ok $? 'an unknown word'
"$regulon" selftest --path dir --size 0 >out 2>err
[ $? = 64 ] && [ "$(cat err)" = 'regulon: selftest: --size takes mebibytes, 1 to 1048576' ]
ok $? 'a size that is none'
# one rank may not write files as large as that; -f counts blocks of 512 or 1024 bytes
$MPIEXEC -n 1 "$regulon" selftest --path dir --size 80 : \
    -n 1 sh -c "trap '' XFSZ; ulimit -f 65536; exec '$regulon' selftest --path dir --size 80" >out 2>err
status=$?
[ $status = 74 ] && grep -q '^FAILED *speed  *rank 1 on .*: cannot write dir/regulon-selftest-1.speed at [0-9]*: File too large$' out &&
    [ "$(grep -c ^FAILED out)" = 1 ] && is_empty dir
status=$?
ok $status 'one rank cannot write all: named, nothing left'
[ $status = 0 ] || show

# a run's probe
awk 'BEGIN { printf ">a\n"; for (i = 0; i < 5000; i++) { x = (x * 1103 + 12345) % 65521; printf "%s", substr("ACGT", x % 4 + 1, 1) } print "" }' >a.fa
"$regulon" pack a.fa -o a.h5 >out 2>err || exit 99
train="train L0_sanity train.verdict=false checkpoint.save_final_model=false dataset.path=a.h5 dataset.token_micro_batch_size=256"
"$regulon" $train num_train_steps=2 parallelism.ep_size=1 checkpoint.ckpt_dir=/proc >out 2>err
[ $? = 78 ] && grep -q '^regulon: checkpoint.ckpt_dir: /proc/lock.*: No such file or directory$' err && [ ! -s out ]
ok $? 'a run in a folder where nothing can be written ends with its lock: 78'
$MPIEXEC -n 2 "$regulon" $train num_train_steps=2 checkpoint.ckpt_dir=run >out 2>err && [ -z "$(find run -name '*probe*')" ]
ok $? 'a run that can leaves nothing of the probe'

own=
for try in 'unshare -m' 'unshare -rm'; do
    $try sh -c 'mount -t tmpfs -o size=1m none dir' >/dev/null 2>&1 && own=$try && break
done
if [ -n "$own" ]; then
    cat >mounted.sh <<'EOS'
# TMPFS-OPTIONS FOLDER COMMAND...: with a tmpfs there
options=$1 folder=$2
shift 2
mount -t tmpfs -o "$options" none "$folder" && exec "$@"
EOS
    # L0_sanity's checkpoint: 156 k parameters, 1.9 MB and HDF5's own
    mkdir small
    save="$train num_train_steps=4 checkpoint.save_every_n_steps=1 checkpoint.ckpt_dir=small"
    $own sh mounted.sh size=4m small sh -c "$MPIEXEC -n 2 '$regulon' $save; echo code \$?; ls -A small" >out 2>err
    grep -q '^code 74$' out && [ "$(wc -l <out)" = 1 ] &&
        grep -q "^regulon: $work/small: .* MB free, and a checkpoint has 2.* MB: 4.* MB are needed, since the one before stays until" err
    status=$?
    ok $status 'no space for two checkpoints: 74, the folder as it was'
    [ $status = 0 ] || show
    $own sh mounted.sh size=4m small sh -c "$MPIEXEC -n 2 '$regulon' $train num_train_steps=2 checkpoint.ckpt_dir=small" >out 2>err
    ok $? 'a run without checkpoints starts there'
    $own sh mounted.sh size=8500k small sh -c "$MPIEXEC -n 2 '$regulon' $save &&
        '$regulon' info small" >out 2>err
    status=$?
    [ $status = 0 ] && grep -q "checkpoint: $work/small: .* MB free, .*: for as many as checkpoint.\* keeps 9.* MB are needed" err
    status=$?
    ok $status 'space for less than is kept: a warning'
    [ $status = 0 ] || show
    # the first checkpoint is there, and some 3 MB are free: enough for the next
    save="$train checkpoint.max_checkpoints=1 checkpoint.save_every_n_steps=1 checkpoint.ckpt_dir=small"
    $own sh mounted.sh size=5m small sh -c "$MPIEXEC -n 2 '$regulon' $save num_train_steps=1 &&
        $MPIEXEC -n 2 '$regulon' $save num_train_steps=2 && '$regulon' info small" >out 2>err
    status=$?
    ok $status 'a checkpoint that will be replaced counts'
    [ $status = 0 ] || show
fi
# in a user's namespace a rank does not reach another one's shared memory
if [ "$own" = 'unshare -m' ]; then
    run="'$regulon' $train num_train_steps=2 checkpoint.ckpt_dir=small"
    $MPIEXEC -n 1 sh -c "$run" : -n 1 $own sh mounted.sh ro small sh -c "$run" >out 2>err
    status=$?
    [ $status = 74 ] && grep -q "^regulon: rank 1 on .*: cannot create $work/small/regulon-probe-1.tmp: Read-only file system" err
    status=$?
    ok $status 'a folder that one rank cannot write to: 74, rank and host named'
    [ $status = 0 ] || show
    $MPIEXEC -n 1 sh -c "$run" : -n 1 $own sh mounted.sh size=1m small sh -c "$run" >out 2>err
    status=$?
    [ $status = 78 ] &&
        grep -q "^regulon: rank 0 does not see $work/small/regulon-probe-1, which rank 1 has written: the folder must be on a file" err &&
        is_empty small
    status=$?
    ok $status "a folder that is another one on rank 1: 78"
    [ $status = 0 ] || show
    self="'$regulon' selftest --path small --size 1"
    $MPIEXEC -n 1 sh -c "$self" : -n 1 $own sh mounted.sh size=1m small sh -c "$self" >out 2>err
    [ $? = 74 ] && grep -q '^FAILED *shared  *rank 0 on .*: does not see small/regulon-probe-1, ' out && is_empty small
    ok $? 'selftest sees that too'
fi
echo "1..$n"
