/* The gradient of every parameter against central differences of the total loss
 *   L = (1/W) sum of w (-log p) + (1/M) sum over micro-batches of (coef aux + coef z)
 * which this test puts together itself, in FP64, from the forward pass's sums. A tensor is moved
 * along two directions: its gradient on a random half of its elements (where a wrong factor
 * shows), and at random (where a part that is missing or misplaced shows).
 *
 * The step size is not tuned to the answer: D(h) is taken at falling h as long as the router
 * chooses the same experts, and the h is used whose extrapolation (Ridders 1982) changes least. */
#include "config.h"
#include "base/memory.h"
#include "base/random.h"
#include "tap.h"
#include "train/step.h"
#include "trial.h"
#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { CAPACITY = 32, MICRO_STEPS = 2, V = 11, SIZES = 12 };

/* Tolerances: of the difference along half of the gradient, relative to it; and along a random
 * direction, relative to what |g| |d| / sqrt(n), its usual size, would be. */
static const double most_along = 2e-3, most_random = 1e-2;

static const char base_deck[] =
    "num_train_steps: 1\ngrad_acc_steps: 2\nparallelism.shard: none\n"
    "dataset: {path: unused, alphabet: bytes, max_seq_length: 32, token_micro_batch_size: 32}\n"
    "router.z_loss_coef: 0.1\n"
    "model: {vocab_size: 11, hidden_size: 16, intermediate_size: 12, num_hidden_layers: 2,\n"
    "  initializer_range: 0.3, router_aux_loss_coef: 0.5, num_local_experts: 4, ";

struct variant {
    const char *name, *model, *keys; /* the rest of the model's keys; other keys */
    int bias;                        /* the selection bias is not 0 */
};
static const struct variant variants[] = {
    {"top-2 of 4, untied", "num_attention_heads: 4, num_key_value_heads: 2}", "", 0},
    {"hf auxiliary loss, tied, head width 8",
     "num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, tie_word_embeddings: true}",
     "router.aux_loss: hf", 0},
    {"sliding window 3, selection bias",
     "num_attention_heads: 2, sliding_window: 3, rope_theta: 100}", "router.bias_rate: 0.1", 1},
    {"top-1, balance over world", "num_attention_heads: 4, num_experts_per_tok: 1}",
     "router.balance_over: world", 0},
    {"top-4 of 4, hf, balance over world", "num_attention_heads: 1, num_experts_per_tok: 4}",
     "router: {balance_over: world, aux_loss: hf}", 0},
};

/* Packed documents of random tokens; some labels do not count, weights from 0.25 to 1.25. */
static void fill(struct batch *b, uint64_t at) {
    static const int lengths[2][3] = {{11, 1, 16}, {5, 20, 7}};
    int32_t tokens[CAPACITY], labels[CAPACITY];
    float weights[CAPACITY];
    uint64_t seed = 5, k = at * 1000;
    for (int d = 0; d < 3; d++) {
        int n = lengths[at % 2][d];
        for (int i = 0; i < n; i++) {
            tokens[i] = (int32_t)(random_bits(seed, RANDOM_TEST, k++) % V);
            labels[i] = random_uniform(seed, RANDOM_TEST, k++) < 0.2 ? -100 : tokens[i];
            weights[i] = (float)(0.25 + random_uniform(seed, RANDOM_TEST, k++));
        }
        batch_append(b, tokens, labels, weights, n);
    }
}

static XXH64_hash_t hash_routing(const struct model *m, XXH64_hash_t seed) {
    int32_t ids[CAPACITY * 4];
    size_t bytes = (size_t)m->N * (size_t)m->s.A * sizeof *ids;
    for (int l = 0; l < m->s.L; l++) {
        m->be->download(m->be, ids, m->layers[l].routing.ids, bytes);
        seed = XXH3_64bits_withSeed(ids, bytes, seed);
    }
    return seed;
}

/* The smallest lead of a chosen expert's score over one not chosen, in the last forward pass. */
static double smallest_lead(const struct model *m) {
    double least = INFINITY;
    int E = m->s.E, A = m->s.A;
    for (int i = 0; i < m->s.L * m->N; i++) {
        int l = i / m->N, token = i % m->N;
        const struct routing *r = &m->layers[l].routing;
        double chosen = INFINITY, other = -INFINITY;
        for (int e = 0; e < E; e++) {
            double score = (double)r->probs[token * E + e];
            int is_chosen = 0;
            if (m->config->router.bias_rate > 0) score += (double)m->bias[l * E + e];
            for (int a = 0; a < A; a++) is_chosen |= r->ids[token * A + a] == e;
            if (is_chosen)
                chosen = fmin(chosen, score);
            else
                other = fmax(other, score);
        }
        least = fmin(least, chosen - other);
    }
    return least;
}

