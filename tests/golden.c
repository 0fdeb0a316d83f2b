/* Golden cases: Mixtral as Hugging Face transformers computes it, in FP32. `golden.npP [--ep N]
 * FOLDER...` checks folders with config.json, model.safetensors and reference.safetensors
 * (tests/golden/README.md) on a grid of P ranks, ep_size N; without arguments the committed cases
 * on every grid of P ranks. */
#include "config.h"
#include "backend/backend.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/hf.h"
#include "checkpoint/weights.h"
#include "checkpoint/safetensors.h"
#include "data/batch.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "train/step.h"
#include "tap.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reference {
    struct safetensors *f;
    int B, T, V;           /* of input_ids and logits */
    int32_t *ids, *labels; /* [B T] */
    int *document;         /* [n_documents + 1] where documents begin in the flattened tokens */
    int n_documents;
};

static float *read_floats(const struct reference *r, const char *name, int64_t *n) {
    const struct safetensor *t = safetensors_find(r->f, name);
    if (!t) die("the reference has no '%s'", name);
    float *x = memory_alloc_array((size_t)t->n, sizeof *x);
    safetensors_read(r->f, t, 0, t->n, x);
    if (n) *n = t->n;
    return x;
}

static double read_scalar(const struct reference *r, const char *name) {
    float *x = read_floats(r, name, NULL), value = x[0];
    memory_free(x);
    return (double)value;
}

static struct reference reference_open(const char *folder) {
    struct reference r = {0};
    char *path = file_join(folder, "reference.safetensors");
    r.f = safetensors_open(path);
    memory_free(path);
    const struct safetensor *ids = safetensors_find(r.f, "input_ids"),
                            *cu = safetensors_find(r.f, "cu_seqlens"),
                            *logits = safetensors_find(r.f, "logits");
    r.B = (int)ids->dims[0], r.T = (int)ids->dims[1], r.V = (int)logits->dims[2];
    r.ids = memory_alloc_array((size_t)ids->n, sizeof *r.ids);
    r.labels = memory_alloc_array((size_t)ids->n, sizeof *r.labels);
    safetensors_read_int32(r.f, ids, r.ids);
    safetensors_read_int32(r.f, safetensors_find(r.f, "labels"), r.labels);
    r.n_documents = cu ? (int)cu->n - 1 : r.B;
    r.document = memory_alloc_array((size_t)r.n_documents + 1, sizeof *r.document);
    if (cu)
        safetensors_read_int32(r.f, cu, r.document);
    else
        for (int d = 0; d <= r.B; d++) r.document[d] = d * r.T;
    return r;
}

static void reference_close(struct reference *r) {
    memory_free(r->ids);
    memory_free(r->labels);
    memory_free(r->document);
    safetensors_close(r->f);
}

/* Documents go round to the ranks; a rank may get none. */
static struct batch *deal(const struct reference *r, const struct grid *g) {
    struct batch *b = batch_new(r->B * r->T);
    for (int d = g->rank; d < r->n_documents; d += g->n_ranks)
        batch_append(b, r->ids + r->document[d], r->labels + r->document[d], NULL,
                     r->document[d + 1] - r->document[d]);
    return b;
}

static const char base_deck[] =
    "num_train_steps: 20\n"
    "router: {aux_loss: hf, balance_over: world}\n"
    "optimizer: {lr: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1,\n"
    "  decay_norms: true, decay_embeddings: true, max_grad_norm: 1.0}\n"
    "scheduler: {kind: constant}\n"
    "dataset: {path: unused, alphabet: bytes}\n";

/* Largest |logit - reference| of this rank's documents. */
static double logits_error(struct model *m, const struct reference *r, const struct grid *g) {
    size_t n = (size_t)m->N * (size_t)m->s.V;
    real_t *device = m->be->alloc(m->be, (n + 1) * m->be->real_bytes);
    float *ours = memory_alloc_array(n + 1, sizeof *ours), *theirs = read_floats(r, "logits", NULL);
    model_logits(m, device);
    m->be->download_real(m->be, ours, device, n);
    double worst = 0;
    size_t at = 0;
    for (int d = g->rank; d < r->n_documents; d += g->n_ranks)
        for (size_t i = (size_t)r->document[d] * (size_t)r->V;
             i < (size_t)r->document[d + 1] * (size_t)r->V; i++) {
            double e = fabs((double)ours[at++] - (double)theirs[i]);
            if (!(e <= worst)) worst = e;
        }
    m->be->release(m->be, device);
    memory_free(ours);
    memory_free(theirs);
    return worst;
}

