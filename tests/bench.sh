#!/bin/sh
# `regulon bench` on the CPU. ops: every operation has a time, a rate, a share and an error, none is wrong. The CPU backend is
# compared with itself here: a result that an operation did not write is NaN, and wrong.
srcdir=$(cd "${srcdir:-.}" && pwd)
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
regulon 1 bench ops backend=cpu --csv ops.csv >out
status=$?
[ $status = 0 ] && ! grep -q '^[^#].*wrong' out
ok $? 'ends with 0, nothing wrong'
[ $status = 0 ] || sed 's/^/# /' out err
# the names of the backend table that have a time of their own; attention_kept, of one backend alone, is measured by generate
listed=$(sed '1,/---- math ----/d; /---- collectives /,$d' "$srcdir/src/backend/backend.h" | sed -n 's/^    void (\*\([a-z_]*\))(.*/\1/p' |
    grep -v -e '^documents$' -e '^balance$' -e '^moe_free$' -e '^moe_stash$' -e '^decide$' -e '^attention_kept$')
missing=$(for name in $listed; do grep -q "^$name " out || echo "$name"; done)
[ "$(echo "$listed" | wc -l)" -gt 20 ] && [ -z "$missing" ]
ok $? 'every operation of the backend table is there'
[ -z "$missing" ] || echo "# missing: $missing"
awk '!/^#/ { n++; bad += NF != 6 || !($2 > 0) || !($3 > 0) || ($4 != "GB/s" && $4 != "TFLOP/s") || !($5 > 0) || $6 + 0 != 0 }
    END { exit bad > 0 || n == 0 }' out
ok $? 'columns of the table'
[ "$(head -n 1 ops.csv)" = operation,seconds,rate,unit,ceiling,error,wrong ] && [ "$(wc -l <ops.csv)" = "$(grep -c -v '^# [^o]' out)" ] &&
    awk -F, 'NR > 1 { bad += NF != 7 || !($2 > 0) || !($3 > 0) || !($5 > 0) || $7 != "0" } NR == 2 || NR == 3 { bad += $5 != 1 } END { exit bad > 0 }' ops.csv
ok $? 'columns of the CSV file'

refused() { # CODE TEXT WORD...
    code=$1 text=$2
    shift 2
    regulon 1 bench "$@" >out
    [ $? = "$code" ] && [ "$(cat err)" = "regulon: $text" ] && [ ! -s out ]
    ok $? "$* is refused"
}
for what in gemm mlp; do
    refused 78 "bench $what: precision.fp8_dispatch changes nothing here; bench ops, moe, comm and step have it" $what precision.fp8_dispatch=true
done
refused 64 'bench: what? regulon bench ops, gemm, mlp, moe, comm or step; see regulon bench --help' opps
refused 64 'bench: --shape takes mixtral, fine, sonic or small' ops --shape tiny
refused 64 "bench: unknown word '--routing'; see regulon bench --help" ops --routing one
refused 64 'bench: --routing takes balanced, skew:S with S from 0 to 5, half, empty or one' gemm --routing skew:9
refused 64 'bench: --seconds takes seconds, 0.01 to 60' gemm --seconds 0
refused 78 'bench gemm needs a GPU and the grouped kernels; the backend is cpu' gemm backend=cpu
refused 64 'bench: --tokens takes a number of tokens, 1 to 1048576' ops --tokens 0
refused 64 "bench: unknown word 'optimizer.lr=1'; see regulon bench --help" ops optimizer.lr=1
refused 74 '--csv: cannot write no/ops.csv: No such file or directory' ops backend=cpu --csv no/ops.csv
refused 64 'bench: --tokens takes numbers of tokens with commas between, 1 to 1048576 each, 32 at most' comm --tokens 1,
refused 64 'bench: --experts takes numbers of experts with commas between, 1 to 256 each, 32 at most' moe --experts 1,2,
# FLOPs of use: 6 N A D F forward, three times that with the backward pass
for what in moe mlp; do
    [ $what = moe ] && part='a layer' || part='the experts alone'
    for routing in balanced skew:1 half empty one; do
        regulon 1 bench $what backend=cpu --tokens 64 --experts 1,6 --routing $routing --seconds 0.01 --csv moe.csv >out && grep -q "^# $part: " out &&
            awk '!/^#/ { n++; bad += NF != 8 || $1 != (n == 1 ? 1 : 6) || $2 != "loop" || !($3 > 0) || !($4 > 0) || !($5 > 0) || !($6 > 0) || $7 != "0" }
                END { exit bad > 0 || n != 2 }' out &&
            awk -F, 'function off(x, y) { return x < 0.999 * y || x > 1.001 * y }
                NR > 1 { flops = 6 * 64 * (NR - 1) * 128 * 256
                    A = NR - 1; E = NR == 2 ? 1 : 6
                    bytes = 2 * 64 * A * (3 * 256 + 128) * 4 + 12 * E * 128 * 256 + 64 * A * 256 * 4 # z h y, dz h dx; weights; dh
                    bad += NF != 9 || $9 != bytes || $3 != "'$routing'" || off($4 * $5 * 1e12, flops) || off($6 * $7 * 1e12, 3 * flops) }
                END { exit bad > 0 || NR != 3 }' moe.csv
        ok $? "$what by numbers of experts, routing $routing"
    done
