#!/bin/sh
# What configure accepts and refuses: tests/configure.sh, in a clone that was bootstrapped. Half a minute: not in make
# check. TAP.
top=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
n=0 failed=0
ok() { # STATUS TEXT
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else
        echo "not ok $n - $2"
        failed=1
    fi
}
run() { # WORD...: configures in an empty folder, with what the first run cached
    rm -rf "$folder/build"
    mkdir "$folder/build"
    [ ! -f "$folder/first" ] || cp "$folder/first" "$folder/build/cache"
    (cd "$folder/build" && "$top/configure" --cache-file=cache "$@" >out 2>&1)
}
refuses() { # TEXT WORD...
    text=$1
    shift
    ! run "$@" && grep -q -- "error: .*$text" "$folder/build/out"
    status=$?
    ok $status "$*: refused"
    [ $status -eq 0 ] || tail -n 3 "$folder/build/out" | sed 's/^/# /'
}
defined() { grep -q "^#define $1 " "$folder/build/config.h"; }

run --without-cuda --without-blas && cp "$folder/build/cache" "$folder/first"
ok $? 'HDF5, MPI and the small libraries are enough'
! defined HAVE_CBLAS && ! defined HAVE_CUDA && grep -q 'BLAS  *none' "$folder/build/out"
ok $? '--without-blas --without-cuda: neither is used'
[ "$(sed -n '/^  regulon/,/^$/p' "$folder/build/out" | grep -c .)" -le 15 ]
ok $? 'the summary has at most 15 lines'
if pkg-config --exists openblas; then
    run --without-cuda && defined HAVE_CBLAS
    ok $? 'a BLAS that is there is used'
fi
if command -v nvcc >/dev/null; then
    run --enable-werror && defined HAVE_CUDA && grep -q '^NVCC_WERROR = -Werror' "$folder/build/Makefile"
    ok $? "a CUDA toolkit that is there is used, and --enable-werror holds for its compiler"
    if defined HAVE_CUDNN; then
        run --without-cudnn && defined HAVE_CUDA && ! defined HAVE_CUDNN && grep -q 'cuDNN  *no' "$folder/build/out"
        ok $? '--without-cudnn: a cuDNN that is there is not used'
    fi
fi
refuses 'unknown option: --with-hdf6' --with-hdf6=/usr
refuses 'unknown option: --enable-wurror' --enable-wurror
refuses 'unknown option: --without-cud' --without-cud
refuses 'takes yes or no' --enable-werror=maybe
refuses 'takes yes or no' --enable-sanitizers=thread
refuses 'HDF5 is required' --without-hdf5
refuses 'no .*/include/hdf5.h' "--with-hdf5=$folder"
mkdir "$folder/include"
echo '#error nothing' | tee "$folder/include/hdf5.h" "$folder/include/cblas.h" "$folder/include/cudnn.h" >"$folder/include/nccl.h"
refuses 'HDF5 1.10 or later is not usable' "--with-hdf5=$folder"
refuses 'no usable CBLAS' --with-blas=nonesuch
refuses 'no usable CBLAS' "--with-blas=$folder"
refuses 'no usable CUDA toolkit' "--with-cuda=$folder"
refuses 'NCCL (with CUDA) was not found' "--with-nccl=$folder"
refuses 'NCCL (with CUDA) was not found' --with-nccl --without-cuda
refuses 'cuDNN .* was not found' "--with-cudnn=$folder"
refuses 'cuDNN .* was not found' "--with-cudnn=$folder/nonesuch"
refuses 'cuDNN .* was not found' --with-cudnn --without-cuda
refuses 'the compiler refuses it' --with-arch=nonesuch
rm "$folder/first"
refuses 'cannot link MPI_Init' CC=cc
echo "1..$n"
exit $failed