/* Relative Frobenius error of this rank's part of gradient i, against the reference's whole
 * tensor's norm. */
static double gradient_error(struct model *m, const struct reference *r, int i) {
    const struct param *t = &m->params->list[i];
    char *name = memory_format("grad.%s", t->name);
    int64_t n;
    float *theirs = read_floats(r, name, &n), *ours = memory_alloc_array(t->n, sizeof *ours);
    trial_gradient(m, i, ours);
    double error = 0, norm = 0;
    const float *part = theirs + t->first_row * t->cols;
    for (size_t k = 0; k < t->n; k++) error += pow((double)ours[k] - (double)part[k], 2);
    for (int64_t k = 0; k < n; k++) norm += pow((double)theirs[k], 2);
    if (t->kind == PARAM_EXPERT)
        MPI_Allreduce(MPI_IN_PLACE, &error, 1, MPI_DOUBLE, MPI_SUM, m->be->grid->ep);
    memory_free(theirs);
    memory_free(ours);
    memory_free(name);
    return sqrt(error / norm);
}

static void check_gradients(struct model *m, const struct reference *r, double most) {
    double worst = 0;
    const char *where = "";
    for (int i = 0; i < m->params->n; i++) {
        double e = gradient_error(m, r, i);
        if (!(e <= worst)) worst = e, where = m->params->list[i].name;
    }
    tap_ok(worst <= most, "gradients within %g: worst %.2e (%s)", most, worst, where);
}

/* Of a pass' choices of experts the closest one. */
struct choice {
    double gap; /* of an expert's probability from the most probable one that was not chosen */
    int rank;   /* with gap an MPI_DOUBLE_INT */
    int layer, expert;
};

/* A choice is one of rounding below this: in FP32 the probabilities of two builds or grids lie up
 * to 5e-7 apart after the 20 steps. */
static const double TIE = 1e-6;

/* Over all ranks and layers, after model_forward; gap is infinite where all experts are chosen.
 * Collective over world. */
static struct choice closest_choice(struct model *m) {
    size_t N = (size_t)m->N, E = (size_t)m->s.E, A = (size_t)m->s.A;
    struct choice c = {INFINITY, m->be->grid->rank, 0, 0};
    float *probs = memory_alloc_array(N * E + 1, sizeof *probs);
    int32_t *ids = memory_alloc_array(N * A + 1, sizeof *ids);
    for (int l = 0; l < m->s.L; l++) {
        m->be->download(m->be, probs, m->layers[l].routing.probs, N * E * sizeof *probs);
        m->be->download(m->be, ids, m->layers[l].routing.ids, N * A * sizeof *ids);
        for (size_t i = 0; i < N; i++) {
            const float *p = probs + i * E;
            const int32_t *chosen = ids + i * A;
            int32_t least = chosen[0];
            double next = -INFINITY;
            for (size_t a = 0; a < A; a++) least = p[chosen[a]] < p[least] ? chosen[a] : least;
            for (int32_t e = 0; e < m->s.E; e++) {
                int taken = 0;
                for (size_t a = 0; a < A; a++) taken |= chosen[a] == e;
                if (!taken && (double)p[e] > next) next = (double)p[e];
            }
            double gap = (double)p[least] - next;
            if (gap < c.gap) c.gap = gap, c.layer = l, c.expert = least;
        }
    }
    memory_free(ids);
    memory_free(probs);
    MPI_Allreduce(MPI_IN_PLACE, &c, 1, MPI_DOUBLE_INT, MPI_MINLOC, m->be->grid->world);
    int place[] = {c.layer, c.expert};
    MPI_Bcast(place, 2, MPI_INT, c.rank, m->be->grid->world);
    c.layer = place[0], c.expert = place[1];
    return c;
}

