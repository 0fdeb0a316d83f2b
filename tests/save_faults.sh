#!/bin/sh
# What can happen to a save: one rank is killed at a write, rename or fsync of it, such a call fails for want of space or
# for a broken disk, all ranks are killed at any time. Afterwards every folder without .tmp must be a whole checkpoint,
# and the run, started again, must end as if nothing had been. `save_faults.sh POINTS` tries about so many points at which a
# rank is killed (30), and as many of the others in proportion.
kills=${1:-30}
[ -w /dev/shm ] && TMPDIR=/dev/shm # many small files and fsyncs
export TMPDIR
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
if ! strace -o /dev/null true 2>/dev/null; then
    echo '1..0 # SKIP no strace, or it may not trace'
    exit 0
fi

cat >deck.yaml <<'YAML'
num_train_steps: 6
model: {hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_local_experts: 4}
dataset: {path: a.fa, max_seq_length: 64, token_micro_batch_size: 64}
checkpoint: {save_every_n_steps: 2, max_checkpoints: 0}
YAML
awk 'BEGIN { print ">a"; for (i = 0; i < 4000; i++) { x = (x * 1103 + 12345) % 65521; printf "%s", substr("ACGT", x % 4 + 1, 1) } print "" }' >a.fa
# no call of MPI's is among them: the files of a run are written with pwrite
calls=pwrite64,fsync,rename,mkdir,ftruncate
cat >traced <<EOF_TRACED
#!/bin/sh
# one rank under strace, with what \$fault says
if [ "\${PMI_RANK:-\${OMPI_COMM_WORLD_RANK:-0}}" = "\$traced_rank" ]; then
    exec strace -f -o trace.\$traced_rank -e trace=$calls \$fault "$regulon" "\$@"
fi
exec "$regulon" "\$@"
EOF_TRACED
chmod +x traced

# run RANKS FAULT RANK_IT_MEETS: a start of the run in `run`
run() {
    ranks=$1
    fault=$2 traced_rank=$3 timeout -s KILL 100 $MPIEXEC -n "$ranks" ./traced train ./deck.yaml checkpoint.ckpt_dir=run \
        parallelism.ep_size=2 </dev/null >out 2>err
}
# every folder without .tmp must be whole
folders_are_whole() {
    for folder in run/step_*[0-9]; do
        [ ! -d "$folder" ] || "$regulon" info --verify "$folder" >verify 2>&1 || { cat verify && return 1; }
    done
}
same_end() { cmp -s run/final_model/model.safetensors "whole.$1"; }
show() { sed 's/^/# /' err out; }

# About $3 points of a rank in an undisturbed run, spread evenly, "CALL N" a line: strace counts calls of a name and of a
# thread. The model that the run ends with is kept.
points() { # RANKS RANK HOW_MANY
    rm -rf run
    run "$1" '' "$2" || { show && return; }
    cp run/final_model/model.safetensors "whole.$1"
    sed -n 's/^\([0-9]*\) *\([a-z0-9_]*\)(.*/\1 \2/p' "trace.$2" | awk '{ n = ++count[$0]; if (n > most[$2]) { most[$2] = n; print $2, n } }' |
        awk -v want="$3" '{ line[NR] = $0 }
            END { for (i = 1; i <= NR; i++) if (want >= NR || int(i * want / NR) != int((i - 1) * want / NR)) print line[i] }'
}

# ---- one rank of four is killed ----
tried=0 bad=0
for rank in 0 3; do
    points 4 $rank $((rank == 0 ? kills * 2 / 3 : kills / 3)) >list
    while read -r call when; do
        rm -rf run
        tried=$((tried + 1))
        run 4 "-e inject=$call:signal=KILL:when=$when" $rank
        killed=$?
        folders_are_whole && run 4 '' none && same_end 4 && [ $killed != 0 ] && continue
        bad=$((bad + 1))
        echo "# rank $rank, $call number $when: exit $killed"
        show
    done <list
done
[ $bad = 0 ] && [ $tried -ge $((kills * 9 / 10)) ]
ok $? "$tried points at which one rank of four was killed: the run went on from a whole checkpoint, $bad times not"

# ---- a call fails on one of two ranks ----
for error in ENOSPC EDQUOT EIO EROFS; do
    tried=0 bad=0 lost=0
    for rank in 0 1; do
        points 2 $rank $((rank == 0 ? kills / 5 : kills / 10)) >list
        while read -r call when; do
            rm -rf run
            tried=$((tried + 1))
            run 2 "-e inject=$call:error=$error:when=$when" $rank
            code=$?
            saved=$(find run -maxdepth 1 -name 'step_*[0-9]' | wc -l)
            # before the first step the run may not be able to start, and at its end to write the model; a save that failed
            # is said, and the others are there
            case $code in
            0) [ "$saved" = 3 ] || { [ "$saved" = 2 ] && grep -q 'the save of step [24] failed, 1 in a row' err && lost=$((lost + 1)); } ;;
            74 | 78) grep -q '^regulon: \|\[0\].*\.[ch]:[0-9]*: ' err ;;
            *) false ;;
            esac && folders_are_whole && run 2 '' none && same_end 2 && continue
            bad=$((bad + 1))
            echo "# rank $rank, $call number $when: exit $code, $saved checkpoints"
            show
        done <list
    done
    [ $bad = 0 ] && [ $tried -ge $((kills / 4)) ] && [ $lost -gt 0 ]
    ok $? "$tried calls that failed with $error: $lost saves were lost, the run went on; $bad times not"
done

# ---- the disk stays full ----
rm -rf run
sed -i.whole 's/max_checkpoints: 0/max_checkpoints: 0, max_failures: 2/; s/num_train_steps: 6/num_train_steps: 12/' deck.yaml
run 2 '-e inject=fsync:error=ENOSPC:when=3+' 1 # the first two are those of the probe, and in the thread that saves, of two saves
[ $? = 74 ] && grep -q 'the save of step 8 failed, 2 in a row' err && [ "$(find run -name 'step_*[0-9]' | wc -l)" = 2 ] && folders_are_whole
status=$?
ok $status 'after checkpoint.max_failures failed saves in a row the run ends with 74'
[ $status = 0 ] || show
mv deck.yaml.whole deck.yaml

# ---- all ranks are killed, at any time ----
kills=$((kills / 3))
rm -rf run
ended=0 bad=0
for moment in $(awk -v n="$kills" 'BEGIN { srand(); for (i = 0; i < n; i++) printf "0.%03d\n", 100 + 900 * rand() }'); do
    run 2 '' none &
    sleep "$moment"
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/exe" 2>/dev/null)" = "$(readlink -f "$regulon")" ] &&
            [ "$(readlink "$process/cwd" 2>/dev/null)" = "$(readlink -f "$work")" ] && kill -KILL "${process#/proc/}"
    done 2>/dev/null
    wait
    folders_are_whole || bad=$((bad + 1))
    if [ -d run/final_model ]; then
        same_end 2 || bad=$((bad + 1))
        ended=$((ended + 1))
        rm -rf run
    fi
done
run 2 '' none && same_end 2 && [ $bad = 0 ]
ok $? "killed at $kills random moments, $ended runs ended in between: the same model to the byte, $bad times not"
echo "1..$n"
