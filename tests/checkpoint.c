/* Checkpoints saved on each grid of up to four ranks, loaded and saved again on each other one,
 * then loaded on one rank: every weight, moment and bias byte-equal; moments of tensors that were
 * frozen are zero. */
#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "checkpoint/saver.h"
#include "tap.h"
#include "trial.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char deck[] =
    "num_train_steps: 20\n"
    "model: {vocab_size: 130, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2,\n"
    "  num_attention_heads: 2, num_local_experts: 4, num_experts_per_tok: 2}\n"
    "dataset: {path: unused, max_seq_length: 16}\n";

static const char frozen[] = "*.experts.* *q_proj* *norm*";
static int freezes; /* the runs that save freeze those */

/* Different values everywhere, a function of the logical place alone, so that no grid changes them.
 */
static float filled(const struct model *m, const struct piece *p, size_t k) {
    if (freezes && p->kind != STATE_MASTER && params_match(p->param, frozen)) return 0;
    return random_normal(7, RANDOM_INIT + (uint64_t)(p->param - m->params->list) * 4 + p->kind,
                         (uint64_t)(p->first_row * p->param->cols) + k);
}

static void fill(struct trial *t) {
    int n;
    struct piece *list = state_to_load(t->o, &n);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < list[i].n; k++) list[i].data[k] = filled(t->m, &list[i], k);
    for (int k = 0; k < t->m->s.L * t->m->s.E; k++) t->m->bias[k] = 0.01f * (float)k;
    memory_free(list);
}

/* Weights of this rank, those that others update among them, that are not fill's. */
static int64_t wrong_weights(const struct model *m) {
    int64_t wrong = 0;
    float *all = memory_alloc_array(m->sizes.weights, sizeof *all);
    m->be->download_real(m->be, all, m->weights, m->sizes.weights);
    for (int i = 0; i < m->params->n; i++) {
        const struct param *t = &m->params->list[i];
        const struct share *s = &m->shares[i];
        struct piece p = {.param = t,
                          .kind = STATE_MASTER,
                          .first_row = t->first_row + (int64_t)s->kept_first / t->cols};
        for (size_t k = 0; k < s->kept_n; k++) wrong += all[s->weight + k] != filled(m, &p, k);
    }
    memory_free(all);
    return wrong;
}

/* What this rank holds of a state that is not fill's. */
static int64_t count_wrong(struct trial *t) {
    int64_t wrong = 0;
    int n;
    struct piece *list = state_to_load(t->o, &n);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < list[i].n; k++)
            wrong += list[i].data[k] != filled(t->m, &list[i], k);
    for (int k = 0; k < t->m->s.L * t->m->s.E; k++) wrong += t->m->bias[k] != 0.01f * (float)k;
    memory_free(list);
    return wrong + wrong_weights(t->m);
}

static void save(struct trial *t, const char *folder, int64_t step) {
    struct saver *s = saver_new(t->o, folder, "0123456789abcdef", /*keep=*/2, /*every=*/0);
    saver_begin(s, (struct counters){.step = step, .updates = step - 1, .tokens = 1000 * step});
    saver_drain(s);
    saver_free(s);
}

struct grid_size {
    int dp, ep;
};
static const struct grid_size grids[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}};
enum { N_GRIDS = sizeof grids / sizeof *grids };
static const char *const shards[] = {"none", "optimizer", "full"};

/* The first n ranks, MPI_COMM_NULL on the others. */
static MPI_Comm first_ranks(int n) {
    int rank;
    MPI_Comm comm;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank < n ? 0 : MPI_UNDEFINED, rank, &comm);
    return comm;
}

static void open_grid(struct trial *t, MPI_Comm comm, struct grid_size g, const char *shard,
                      int with_frozen) {
    char *text = memory_format("%sparallelism.shard: %s\n%s%s%s\n", deck, shard,
                               with_frozen ? "train.freeze: '" : "", with_frozen ? frozen : "",
                               with_frozen ? "'" : "");
    trial_open(t, comm, g.dp, g.ep, text);
    memory_free(text);
}

static void save_filled(struct grid_size g, const char *shard, const char *to) {
    MPI_Comm comm = first_ranks(g.dp * g.ep);
    struct trial t;
    if (comm != MPI_COMM_NULL) {
        open_grid(&t, comm, g, shard, freezes);
        fill(&t);
        save(&t, to, 5);
        trial_close(&t);
        MPI_Comm_free(&comm);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Loads `from` on a grid; with `to`, saves it there. 1 on every rank when all is as it was. */
static int load(struct grid_size g, const char *shard, const char *from, const char *to) {
    MPI_Comm comm = first_ranks(g.dp * g.ep);
    struct trial t;
    struct shard_header h;
    int ok = 1;
    if (comm != MPI_COMM_NULL) {
        open_grid(&t, comm, g, shard, freezes && to);
        ok = checkpoint_restore(t.o, from, &h) && count_wrong(&t) == 0 && h.counters.step == 5 &&
             t.o->t == 4 && h.counters.tokens == 5000;
        if (to) save(&t, to, 5);
        trial_close(&t);
        MPI_Comm_free(&comm);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return ok;
}

static void check_pair(int i, int k, const char *a, const char *b) {
    struct grid_size one = {1, 1};
    int rank, ok = load(grids[k], shards[(i + k) % 3], a, b) && load(one, "none", b, NULL);
    tap_ok(ok, "saved on %d x %d, loaded and saved again on %d x %d (shard %s%s): byte-equal",
           grids[i].dp, grids[i].ep, grids[k].dp, grids[k].ep, shards[(i + k) % 3],
           freezes ? ", some frozen" : "");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) trial_remove_run(b);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    static const char a[] = "checkpoint.a", b[] = "checkpoint.b";
    tap_open(&argc, &argv);
    h5_open_library();
    io_open();
    for (int i = 0; i < N_GRIDS; i++) {
        freezes = i % 3 == 0;
        save_filled(grids[i], shards[i % 3], a);
        for (int k = 0; k < N_GRIDS; k++) check_pair(i, k, a, b);
        int rank;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (rank == 0) trial_remove_run(a);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    io_close();
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
