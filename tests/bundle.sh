#!/bin/sh
# `make bundle`: the archive, unpacked elsewhere, trains there with its own libraries and its own launcher, and nothing of
# this build but what every machine has (and CUDA's libraries, which it has only when asked).
build=$PWD
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
launcher=$(readlink -f "$(command -v "${MPIEXEC%% *}")")
if [ ! -x "$(dirname "$launcher")/hydra_pmi_proxy" ]; then
    echo "1..0 # SKIP $launcher is not MPICH's, and goes into no archive"
    exit 0
fi
(cd "$build" && ${MAKE:-make} bundle BUNDLE_XZ=-0 BUNDLE_TO="$work") >"$work/log" 2>&1
status=$?
[ $status = 0 ] && mkdir "$work/there" && tar -C "$work/there" -xJf "$work"/regulon-*-"$(uname -m)".tar.xz
status=$?
ok $status 'an archive'
[ $status = 0 ] || tail -n 20 "$work/log" | sed 's/^/# /'
cd "$work/there" || exit 99
top=$(echo "$PWD"/regulon-*)
clean() { env -i PATH=/usr/bin:/bin HOME="$work" OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0 "$@"; }
clean ldd "$top/bin/regulon" >libraries
grep '=> /' libraries | grep -v "=> $top/bin/../lib/" | sed 's/ => .*//; s/^[[:space:]]*//' >foreign
! grep -q 'not found' libraries && grep -q "libmpi.* => $top/" libraries && grep -q "libhdf5.* => $top/" libraries &&
    ! grep -v -x -E 'lib(c|m|dl|rt|pthread|util|resolv|anl|nvJitLink|nvrtc|cudart|cublas|cublasLt|cudnn|nccl)\.so\.[0-9.]+' foreign
status=$?
ok $status 'libraries are its own but those of every machine'
[ $status = 0 ] || sed 's/^/# /' libraries
clean "$top/bin/mpiexec" -n 2 "$top/bin/regulon" train L0_sanity num_train_steps=3 train.verdict=false backend=cpu >out 2>err
status=$?
[ $status = 0 ] && [ "$(numbers out | wc -l)" = 3 ] && [ -e runs/L0_sanity/metrics.h5 ]
status=$?
ok $status 'trains on two ranks, with the deck and genome in it'
[ $status = 0 ] || sed 's/^/# /' out err
clean "$top/bin/regulon" info runs/L0_sanity >out 2>err && grep -q 'L0_sanity' out
ok $? 'and without a launcher'
clean "$top/bin/regulon" compare --help >out 2>err
status=$?
[ $status = 0 ] || [ $status = 78 ]
ok $? 'analysis is found (78: without its Python modules)'
echo "1..$n"
