#!/bin/sh
# Rows that pad those of an expert, as the grouped kernels of a GPU need them, on the CPU backend, which is their definition:
# the golden cases hold with an expert's rows from multiples of 8 on, also on two ranks, where the rows of all layers lie in one
# stash, and so does recomputation.
srcdir=$(cd "${srcdir:-.}" && pwd)
build=$PWD
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
TEST_ROW_UNIT=8 TEST_STASH=1
export TEST_ROW_UNIT TEST_STASH
for program in golden.np1 golden.np2 recompute.np2; do
    ranks=${program#*.np}
    # shellcheck disable=SC2086 # a launcher may come with options
    (cd "$srcdir" && timeout -s KILL 200 $MPIEXEC -n "$ranks" "$build/tests/$program") >"$work/out" 2>"$work/err"
    status=$?
    [ $status = 0 ] && [ "$(grep -c '^ok' "$work/out")" -gt 10 ]
    ok $? "$program with rows from multiples of 8 on: $(grep -c '^ok' "$work/out") checks"
    [ $status = 0 ] || grep '^not ok' "$work/out" | sed 's/^/# /'
done
echo "1..$n"
