# shellcheck shell=sh
# What test scripts share, sourced in the build folder: the program, a folder to work in that goes at the end, TAP.
# shellcheck disable=SC2034,SC2086 # for those who source it; a launcher may come with options
MPIEXEC=${MPIEXEC:-mpiexec}
PYTHON3=${PYTHON3:-python3}
regulon=$PWD/regulon
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
n=0
ok() { # STATUS TEXT
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
needs_gpu() { # ends the script where there is none, or the program has nothing for it
    why=
    grep -q '^#define HAVE_CUDA' config.h || why='built without CUDA'
    nvidia-smi -L >/dev/null 2>&1 || why='no GPU'
    [ -z "$why" ] || { echo "1..0 # SKIP $why" && exit 0; }
}
regulon() { # RANKS WORD...: stderr goes to err
    ranks=$1
    shift
    timeout -s KILL 200 $MPIEXEC -n "$ranks" "$regulon" "$@" 2>err
}
# step, tokens, loss, norm, rate and balance of a run's lines; the rest are times
numbers() { awk '!/^#/ { print $1, $2, $3, $4, $5, $6 }' "$@"; }
