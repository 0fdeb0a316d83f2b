/* One job owns a run folder: lock.N in it, created exclusively; the highest N owns. Its text says
 * who (owner.h), its time of change is a heartbeat, which a thread renews every second. Rank 0
 * only. */
#ifndef REGULON_CHECKPOINT_LOCK_H
#define REGULON_CHECKPOINT_LOCK_H

struct lock;

/* Takes the folder, which exists. A dead owner's lock is taken over: at once when its process ran
 * on this machine and has ended, or was an earlier start of this Slurm job, else after 30 s without
 * a heartbeat. die_user (78) when the owner lives, which shows in about a second, or when the
 * folder cannot be written to. From then on leave() gives the folder back. */
struct lock *lock_open(const char *folder);

int lock_number(const struct lock *l); /* its N; 0 of NULL */

/* Looks: 0 when another job has taken the folder over, said with its name at the first time. A lock
 * file that was removed by hand is made anew, said once. Any thread; NULL is nobody's: 1. */
int lock_is_ours(struct lock *l);

/* 1 when that has been seen: for every step. It looks itself only where the heartbeat is late, as
 * it is when the job was suspended, and perhaps taken for dead. */
int lock_is_lost(struct lock *l);

/* Removes the file, if it is ours still, and frees the lock; NULL is fine. No other thread may be
 * in a call about it. */
void lock_close(struct lock *l);
#endif
