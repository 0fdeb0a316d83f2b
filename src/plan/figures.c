#include "config.h"
#include "plan/figures.h"
#include "backend/count.h"
#include "backend/cpu.h"
#include "backend/cuda_sizes.h"
#include "base/memory.h"
#include "checkpoint/state.h"
#include "data/loader.h"
#include "low_row.h"
#include "model/model.h"
#include "model/stage.h"
#include "optim/optimizer.h"
#include "train/run.h"
#include <string.h>

/* What is there besides. On a GPU CUDA's context, the code of the kernels, cuBLASLt and cuDNN:
 * 0.57 GB on an H200 (CUDA 13.0, cuDNN 9.14; between 0.563 and 0.578 in eight configurations). On
 * the CPU the program with MPI, HDF5 and OpenBLAS: 30 to 40 MB (2026-11-30). */
static const double LIBRARIES_CUDA = 0.57e9, LIBRARIES_CPU = 35e6;

/* A communicator of NCCL's: 1.1 to 1.4 GB for two of two ranks, 1.6 for three (NCCL 2.28.3). */
static const double LIBRARIES_NCCL = 0.6e9;

static const struct {
    const char *name, *text;
} kinds[N_PLAN_KINDS] = {
    [PLAN_WEIGHTS] = {"weights", "weights"},
    [PLAN_EIGHT_BITS] = {"eight_bits", "weights in eight bits"},
    [PLAN_GRADIENTS] = {"gradients", "gradients"},
    [PLAN_MASTERS] = {"masters", "master weights"},
    [PLAN_MOMENTS] = {"moments", "moments"},
    [PLAN_ROOMS] = {"rooms", "two layers, whole"},
    [PLAN_STREAM] = {"stream", "activations: stream, norms"},
    [PLAN_ATTENTION] = {"attention", "activations: attention"},
    [PLAN_ROUTER] = {"router", "activations: router"},
    [PLAN_EXPERTS] = {"experts", "activations: experts"},
    [PLAN_PASSING] = {"passing", "between layers"},
    [PLAN_EXCHANGE] = {"exchange", "exchange"},
    [PLAN_WORKSPACE] = {"workspace", "work space"},
    [PLAN_OTHER] = {"other", "micro-batch, sums"},
    [PLAN_COPIES] = {"copies", "copies for checkpoints"},
    [PLAN_LIBRARIES] = {"libraries", "libraries, rounding"},
};

const char *plan_kind_name(enum plan_kind kind) {
    return kinds[kind].name;
}

const char *plan_kind_text(enum plan_kind kind) {
    return kinds[kind].text;
}

const char *plan_recompute_name(int kind) {
    static const char *const names[] = {"none", "activation", "layer"};
    return names[kind];
}

const char *plan_link_name(enum plan_link link) {
    static const char *const names[N_PLAN_LINKS] = {[PLAN_TOKENS] = "tokens",
                                                    [PLAN_DENSE_GRADIENTS] = "dense_gradients",
                                                    [PLAN_DENSE_WEIGHTS] = "dense_weights",
                                                    [PLAN_EXPERT_GRADIENTS] = "expert_gradients",
                                                    [PLAN_EXPERT_WEIGHTS] = "expert_weights"};
    return names[link];
}

char *plan_grid(struct plan *p, int ranks) {
    p->ranks = ranks;
    p->ep_size = (int)p->config->parallelism.ep_size;
    p->dp_size = (int)p->config->parallelism.dp_size;
    return grid_refusal(ranks, &p->dp_size, p->ep_size);
}

/* Of the ep group that is on most. */
static int ep_nodes(const struct plan *p) {
    int most = 1, n = p->node_ranks;
    for (int first = 0; first < p->ranks; first += p->ep_size) {
        int nodes = (first + p->ep_size - 1) / n - first / n + 1;
        if (nodes > most) most = nodes;
    }
    return most;
}

struct grid plan_place(const struct plan *p) {
    return (struct grid){.rank = p->ranks - 1,
                         .n_ranks = p->ranks,
                         .dp_rank = p->dp_size - 1,
                         .dp_size = p->dp_size,
                         .ep_rank = p->ep_size - 1,
                         .ep_size = p->ep_size,
                         .n_nodes = (p->ranks + p->node_ranks - 1) / p->node_ranks,
                         .ep_nodes = ep_nodes(p)};
}

int plan_capability(const struct plan *p) {
    return !p->cuda ? 0 : p->capability ? p->capability : 90;
}

static struct backend *counting(const struct plan *p, const struct grid *g) {
    struct backend_options o = run_options(p->config);
    return count_open(p->cuda ? "cuda" : "cpu", g, &o, plan_capability(p));
}

/* ---- memory ---- */

