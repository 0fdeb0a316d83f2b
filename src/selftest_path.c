/* A folder, used as a run uses it. Large files are unlinked as soon as they are open, so that a
 * kill leaves none; the small ones are removed whatever failed. */
#include "config.h"
#include "selftest.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "checkpoint/probe.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static char *own_name(const char *folder, int rank, const char *what) {
    return memory_format("%s/regulon-selftest-%d.%s", folder, rank, what);
}

/* A second name for the probe's file, as a lock may be made. */
static char *try_link(const char *folder, int rank) {
    char *from = probe_name(folder, rank), *to = own_name(folder, rank, "link"), *problem = NULL;
    if (link(from, to) != 0)
        problem = memory_format("cannot link %s: %s", to, strerror(errno));
    else if (unlink(to) != 0)
        problem = memory_format("cannot remove %s: %s", to, strerror(errno));
    memory_free(to);
    memory_free(from);
    return problem;
}

/* All ranks at once create one file exclusively: one may. Collective. */
static char *try_exclusive(const struct grid *g, const char *folder) {
    char *path = own_name(folder, 0, "lock"), *problem = NULL;
    if (g->rank == 0) unlink(path); /* of a selftest that was killed */
    MPI_Barrier(g->world);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), reason = errno,
        won = fd >= 0, winners;
    if (won)
        close(fd);
    else if (reason != EEXIST)
        problem = memory_format("cannot create %s: %s", path, strerror(reason));
    MPI_Allreduce(&won, &winners, 1, MPI_INT, MPI_SUM, g->world);
    if (winners > 1 && won)
        problem = memory_format("%d ranks could create %s exclusively", winners, path);
    if (won) unlink(path);
    memory_free(path);
    return problem;
}

static char *try_remove(const char *folder, int rank) {
    char *path = probe_name(folder, rank), *problem = NULL;
    if (unlink(path) != 0) problem = memory_format("cannot remove %s: %s", path, strerror(errno));
    memory_free(path);
    return problem;
}

/* For information: Regulon needs no fcntl locks. NULL: they work on this rank. */
static const char *try_fcntl_lock(const char *folder, int rank) {
    char *path = own_name(folder, rank, "fcntl");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const char *reason = fd < 0 || fcntl(fd, F_SETLK, &lock) != 0 ? strerror(errno) : NULL;
    if (fd >= 0) close(fd);
    unlink(path);
    memory_free(path);
    return reason;
}

/* ---- speed ---- */

enum { BLOCK = 4 << 20 };

struct transfer {
    int fd, rank;
    char *path; /* for messages */
    int64_t bytes;
    char *block; /* [BLOCK] random bytes; each block of the file begins with a stamp of its own */
    char *problem;
};

static void stamp(const struct transfer *f, int64_t offset, char *block) {
    uint64_t mark = random_bits((uint64_t)f->rank, RANDOM_TEST, (uint64_t)offset);
    memcpy(block, &mark, sizeof mark);
}

static void open_transfer(struct transfer *f, const char *folder) {
    f->path = own_name(folder, f->rank, "speed");
    f->block = memory_alloc(BLOCK);
    for (size_t i = 0; i < BLOCK / sizeof(uint64_t); i++) {
        uint64_t bits = random_bits((uint64_t)f->rank, RANDOM_TEST, i);
        memcpy(f->block + i * sizeof bits, &bits, sizeof bits);
    }
    f->fd = open(f->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->fd < 0)
        f->problem = memory_format("cannot create %s: %s", f->path, strerror(errno));
    else
        unlink(f->path);
}