/* Initial weights with which the router decides clearly: the best of a few seeds. */
static void choose_weights(struct trial *t, struct batch *const *batches) {
    enum { SEEDS = 40 };
    double most = -INFINITY;
    uint64_t best = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        double lead = INFINITY;
        model_init(t->m, seed);
        for (int i = 0; i < MICRO_STEPS; i++) {
            model_forward(t->m, batches[i]);
            lead = fmin(lead, smallest_lead(t->m));
        }
        MPI_Allreduce(MPI_IN_PLACE, &lead, 1, MPI_DOUBLE, MPI_MIN, t->g.world);
        if (lead > most) most = lead, best = seed;
    }
    model_init(t->m, best);
    trial_poison(t);
}

/* L of all ranks' micro-batches, and whom the router chose. Collective over world. */
static double total_loss(struct trial *t, struct batch *const *batches, uint64_t *routing) {
    struct model *m = t->m;
    double W = 0, sums[2] = {0}, read[SUMS_Z + 1];
    for (int i = 0; i < MICRO_STEPS; i++) W += batches[i]->weight;
    MPI_Allreduce(MPI_IN_PLACE, &W, 1, MPI_DOUBLE, MPI_SUM, t->g.world);
    *routing = 0;
    m->be->zero(m->be, m->sums, model_sums_bytes(m));
    for (int i = 0; i < MICRO_STEPS; i++) {
        model_forward(m, batches[i]);
        *routing = hash_routing(m, *routing);
        model_loss(m, m->sums + SUMS_LOSS, NULL);
        model_balance(m, 1);
    }
    m->be->download(m->be, read, m->sums, sizeof read);
    sums[0] = read[SUMS_LOSS];
    sums[1] =
        t->c->model.router_aux_loss_coef * read[SUMS_AUX] + t->c->router.z_loss_coef * read[SUMS_Z];
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, t->g.world);
    MPI_Allreduce(MPI_IN_PLACE, routing, 1, MPI_UINT64_T, MPI_BXOR, t->g.world);
    /* over world each rank's balance is its share of the micro-step's */
    int parts =
        t->c->router.balance_over == BALANCE_WORLD ? MICRO_STEPS : MICRO_STEPS * t->g.n_ranks;
    return sums[0] / W + sums[1] / parts;
}

/* Sum over the whole tensor of a quantity that each rank has for its part. */
static double whole(const struct trial *t, const struct param *p, double part) {
    if (p->kind == PARAM_EXPERT)
        MPI_Allreduce(MPI_IN_PLACE, &part, 1, MPI_DOUBLE, MPI_SUM, t->g.ep);
    return part;
}

static double dot(const struct trial *t, const struct param *p, const float *a, const float *b) {
    double sum = 0;
    for (size_t k = 0; k < p->n; k++) sum += (double)a[k] * (double)b[k];
    return whole(t, p, sum);
}

enum direction { ALONG, RANDOM, N_DIRECTIONS };

/* d of length 1, the same on all ranks that hold the part. */
static void choose(const struct trial *t, int i, enum direction which, const float *g, float *d) {
    const struct param *p = &t->m->params->list[i];
    uint64_t first = (uint64_t)(p->first_row * p->cols), stream = RANDOM_INIT + (uint64_t)i;
    for (size_t k = 0; k < p->n; k++)
        d[k] = which == RANDOM ? random_normal(77, stream, first + k)
                               : g[k] * (float)(random_bits(78, stream, first + k) & 1);
    float length = (float)sqrt(dot(t, p, d, d));
    for (size_t k = 0; k < p->n; k++) d[k] /= length > 0 ? length : 1;
}

/* dL along d, by central differences of the tensor's weights w. NaN when no two step sizes keep
 * the routing. */
static double difference(struct trial *t, const struct param *p, struct batch *const *batches,
                         const float *w, const float *d, uint64_t routing) {
    struct backend *be = t->be;
    float *moved = memory_alloc_array(p->n, sizeof *moved);
    double h = 0.1 * sqrt(dot(t, p, w, w)), before = NAN, best = NAN, least = INFINITY;
    for (int size = 0; size < SIZES; size++, h /= 2) {
        double loss[2], step = 0;
        int same = 1;
        for (int side = 0; side < 2; side++) {
            uint64_t seen;
            for (size_t k = 0; k < p->n; k++)
                moved[k] = (float)((double)w[k] + (side ? h : -h) * (double)d[k]);
            be->upload_real(be, real_at(be, t->m->weights, p->offset), moved, p->n);
            loss[side] = total_loss(t, batches, &seen);
            same &= seen == routing;
            /* the step as it was rounded, along d */
            for (size_t k = 0; k < p->n; k++)
                step += fabs((double)moved[k] - (double)w[k]) * fabs((double)d[k]);
        }
        double D = same ? (loss[1] - loss[0]) / whole(t, p, step) : NAN;
        double extrapolated = D + (D - before) / 3, error = fabs(D - before);
        if (error < least) least = error, best = extrapolated;
        before = D;
    }
    be->upload_real(be, real_at(be, t->m->weights, p->offset), w, p->n);
    memory_free(moved);
    return best;
}