static void take_layer(struct backend *be, const struct layer_state *y, double *bytes) {
    const struct {
        enum plan_kind kind;
        const void *array;
    } arrays[] = {
        {PLAN_STREAM, y->x1},          {PLAN_STREAM, y->xn1},
        {PLAN_STREAM, y->xn1_low},     {PLAN_STREAM, y->rstd1},
        {PLAN_STREAM, y->x2},          {PLAN_STREAM, y->xn2},
        {PLAN_STREAM, y->rstd2},       {PLAN_ATTENTION, y->qkv},
        {PLAN_ATTENTION, y->lse},      {PLAN_ATTENTION, y->attended},
        {PLAN_ROUTER, y->routing.p},   {PLAN_ROUTER, y->routing.probs},
        {PLAN_ROUTER, y->routing.lse}, {PLAN_ROUTER, y->routing.ids},
        {PLAN_EXPERTS, y->rows},       {PLAN_EXPERTS, y->z},
        {PLAN_EXPERTS, y->h},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        bytes[arrays[i].kind] += (double)count_take(be, arrays[i].array);
}

static void take_model(struct backend *be, const struct model *m, double *bytes) {
    const struct {
        enum plan_kind kind;
        const void *array;
    } arrays[] = {
        {PLAN_WEIGHTS, m->weights}, {PLAN_GRADIENTS, m->grads},   {PLAN_MASTERS, m->masters},
        {PLAN_STREAM, m->x},        {PLAN_STREAM, m->xn},         {PLAN_STREAM, m->rstd},
        {PLAN_PASSING, m->delta},   {PLAN_PASSING, m->dx},        {PLAN_PASSING, m->dxn},
        {PLAN_PASSING, m->y},       {PLAN_PASSING, m->dattended}, {PLAN_PASSING, m->dqkv},
        {PLAN_PASSING, m->dp},      {PLAN_PASSING, m->dp_rows},   {PLAN_PASSING, m->logits},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        bytes[arrays[i].kind] += (double)count_take(be, arrays[i].array);
    for (int i = 0; i < m->params->n && m->low_copies; i++)
        bytes[PLAN_EIGHT_BITS] += (double)count_take(be, m->low_copies[i]);
    for (int r = 0; m->stages && r < ROOMS; r++)
        bytes[PLAN_ROOMS] += (double)count_take(be, m->stages->weights[r]) +
                             (double)count_take(be, m->stages->grads[r]);
    for (int l = 0; l < m->s.L; l++) take_layer(be, &m->layers[l], bytes);
}

/* On the CPU a gradient's share is summed in an exchange buffer. */
static double sum_room(const struct model *m) {
    size_t most = 0;
    if (m->config->parallelism.shard == SHARD_NONE) return 0;
    for (int i = 0; i < m->params->n; i++) {
        const struct share *s = &m->shares[i];
        if (!s->replicated && !s->frozen && s->n > most) most = s->n;
    }
    return (double)most * sizeof(float);
}

static double copied(const struct optimizer *o) {
    int n;
    double sum = 0;
    struct piece *list = state_to_save(o, &n);
    for (int i = 0; i < n; i++) sum += (double)list[i].n * sizeof(float);
    memory_free(list);
    return sum;
}

/* As cuda_collectives.c opens them, and cuda_beside.c. */
static int communicators(const struct plan *p, const struct model *m) {
    int dp = p->dp_size > 1, ep = p->ep_size > 1;
    struct backend_options o = run_options(p->config);
    char why[200];
    int beside =
        (m->stages || m->reduce_beside) && !cuda_pull_serves(m->be->grid, &o, why, sizeof why);
    return (p->ranks > 1) + dp + ep + (beside ? 1 + (dp && ep) : 0);
}

struct plan_memory plan_memory(const struct plan *p) {
    struct plan_memory r = {.total = 0};
    struct grid g = plan_place(p);
    struct backend *be = counting(p, &g);
    struct model *m = model_new(p->config, be, loader_capacity(p->config), /*with_gradients=*/1);
    struct optimizer *o = optimizer_new(m);
    take_model(be, m, r.bytes);
    r.bytes[PLAN_MOMENTS] = (double)count_take(be, o->m) + (double)count_take(be, o->v);
    r.bytes[PLAN_EXCHANGE] = (double)count_rest(be, COUNT_EXCHANGE);
    r.bytes[PLAN_WORKSPACE] = (double)count_rest(be, COUNT_WORKSPACE);
    r.bytes[PLAN_OTHER] = (double)count_rest(be, COUNT_MODEL);
    r.bytes[PLAN_LIBRARIES] =
        (double)count_overhead(be) +
        (p->cuda ? LIBRARIES_CUDA + LIBRARIES_NCCL * communicators(p, m) : LIBRARIES_CPU);
    r.copies = copied(o);
    r.attention = count_attention(be);
    r.reduce_beside = m->reduce_beside;
    if (!p->cuda) {
        struct work w = {.N = m->capacity, .D = m->s.D};
        double room = sum_room(m), buffer = (double)cpu_rooms_of(&w, p->ep_size).exchange;
        r.bytes[PLAN_COPIES] = r.copies;
        if (room > buffer) r.bytes[PLAN_WORKSPACE] += room - buffer;
    }
    for (int k = 0; k < N_PLAN_KINDS; k++) r.total += r.bytes[k];
    optimizer_free(o);
    model_free(m);
    backend_close(be);
    return r;
}

/* ---- counts ---- */

void plan_parameters(const struct plan *p, double *all, double *active, double *checkpoint_bytes) {
    struct shape s = shape_of(p->config);
    struct params *t = params_new_whole(&s, p->config);
    *all = params_count(t);
    *active = params_active(t, s.A);
    *checkpoint_bytes = *all * N_STATES * sizeof(float) + (double)s.L * s.E * sizeof(float);
    params_free(t);
}

static double micro_batches(const struct plan *p) {
    return (double)p->ranks * (double)p->config->grad_acc_steps;
}

double plan_tokens(const struct plan *p) {
    return loader_capacity(p->config) * micro_batches(p);
}

double plan_flops(const struct plan *p) {
    struct shape s = shape_of(p->config);
    double N = loader_capacity(p->config), T = (double)p->config->dataset.max_seq_length;
    int64_t whole = (int64_t)(N / T);
    double rest = N - (double)whole * T;
    return micro_batches(p) * shape_flops(&s, N, (double)whole * T * T + rest * rest);
}

/* ---- what travels ---- */

/* Other ranks of an ep group that a token is sent to, on average, its A experts being any A of E.
 */
static double other_ranks(const struct shape *s, int ep_size) {
    double none = 1; /* probability that a given rank has none of them */
    for (int a = 0; a < s->A; a++) {
        int left = s->E - s->E / ep_size - a;
        none *= left > 0 ? (double)left / (s->E - a) : 0;
    }
    return (ep_size - 1) * (1 - none);
}

/* A row of D goes and comes in the forward pass and again in the backward pass, both times it goes
 * in eight bits where the deck says so; with it go A ids and probabilities, and A gradients of
 * those come back. */
static double token_bytes(const struct plan *p, const struct shape *s, size_t real_bytes) {
    double whole = s->D * (double)real_bytes,
           goes = p->config->precision.fp8_dispatch ? (double)low_row_bytes(s->D) : whole,
           row = 2 * (goes + whole) + 3.0 * s->A * sizeof(float);
    return other_ranks(s, p->ep_size) * row * loader_capacity(p->config) * s->L *
           (double)p->config->grad_acc_steps;
}

/* How often a step gathers tensor i, which is staged: in each forward pass, and in each backward
 * pass again, with three exceptions. A backward pass finds the head and the last layer in the rooms
 * that the forward pass left; the embedding, which it brings and does not need, serves the next
 * forward pass; and that one finds the first layer. A tied embedding is gathered twice, for both.
 */
static double gathers(const struct params *t, int i, int L, double passes) {
    const struct layer_params *first = &t->layers[0], *last = &t->layers[L - 1];
    const int of_first[] = {first->q,      first->k,  first->v,   first->o,
                            first->router, first->up, first->down},
              of_last[] = {last->q, last->k, last->v, last->o, last->router, last->up, last->down};
    double n = 2 * passes;
    if (i == t->embed || i == t->head)
        return (i == t->embed ? passes + 1 : 0) + (i == t->head ? passes : 0);
    for (int k = 0; k < 7; k++) {
        if (i == of_first[k]) n -= passes - 1;
        if (i == of_last[k]) n -= passes;
    }
    return n;
}

void plan_wire(const struct plan *p, double sent[N_PLAN_LINKS]) {
    struct grid g = plan_place(p);
    struct backend *be = counting(p, &g);
    struct shape s = shape_of(p->config);
    struct params *t = params_new(&s, &g, p->config);
    enum shard_kind kind = (enum shard_kind)p->config->parallelism.shard;
    size_t real_bytes = be->real_bytes;
    struct share_sizes sizes;
    struct share *shares = shares_new(t, &g, p->config, kind, /*low_alone=*/0, &sizes);
    int whole = kind == SHARD_NONE;
    double passes = (double)p->config->grad_acc_steps;
    memset(sent, 0, N_PLAN_LINKS * sizeof *sent);
    sent[PLAN_TOKENS] = token_bytes(p, &s, real_bytes);
    for (int i = 0; i < t->n; i++) {
        int dense = t->list[i].kind == PARAM_DENSE, size = dense ? p->ranks : p->dp_size;
        double others = (double)(size - 1) / size, n = (double)t->list[i].n;
        const struct share *own = &shares[i];
        int trains = whole ? own->grad < sizes.trained_grads : !own->frozen;
        double reduced = trains ? whole || own->replicated ? 2 : 1 : 0;
        double gathered = trains && own->gathered;
        if (own->staged) {
            reduced *= passes * (i == t->embed && i == t->head ? 2 : 1);
            gathered = own->replicated ? 0 : gathers(t, i, s.L, passes);
        }
        sent[dense ? PLAN_DENSE_GRADIENTS : PLAN_EXPERT_GRADIENTS] +=
            others * n * sizeof(float) * reduced;
        sent[dense ? PLAN_DENSE_WEIGHTS : PLAN_EXPERT_WEIGHTS] +=
            others * n * (double)real_bytes * gathered;
    }
    shares_free(shares, t->n);
    params_free(t);
    backend_close(be);
}
