#include "config.h"
#include "checkpoint/restore.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checksums.h"
#include "checkpoint/contents.h"
#include "checkpoint/folder.h"
#include "checkpoint/hf.h"
#include "checkpoint/hf_folder.h"
#include <stdlib.h>
#include <string.h>

/* Says what is wrong, if anything is, and agrees: 1 when all is well on every rank. */
static int all_well(const struct grid *g, char *problem) {
    if (problem) log_warn("checkpoint", "%s", problem);
    int bad = problem != NULL;
    memory_free(problem);
    return !agree_any(g, bad);
}

/* The files of a checkpoint against their hashes, file i on rank i mod ranks. */
static int verify(const struct grid *g, const char *folder) {
    struct checksum *list = NULL;
    int n = 0;
    if (!all_well(g, g->rank == 0 ? checksums_read(folder, &list, &n) : NULL)) return 0;
    MPI_Bcast(&n, 1, MPI_INT, 0, g->world);
    if (g->rank != 0) list = memory_alloc_array((size_t)n, sizeof *list);
    MPI_Bcast(list, n * (int)sizeof *list, MPI_BYTE, 0, g->world);
    char *problem = NULL;
    for (int i = g->rank; i < n && !problem; i += g->n_ranks)
        problem = checksums_verify(folder, &list[i]);
    memory_free(list);
    return all_well(g, problem);
}

/* The pieces of which the shard of (d, e) holds rows, into list[n] their numbers; returns how many.
 */
static int pieces_in(const struct shard_header *h, struct params *const *tables, int d, int e,
                     const struct params *mine, const struct piece *pieces, int n, int *list) {
    int found = 0;
    for (int i = 0; i < n; i++) {
        const struct param *t = &tables[e]->list[pieces[i].param - mine->list];
        int64_t first, rows;
        if (state_rows(t, h->dp_size, h->ep_size, d, e, &first, &rows) &&
            first < pieces[i].first_row + pieces[i].rows && pieces[i].first_row < first + rows)
            list[found++] = i;
    }
    return found;
}

/* Reads the pieces with these numbers from one shard; be: as shard_read. */
static char *read_shard(struct backend *be, const char *folder, int d, int e, struct piece *pieces,
                        size_t *covered, const int *list, int n, float *bias, size_t n_bias) {
    char *name = shard_name(d, e), *path = file_join(folder, name), *problem;
    struct piece *some = memory_alloc_array((size_t)n + 1, sizeof *some);
    size_t *filled = memory_alloc_array((size_t)n + 1, sizeof *filled);
    for (int i = 0; i < n; i++) some[i] = pieces[list[i]];
    problem = shard_read(be, path, some, n, filled, bias, n_bias);
    for (int i = 0; i < n; i++) covered[list[i]] += filled[i];
    memory_free(filled);
    memory_free(some);
    memory_free(path);
    memory_free(name);
    return problem;
}

/* Fills pieces from the shards of the grid in h, and the selection bias; opens only the shards that
 * hold rows of them, and the first, which has the bias. */
static char *read_pieces(struct model *m, struct backend *be, const char *folder,
                         const struct shard_header *h, struct piece *pieces, int n) {
    size_t n_bias = (size_t)m->s.L * (size_t)m->s.E,
           *covered = memory_alloc_array((size_t)n, sizeof *covered);
    float *bias = memory_alloc_array(n_bias, sizeof *bias);
    int *list = memory_alloc_array((size_t)n, sizeof *list);
    struct params **tables = state_tables(&m->s, m->config, h->dp_size, h->ep_size);
    char *problem = NULL;
    for (int d = 0; d < h->dp_size && !problem; d++)
        for (int e = 0; e < h->ep_size && !problem; e++) {
            int k = pieces_in(h, tables, d, e, m->params, pieces, n, list), first = d + e == 0;
            if (k == 0 && !first) continue;
            problem =
                read_shard(be, folder, d, e, pieces, covered, list, k, first ? bias : NULL, n_bias);
        }
    state_tables_free(tables, h->ep_size);
    memory_free(list);
    for (int i = 0; i < n && !problem; i++)
        if (covered[i] != pieces[i].n)
            problem = memory_format("%s: %zu of %zu values of %s/%s", folder, covered[i],
                                    pieces[i].n, state_name(pieces[i].kind), pieces[i].param->name);
    if (!problem) model_set_bias(m, bias);
    memory_free(bias);
    memory_free(covered);
    return problem;
}

/* The same, and the header of shard 0; `pieces` are freed. */
static char *read_state(struct model *m, struct backend *be, const char *folder,
                        struct shard_header *h, struct piece *pieces, int n) {
    char *name = shard_name(0, 0), *path = file_join(folder, name),
         *problem = shard_read_header(path, h);
    if (!problem) problem = read_pieces(m, be, folder, h, pieces, n);
    memory_free(pieces);
    memory_free(path);
    memory_free(name);
    return problem;
}

