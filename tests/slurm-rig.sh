#!/bin/sh
# A real Slurm of one node, for tests: as root, on loopback, with a key, ports and a folder of its own, so that no Slurm
# of the machine is seen or touched.
#     slurm-rig.sh start DIR     prints the slurm.conf to name in SLURM_CONF
#     slurm-rig.sh stop DIR      ends the daemons and what they started
# Needs slurmctld, slurmd and munged (Debian: slurm-wlm, munge). The node claims four CPUs whatever it has. Partitions: low
# (preempted by requeueing, 5 s of grace) and high. Seen with Slurm 22.05: time limits are whole minutes, looked at every
# 30 s; preemption signals the tasks first, then ends the job.
set -eu
verb=${1:-} folder=${2:?which folder?}

free_port() { # FIRST: a port that nobody listens on; /proc/net/tcp has them in hexadecimal
    port=$1
    while grep -qi ":$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp; do port=$((port + 1)); done
    echo "$port"
}
alive() { # PIDFILE: and no zombie, which a container without an init keeps
    pid=$(cat "$1" 2>/dev/null) && grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$pid/status" 2>/dev/null
}
gone() { ! alive "$1"; }
wait_for() { # SECONDS COMMAND...
    tries=$(($1 * 10))
    shift
    until "$@"; do
        [ $tries -gt 0 ] || return 1
        tries=$((tries - 1))
        sleep 0.1
    done
}
is_idle() { [ "$(SLURM_CONF=$folder/slurm.conf sinfo -h -p low -o %t 2>/dev/null)" = idle ]; }

start() {
    mkdir -p "$folder/state" "$folder/spool" "$folder/munge"
    folder=$(cd "$folder" && pwd -P)
    host=$(hostname -s)
    controller=$(free_port $((20000 + $$ % 10000)))
    node=$(free_port $((controller + 1)))
    chmod 755 "$folder" # munged wants to be reached by all
    (umask 077 && head -c 1024 /dev/urandom >"$folder/munge/key")
    cat >"$folder/slurm.conf" <<END
ClusterName=rig
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$controller
SlurmdPort=$node
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
KillWait=5
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 RealMemory=500 State=UNKNOWN
PartitionName=low Nodes=$host Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=5
PartitionName=high Nodes=$host PriorityTier=10 PreemptMode=OFF
END
    # nothing of it is used, but slurmd looks for it, and in a container the one it finds by itself (v2) may not be writable
    echo 'CgroupPlugin=cgroup/v1' >"$folder/cgroup.conf"
    { run_daemons && wait_for 60 is_idle; } >&2 || {
        tail -n 20 "$folder"/*.log >&2
        exit 1
    }
    echo "$folder/slurm.conf"
}
run_daemons() {
    munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munge/seed" &&
        slurmctld -c -f "$folder/slurm.conf" &&
        slurmd -c -f "$folder/slurm.conf"
}

# jobs first, or their processes would outlive the daemons
stop() {
    export SLURM_CONF="$folder/slurm.conf"
    if alive "$folder/slurmctld.pid"; then
        squeue -h -o %i | xargs -r scancel --signal=KILL --full 2>/dev/null || :
        squeue -h -o %i | xargs -r scancel 2>/dev/null || :
        wait_for 10 is_idle || :
    fi
    for daemon in slurmd slurmctld munged; do
        if alive "$folder/$daemon.pid"; then
            kill "$pid"
            wait_for 10 gone "$folder/$daemon.pid" || kill -KILL "$pid"
        fi
    done
}

case $verb in
start) start ;;
stop) stop ;;
*)
    echo 'usage: slurm-rig.sh start|stop DIR' >&2
    exit 64
    ;;
esac
