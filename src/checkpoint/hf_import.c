#include "config.h"
#include "checkpoint/hf_import.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/checksums.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/index.h"
#include "checkpoint/shard.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This rank's rows of all tensors, in all kinds, without data. The caller frees the list. */
static struct piece *pieces_of(const struct params *p, const struct grid *g, int *n) {
    struct piece *list = memory_alloc_array((size_t)p->n * N_STATES, sizeof *list);
    *n = 0;
    for (int i = 0; i < p->n; i++) {
        const struct param *t = &p->list[i];
        int64_t first, rows;
        if (!state_rows(t, g->n_ranks, 1, g->rank, 0, &first, &rows)) continue;
        for (enum state_kind k = 0; k < N_STATES; k++)
            list[(*n)++] = (struct piece){.param = t,
                                          .kind = k,
                                          .first_row = first,
                                          .rows = rows,
                                          .n = (size_t)(rows * t->cols)};
    }
    return list;
}

static char *read_piece(void *context, const struct piece *p, int64_t first, int64_t n,
                        float *out) {
    struct weights *w = context;
    int i = (int)(p->param - weights_params(w)->list);
    return weights_read(w, i, p->first_row * p->param->cols + first, n, out);
}

/* Rank 0: the folder, with used.yaml. */
static char *begin(const char *temporary, const struct config *c, int *made) {
    char *text = NULL, *path = file_join(temporary, "used.yaml"),
         *problem = hf_begin_folder(temporary, "an import", made);
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) die("open_memstream: %s", strerror(errno));
    config_write(c, out);
    if (fclose(out) != 0) die("open_memstream: %s", strerror(errno));
    if (!problem && !file_write_atomic(path, text, bytes))
        problem = memory_format("%s: %s", path, strerror(errno));
    free(text);
    memory_free(path);
    return problem;
}

/* Rank 0, when all shards are down: what follows from them, and the name. all[n_ranks]. */
static char *finish(const char *temporary, const char *folder, const struct shard_header *h,
                    const struct config *c, struct checksum *all, const char *remarks) {
    struct shape s = shape_of(c);
    struct checksum *index = &all[h->dp_size];
    char *path = file_join(temporary, "index.h5"), *problem = index_write(temporary, h, c, &s);
    snprintf(index->name, sizeof index->name, "index.h5");
    if (!problem && !checksums_of_file(path, index->hash))
        problem = memory_format("%s: %s", path, strerror(errno));
    if (!problem && !checksums_write(temporary, all, h->dp_size + 1, remarks))
        problem = memory_format("%s: %s", temporary, strerror(errno));
    if (!problem && !file_publish(temporary, folder))
        problem = memory_format("%s: %s", folder, strerror(errno));
    memory_free(path);
    return problem;
}

/* This rank's shard, whole: NULL, or what failed. */
static char *write_shard(struct shard_writer *shard) {
    while (shard_writer_slice(shard)) continue;
    return memory_string(shard_writer_error(shard));
}

char *hf_import(struct weights *w, const struct grid *g, const struct config *c,
                const char *folder) {
    struct shard_header h = {.run_id = "imported",
                             .dp_size = g->n_ranks,
                             .ep_size = 1,
                             .dp_rank = g->rank,
                             .micro_batches = g->n_ranks * c->grad_acc_steps};
    int64_t bias_shape[2] = {c->model.num_hidden_layers, c->model.num_local_experts};
    float *none = memory_alloc_array((size_t)(bias_shape[0] * bias_shape[1]), sizeof *none);
    const float *bias = weights_bias(w) ? weights_bias(w) : none;
    int n, made = 0; /* rank 0: the folder is ours */
    struct piece *pieces = pieces_of(weights_params(w), g, &n);
    char *temporary = memory_format("%s.tmp", folder), *name = shard_name(g->rank, 0),
         *path = file_join(temporary, name),
         *problem = agree_problem(g, g->rank == 0 ? begin(temporary, c, &made) : NULL);
    struct shard_writer *shard =
        shard_writer_new(path, &h, c, pieces, n, g->rank == 0 ? bias : NULL, bias_shape);
    shard_writer_pull(shard, read_piece, w);
    if (!problem) problem = agree_problem(g, write_shard(shard));
    if (!problem) {
        struct checksum mine = {.name = ""},
                        *all = memory_alloc_array((size_t)g->n_ranks + 1, sizeof *all);
        snprintf(mine.name, sizeof mine.name, "%s", name);
        snprintf(mine.hash, sizeof mine.hash, "%s", shard_writer_hash(shard));
        MPI_Gather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, 0, g->world);
        char *remarks = shard_gather_remarks(g, shard);
        problem =
            agree_problem(g, g->rank == 0 ? finish(temporary, folder, &h, c, all, remarks) : NULL);
        memory_free(remarks);
        memory_free(all);
    }
    if (problem && made) file_remove_folder(temporary);
    shard_writer_free(shard);
    memory_free(path);
    memory_free(name);
    memory_free(temporary);
    memory_free(pieces);
    memory_free(none);
    return problem;
}
