#include "config.h"
#include "checkpoint/saver.h"
#include "base/die.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checksums.h"
#include "checkpoint/folder.h"
#include "checkpoint/index.h"
#include "checkpoint/shard.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum phase { IDLE, WRITING, COMMITTING };
enum outcome { UNDER_WAY, DONE, FAILED };                /* of the I/O thread's part */
enum { WRITTEN, NOT_WRITTEN, COMMITTED, NOT_COMMITTED }; /* the votes */

/* What a rank says of its shard. */
struct written {
    struct checksum checksum;
    int64_t bytes;
};

struct saver {
    const struct optimizer *o;
    char *folder;
    int64_t keep, every;
    struct shard_header header;
    struct lock *lock;           /* of the folder, rank 0; NULL: nobody else writes in it */
    int owner, attempt;          /* numbers of the lock and of the save: no two attempts ever share
                                    a folder */
    struct piece *live, *copies; /* [n] the state where it lies; the copies that are written */
    int n;
    float *stage; /* all copies, each at a multiple of SHARD_ALIGNMENT */
    float *bias;  /* [L, E] copy, rank 0 */
    enum phase phase;
    struct shard_writer *writer;
    char *temporary, *final; /* step_N.OWNER.ATTEMPT.tmp, step_N */
    struct written *written; /* [n_ranks] rank 0 */
    char *remarks;           /* of all ranks' datasets, rank 0 */
    double bytes;
    atomic_int outcome;
    double start;
    struct saver_figures figures;
};

struct saver *saver_new(const struct optimizer *o, const char *folder, const char *run_id,
                        int64_t keep, int64_t every) {
    struct saver *s = memory_alloc(sizeof *s);
    const struct grid *g = o->model->be->grid;
    enum { UNIT = SHARD_ALIGNMENT / sizeof(float) };
    size_t floats = UNIT;
    s->o = o;
    s->folder = memory_string(folder);
    s->keep = keep, s->every = every;
    s->header =
        (struct shard_header){.dp_size = g->dp_size,
                              .ep_size = g->ep_size,
                              .dp_rank = g->dp_rank,
                              .ep_rank = g->ep_rank,
                              .micro_batches = g->n_ranks * o->model->config->grad_acc_steps};
    snprintf(s->header.run_id, sizeof s->header.run_id, "%s", run_id);
    s->live = state_to_save(o, &s->n);
    s->copies = memory_alloc_array((size_t)s->n, sizeof *s->copies);
    for (int i = 0; i < s->n; i++) floats += (s->live[i].n + UNIT - 1) / UNIT * UNIT;
    s->stage = memory_pages(floats, sizeof *s->stage);
    float *at = s->stage + (UNIT - (uintptr_t)s->stage / sizeof(float) % UNIT) % UNIT;
    for (int i = 0; i < s->n; i++) {
        s->copies[i] = s->live[i];
        s->copies[i].data = at;
        at += (s->live[i].n + UNIT - 1) / UNIT * UNIT;
    }
    s->bias = memory_alloc_array((size_t)o->model->s.L * (size_t)o->model->s.E, sizeof *s->bias);
    s->written = memory_alloc_array((size_t)g->n_ranks, sizeof *s->written);
    s->figures.step = -1;
    return s;
}

void saver_free(struct saver *s) {
    if (!s) return;
    memory_free(s->written);
    memory_free(s->bias);
    memory_free(s->stage);
    memory_free(s->copies);
    memory_free(s->live);
    memory_free(s->folder);
    memory_free(s);
}

void saver_guard(struct saver *s, struct lock *lock) {
    s->lock = lock;
    s->owner = agree_int(s->o->model->be->grid, lock_number(lock));
}

/* ---- in the I/O thread ---- */

static int write_slice(void *context) {
    struct saver *s = context;
    if (shard_writer_slice(s->writer)) return 1;
    const char *error = shard_writer_error(s->writer);
    if (error) log_warn("checkpoint", "%s", error);
    atomic_store(&s->outcome, error ? FAILED : DONE);
    return 0;
}

