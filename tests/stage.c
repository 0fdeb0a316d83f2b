/* parallelism.shard full: gradients as without sharding, in two rooms. What is asked for beside the
 * main work is done here as late as it may be, when somebody waits for it, and what it has not yet
 * brought is NaN: with the results of work that is done at once, to the bit, nothing is used too
 * early and no room filled too soon. Counted: what is whole at a time, what a step sends. */
#include "config.h"
#include "base/memory.h"
#include "base/random.h"
#include "model/block.h"
#include "plan/figures.h"
#include "tap.h"
#include "train/step.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 40, MICRO_STEPS = 3, STEPS = 2, V = 37, MOST = 512 };

static const char base_deck[] =
    "num_train_steps: 2\ngrad_acc_steps: 3\nbackend: cpu\n"
    "dataset: {path: unused, alphabet: bytes, max_seq_length: 40, token_micro_batch_size: 40}\n"
    "router: {z_loss_coef: 0.1}\noptimizer: {lr: 1e-2, max_grad_norm: 1}\n"
    "model: {vocab_size: 37, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 3,\n"
    "  num_local_experts: 4, initializer_range: 0.3, router_aux_loss_coef: 0.5, ";

/* On four ranks a head of width 2 has fewer rows of keys than ranks: kept whole, but part of a
 * matrix that is not. (It is nothing for a GPU.) */
static const char *const variants[] = {
    "num_attention_heads: 4, num_key_value_heads: 1, head_dim: 2}\n",
    "num_attention_heads: 2, tie_word_embeddings: true}\nmemory.recompute: layer\n",
    "num_attention_heads: 2}\ntrain.freeze: ['*.layers.1.*', '*q_proj*', '*embed*']\n"};

/* ---- work beside, done late ---- */

static struct backend table;     /* the real entries */
static int late, asked;          /* work is kept for later; between beside and back */
static double gathered, reduced; /* bytes that a ring sends of what is asked for beside */

struct task {
    enum { COPY, ADD, ALL_REDUCE, REDUCE_SCATTER_ADD, ALL_GATHER } kind;
    int ticket;
    void *to;
    const void *from; /* of what is added after a reduction: its room */
    size_t n;         /* bytes of a copy, else elements */
    MPI_Comm comm;
    const size_t *counts;
    int without_own;
};
static struct task tasks[MOST];
static int n_tasks;

/* Elements that are whole, or become it, by room: what is gathered after `beside` takes the place
 * of what was there. */
static const struct stages *rooms;
static size_t n_whole[ROOMS], most_whole;
static int fresh; /* nothing yet since beside */

static void note_whole(const char *x, size_t n) {
    int r = 0;
    while (r < ROOMS && (x < (const char *)rooms->weights[r] ||
                         x >= (const char *)rooms->weights[r] + rooms->room * sizeof(float)))
        r++;
    if (r == ROOMS) {
        most_whole = SIZE_MAX; /* elsewhere */
        return;
    }
    n_whole[r] = fresh ? n : n_whole[r] + n;
    fresh = 0;
    if (n_whole[0] + n_whole[1] > most_whole) most_whole = n_whole[0] + n_whole[1];
}

static size_t sum_of(MPI_Comm comm, const size_t *counts, double *sent) {
    int size;
    size_t sum = 0;
    MPI_Comm_size(comm, &size);
    for (int r = 0; r < size; r++) sum += counts[r];
    *sent += (double)sum * sizeof(float) * (size - 1) / size;
    return sum;
}

static void perform(struct backend *be, const struct task *t) {
    switch (t->kind) {
    case COPY:
        table.copy(be, t->to, t->from, t->n);
        break;
    case ADD:
        table.add(be, t->to, t->from, t->n);
        break;
    case ALL_REDUCE:
        table.all_reduce(be, t->comm, t->to, t->n);
        break;
    case REDUCE_SCATTER_ADD:
        table.reduce_scatter_add(be, t->comm, t->to, (float *)(uintptr_t)t->from, t->counts,
                                 t->without_own);
        break;
    case ALL_GATHER:
        table.all_gather(be, t->comm, t->to, t->counts);
    }
}

static void ask(struct backend *be, struct task t) {
    if (!asked || !late) {
        perform(be, &t);
        return;
    }
    t.ticket = -1;
    tasks[n_tasks++] = t;
}

static void late_copy(struct backend *be, void *dst, const void *src, size_t bytes) {
    ask(be, (struct task){COPY, 0, dst, src, bytes, MPI_COMM_NULL, NULL, 0});
    if (asked && late) memset(dst, 0xff, bytes);
}