/* From here on an expert of a layer counts for this much less when experts are chosen. */
static void hold_back(struct model *m, int layer, int expert, double by) {
    float *bias = memory_alloc_array((size_t)(m->s.L * m->s.E), sizeof *bias);
    bias[layer * m->s.E + expert] = (float)-by;
    model_set_bias(m, bias);
    memory_free(bias);
}

static double norm_error(struct optimizer *o, const struct batch *b, double norm) {
    return trial_error(step_read(o, step_gradients(o, &b, 1, NULL, 0), NULL, 0).grad_norm, norm);
}

/* Where the closest choice of step s is one of rounding, both are tried, and the step will be taken
 * with the one whose gradient norm is nearer to the reference's: that one has to meet the bar. */
static void settle_tie(struct model *m, struct optimizer *o, const struct batch *b, int s,
                       double norm) {
    hold_back(m, 0, 0, 0);
    model_forward(m, b);
    struct choice c = closest_choice(m);
    if (c.gap < 0 || c.gap >= TIE) return; /* below 0 it is wrong */
    double own = norm_error(o, b, norm);
    hold_back(m, c.layer, c.expert, c.gap + 2e-7);
    double other = norm_error(o, b, norm);
    tap_note("step %d, layer %d: expert %d was chosen by %.1e; norm off by %.1e, without it %.1e",
             s, c.layer, c.expert, c.gap, own, other);
    if (!(other < own)) hold_back(m, 0, 0, 0);
}

static void check_trajectory(struct model *m, struct optimizer *o, const struct reference *r,
                             const struct batch *b) {
    int64_t n;
    float *loss = read_floats(r, "traj.loss_total", &n),
          *norm = read_floats(r, "traj.grad_norm", NULL);
    double worst_loss = 0, worst_norm = 0, coef = m->config->model.router_aux_loss_coef;
    for (int s = 0; s < n; s++) {
        settle_tie(m, o, b, s, (double)norm[s]);
        struct step_sums sums = step_take(o, &b, 1, m->config->optimizer.lr, NULL, 0);
        double total = sums.loss + coef * sums.aux;
        double e = fabs(total / (double)loss[s] - 1),
               f = fabs(sums.grad_norm / (double)norm[s] - 1);
        if (!(e <= worst_loss)) worst_loss = e;
        if (!(f <= worst_norm)) worst_norm = f;
    }
    tap_ok(worst_loss <= 1e-4, "20 steps: loss within 1e-4: worst %.2e", worst_loss);
    tap_ok(worst_norm <= 1e-3, "20 steps: gradient norm within 1e-3: worst %.2e", worst_norm);
    memory_free(loss);
    memory_free(norm);
}

/* Tensors of the folder that another, written by us from the loaded model, does not have to the
 * bit. */
static int count_changed(const char *folder, const char *saved) {
    char *paths[] = {file_join(folder, "model.safetensors"), file_join(saved, "model.safetensors")};
    struct safetensors *a = safetensors_open(paths[0]), *b = safetensors_open(paths[1]);
    int changed = a->n != b->n;
    for (int i = 0; i < a->n; i++) {
        const struct safetensor *t = &a->list[i], *u = safetensors_find(b, t->name);
        float *x = memory_alloc_array((size_t)t->n, sizeof *x),
              *y = memory_alloc_array((size_t)t->n, sizeof *y);
        safetensors_read(a, t, 0, t->n, x);
        if (u && u->n == t->n) safetensors_read(b, u, 0, u->n, y);
        changed += !u || u->n_dims != t->n_dims || memcmp(u->dims, t->dims, sizeof t->dims) != 0 ||
                   memcmp(x, y, (size_t)t->n * sizeof *x) != 0;
        memory_free(x);
        memory_free(y);
    }
    safetensors_close(a);
    safetensors_close(b);
    memory_free(paths[0]);
    memory_free(paths[1]);
    return changed;
}