/* Kinds of tensors, by the end of their names; the worst error of each over all variants. */
static const char *const kinds[] = {"embed_tokens.weight",
                                    "input_layernorm.weight",
                                    "q_proj.weight",
                                    "k_proj.weight",
                                    "v_proj.weight",
                                    "o_proj.weight",
                                    "post_attention_layernorm.weight",
                                    "gate.weight",
                                    "gate_up_proj",
                                    "down_proj",
                                    "model.norm.weight",
                                    "lm_head.weight"};
enum { N_KINDS = sizeof kinds / sizeof *kinds };
static double worst_of_kind[N_KINDS][N_DIRECTIONS];

static void note(const char *name, enum direction which, double error) {
    for (int k = 0; k < N_KINDS; k++) {
        size_t n = strlen(name), end = strlen(kinds[k]);
        if (n >= end && strcmp(name + n - end, kinds[k]) == 0 &&
            !(error <= worst_of_kind[k][which]))
            worst_of_kind[k][which] = error;
    }
}

/* Errors of tensor i along both directions; 1 if both are small. */
static int check_tensor(struct trial *t, int i, struct batch *const *batches, const float *g,
                        uint64_t routing) {
    const struct param *p = &t->m->params->list[i];
    float *d = memory_alloc_array(p->n, sizeof *d), *w = memory_alloc_array(p->n, sizeof *w);
    double norm = sqrt(dot(t, p, g, g)), n = whole(t, p, (double)p->n);
    int ok = norm > 0;
    t->be->download(t->be, w, real_at(t->be, t->m->weights, p->offset), p->n * sizeof *w);
    for (enum direction which = ALONG; which < N_DIRECTIONS; which++) {
        choose(t, i, which, g, d);
        double ours = dot(t, p, g, d), theirs = difference(t, p, batches, w, d, routing);
        double error = fabs(theirs - ours) / (which == ALONG ? ours : norm / sqrt(n));
        note(p->name, which, error);
        if (error <= (which == ALONG ? most_along : most_random)) continue;
        tap_note("%s %s: %.6e, by differences %.6e", p->name, which == ALONG ? "along" : "random",
                 ours, theirs);
        ok = 0;
    }
    memory_free(d);
    memory_free(w);
    return ok;
}

static void check_variant(const struct variant *v, int dp, int ep) {
    char *deck = memory_format("%s%s\n%s\n", base_deck, v->model, v->keys);
    struct trial t;
    struct batch *batches[MICRO_STEPS];
    uint64_t routing;
    trial_open(&t, MPI_COMM_WORLD, dp, ep, deck);
    for (int i = 0; i < MICRO_STEPS; i++) {
        batches[i] = batch_new(CAPACITY);
        fill(batches[i], (uint64_t)(i * t.g.n_ranks + t.g.rank));
    }
    if (v->bias)
        for (int i = 0; i < t.m->s.L * t.m->s.E; i++) t.m->bias[i] = 0.05f * (float)(i % 3);
    choose_weights(&t, batches);
    double W = step_gradients(t.o, (const struct batch *const *)batches, MICRO_STEPS, NULL, 0);
    struct step_sums sums = step_read(t.o, W, NULL, 0);
    float *g = memory_alloc_array(t.m->params->size, sizeof *g);
    t.be->download(t.be, g, t.m->grads, t.m->params->size * sizeof *g);
    double loss = total_loss(&t, batches, &routing),
           step_loss = sums.loss + t.c->model.router_aux_loss_coef * sums.aux +
                       t.c->router.z_loss_coef * sums.z;
    tap_ok(trial_error(step_loss, loss) < 1e-9, "%d x %d, %s: the step's losses are L = %.6f", dp,
           ep, v->name, loss);
    int ok = 1;
    for (int i = 0; i < t.m->params->n; i++)
        ok &= check_tensor(&t, i, batches, g + t.m->params->list[i].offset, routing);
    tap_ok(ok, "%d x %d, %s: gradients of %d tensors", dp, ep, v->name, t.m->params->n);
    memory_free(g);
    for (int i = 0; i < MICRO_STEPS; i++) batch_free(batches[i]);
    trial_close(&t);
    memory_free(deck);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    int n_ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    for (int ep = 1; ep <= n_ranks; ep *= 2)
        for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
            check_variant(&variants[i], n_ranks / ep, ep);
    for (int k = 0; k < N_KINDS; k++)
        tap_note("worst error of %-31s %.1e along, %.1e random", kinds[k], worst_of_kind[k][ALONG],
                 worst_of_kind[k][RANDOM]);
    return tap_close();
}
