#!/bin/sh
# `regulon NAME` becomes `regulon-NAME`: which one, with which words, from where, and what is said when there is none or
# when a launcher started several.
# shellcheck disable=SC2086 # $MPIEXEC may be several words
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
build=$PWD
PATH=$(dirname "$(command -v "$PYTHON3")"):$PATH # the commands take the first python3: one with h5py
cd "$work" || exit 99
tool() { # FOLDER NAME: one that says who it is and its words
    mkdir -p "$1"
    printf '#!/bin/sh\necho %s "$0" "$@"\nexit ${CODE:-0}\n' "$2" >"$1/regulon-$2"
    chmod +x "$1/regulon-$2"
}
refused() { # RANKS CODE MESSAGE WORD...
    ranks=$1 code=$2 message=$3
    shift 3
    $MPIEXEC -n "$ranks" "$regulon" "$@" >out 2>err
    got=$?
    [ $got = "$code" ] && [ "$(grep '^regulon' err)" = "regulon: $message" ] && [ ! -s out ]
    status=$?
    ok $status "$ranks: exit $code: $message"
    [ $status = 0 ] || { echo "# exit $got"; sed 's/^/# /' out err; }
}

tool folder census
PATH=$work/folder:$PATH
"$regulon" census --flag 'two words' '' >out 2>err && [ "$(cat out)" = "census $work/folder/regulon-census --flag two words " ]
ok $? 'one of PATH gets the words behind its name'
CODE=75 "$regulon" census >out 2>err
[ $? = 75 ] && ! [ -s err ]
ok $? 'and its exit code is the exit code'
$MPIEXEC -n 1 "$regulon" census a >out 2>err && [ "$(cat out)" = "census $work/folder/regulon-census a" ]
ok $? 'also when a launcher started one process'
refused 2 64 'census is one process: start it without mpiexec or srun' census
SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$regulon" census >out 2>err
[ $? = 64 ] && ! [ -s out ] && ! [ -s err ]
ok $? 'the second of two tasks of srun says nothing'
SLURM_NTASKS=2 "$regulon" census >out 2>err
ok $? 'a batch script of two tasks may start it'
mkdir folder/regulon-heap && : >folder/regulon-zzz
refused 1 64 "'heap' is not a verb; regulon --help names them" heap
refused 1 64 "'zzz' is not a verb; regulon --help names them" zzz
refused 1 64 "'../folder/regulon-census' is not a verb; regulon --help names them" ../folder/regulon-census
refused 1 64 "'reprot' is not a verb; did you mean 'report'?" reprot
refused 2 64 "'convert-metric' is not a verb; did you mean 'convert-metrics'?" convert-metric
tool folder train
"$regulon" train >out 2>err
[ $? = 64 ] && ! [ -s out ]
ok $? 'a tool does not stand before a verb'
"$regulon" --help >out && for name in report watch convert-metrics scaling grids compare; do grep -q "^  $name  *[a-z]" out || exit 1; done
ok $? '--help names them'

# our own: of the source for a program in its build folder, else beside the program, wherever it was moved
tool folder scaling
"$regulon" scaling --help >out 2>err && ! grep -q '^scaling' out && grep -q '^usage: ' out
ok $? "the source's own tools come before PATH's"
printf '#!/bin/sh\n: >"%s/used"\nexec "%s" "$@"\n' "$work" "$PYTHON3" >configured && chmod +x configured
# not make's variables: this may run inside a make
(unset MAKEFLAGS MAKELEVEL MFLAGS && make -s -C "$build" install DESTDIR="$work/moved" PYTHON3="$work/configured") >out 2>err
program=$(find moved -name regulon -type f) folder=$(dirname "$(find moved -name regulon-compare)")
[ -x "$program" ] && [ -d "$folder" ] && "$program" compare --help >out 2>err && grep -q '^usage: ' out
status=$?
ok $status 'an installation that was moved has its tools'
[ $status = 0 ] || sed 's/^/# /' out err
! [ -e used ] && "$PYTHON3" -m venv --without-pip bare && PATH=$work/bare/bin:$PATH "$program" compare --help >out 2>err &&
    grep -q '^usage: ' out && [ -e used ]
status=$?
ok $status 'they run with the Python of configure where the one in PATH has no h5py'
[ $status = 0 ] || sed 's/^/# /' out err
"$program" info L0_sanity >out 2>err && grep -q '^deck  *L0_sanity$' out
ok $? 'and its decks'
tool "$folder" bundled
ln -s "$work/$program" link && ./link bundled >out && [ "$(cat out)" = "bundled $work/$folder/regulon-bundled" ]
ok $? 'also through a link'
rm -r "$folder"
"$program" scaling a >out && [ "$(cat out)" = "scaling $work/folder/regulon-scaling a" ]
ok $? 'without them PATH serves'
"$program" compare >out 2>err
[ $? = 70 ] && grep -q '^regulon: regulon-compare is neither in /.* nor in PATH$' err
ok $? 'one of ours that is nowhere: 70'
echo "1..$n"
