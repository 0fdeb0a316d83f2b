#!/bin/sh
# `regulon bench ops` on the CPU: every operation has a time, a rate, a share and an error, none is wrong. The CPU backend is
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
# the names of the backend table that have a time of their own
listed=$(sed '1,/---- math ----/d; /---- collectives /,$d' "$srcdir/src/backend/backend.h" | sed -n 's/^    void (\*\([a-z_]*\))(.*/\1/p' |
    grep -v -e '^documents$' -e '^balance$' -e '^moe_free$' -e '^decide$')
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
refused 64 'bench: what? regulon bench ops, gemm or moe; see regulon bench --help' opps
refused 64 'bench: --shape takes mixtral, fine, sonic or small' ops --shape tiny
refused 64 "bench: unknown word '--routing'; see regulon bench --help" ops --routing one
refused 64 'bench: --routing takes balanced, skew:S with S from 0 to 5, half, empty or one' gemm --routing skew:9
refused 64 'bench: --seconds takes seconds, 0.01 to 60' gemm --seconds 0
refused 78 'bench gemm needs a GPU and the grouped kernels; the backend is cpu' gemm backend=cpu
refused 64 'bench: --tokens takes a number of tokens, 1 to 1048576' ops --tokens 0
refused 64 "bench: unknown word 'optimizer.lr=1'; see regulon bench --help" ops optimizer.lr=1
refused 74 '--csv: cannot write no/ops.csv: No such file or directory' ops backend=cpu --csv no/ops.csv
refused 64 'bench: --experts takes numbers of experts with commas between, 1 to 256 each, 32 at most' moe --experts 1,2,
for routing in balanced skew:1 half empty one; do
    regulon 1 bench moe backend=cpu --tokens 64 --experts 1,6 --routing $routing --seconds 0.01 --csv moe.csv >out &&
        awk '!/^#/ { n++; bad += NF != 5 || $1 != (n == 1 ? 1 : 6) || $2 != "loop" || !($3 > 0) || !($4 > 0) || !($5 > 0) } END { exit bad > 0 || n != 2 }' out &&
        awk -F, 'NR > 1 { bad += NF != 6 || $3 != "'$routing'" } END { exit bad > 0 || NR != 3 }' moe.csv
    ok $? "a layer by numbers of experts, routing $routing"
done
regulon 2 bench ops backend=cpu >out
[ $? = 78 ] && grep -q 'this job has 2' err
ok $? 'two ranks are refused'
echo "1..$n"