/* Why nothing may be written in the folder any more, NULL: it is ours. The caller frees it. */
static char *check_lock(struct saver *s) {
    return lock_is_ours(s->lock)
               ? NULL
               : memory_format("%s: not saved, the run has another owner", s->final);
}

/* Why the shards cannot be published, NULL: each is there at its full length. The caller frees it.
 */
static char *check_shards(const struct saver *s) {
    char *problem = NULL;
    for (int r = 0; r < s->header.dp_size * s->header.ep_size && !problem; r++) {
        char *path = file_join(s->temporary, s->written[r].checksum.name);
        int64_t bytes = file_size(path);
        if (bytes != s->written[r].bytes)
            problem = memory_format("%s: %lld bytes were written, %lld are there", path,
                                    (long long)s->written[r].bytes, (long long)bytes);
        memory_free(path);
    }
    return problem;
}

/* Gives the folder its name. Old checkpoints go only when that is known to last. */
static char *publish(struct saver *s) {
    if (!file_sync(s->temporary) || rename(s->temporary, s->final) != 0)
        return memory_format("%s: %s", s->temporary, strerror(errno));
    if (file_sync(s->folder))
        checkpoint_prune(s->folder, s->keep, s->every);
    else
        log_warn("checkpoint", "%s: %s; older checkpoints are kept", s->folder, strerror(errno));
    return NULL;
}

static int commit(void *context) {
    struct saver *s = context;
    int n = s->header.dp_size * s->header.ep_size;
    struct checksum *all = memory_alloc_array((size_t)n + 1, sizeof *all);
    for (int r = 0; r < n; r++) all[r] = s->written[r].checksum;
    char *problem = check_lock(s), *index = file_join(s->temporary, "index.h5");
    if (!problem) problem = check_shards(s);
    if (!problem)
        problem = index_write(s->temporary, &s->header, s->o->model->config, &s->o->model->s);
    snprintf(all[n].name, sizeof all[n].name, "index.h5");
    if (!problem && !checksums_of_file(index, all[n].hash))
        problem = memory_format("%s: %s", index, strerror(errno));
    if (!problem && !checksums_write(s->temporary, all, n + 1, s->remarks))
        problem = memory_format("%s: %s", s->temporary, strerror(errno));
    if (!problem) problem = check_lock(s); /* it took a while; the rename is what counts */
    if (!problem) problem = publish(s);
    if (problem) log_warn("checkpoint", "%s", problem);
    atomic_store(&s->outcome, problem ? FAILED : DONE);
    memory_free(problem);
    memory_free(index);
    memory_free(all);
    return 0;
}

static int remove_temporary(void *context) {
    file_remove_folder(context);
    memory_free(context);
    return 0;
}

/* ---- in the main thread ---- */

void saver_begin(struct saver *s, struct counters counters) {
    struct model *m = s->o->model;
    const struct grid *g = m->be->grid;
    int64_t bias_shape[2] = {m->s.L, m->s.E};
    s->start = MPI_Wtime();
    s->header.counters = counters;
    for (int i = 0; i < s->n; i++)
        if (s->live[i].data)
            m->be->download(m->be, s->copies[i].data, s->live[i].data,
                            s->live[i].n * sizeof *s->stage);
    m->be->download(m->be, s->bias, m->bias, (size_t)(m->s.L * m->s.E) * sizeof *s->bias);
    s->final = checkpoint_folder(s->folder, counters.step);
    s->temporary = memory_format("%s.%d.%d.tmp", s->final, s->owner, ++s->attempt);
    /* every rank: one may come before another. What is wrong shows when the shard is created. */
    file_make_folders(s->temporary);
    char *name = shard_name(g->dp_rank, g->ep_rank), *path = file_join(s->temporary, name);
    s->writer = shard_writer_new(path, &s->header, m->config, s->copies, s->n,
                                 g->rank == 0 ? s->bias : NULL, bias_shape);
    memory_free(path);
    memory_free(name);
    atomic_store(&s->outcome, UNDER_WAY);
    s->phase = WRITING;
    s->figures = (struct saver_figures){.step = counters.step, .stall_s = MPI_Wtime() - s->start};
    io_post(write_slice, s);
}