/* A model that was loaded is saved as it was. */
static void check_round_trip(struct model *m, const char *folder) {
    char *saved = memory_format("golden.np%d.tmp", m->be->grid->n_ranks);
    hf_save(m, saved, /*step=*/7);
    int changed = m->be->grid->rank == 0 ? count_changed(folder, saved) : 0;
    tap_ok(changed == 0, "loaded and saved, the folder is the same: %d tensors changed", changed);
    MPI_Barrier(m->be->grid->world);
    if (m->be->grid->rank == 0) file_remove_folder(saved);
    memory_free(saved);
}

/* The experts that the reference chose in a layer, [N, A] ascending; the caller frees it. */
static int32_t *reference_experts(const struct model *m, const struct reference *r, int layer) {
    char *name = memory_format("router_logits.%d", layer);
    int64_t n;
    float *logits = read_floats(r, name, &n);
    int E = m->s.E, A = m->s.A, N = (int)(n / E);
    int32_t *ids = memory_alloc_array((size_t)(N * A), sizeof *ids);
    for (int i = 0; i < N; i++) {
        int taken = 0;
        for (int e = 0; e < E; e++) { /* among the A largest: fewer than A are above it */
            const float *row = logits + (size_t)i * (size_t)E;
            int above = 0;
            for (int k = 0; k < E; k++) above += row[k] > row[e] || (row[k] == row[e] && k < e);
            if (above < A) ids[i * A + taken++] = e;
        }
    }
    memory_free(logits);
    memory_free(name);
    return ids;
}

/* (token, layer) pairs whose experts are not the reference's, of all; `force`: they are set. */
static double experts_differ(struct model *m, const struct reference *r, int force) {
    size_t n = (size_t)m->N * (size_t)m->s.A;
    int32_t *ours = memory_alloc_array(n, sizeof *ours);
    int differ = 0;
    for (int l = 0; l < m->s.L; l++) {
        int32_t *theirs = reference_experts(m, r, l), *device = m->layers[l].routing.ids;
        m->be->download(m->be, ours, device, n * sizeof *ours);
        for (size_t i = 0; i < n; i += (size_t)m->s.A)
            differ += memcmp(ours + i, theirs + i, (size_t)m->s.A * sizeof *ours) != 0;
        if (force) m->be->upload(m->be, device, theirs, n * sizeof *theirs);
        memory_free(theirs);
    }
    memory_free(ours);
    return (double)differ / (m->N * m->s.L);
}

/* Relative Frobenius error of the logits. */
static double logits_distance(struct model *m, const struct reference *r) {
    int64_t n;
    float *theirs = read_floats(r, "logits", &n),
          *ours = memory_alloc_array((size_t)n, sizeof *ours);
    real_t *device = m->be->alloc(m->be, (size_t)n * m->be->real_bytes);
    model_logits(m, device);
    m->be->download_real(m->be, ours, device, (size_t)n);
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        error += pow((double)ours[i] - (double)theirs[i], 2);
        norm += pow((double)theirs[i], 2);
    }
    m->be->release(m->be, device);
    memory_free(ours);
    memory_free(theirs);
    return sqrt(error / norm);
}

/* In BF16: with the reference's experts values and gradients; with its own the loss. One rank. */
static void check_half(struct model *m, struct optimizer *o, const struct reference *r,
                       const struct batch *b) {
    int64_t waits = m->be->waits;
    struct step_sums sums = step_read(o, step_gradients(o, &b, 1, NULL, 0), NULL, 0);
    tap_ok(m->be->waits - waits == 1 + m->s.L, /* no case has widths for the grouped kernels */
           "the host waits once a step, and once a layer for the counts: %lld times",
           (long long)(m->be->waits - waits));
    double e = fabs(sums.loss / read_scalar(r, "loss_ce") - 1),
           differ = experts_differ(m, r, /*force=*/1);
    tap_ok(e <= 2e-3, "BF16: cross-entropy within 2e-3: %.2e", e);
    tap_ok(differ <= 0.05,
           "BF16: at most 5 %% of tokens and layers are routed differently: %.2f %%", 100 * differ);
    m->be->forced = 1;
    step_gradients(o, &b, 1, NULL, 0);
    e = logits_distance(m, r);
    tap_ok(e <= 1.2e-2, "BF16, the reference's experts: logits within 1.2e-2: %.2e", e);
    check_gradients(m, r, 2.5e-2);
    m->be->forced = 0;
}

