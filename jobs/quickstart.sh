#!/bin/sh
# The first command: from a clone, or an unpacked release, to a trained model.
#     jobs/quickstart.sh [--fresh] [key=value ...]
# Installs what is missing, builds into build/, and trains a small mixture of experts on the genome of Escherichia coli
# over two ranks. The arguments go to `regulon train`: a finished run is left alone unless --fresh is among them.
set -u
# shellcheck source=jobs/setup.sh
. "$(dirname "$0")/setup.sh"

packages build speed
# shellcheck disable=SC2119 # the words are for the program
build

run=runs/ecoli_small
for word in "$@"; do
    case $word in checkpoint.ckpt_dir=*) run=${word#*=} ;; esac
done
say "$mpiexec -n 2 build/regulon train ecoli_small $*"
$mpiexec -n 2 build/regulon train ecoli_small "$@" || exit
# a launcher that was killed can say 0 of a run that is not at its end
grep -q '"code": 0' "$run/status.json" 2>/dev/null || stop "the run in $run did not finish"
echo
build/regulon info "$run/metrics.h5" | grep -E '^(steps|loss|validation|Markov) '
say "the run's files are in $run/:"
(cd "$run" && ls -d used.yaml metrics.h5 status.json final_model 2>/dev/null)