done
# a whole step: no data, the grid and the model of the deck
refused 64 'bench: which deck? regulon bench step DECK [key=value ...]' step --seconds 1
refused 64 "bench: unknown word '--shape'; see regulon bench --help" step L0_sanity --shape small
refused 64 'bench: --seconds takes seconds, 0.01 to 60' step L0_sanity --seconds 61
refused 64 "'backend' is not of the form key=value" step L0_sanity backend
refused 78 'parallelism.ep_size: 2 does not divide the 1 ranks of this job' step L0_sanity backend=cpu
refused 78 "engine.experts is 'grouped', which backend 'cpu' does not have" step L0_sanity parallelism.ep_size=1 backend=cpu engine.experts=grouped
refused 78 "train.freeze: no parameter is called 'nobody'" step L0_sanity parallelism.ep_size=1 backend=cpu train.freeze=nobody
sizes='parallelism.ep_size=1 backend=cpu grad_acc_steps=2 dataset.token_micro_batch_size=256 dataset.max_seq_length=128'
step() { # WORD...
    # shellcheck disable=SC2086 # several words
    regulon 1 bench step L0_sanity $sizes "$@" >out
}
step dataset.path=null checkpoint.ckpt_dir=run --seconds 0.3 --csv step.csv && [ ! -e run ] && [ ! -e runs ] &&
    [ "$(head -n 1 step.csv)" = engine,steps,tokens,step_seconds,tokens_per_s,tflops,forward_seconds,backward_seconds,optimizer_seconds,loss,memory_bytes,waits,exchange_seconds ]
ok $? 'a step without data, nothing but the CSV file written'
# shellcheck disable=SC2086 # several words
flops=$(regulon 1 plan L0_sanity $sizes --json | sed -n 's/.*"flops_per_step": \([0-9.e+]*\).*/\1/p')
awk -F, -v flops="$flops" 'function off(x, y) { return x < 0.999 * y || x > 1.001 * y }
    NR == 2 { parts = ($7 + $8 + $9) / $4
        bad = NF != 13 || $1 != "loop" || $2 < 1 || $3 != 512 || off($4 * $5, $3) || off($4 * $6 * 1e12, flops) || !($7 > 0) ||
            !($8 > 0) || !($9 > 0) || parts < 0.5 || parts > 1.5 || !($11 > 1e7) || $12 != 0 || !($13 >= 0 && $13 < $4) }
    END { exit bad || NR != 2 }' step.csv
ok $? 'rates are tokens, and FLOPs as regulon plan has them, by the time; its parts are within it'
awk -F, 'NR == 2 { exit !($10 > 5.45 && $10 < 5.8) }' step.csv
ok $? 'the loss of random tokens: ln 256 = 5.55'
awk -v row="$(tail -n 1 step.csv)" 'BEGIN { split(row, c, ",") } function off(x, y, d) { return x < y - d || x > y + d }
    !/^#/ { n++; bad += NF != 12 || $1 != c[1] || $2 != c[2] || off($3, c[4] * 1e3, 1e-3) || off($4, c[5], 1) || off($5, c[6], 1e-4) ||
        off($6, c[7] * 1e3, 1e-3) || off($7, c[8] * 1e3, 1e-3) || off($8, c[9] * 1e3, 1e-3) || off($9, c[10], 1e-4) || off($10, c[11] / 1e9, 0.01) || off($12, c[13] * 1e3, 1e-3) }
    END { exit bad > 0 || n != 1 }' out
