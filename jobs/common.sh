# shellcheck shell=bash
# What the job scripts share; each sources it, then says `begin WORDS`, its srun line with "${words[@]}", `end $?`.

# shellcheck source=jobs/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

say() { echo "${SLURM_JOB_NAME:-job}: $*"; }
stop() { # CODE TEXT
    say "$2" >&2
    exit "$1"
}

# The words are those of `regulon train`. Sets run, the folder of the run, and words, from which --fresh is gone when Slurm
# has started the job again and the run has begun anew. Ends the job with the program's code if it does not like the deck.
begin() { # WORD...
    local word keys=() fresh=no
    for word in "$@"; do
        if [ "$word" = --fresh ]; then fresh=yes; else keys+=("$word"); fi
    done
    [ $fresh = no ] || [ "${requeue:-yes}" = yes ] || stop 64 'every job of a chain would start anew: no --fresh here'
    run=$(regulon info --folder "${keys[@]}") || exit
    [ ! -e "$run/stop" ] || stop 75 "remove $run/stop to go on"
    mkdir -p "$run" && touch "$run/starts" || exit 78 # its time is the start's
    # the program removes RUN/fresh when it has begun anew
    [ $fresh = no ] || [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || touch "$run/fresh"
    # shellcheck disable=SC2034 # for the srun line
    words=("${keys[@]}")
    [ $fresh = no ] || [ ! -e "$run/fresh" ] || words+=(--fresh)
}

from_status() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$run/status.json"; }

# The step of the newest checkpoint, 0: there is none.
saved_step() {
    local folder step=0
    for folder in "$run"/step_*[0-9]; do
        [ ! -d "$folder" ] || step=$((10#${folder##*_}))
    done
    echo "$step"
}

# Ends the job with srun's code, or, where srun gives one that is not the program's (ranks that leave one after the other
# can make it 143), with the one that the ranks agreed on. 75, saved and unfinished, and 70, a rank was lost or stood still,
# have the job requeued, unless someone asked for the stop, or two starts in a row have saved nothing new.
end() { # CODE
    local code=$1 step last_step stuck
    case $code in
    0 | 6[4-9] | 7[0-8]) ;;
    *) [ "$run/starts" -nt "$run/status.json" ] || code=$(from_status code) ;;
    esac
    [ "$code" -eq 75 ] || [ "$code" -eq 70 ] || exit "$code"
    step=$(saved_step)
    [ ! -e "$run/stop" ] || stop "$code" "stopped by a file after step $step; remove $run/stop and submit again to go on"
    [ "${requeue:-yes}" = yes ] || stop "$code" "saved after step $step"
    read -r last_step stuck <"$run/starts" || :
    if [ "$step" = "${last_step:-0}" ]; then stuck=$((stuck + 1)); else stuck=0; fi
    echo "$step $stuck" >"$run/starts"
    [ "$stuck" -lt 2 ] || stop "$code" "two starts in a row saved nothing after step $step: not requeued"
    say "requeued after step $step"
    # an array's job number may stand for all of its tasks; this script may not live to see the answer
    scontrol requeue "${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}" ||
        stop "$code" "not requeued after all; submit it again to go on after step $step"
    exit "$code"
}