void saver_vote(const struct saver *s, double votes[SAVER_VOTES]) {
    int outcome = atomic_load(&s->outcome);
    memset(votes, 0, SAVER_VOTES * sizeof *votes);
    if (s->phase == WRITING && outcome != UNDER_WAY)
        votes[outcome == DONE ? WRITTEN : NOT_WRITTEN] = 1;
    if (s->phase == COMMITTING && s->o->model->be->grid->rank == 0 && outcome != UNDER_WAY)
        votes[outcome == DONE ? COMMITTED : NOT_COMMITTED] = 1;
}

static void end(struct saver *s) {
    shard_writer_free(s->writer);
    s->writer = NULL;
    memory_free(s->remarks);
    s->remarks = NULL;
    memory_free(s->final);
    memory_free(s->temporary);
    s->final = s->temporary = NULL;
    s->phase = IDLE;
}

static int give_up(struct saver *s) {
    if (s->o->model->be->grid->rank == 0 && lock_is_ours(s->lock))
        io_post(remove_temporary, memory_string(s->temporary));
    end(s);
    return -1;
}

/* All shards are down: rank 0 gets their hashes and commits. */
static void start_commit(struct saver *s) {
    const struct grid *g = s->o->model->be->grid;
    struct written mine;
    double bytes = (double)shard_writer_bytes(s->writer);
    char *name = shard_name(g->dp_rank, g->ep_rank);
    memset(&mine, 0, sizeof mine);
    mine.bytes = shard_writer_bytes(s->writer);
    snprintf(mine.checksum.name, sizeof mine.checksum.name, "%s", name);
    snprintf(mine.checksum.hash, sizeof mine.checksum.hash, "%s", shard_writer_hash(s->writer));
    MPI_Gather(&mine, sizeof mine, MPI_BYTE, s->written, sizeof mine, MPI_BYTE, 0, g->world);
    MPI_Reduce(&bytes, &s->bytes, 1, MPI_DOUBLE, MPI_SUM, 0, g->world);
    s->remarks = shard_gather_remarks(g, s->writer);
    memory_free(name);
    atomic_store(&s->outcome, UNDER_WAY);
    s->phase = COMMITTING;
    if (g->rank == 0) io_post(commit, s);
}

int saver_count(struct saver *s, const double sums[SAVER_VOTES]) {
    int n_ranks = s->o->model->be->grid->n_ranks;
    if (s->phase == WRITING && sums[WRITTEN] + sums[NOT_WRITTEN] >= n_ranks) {
        if (sums[NOT_WRITTEN] > 0) return give_up(s);
        start_commit(s);
    } else if (s->phase == COMMITTING && sums[NOT_COMMITTED] > 0)
        return give_up(s);
    else if (s->phase == COMMITTING && sums[COMMITTED] > 0) {
        s->figures.total_s = MPI_Wtime() - s->start;
        s->figures.bytes = s->bytes;
        end(s);
        return 1;
    }
    return 0;
}

int saver_drain(struct saver *s) {
    struct backend *be = s->o->model->be;
    int result = 0;
    while (s->phase != IDLE) {
        double votes[SAVER_VOTES];
        saver_vote(s, votes);
        agree_sum(be->grid, votes, SAVER_VOTES);
        result = saver_count(s, votes);
        if (s->phase != IDLE) usleep(1000);
    }
    return result;
}

struct saver_figures saver_figures(const struct saver *s) {
    return s->figures;
}
