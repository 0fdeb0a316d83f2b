/* Who owns a run folder: a process, as lock.N describes it, and whether it is still there. */
#ifndef REGULON_CHECKPOINT_OWNER_H
#define REGULON_CHECKPOINT_OWNER_H
#include <stdint.h>

struct owner {
    char job[64];      /* Slurm's job id, empty outside Slurm */
    char host[256];    /* for people: several machines may have one name */
    char machine[128]; /* the boot and the pid namespace in which `pid` means something; empty where
                          the system does not say */
    char start[32];    /* when the lock was made, UTC */
    int64_t restart;   /* how often Slurm has requeued the job */
    int64_t pid;
    int64_t process_start; /* of the process, clock ticks since boot: a pid comes again, this does
                              not; -1: not known */
};

struct owner owner_self(void);

/* As one line of JSON, and back. The caller frees the text (memory_free). owner_parse takes NULL,
 * half a text or any other: what it does not find is empty, 0 or -1. */
char *owner_text(const struct owner *o);
struct owner owner_parse(const char *text);

/* "job 12, host n1, pid 345", for messages. The caller frees it. */
char *owner_name(const struct owner *o);

/* 1 when the process ran where `self` runs, this process, and has ended. */
int owner_is_gone(const struct owner *o, const struct owner *self);

/* 1 when `o` is an earlier start of the Slurm job that `self` belongs to. */
int owner_is_earlier(const struct owner *o, const struct owner *self);
#endif