static void late_add(struct backend *be, float *sum, const float *x, size_t n) {
    ask(be, (struct task){ADD, 0, sum, x, n, MPI_COMM_NULL, NULL, 0});
}

static void late_all_reduce(struct backend *be, MPI_Comm comm, float *x, size_t n) {
    size_t twice[] = {n, n, 0, 0};
    if (asked) sum_of(comm, twice, &reduced);
    ask(be, (struct task){ALL_REDUCE, 0, x, NULL, n, comm, NULL, 0});
}

static void late_reduce_scatter_add(struct backend *be, MPI_Comm comm, float *sum, float *x,
                                    const size_t *counts, int without_own) {
    if (asked) sum_of(comm, counts, &reduced);
    ask(be, (struct task){REDUCE_SCATTER_ADD, 0, sum, x, 0, comm, counts, without_own});
}

static void late_all_gather(struct backend *be, MPI_Comm comm, real_t *x, const size_t *counts) {
    size_t n = asked ? sum_of(comm, counts, &gathered) : 0;
    if (asked) note_whole(x, n);
    ask(be, (struct task){ALL_GATHER, 0, x, NULL, 0, comm, counts, 0});
    if (asked && late) memset(x, 0xff, n * sizeof(float));
}

static void late_beside(struct backend *be) {
    if (!late) table.beside(be);
    asked = fresh = 1;
}

static void late_back(struct backend *be, int ticket) {
    if (!late) table.back(be, ticket);
    for (int i = 0; i < n_tasks; i++)
        if (tasks[i].ticket < 0) tasks[i].ticket = ticket;
    asked = 0;
}

static void late_await(struct backend *be, int ticket) {
    int n = 0;
    if (!late) table.await(be, ticket);
    for (int i = 0; i < n_tasks; i++)
        if (tasks[i].ticket == ticket) n = i + 1;
    for (int i = 0; i < n; i++) perform(be, &tasks[i]);
    memmove(tasks, tasks + n, (size_t)(n_tasks - n) * sizeof *tasks);
    n_tasks -= n;
}

static void watch(const struct model *m) {
    struct backend *be = m->be;
    table = *be, rooms = m->stages;
    gathered = reduced = 0, n_tasks = 0;
    n_whole[0] = n_whole[1] = most_whole = 0;
    be->copy = late_copy, be->add = late_add;
    be->all_reduce = late_all_reduce, be->reduce_scatter_add = late_reduce_scatter_add;
    be->all_gather = late_all_gather;
    be->beside = late_beside, be->back = late_back, be->await = late_await;
}

/* ---- runs ---- */

static void fill(struct batch *b, uint64_t at) {
    int32_t tokens[CAPACITY];
    for (int i = 0; i < CAPACITY; i++)
        tokens[i] = (int32_t)(random_bits(6, RANDOM_TEST, at * CAPACITY + (uint64_t)i) % V);
    if (at == 1) return; /* one is empty */
    batch_append(b, tokens, tokens, NULL, 11);
    batch_append(b, tokens + 11, tokens + 11, NULL, CAPACITY - 11);
}

struct outcome {
    double loss[STEPS], norm[STEPS], evaluated;
    uint64_t hash;
    float *grads; /* [n] of the first step, this rank's part of all tensors, whole */
    size_t n;
};

static struct outcome run(struct trial *t) {
    struct outcome r = {.n = t->m->params->size};
    struct batch *b[MICRO_STEPS];
    const struct params *p = t->m->params;
    r.grads = memory_alloc_array(r.n, sizeof *r.grads);
    for (int i = 0; i < MICRO_STEPS; i++) {
        b[i] = batch_new(CAPACITY);
        fill(b[i], (uint64_t)(i * t->g.n_ranks + t->g.rank));
    }
    trial_poison(t);
    for (int s = 0; s < STEPS; s++) {
        double W = step_gradients(t->o, (const struct batch *const *)b, MICRO_STEPS, NULL, 0);
        for (int i = 0; s == 0 && i < p->n; i++)
            if (!t->m->shares[i].frozen) trial_gradient(t->m, i, r.grads + p->list[i].offset);
        step_apply(t->o, t->c->optimizer.lr);
        struct step_sums sums = step_read(t->o, W, NULL, 0);
        step_finish(t->o, &sums);
        r.loss[s] = sums.loss, r.norm[s] = sums.grad_norm;
    }
    t->be->zero(t->be, t->m->sums, sizeof(double));
    model_forward(t->m, b[0]);
    model_loss(t->m, t->m->sums, NULL);
    t->be->download(t->be, &r.evaluated, t->m->sums, sizeof r.evaluated);
    r.hash = trial_hash(t);
    for (int i = 0; i < MICRO_STEPS; i++) batch_free(b[i]);
    return r;
}