static void close_transfer(struct transfer *f) {
    if (f->fd >= 0) close(f->fd);
    memory_free(f->block);
    memory_free(f->path);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void write_all(struct transfer *f) {
    for (int64_t at = 0; at < f->bytes && !f->problem; at += BLOCK) {
        stamp(f, at, f->block);
        if (!file_write_all_at(f->fd, f->block, (size_t)least(BLOCK, f->bytes - at), at))
            f->problem = memory_format("cannot write %s at %lld: %s", f->path, (long long)at,
                                       strerror(errno));
    }
    if (!f->problem && fsync(f->fd) != 0)
        f->problem = memory_format("fsync of %s: %s", f->path, strerror(errno));
}

static void read_all(struct transfer *f) {
    char *block = memory_alloc(BLOCK);
    for (int64_t at = 0; at < f->bytes && !f->problem;) {
        int64_t in = at % BLOCK, want = least(BLOCK - in, f->bytes - at);
        ssize_t got = pread(f->fd, block, (size_t)want, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        stamp(f, at - in, f->block);
        if (got <= 0)
            f->problem = memory_format("cannot read %s at %lld: %s", f->path, (long long)at,
                                       got < 0 ? strerror(errno) : "the file is short");
        else if (memcmp(block, f->block + in, (size_t)got) != 0)
            f->problem = memory_format("%s: other bytes than those written, at %lld", f->path,
                                       (long long)at);
        else
            at += got;
    }
    memory_free(block);
}

/* Bytes a second of all ranks together while each does `what`. Collective. */
static double speed(const struct grid *g, struct transfer *f, void (*what)(struct transfer *f)) {
    MPI_Barrier(g->world);
    double start = MPI_Wtime(), slowest;
    if (!f->problem) what(f);
    double s = MPI_Wtime() - start;
    MPI_Allreduce(&s, &slowest, 1, MPI_DOUBLE, MPI_MAX, g->world);
    return (double)f->bytes * g->n_ranks / slowest;
}

/* At most a quarter of the space that is free to all, in whole blocks, is written. */
static void check_speed(struct selftest *t, const char *folder, int64_t bytes) {
    double here = probe_free_bytes(folder), free_bytes;
    char text[3][32];
    MPI_Allreduce(&here, &free_bytes, 1, MPI_DOUBLE, MPI_MIN, t->g->world);
    selftest_line(t, "space", NULL, "%s free",
                  free_bytes < 0 ? "unknown" : text_bytes(text[0], sizeof text[0], free_bytes));
    if (free_bytes >= 0 && (double)bytes * t->g->n_ranks > free_bytes / 4)
        bytes = (int64_t)(free_bytes / 4 / t->g->n_ranks) / 4096 * 4096;
    struct transfer f = {.rank = t->g->rank, .bytes = bytes};
    open_transfer(&f, folder);
    if (bytes == 0 && !f.problem) f.problem = memory_string("there is no space to write to");
    double writing = speed(t->g, &f, write_all);
    if (f.fd >= 0) posix_fadvise(f.fd, 0, 0, POSIX_FADV_DONTNEED);
    double reading = speed(t->g, &f, read_all);
    selftest_line(
        t, "speed", f.problem,
        "%s a rank: written with fsync at %s/s by all ranks, read back at %s/s (the cache "
        "may help)",
        text_bytes(text[0], sizeof text[0], (double)bytes),
        text_bytes(text[1], sizeof text[1], writing), text_bytes(text[2], sizeof text[2], reading));
    close_transfer(&f);
}

/* ---- HDF5 ---- */

enum { VALUES = 4096 };

static void write_values(const char *path, const int *values) {
    hsize_t size = VALUES;
    hid_t access = h5_file_access(), file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access),
          space = H5Screate_simple(1, &size, NULL),
          d = H5Dcreate2(file, "values", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT,
                         H5P_DEFAULT);
    H5Dwrite(d, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Fflush(file, H5F_SCOPE_GLOBAL);
    H5Dclose(d);
    H5Sclose(space);
    H5Fclose(file);
    H5Pclose(access);
}

static void read_values(const char *path, int *values) {
    hid_t access = h5_file_access(), file = H5Fopen(path, H5F_ACC_RDONLY, access),
          d = H5Dopen2(file, "values", H5P_DEFAULT);
    H5Dread(d, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dclose(d);
    H5Fclose(file);
    H5Pclose(access);
}

static char *try_hdf5(const char *folder, int rank) {
    char *path = own_name(folder, rank, "h5"), *problem = NULL;
    int *out = memory_alloc_array(VALUES, sizeof *out),
        *in = memory_alloc_array(VALUES, sizeof *in);
    for (int i = 0; i < VALUES; i++) out[i] = rank + 3 * i;
    h5_tolerate();
    write_values(path, out);
    read_values(path, in);
    const char *reason = h5_tolerate_end();
    if (reason)
        problem = memory_format("%s: %s", path, reason);
    else if (memcmp(out, in, VALUES * sizeof *out) != 0)
        problem = memory_format("%s: other values than those written", path);
    unlink(path);
    memory_free(in);
    memory_free(out);
    memory_free(path);
    return problem;
}

/* ---- */

/* What needs more than that a file can be written. */
static void check_use(struct selftest *t, const char *folder, int64_t bytes) {
    int rank = t->g->rank;
    selftest_line(t, "shared", probe_see(folder, t->g->n_ranks),
                  "every rank sees every rank's file");
    selftest_line(t, "link", try_link(folder, rank), "a second name for a file");
    selftest_line(t, "exclusive", try_exclusive(t->g, folder),
                  "of all ranks one creates a file that must not exist");
    const char *reason = try_fcntl_lock(folder, rank);
    int without = agree_any(t->g, reason != NULL);
    selftest_line(t, "locks", NULL, "fcntl: %s (they are not needed)",
                  !without ? "yes"
                  : reason ? reason
                           : "not on all ranks");
    check_speed(t, folder, bytes);
    selftest_line(t, "HDF5 file", try_hdf5(folder, rank), "created, flushed, read back");
}

void selftest_path(struct selftest *t, const char *folder, int64_t bytes) {
    int rank = t->g->rank;
    char *problem = probe_write(folder, rank);
    if (!selftest_line(t, "write", problem, "%s: create, write, fsync, rename", folder)) {
        probe_remove(folder, rank);
        return;
    }
    check_use(t, folder, bytes);
    MPI_Barrier(t->g->world); /* all have looked at each other's files */
    selftest_line(t, "remove", try_remove(folder, rank), "the files are gone");
    probe_remove(folder, rank);
}