/* In FP32. */
static void check_exact(struct model *m, struct optimizer *o, const struct reference *r,
                        const struct batch *b, const char *folder) {
    const struct grid *g = m->be->grid;
    check_round_trip(m, folder);
    m->biased = 1; /* before passes are recorded; it is 0 but for ties */
    model_forward(m, b);
    double e = logits_error(m, r, g);
    MPI_Allreduce(MPI_IN_PLACE, &e, 1, MPI_DOUBLE, MPI_MAX, g->world);
    tap_ok(e <= 2e-5, "logits within 2e-5: worst %.2e", e);
    struct step_sums sums = step_read(o, step_gradients(o, &b, 1, NULL, 0), NULL, 0);
    e = fabs(sums.loss / read_scalar(r, "loss_ce") - 1);
    tap_ok(e <= 1e-6, "cross-entropy within 1e-6: %.2e", e);
    e = fabs(sums.aux / read_scalar(r, "loss_aux") - 1);
    tap_ok(e <= 1e-6, "auxiliary loss within 1e-6: %.2e", e);
    check_gradients(m, r, 1e-5);
    weights_load(m, folder);
    check_trajectory(m, o, r, b);
}

static void check_case(const char *folder, const struct grid *g, const char *shard) {
    struct reference r = reference_open(folder);
    char *deck = memory_format("%sparallelism.shard: %s\n", base_deck, shard);
    struct config *c = trial_golden_config(folder, deck, g);
    memory_free(deck);
    struct backend *be = trial_backend(g);
    if (!trial_serves(be, c, folder)) {
        backend_close(be);
        config_free(c);
        reference_close(&r);
        return;
    }
    struct model *m = model_new(c, be, r.B * r.T, /*with_gradients=*/1);
    struct optimizer *o = optimizer_new(m);
    struct batch *b = deal(&r, g);
    tap_note("%s on %d x %d, shard %s", file_basename(folder), g->dp_size, g->ep_size, shard);
    weights_load(m, folder);
    if (be->real_bytes == 2)
        check_half(m, o, &r, b);
    else
        check_exact(m, o, &r, b, folder);
    batch_free(b);
    optimizer_free(o);
    model_free(m);
    backend_close(be);
    config_free(c);
    reference_close(&r);
}
static void check_grid(int dp, int ep, char *const *folders, int n) {
    struct grid g;
    grid_open(&g, MPI_COMM_WORLD, dp, ep);
    for (int i = 0; i < n; i++) check_case(folders[i], &g, "none");
    int split = g.n_ranks == 1 ? 0 : g.n_ranks == 2 || n < 2 ? n : 2; /* four ranks are slow */
    for (int i = 0; i < split; i++) check_case(folders[i], &g, "full");
    grid_close(&g);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    int n_ranks;
    int64_t ep = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    if (argc > 1) {
        int first = 1;
        if (argc > 3 && strcmp(argv[1], "--ep") == 0 && text_to_int(argv[2], &ep)) first = 3;
        check_grid(n_ranks / (int)ep, (int)ep, argv + first, argc - first);
        return tap_close();
    }
    const char *srcdir = getenv("srcdir");
    static const char *const names[] = {"tiny", "finegrained_tied", "packed", "windowed_top1",
                                        "all_experts_tied"};
    enum { N = sizeof names / sizeof *names };
    char *folders[N];
    for (int i = 0; i < N; i++)
        folders[i] = memory_format("%s/tests/golden/%s", srcdir ? srcdir : ".", names[i]);
    /* four ranks on two cores are slow: of their grids only 2 x 2, which has both dimensions */
    for (ep = n_ranks == 4 ? 2 : 1; ep <= n_ranks && ep < 4; ep *= 2)
        check_grid(n_ranks / (int)ep, (int)ep, folders, N);
    for (int i = 0; i < N; i++) memory_free(folders[i]);
    return tap_close();
}
