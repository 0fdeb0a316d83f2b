#!/bin/sh
# tests/fuzz/run.sh [SECONDS [TARGET ...]]: runs the fuzz targets under libFuzzer with the address and
# undefined-behaviour sanitizers, each for SECONDS (60), in build-fuzz/ beside the source's configure. New inputs
# stay in build-fuzz/found/TARGET; a crash is left in build-fuzz/ and ends the script with 1.
set -e
cd "$(dirname "$0")/../.."
seconds=${1:-60}
[ $# -eq 0 ] || shift
targets=${*:-$(cd tests/fuzz && ls corpus)}
mkdir -p build-fuzz
cd build-fuzz
# the MPI wrapper compiles with clang: MPICH's and Open MPI's ways to say so
MPICH_CC=clang OMPI_CC=clang
export MPICH_CC OMPI_CC
[ -f Makefile ] || ../configure --without-cuda --without-arch CC=mpicc \
    CFLAGS='-O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer'
for t in $targets; do
    make -s "tests/fuzz/$t.fuzz" "fuzz_flags=-fsanitize=fuzzer"
    mkdir -p "found/$t"
    ASAN_OPTIONS=detect_leaks=0 "tests/fuzz/$t.fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=10 -print_final_stats=1 \
        -verbosity=1 "found/$t" "../tests/fuzz/corpus/$t" 2>"$t.log" || { tail -n 40 "$t.log"; exit 1; }
    grep -E '^(Done|stat::number_of_executed_units)' "$t.log" | sed "s/^/$t: /"
done
