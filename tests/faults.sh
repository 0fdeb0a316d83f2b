#!/bin/sh
# Does the suite bite? Plants faults in a copy of the source, one at a time, and asks that a named test turns red.
#     tests/faults.sh [CONFIGURE_OPTION...]
# Not part of `make check`, since it builds the program again for each fault: four minutes on two cores. To be run once
# for each change of the model, from anywhere in a clone. Prints a table: fault, whether one of the tests that must see
# it did, and all that turned red with how many of their checks. Ends with 1 if a fault went unseen.
source=$(cd "$(dirname "$0")/.." && pwd) || exit 99
# shellcheck disable=SC2086 # a launcher may come with options
MPIEXEC=${MPIEXEC:-mpiexec}
OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 srcdir=..
export OMP_NUM_THREADS OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM srcdir
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
(cd "$source" && tar -cf - --exclude=./build --exclude=./.git .) | tar -xf - -C "$work" || exit 99
cd "$work" || exit 99
if ! { rm -rf autom4te.cache && ./bootstrap >log 2>&1 && mkdir build; }; then
    tail log
    exit 99
fi
cd build || exit 99
if ! ../configure --without-cuda "$@" >log 2>&1; then
    tail log
    exit 99
fi

tests='stream.np1 golden.np1 golden.np2 gradient.np1 gradient.np2 invariance.np2 empty.np4'
build() {
    for t in $tests; do set -- "$@" "tests/$t"; done
    make -j2 "$@" >log 2>&1 || { tail -20 log; exit 99; }
}
red() { # the tests that are
    for t in $tests; do
        $MPIEXEC -n "${t##*np}" "tests/$t" >"out.$t" 2>&1 || printf ' %s(%s)' "$t" "$(grep -c '^not ok' "out.$t")"
    done
}
unseen=0
plant() { # NAME FILE SED-EXPRESSION TEST...: one of the tests must turn red
    name=$1 file=$work/$2 expression=$3
    shift 3
    cp "$file" kept && sed "$expression" kept >"$file"
    if cmp -s kept "$file"; then
        echo "tests/faults.sh: '$name' no longer matches $file"
        exit 99
    fi
    build
    seen=$(red)
    verdict=unseen
    for t in "$@"; do case $seen in *" $t("*) verdict=seen ;; esac done
    [ $verdict = seen ] || unseen=1
    printf '%-42s %-7s must: %-28s red:%s\n' "$name" $verdict "$*" "$seen"
    cp kept "$file"
}

build
seen=$(red)
[ -z "$seen" ] || { echo "tests/faults.sh: already red:$seen"; exit 99; }
plant 'expert gradients times ep_size' src/backend/cpu_experts.c \
    's/if (n > 0)$/for (int k = 0; n > 0 \&\& k < r->shape.E \/ r->n_local; k++, add = 1)/; s/else if (!add)$/if (n == 0 \&\& !add)/' \
    golden.np2 gradient.np2
plant '1/M dropped from the auxiliary term' src/train/step.c \
    's|1\.0 / (m->config->router.balance_over == BALANCE_WORLD ? n : n \* g->n_ranks)|1.0|' gradient.np1
plant 'gate and up swapped' src/backend/cpu_experts.c \
    's|const float \*gate = z + (size_t)i \* 2 \* F, \*u = gate + F|const float *u = z + (size_t)i * 2 * F, *gate = u + F|; s|float \*dgate = dz + (size_t)i \* 2 \* F, \*du = dgate + F|float *du = dz + (size_t)i * 2 * F, *dgate = du + F|' golden.np1
plant 'a mean of means instead of W' src/train/step.c \
    's|return W > 0 ? W : 1;|W = 0; for (int i = 0; i < n; i++) W += batches[i]->weight; return W > 0 ? W * g->n_ranks : 1;|' invariance.np2 golden.np2
plant "one rank's norm left out" src/train/step.c \
    's|optimizer_reduce(o, m->sums + SUMS_NORM2);|& if (g->rank == 1) be->zero(be, m->sums + SUMS_NORM2, sizeof *m->sums);|' invariance.np2 golden.np2
# RoPE makes attention depend on differences of positions alone, so that the model's own numbers cannot show this one
plant 'RoPE positions not restarted' src/data/batch.c 's|positions\[i\] = i;|positions[i] = b->n + i;|' stream.np1
plant 'gradient of the z-loss 2 % too large' src/backend/cpu_route.c 's|2 \* dz\[0\] \* r->lse|2.04f * dz[0] * r->lse|' gradient.np1
plant 'second moment 1 % too small' src/backend/cpu_optimizer.c 's|v\[i\] = a.beta2|v[i] = 0.99f * a.beta2|' golden.np1 golden.np2
plant 'gradients of an expert without tokens' src/backend/cpu_experts.c \
    's|memset(to, 0, |memset(to, 64, |' empty.np4
exit $unseen