/* Largest relative error of a tensor's gradient, Frobenius. */
static double worst_gradient(const struct trial *t, const struct outcome *a,
                             const struct outcome *b) {
    double worst = 0;
    for (int i = 0; i < t->m->params->n; i++) {
        const struct param *p = &t->m->params->list[i];
        double error = 0, norm = 0;
        for (size_t k = p->offset; k < p->offset + p->n; k++) {
            error += pow((double)a->grads[k] - (double)b->grads[k], 2);
            norm += pow((double)b->grads[k], 2);
        }
        error = error == 0 ? 0 : sqrt(error / norm);
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

/* What a rank keeps of a tensor is its share, and the shares together are the tensor, once. */
static int kept_once(const struct trial *t) {
    int ok = 1, staged = 0;
    for (int i = 0; i < t->m->params->n; i++) {
        const struct share *s = &t->m->shares[i];
        unsigned long sum = s->kept_n;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UNSIGNED_LONG, MPI_SUM,
                      share_group(&t->g, &t->m->params->list[i]));
        if (s->staged && !s->replicated) ok &= sum == t->m->params->list[i].n, staged++;
    }
    return ok && staged > 0;
}

/* Staged elements of the largest stage that is a layer, and of the largest. */
static size_t largest(const struct model *m) {
    size_t most = 0;
    for (int l = 0; l < m->s.L; l++) {
        const struct layer_params *y = &m->params->layers[l];
        const int all[] = {y->norm1, y->q, y->k, y->v, y->o, y->norm2, y->router, y->up, y->down};
        size_t sum = 0;
        for (int i = 0; i < 9; i++)
            if (m->shares[all[i]].staged) sum += m->params->list[all[i]].n;
        if (sum > most) most = sum;
    }
    for (int i = 0; i < 2; i++) {
        int ends[] = {m->params->embed, m->params->head};
        if (m->shares[ends[i]].staged && m->params->list[ends[i]].n > most)
            most = m->params->list[ends[i]].n;
    }
    return most;
}

/* Bytes that the first step asks for beside, against the plan. */
static void check_sent(struct trial *t, const char *name, double weights, double grads) {
    double sent[N_PLAN_LINKS];
    struct plan p = {.config = t->c, .node_ranks = PLAN_NODE_RANKS};
    memory_free(plan_grid(&p, t->g.n_ranks));
    plan_wire(&p, sent);
    double all[2] = {weights, grads}; /* the last rank's part of experts is as large as any */
    MPI_Bcast(all, 2, MPI_DOUBLE, t->g.n_ranks - 1, t->g.world);
    double w = sent[PLAN_DENSE_WEIGHTS] + sent[PLAN_EXPERT_WEIGHTS],
           g = sent[PLAN_DENSE_GRADIENTS] + sent[PLAN_EXPERT_GRADIENTS];
    /* tensors that are kept whole are reduced once, at the end */
    for (int i = 0; i < t->m->params->n; i++) {
        const struct share *s = &t->m->shares[i];
        int dense = t->m->params->list[i].kind == PARAM_DENSE,
            size = dense ? t->g.n_ranks : t->g.dp_size;
        if (!s->staged && !s->frozen)
            g -= 2.0 * (double)t->m->params->list[i].n * sizeof(float) * (size - 1) / size;
    }
    tap_ok(trial_error(all[0], w) < 1e-12 && trial_error(all[1], g) < 1e-12,
           "%s: a step gathers %.0f bytes and reduces %.0f, as planned (%.0f, %.0f)", name, all[0],
           all[1], w, g);
}

/* Elsewhere work beside is late by itself. */
static int on_cpu(void) {
    const char *name = getenv("TEST_BACKEND");
    return !name || strcmp(name, "cpu") == 0;
}

static void open_trial(struct trial *t, int dp, int ep, const char *variant, const char *shard) {
    char *deck = memory_format("%s%sparallelism.shard: %s\n", base_deck, variant, shard);
    trial_open(t, MPI_COMM_WORLD, dp, ep, deck);
    memory_free(deck);
}

/* Gradients of experts whose own rows lie in the room with the others': on all ranks, on every
 * other one. (A GPU's backend decides that for itself.) */
enum whose { OF_NONE, OF_EVERY_OTHER };
static enum whose whose;

static void choose_own(struct backend *be) {
    be->own_unit = whose == OF_EVERY_OTHER && be->grid->rank % 2;
}

static int n_direct(const struct model *m) {
    int n = 0;
    for (int i = 0; i < m->params->n; i++) n += stage_direct(m, i);
    return n;
}

static void check_own(int dp, int ep, int variant, const char *name, const struct outcome *none) {
    for (whose = OF_NONE; whose <= OF_EVERY_OTHER; whose++) {
        struct trial t;
        char *deck = memory_format("%s%sparallelism.shard: full\n", base_deck, variants[variant]);
        trial_open_on(&t, MPI_COMM_WORLD, dp, ep, deck, choose_own);
        watch(t.m);
        struct outcome o = run(&t);
        double e = worst_gradient(&t, &o, none);
        tap_ok(e < 1e-5 && (n_direct(t.m) > 0) == (t.be->own_unit > 0 && dp > 1),
               "%s: gradients with own rows apart on %s: %.1e", name,
               whose == OF_NONE ? "no rank" : "every other rank", e);
        memory_free(o.grads);
        memory_free(deck);
        trial_close(&t);
    }
}

static void check(int dp, int ep, int variant) {
    struct trial t;
    char *name = memory_format("%d x %d, variant %d", dp, ep, variant);
    struct outcome none, at_once, later;
    open_trial(&t, dp, ep, variants[variant], "none");
    none = run(&t);
    trial_close(&t);
    open_trial(&t, dp, ep, variants[variant], "full");
    watch(t.m);
    at_once = run(&t);
    double e = worst_gradient(&t, &at_once, &none);
    tap_ok(e < 1e-5 && none.norm[0] > 0, "%s: gradients as with shard none: %.1e", name, e);
    double of_loss = 0;
    for (int s = 0; s < STEPS; s++) {
        of_loss = fmax(of_loss, trial_error(at_once.loss[s], none.loss[s]));
        of_loss = fmax(of_loss, trial_error(at_once.norm[s], none.norm[s]));
    }
    of_loss = fmax(of_loss, trial_error(at_once.evaluated, none.evaluated));
    tap_ok(of_loss < 1e-5, "%s: losses and norms of %d steps, and an evaluation: %.1e", name, STEPS,
           of_loss);
    tap_ok(kept_once(&t), "%s: what is split is kept once over the ranks", name);
    trial_close(&t);
    late = on_cpu();
    open_trial(&t, dp, ep, variants[variant], "full");
    watch(t.m);
    later = run(&t);
    tap_ok(memcmp(later.grads, at_once.grads, later.n * sizeof *later.grads) == 0 &&
               memcmp(&later, &at_once, offsetof(struct outcome, grads)) == 0,
           "%s: the same bits with everything beside as late as may be", name);
    if (on_cpu()) tap_ok((n_direct(t.m) > 0) == (dp > 1), "%s: own rows of experts apart", name);
    size_t most = largest(t.m);
    tap_ok(most_whole <= 2 * most && most_whole > most && t.m->stages->room < most + 64 * 9,
           "%s: at most %zu elements whole, of two stages of %zu", name, most_whole, most);
    trial_close(&t);
    late = 0;
    open_trial(&t, dp, ep, variants[variant], "full");
    watch(t.m);
    struct batch *b[MICRO_STEPS];
    for (int i = 0; i < MICRO_STEPS; i++) b[i] = batch_new(CAPACITY);
    step_gradients(t.o, (const struct batch *const *)b, MICRO_STEPS, NULL, 0);
    check_sent(&t, name, gathered, reduced);
    for (int i = 0; i < MICRO_STEPS; i++) batch_free(b[i]);
    trial_close(&t);
    if (on_cpu()) check_own(dp, ep, variant, name, &none);
    memory_free(none.grads);
    memory_free(at_once.grads);
    memory_free(later.grads);
    memory_free(name);
}

/* On one rank nothing is split. */
static void check_alone(void) {
    struct trial t;
    open_trial(&t, 1, 1, variants[1], "none");
    struct outcome none = run(&t);
    trial_close(&t);
    open_trial(&t, 1, 1, variants[1], "full");
    struct outcome full = run(&t);
    tap_ok(memcmp(&full, &none, offsetof(struct outcome, grads)) == 0 &&
               memcmp(full.grads, none.grads, full.n * sizeof *full.grads) == 0,
           "one rank: full is none, to the bit");
    trial_close(&t);
    memory_free(full.grads);
    memory_free(none.grads);
}

int main(int argc, char **argv) {
    int n_ranks;
    tap_open(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    if (n_ranks == 1) check_alone();
    for (int v = on_cpu() ? 0 : 1; v < 3 && n_ranks == 2; v++) check(2, 1, v), check(1, 2, v);
    if (n_ranks == 4) check(4, 1, 0), check(2, 2, 1); /* four ranks on two cores are slow */
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
