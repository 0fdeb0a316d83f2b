#!/bin/sh
# The compiler's word on the grouped kernels for sm_90a: nothing in local memory, no product serialised (C75..), both of which
# would be right and slow; and on those for Blackwell, which have never run. NVCC from make; skipped without it.
srcdir=$(cd "${srcdir:-.}" && pwd)
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
if [ -z "$NVCC" ] || [ "$NVCC" = no ]; then
    echo '1..0 # SKIP built without CUDA, so there is no nvcc for the kernels of GPUs'
    exit 0
fi
compiled() { # FILE TEXT KERNEL N: so many kernels of that name have code in them
    "$NVCC" -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I"$srcdir/kernels" -Xptxas -v -c -o "$work/grouped.o" \
        "$srcdir/kernels/$1" >"$work/said" 2>&1
    ok $? "$2 compile for sm_90a"
    [ "$(grep -A 3 "Compiling entry function.*$3" "$work/said" | grep -c 'Used 168 registers')" = "$4" ]
    ok $? "$2: $4 kernels with code in them"
    ! grep 'bytes spill' "$work/said" | grep -qv ' 0 bytes spill stores, 0 bytes spill loads'
    ok $? "$2: no register is spilled"
    ! grep 'C75' "$work/said" >&2
    ok $? "$2: no wgmma is serialised"
}
compiled grouped_gemm.cu 'the grouped kernels' grouped_gemm_kernel 5
compiled grouped_fp8.cu 'those in eight bits' grouped_fp8_kernel 4
"$NVCC" -gencode=arch=compute_80,code=sm_80 -std=c++17 -I"$srcdir/kernels" -Xcompiler -Wall -Werror all-warnings -c -o "$work/quantise.o" \
    "$srcdir/kernels/quantise.cu" >"$work/said" 2>&1
ok $? 'what rounds to eight bits compiles for GPUs that have no such instruction'
blackwell() { # FILE TEXT
    "$NVCC" -gencode=arch=compute_100a,code=sm_100a -std=c++17 -I"$srcdir/kernels" -Xcompiler -Wall -Werror all-warnings -Xptxas -v -c -o "$work/blackwell.o" \
        "$srcdir/kernels/$1" >"$work/said" 2>&1
    ok $? "$2 compiles for sm_100a"
    grep -q 'Used [1-9][0-9]* registers' "$work/said" && ! grep 'bytes spill' "$work/said" | grep -qv ' 0 bytes spill stores, 0 bytes spill loads'
    ok $? "$2: no register is spilled"
}
blackwell mxfp8_pack.cu 'what writes MXFP8'
blackwell mxfp8_up.cu 'gate and up in MXFP8'
grep -A 3 'Compiling entry function.*of_tiles' "$work/said" | grep -q 'Used 1[0-9][0-9] registers'
ok $? 'gate and up in MXFP8: with code in it'
echo "1..$n"
