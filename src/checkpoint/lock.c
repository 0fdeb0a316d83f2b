/* link(2) is what makes a lock exclusive: a file with its text already in it gets the name or does
 * not, on NFS too. Times are the file server's: a heartbeat is compared with a file that the asking
 * process has just touched in the same folder. But only a heartbeat that moves is a sign of life,
 * since a job that was killed a second ago has a young one. */
#include "config.h"
#include "checkpoint/lock.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/owner.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BEAT_S 1     /* between heartbeats */
#define LATE_S 3.0   /* a heartbeat that old: the owner looks before it does anything */
#define SILENT_S 30. /* without a heartbeat an owner is dead; but it is watched */
#define WATCH_S 5.0  /* for so long, whatever the clocks say */
#define DOUBT_S 2.0  /* no heartbeat yet: says why it waits */
#define LOOK_S 0.2   /* between looks */

struct lock {
    char *folder;
    struct owner self;
    char *text;            /* of our file: no other process has the same */
    char *temporary;       /* the name under which it is written */
    int64_t n;             /* 0: not taken yet */
    char *path;            /* lock.n */
    pthread_t thread;      /* beats */
    pthread_mutex_t mutex; /* one look at a time; guards what follows */
    pthread_cond_t wake;
    int ending;
    int remade, complained; /* said that the file was made anew, that it cannot be */
    atomic_int lost;
    _Atomic double looked; /* seconds() */
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double difference(struct timespec a, struct timespec b) {
    return (double)(a.tv_sec - b.tv_sec) + 1e-9 * (double)(a.tv_nsec - b.tv_nsec);
}

/* ---- the names in the folder ---- */

static char *path_of(const struct lock *l, int64_t n) {
    return memory_format("%s/lock.%lld", l->folder, (long long)n);
}

/* N of a name lock.N, 0 of another. */
static int64_t number_of(const char *name) {
    long long n;
    int used = 0;
    return sscanf(name, "lock.%lld%n", &n, &used) == 1 && name[used] == 0 && n > 0 ? n : 0;
}

/* The highest N, 0: there is none. */
static int64_t highest(const char *folder) {
    int64_t most = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (number_of(e->d_name) > most) most = number_of(e->d_name);
    if (d) closedir(d);
    return most;
}

/* What dead owners left behind, and files of those who ask at this moment: they write another. */
static void remove_leftovers(const struct lock *l) {
    DIR *d = opendir(l->folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t n = number_of(e->d_name);
        int temporary = strncmp(e->d_name, "lock.", 5) == 0 && file_has_suffix(e->d_name, ".tmp");
        if (!temporary && (n == 0 || n >= l->n)) continue;
        char *path = file_join(l->folder, e->d_name);
        unlink(path);
        memory_free(path);
    }
    if (d) closedir(d);
}

/* ---- making a lock ---- */

/* Writes our text under its temporary name; *now is the file server's time. 0 on failure, errno
 * set. */
static int write_temporary(const struct lock *l, struct timespec *now) {
    struct stat s;
    unlink(l->temporary);
    int fd = open(l->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int ok = fd >= 0 && file_write_all(fd, l->text, strlen(l->text)) && futimens(fd, NULL) == 0 &&
             fstat(fd, &s) == 0;
    int reason = errno;
    if (fd >= 0 && close(fd) != 0 && ok) ok = 0, reason = errno;
    if (ok) *now = s.st_mtim;
    errno = reason;
    return ok;
}

enum holder { OURS, ANOTHERS, NOBODYS, UNSEEN }; /* UNSEEN: it cannot be read, which says nothing */

/* Whose the file is. Opening it makes NFS ask the server. */
static enum holder holder_of(const struct lock *l, const char *path) {
    char *text = file_read(path, 65536, NULL);
    if (!text) return errno == ENOENT ? NOBODYS : errno == EFBIG ? ANOTHERS : UNSEEN;
    int ours = strcmp(text, l->text) == 0;
    memory_free(text);
    return ours ? OURS : ANOTHERS;
}

/* Where there are no hard links: exclusive too, but it may be seen before its text is. */
static int create_unlinked(const struct lock *l, const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return 0;
    int ok = file_write_all(fd, l->text, strlen(l->text)), reason = errno;
    close(fd);
    if (!ok) unlink(path);
    errno = reason;
    return ok;
}

/* Gives lock.n our text, which lies under its temporary name: 1, or 0 with errno, EEXIST when
 * another was first. */
static int create(const struct lock *l, const char *path) {
    int ok = link(l->temporary, path) == 0;
    if (!ok && (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK))
        ok = create_unlinked(l, path);
    if (!ok && errno == EEXIST) {
        ok = holder_of(l, path) == OURS; /* NFS: the answer to the first try was lost */
        errno = EEXIST;
    }
    return ok;
}

/* ---- the owner that is there ---- */

/* Opening it makes NFS ask the server; stat alone may answer from memory. */
static int heartbeat(const char *path, struct timespec *when) {
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC), ok = stat(path, &s) == 0;
    if (fd >= 0) close(fd);
    if (ok) *when = s.st_mtim;
    return ok;
}

enum life { ALIVE, DEAD, VANISHED };

/* Watches a lock until that is known; *silent_s is the age of its heartbeat. `now`: the file
 * server's time. */
static enum life watch(const struct lock *l, const char *path, const struct owner *o,
                       struct timespec now, double *silent_s) {
    struct timespec first, last;
    *silent_s = 0;
    if (!heartbeat(path, &first)) return VANISHED;
    double start = seconds(), age = difference(now, first), watched = 0;
    double limit = SILENT_S - age < WATCH_S ? WATCH_S : age < 0 ? SILENT_S : SILENT_S - age;
    for (int said = 0; watched < limit; watched = seconds() - start) {
        *silent_s = age + watched;
        if (owner_is_earlier(o, &l->self) || owner_is_gone(o, &l->self)) return DEAD;
        if (watched > DOUBT_S && !said++)
            log_info("lock", "waits up to %.0f s for a sign of life from the owner of %s", limit,
                     l->folder);
        usleep((useconds_t)(LOOK_S * 1e6));
        if (!heartbeat(path, &last)) return VANISHED;
        if (difference(last, first) != 0) {
            *silent_s = age + (seconds() - start) - difference(last, first);
            return ALIVE;
        }
    }
    return DEAD;
}

/* 1 when lock.n, the highest, is a dead owner's; 0 when it has vanished; die_user when its owner
 * lives. */
static int is_dead(const struct lock *l, int64_t n, struct timespec now) {
    double silent_s;
    char *path = path_of(l, n), *text = file_read(path, 65536, NULL);
    struct owner o = owner_parse(text);
    char *name = owner_name(&o);
    enum life life = watch(l, path, &o, now, &silent_s);
    if (life == ALIVE) {
        unlink(l->temporary);
        die_user(EXIT_CONFIG,
                 "checkpoint.ckpt_dir: %s is in use by %s, whose heartbeat is %.1f s old; one job "
                 "at a time",
                 l->folder, name, silent_s > 0 ? silent_s : 0.);
    }
    const char *why = owner_is_earlier(&o, &l->self) ? "it was an earlier start of this job"
                      : owner_is_gone(&o, &l->self)  ? "its process has ended"
                                                     : "it has no heartbeat";
    if (life == DEAD)
        log_info("lock", "takes %s over from %s, last heard of %.0f s ago: %s", l->folder, name,
                 silent_s, why);
    memory_free(name);
    memory_free(text);
    memory_free(path);
    return life == DEAD;
}

/* ---- ours ---- */

/* The file is gone: makes it anew. With the mutex. */
static void remake(struct lock *l) {
    struct timespec now;
    int ok = write_temporary(l, &now) && create(l, l->path), reason = errno;
    unlink(l->temporary);
    if (ok && !l->remade++)
        log_warn("lock", "%s was removed while this job owns the folder; made anew", l->path);
    if (!ok && reason != EEXIST && !l->complained++)
        log_warn("lock", "%s was removed and cannot be made anew: %s", l->path, strerror(reason));
}

/* Is it ours still? With the mutex. */
static int look(struct lock *l) {
    if (l->lost) return 0;
    enum holder holder = holder_of(l, l->path);
    int64_t most = highest(l->folder);
    l->looked = seconds();
    if (holder == ANOTHERS || most > l->n || (holder == NOBODYS && most > 0 && most < l->n)) {
        char *path = path_of(l, most), *text = file_read(path, 65536, NULL);
        struct owner o = owner_parse(text);
        char *name = owner_name(&o);
        log_warn("lock", "%s has been taken over by %s", l->folder, name);
        memory_free(name);
        memory_free(text);
        memory_free(path);
        l->lost = 1;
    } else if (holder == NOBODYS)
        remake(l);
    return !l->lost;
}

static void *beat(void *context) {
    struct lock *l = context;
    pthread_mutex_lock(&l->mutex);
    while (!l->ending) {
        struct timespec until;
        if (look(l)) utimensat(AT_FDCWD, l->path, NULL, 0); /* NULL: the server's time */
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += BEAT_S;
        if (!l->ending) pthread_cond_timedwait(&l->wake, &l->mutex, &until);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

static void start_beating(struct lock *l) {
    sigset_t all, before;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&l->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&l->mutex, NULL);
    l->looked = seconds();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    if (pthread_create(&l->thread, NULL, beat, l) != 0) die("cannot start a thread");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Ends the heartbeat and gives the folder back. */
static void release(void *context) {
    struct lock *l = context;
    pthread_mutex_lock(&l->mutex);
    l->ending = 1;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->mutex);
    pthread_join(l->thread, NULL);
    if (holder_of(l, l->path) == OURS) unlink(l->path);
}

struct lock *lock_open(const char *folder) {
    struct lock *l = memory_alloc(sizeof *l);
    l->folder = memory_string(folder);
    l->self = owner_self();
    l->text = owner_text(&l->self);
    l->temporary = memory_format("%s/lock.%s.%lld.%lld.tmp", folder, l->self.host,
                                 (long long)l->self.pid, (long long)l->self.process_start);
    while (l->n == 0) {
        struct timespec now;
        if (!write_temporary(l, &now))
            die_user(EXIT_CONFIG, "checkpoint.ckpt_dir: %s: %s", l->temporary, strerror(errno));
        int64_t n = highest(folder);
        if (n > 0 && !is_dead(l, n, now)) continue;
        char *path = path_of(l, n + 1);
        int ok = create(l, path);
        /* ENOENT: who took the folder in between removed our temporary file */
        if (!ok && errno != EEXIST && errno != ENOENT)
            die_user(EXIT_CONFIG, "checkpoint.ckpt_dir: %s: %s", path, strerror(errno));
        if (ok && highest(folder) > n + 1) { /* lock.n+1 has come and gone since we looked */
            unlink(path);
            ok = 0;
        }
        if (ok)
            l->n = n + 1, l->path = path;
        else
            memory_free(path);
    }
    remove_leftovers(l);
    start_beating(l);
    before_leave(release, l);
    return l;
}

int lock_number(const struct lock *l) {
    return l ? (int)l->n : 0;
}

int lock_is_ours(struct lock *l) {
    if (!l) return 1;
    pthread_mutex_lock(&l->mutex);
    int ours = look(l);
    pthread_mutex_unlock(&l->mutex);
    return ours;
}

int lock_is_lost(struct lock *l) {
    if (!l) return 0;
    return l->lost || (seconds() - l->looked > LATE_S && !lock_is_ours(l));
}

void lock_close(struct lock *l) {
    if (!l) return;
    release(l);
    before_leave(NULL, NULL);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->mutex);
    memory_free(l->path);
    memory_free(l->temporary);
    memory_free(l->text);
    memory_free(l->folder);
    memory_free(l);
}
