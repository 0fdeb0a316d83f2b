# shellcheck shell=sh
# What the tests of trained models share, sourced behind lib.sh in the build folder: they go on in the work folder.
# shellcheck disable=SC2034,SC2154,SC2086 # for those who source it; lib.sh has $work; a number of ranks
golden=$(cd "$srcdir/tests/golden" && pwd)
lambda=$(cd "$srcdir/input/genomes" && pwd)/lambda_virus.fa.gz
helper=$(cd "$srcdir/tests" && pwd)
export OMP_NUM_THREADS=1 # the same bits on one rank and two take the same number of threads a rank
py() { # TEXT [WORD...]: a program on stdin, over what score_tools.py has
    what=$1
    shift
    { echo 'from score_tools import *' && cat; } | PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$helper "$PYTHON3" - "$@" >py.out 2>&1
    status=$?
    ok $status "$what"
    [ $status = 0 ] || sed 's/^/# /' py.out
}
# refused CODE MESSAGE WORD...: on one rank and on two: the code, the message once, nothing on stdout, no file
refused() {
    code=$1 message=$2
    shift 2
    for ranks in 1 2; do
        regulon $ranks "$@" >out
        got=$?
        [ $got = "$code" ] && [ "$(grep '^regulon: ' err)" = "regulon: $message" ] && [ ! -s out ] && ! ls ./no.* >/dev/null 2>&1
        status=$?
        ok $status "$ranks: exit $code: $message"
        [ $status = 0 ] || { echo "# exit $got" && sed 's/^/# /' err; }
    done
}
