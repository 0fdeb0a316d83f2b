#include "config.h"
#include "checkpoint/probe.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/folder.h"
#include "checkpoint/state.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

char *probe_name(const char *folder, int rank) {
    return memory_format("%s/regulon-probe-%d", folder, rank);
}

/* The file, whole, under its temporary name. */
static char *write_temporary(const char *path) {
    static const char text[] = "regulon tried whether it can write here; this file can go\n";
    char *problem = NULL;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return memory_format("cannot create %s: %s", path, strerror(errno));
    if (!file_write_all(fd, text, sizeof text - 1))
        problem = memory_format("cannot write %s: %s", path, strerror(errno));
    else if (fsync(fd) != 0)
        problem = memory_format("fsync of %s: %s", path, strerror(errno));
    if (close(fd) != 0 && !problem)
        problem = memory_format("closing %s: %s", path, strerror(errno));
    return problem;
}

char *probe_write(const char *folder, int rank) {
    char *path = probe_name(folder, rank), *temporary = memory_format("%s.tmp", path),
         *problem = write_temporary(temporary);
    if (!problem && rename(temporary, path) != 0)
        problem = memory_format("cannot rename %s: %s", temporary, strerror(errno));
    if (!problem && !file_sync(folder))
        problem = memory_format("fsync of %s: %s", folder, strerror(errno));
    memory_free(temporary);
    memory_free(path);
    return problem;
}

void probe_remove(const char *folder, int rank) {
    char *path = probe_name(folder, rank), *temporary = memory_format("%s.tmp", path);
    unlink(path);
    unlink(temporary);
    memory_free(temporary);
    memory_free(path);
}

char *probe_see(const char *folder, int n_ranks) {
    enum { TRIES = 50, PAUSE_US = 100000 };
    char *problem = NULL;
    for (int r = 0; r < n_ranks && !problem; r++) {
        char *path = probe_name(folder, r);
        for (int i = 0; i < TRIES && !file_exists(path); i++) usleep(PAUSE_US);
        if (!file_exists(path))
            problem = memory_format("does not see %s, which rank %d has written: the folder must "
                                    "be on a file system that all ranks share",
                                    path, r);
        memory_free(path);
    }
    return problem;
}

/* ---- space ---- */

double probe_free_bytes(const char *path) {
    struct statvfs s;
    if (statvfs(path, &s) != 0 || s.f_blocks == 0) return -1;
    return (double)s.f_bavail * (double)s.f_frsize;
}

double probe_checkpoint_bytes(double parameters, int tensors, int n_ranks) {
    enum { FILE_BYTES = 32 << 10, DATASET_BYTES = 1 << 10 }; /* as L0_sanity has them, and some */
    return parameters * N_STATES * sizeof(float) +
           (n_ranks + 2.0) * (FILE_BYTES + (double)tensors * N_STATES * DATASET_BYTES);
}

int64_t probe_most_checkpoints(const struct config *c) {
    int64_t every = c->checkpoint.save_every_n_steps, keep = c->checkpoint.max_checkpoints,
            stay = c->checkpoint.keep_every_n_steps, a = every, b = stay;
    if (every == 0) return 0;
    int64_t saves = (c->num_train_steps + every - 1) / every;
    if (keep == 0) return saves;
    while (b) { /* the greatest common divisor becomes a */
        int64_t rest = a % b;
        a = b, b = rest;
    }
    int64_t most = keep + 1;
    if (stay > 0 && every / a <= c->num_train_steps / stay)
        most += c->num_train_steps / (every / a * stay);
    return most < saves ? most : saves;
}

char *probe_space(double free_bytes, double checkpoint_bytes, int64_t most, int64_t there,
                  int *refuse) {
    char free_text[32], one[32], all[32];
    int64_t least = there > 0 ? 1 : 2, wanted = most - there > least ? most - there : least;
    *refuse = free_bytes < (double)least * checkpoint_bytes;
    if (free_bytes >= (double)wanted * checkpoint_bytes) return NULL;
    text_bytes(free_text, sizeof free_text, free_bytes);
    text_bytes(one, sizeof one, checkpoint_bytes);
    text_bytes(all, sizeof all, (double)(*refuse ? least : wanted) * checkpoint_bytes);
    if (*refuse)
        return memory_format("%s free, and a checkpoint has %s: %s are needed, since the one "
                             "before stays until the next is whole",
                             free_text, one, all);
    return memory_format("%s free, and a checkpoint has %s: for as many as checkpoint.* keeps %s "
                         "are needed",
                         free_text, one, all);
}

/* ---- a run ---- */

/* Rank 0. */
static void look_at_space(const struct grid *g, const struct config *c, int resumes) {
    const char *folder = c->checkpoint.ckpt_dir;
    checkpoint_remove_unfinished(folder); /* their room is free */
    struct shape s = shape_of(c);
    struct params *p = params_new(&s, g, c);
    double bytes = probe_checkpoint_bytes(params_count(p), p->n, g->n_ranks),
           free_bytes = probe_free_bytes(folder);
    int there = 0, refuse = 0;
    if (resumes) memory_free(checkpoint_list(folder, &there));
    char *problem = NULL;
    if (free_bytes >= 0)
        problem = probe_space(free_bytes, bytes, probe_most_checkpoints(c), there, &refuse);
    if (problem && refuse) die_user(EXIT_IO, "%s: %s", folder, problem);
    if (problem) log_warn("checkpoint", "%s: %s", folder, problem);
    memory_free(problem);
    params_free(p);
}

void probe_run(const struct grid *g, const struct config *c, int resumes) {
    const char *folder = c->checkpoint.ckpt_dir;
    char *problem = probe_write(folder, g->rank);
    if (problem) probe_remove(folder, g->rank);
    char *first = agree_problem(g, problem);
    char *unseen = !first && g->rank == 0 ? probe_see(folder, g->n_ranks) : NULL;
    int seen = agree_int(g, unseen == NULL); /* before anyone removes what rank 0 looks for */
    probe_remove(folder, g->rank);
    if (g->rank == 0) {
        if (first) die_user(EXIT_IO, "%s", first);
        if (!seen) die_user(EXIT_CONFIG, "rank 0 %s", unseen);
        if (c->checkpoint.save_every_n_steps > 0) look_at_space(g, c, resumes);
    }
    user_agree();
    memory_free(unseen);
    memory_free(first);
}
