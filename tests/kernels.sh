#!/bin/sh
# The compiler's word on the grouped kernels for sm_90a: nothing in local memory, no product serialised (C75..), both of which
# would be right and slow. NVCC from make; skipped without it.
srcdir=$(cd "${srcdir:-.}" && pwd)
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
if [ -z "$NVCC" ] || [ "$NVCC" = no ]; then
    echo '1..0 # SKIP built without CUDA, so there is no nvcc for the kernels of GPUs'
    exit 0
fi
"$NVCC" -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I"$srcdir/kernels" -Xptxas -v -c -o "$work/grouped.o" \
    "$srcdir/kernels/grouped_gemm.cu" >"$work/said" 2>&1
ok $? 'the grouped kernels compile for sm_90a'
[ "$(grep -A 3 'Compiling entry function.*grouped_gemm_kernel' "$work/said" | grep -c 'Used 168 registers')" = 5 ]
ok $? 'five kernels with code in them'
! grep 'bytes spill' "$work/said" | grep -qv ' 0 bytes spill stores, 0 bytes spill loads'
ok $? 'no register is spilled'
! grep 'C75' "$work/said" >&2
ok $? 'no wgmma is serialised'
echo "1..$n"