/* The steps of a run's whole checkpoints, newest first, on every rank; the caller frees the list.
 */
static int64_t *list_steps(const struct grid *g, const char *run, int *n) {
    int64_t *steps = g->rank == 0 ? checkpoint_list(run, n) : NULL;
    MPI_Bcast(n, 1, MPI_INT, 0, g->world);
    if (g->rank != 0) steps = memory_alloc_array((size_t)*n + 1, sizeof *steps);
    if (*n > 0) MPI_Bcast(steps, *n, MPI_INT64_T, 0, g->world);
    return steps;
}

int checkpoint_restore(struct optimizer *o, const char *run, struct shard_header *header) {
    struct model *m = o->model;
    const struct grid *g = m->be->grid;
    int n = 0, found = 0;
    int64_t *steps = list_steps(g, run, &n);
    for (int i = 0; i < n && !found; i++) {
        int n_pieces;
        struct piece *pieces = state_to_load(o, &n_pieces);
        char *folder = checkpoint_folder(run, steps[i]);
        if (verify(g, folder))
            found = all_well(g, read_state(m, m->be, folder, header, pieces, n_pieces));
        else
            memory_free(pieces);
        if (!found) log_info("checkpoint", "%s cannot be used", folder);
        memory_free(folder);
    }
    memory_free(steps);
    if (found) o->t = header->counters.updates, model_publish(m);
    return found;
}

/* Why the checkpoint is of another model, NULL: it has the same tensors, no more and no fewer. */
static char *other_model(const struct config *config, const char *folder) {
    struct shape s = shape_of(config);
    struct params *p = params_new_whole(&s, config);
    struct contents c = {.folder = NULL};
    char *problem = contents_files(&c, folder);
    if (!problem) problem = contents_tensors(&c);
    for (int i = 0; i < p->n && !problem; i++) {
        const struct param *t = &p->list[i], *there = NULL;
        for (int k = 0; k < c.n_tensors && !there; k++)
            if (strcmp(c.tensors[k].param.name, t->name) == 0) there = &c.tensors[k].param;
        if (!there)
            problem = memory_format("%s: has no tensor '%s'", folder, t->name);
        else if (there->n_dims != t->n_dims || memcmp(there->dims, t->dims, sizeof t->dims) != 0)
            problem = memory_format("%s: tensor '%s' has another shape than the model's", folder,
                                    t->name);
    }
    if (!problem && c.n_tensors != p->n)
        problem = memory_format("%s: has %d tensors, the model %d", folder, c.n_tensors, p->n);
    contents_close(&c);
    params_free(p);
    return problem;
}

int checkpoint_is_sound(const struct grid *g, const char *folder, const struct config *c) {
    return verify(g, folder) && all_well(g, g->rank == 0 ? other_model(c, folder) : NULL);
}

char *checkpoint_find_weights(const char *path) {
    char *sums = file_join(path, "checksums"), *found = NULL;
    if (hf_folder_exists(path) || file_exists(sums)) found = memory_string(path);
    memory_free(sums);
    if (found) return found;
    char *final = file_join(path, "final_model");
    int n, ended = hf_folder_exists(final);
    int64_t *steps = checkpoint_list(path, &n), step = ended ? hf_step(final) : -1;
    if (n > 0 && (!ended || (step >= 0 && steps[0] >= step)))
        found = checkpoint_folder(path, steps[0]);
    else if (ended)
        found = memory_string(final);
    memory_free(steps);
    memory_free(final);
    return found;
}

char *checkpoint_find_deck(const char *path, const char *weights) {
    char *real = realpath(path, NULL); /* whatever it is called from here */
    if (!real) return NULL;
    char *plain = memory_string(real);
    free(real);
    char *above = file_folder(plain), *sums = file_join(path, "checksums"),
         *hf = file_join(weights, "config.json");
    char *places[] = {file_join(path, "used.yaml"), file_join(above, "used.yaml")}, *found = NULL;
    int of_a_run = file_exists(sums) || strcmp(file_basename(plain), "final_model") == 0;
    if (file_exists(places[0]))
        found = memory_string(places[0]);
    else if (of_a_run && file_exists(places[1]))
        found = memory_string(places[1]);
    else if (hf_folder_exists(weights) && file_exists(hf))
        found = memory_string(hf);
    char *const owned[] = {plain, above, sums, hf, places[0], places[1]};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) memory_free(owned[i]);
    return found;
}

char *checkpoint_share_name(const struct grid *g, const char *text) {
    int n = agree_int(g, g->rank == 0 ? (int)strlen(text) : 0);
    char *copy = g->rank == 0 ? memory_string(text) : memory_alloc((size_t)n + 1);
    MPI_Bcast(copy, n, MPI_CHAR, 0, g->world);
    return copy;
}
