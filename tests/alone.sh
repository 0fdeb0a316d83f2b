#!/bin/sh
# alone.sh NAME COMMAND...: a rank in a session of its own, so that whatever the launcher ends when it sees that another is
# lost, it is not this one. Leaves NAME.out.RANK, .err, .pid, and .code in the end.
if [ -z "$REGULON_TEST_ALONE" ]; then
    REGULON_TEST_ALONE=1 setsid sh "$0" "$@" &
    wait
    exit
fi
name=$1 rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}
shift
"$@" >"$name.out.$rank" 2>"$name.err.$rank" &
echo $! >"$name.pid.$rank"
wait $!
echo $? >"$name.code.$rank"