ok $? 'columns of the table, the same numbers'
step model.initializer_range=1 --seconds 0.01 && awk '!/^#/ { exit !($9 > 10) }' out
ok $? 'weights are as wide as the deck says'
step optimizer.lr=10 optimizer.weight_decay=10 --seconds 60 # some twenty steps, on any machine
[ $? = 76 ] && grep -q '^regulon: bench: step [0-9]* is not finite: ' err
ok $? 'a step that is not finite ends it'
# shellcheck disable=SC2086 # several words
regulon 2 bench step L0_sanity ${sizes#* } parallelism.ep_size=2 --seconds 0.1 --csv two.csv >out && grep -q 'on dp 1 x ep 2: ' out &&
    [ "$(grep -c -v '^#' out)" = 1 ] &&
    awk -F, -v flops="$flops" 'function off(x, y) { return x < 0.999 * y || x > 1.001 * y }
        NR == 2 { bad = $3 != 512 || off($4 * $5, $3) || off($4 * $6 * 1e12, flops) || !($10 > 5.45 && $10 < 5.8) || !($13 > 0 && $13 < $4) } END { exit bad || NR != 2 }' two.csv
ok $? 'a step of two ranks: rates of one of them'
regulon 2 bench comm --shape small --tokens 1,100 backend=cpu --seconds 0.05 --csv comm.csv >out && [ "$(grep -c -v '^#' out)" = 12 ] &&
    [ "$(awk '/^(add|gather)_mpi / && $3 > 0 && $4 > 0' out | wc -l)" = 4 ] &&
    awk -F, 'NR > 1 { n++; bad += NF != 10 || $1 != "mpi" || $2 != (n == 1 ? 1 : 100) || $4 != $3 * 128 * 4 || $5 != $4 || !($6 > 0 && $7 > 0 && $8 > 0 && $9 > 0) || $10 != 0 }
        # 2 of 8 experts, 4 of them elsewhere: 1 - (4/8)(3/7) = 0.79 of the tokens travel
        n == 2 { bad += !($3 > 65 && $3 < 92) } END { exit bad || n != 2 }' comm.csv
ok $? 'comm: two ranks, nothing wrong, copies as many as chance has it'
regulon 2 bench comm --shape small --tokens 100 backend=cpu precision.fp8_dispatch=true --seconds 0.05 --csv comm.csv >out && grep -q 'to the experts in eight bits$' out &&
    awk -F, 'NR > 1 { n++; bad += $4 != $3 * (128 + 8) || $5 != $3 * 128 * 4 || $10 != 0 } END { exit bad || n != 1 }' comm.csv
ok $? 'comm: rows in eight bits, nothing wrong, bytes of what goes there and back'
regulon 1 bench comm --shape small backend=cpu >out
[ $? = 78 ] && [ "$(cat err)" = 'regulon: bench comm: a job of one rank sends nothing; start several with mpiexec or srun' ] && [ ! -s out ]
ok $? 'comm: one rank'
regulon 3 bench comm --shape small backend=cpu >out
[ $? = 78 ] && [ "$(cat err)" = 'regulon: bench comm: 3 ranks do not divide 8 experts' ]
ok $? 'comm: ranks that do not divide the experts'
regulon 2 bench ops backend=cpu >out
[ $? = 78 ] && [ "$(cat err)" = 'regulon: bench ops runs on one rank; this job has 2' ] && [ ! -s out ]
ok $? 'two ranks are refused elsewhere'
regulon 2 bench step L0_sanity num_train_steps=x >out
[ $? = 78 ] && [ "$(grep -c num_train_steps err)" = 1 ]
ok $? 'a wrong deck is told once'
regulon 2 bench step L0_sanity --seconds 61 >out
[ $? = 64 ] && [ "$(cat err)" = 'regulon: bench: --seconds takes seconds, 0.01 to 60' ] && [ ! -s out ]
ok $? 'a wrong word is told once'
echo "1..$n"
