/* Generation with the golden models: kept keys and values (where the backend has them) give the
 * logits of a whole pass, and the same letters, at one token's work a letter; greedy letters are
 * the golden logits' largest; letters are drawn with the model's probabilities. On every grid of P
 * ranks (generate.npP). */
#include "config.h"
#include "backend/backend.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint/weights.h"
#include "checkpoint/safetensors.h"
#include "generate/generator.h"
#include "tap.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A golden case: its documents, one behind the other, and the logits of each token. */
struct golden {
    int32_t *ids; /* [N] */
    float *logits;
    int N, V;
    int32_t *document; /* [n_documents + 1] */
    int n_documents;
};

static struct golden golden_open(const char *folder) {
    struct golden r = {0};
    char *path = file_join(folder, "reference.safetensors");
    struct safetensors *f = safetensors_open(path);
    const struct safetensor *ids = safetensors_find(f, "input_ids"),
                            *cu = safetensors_find(f, "cu_seqlens"),
                            *logits = safetensors_find(f, "logits");
    r.N = (int)ids->n, r.V = (int)logits->dims[2];
    r.n_documents = cu ? (int)cu->n - 1 : (int)ids->dims[0];
    r.ids = memory_alloc_array((size_t)ids->n, sizeof *r.ids);
    r.logits = memory_alloc_array((size_t)logits->n, sizeof *r.logits);
    r.document = memory_alloc_array((size_t)r.n_documents + 1, sizeof *r.document);
    safetensors_read_int32(f, ids, r.ids);
    safetensors_read(f, logits, 0, logits->n, r.logits);
    for (int d = 0; d <= r.n_documents; d++) r.document[d] = d * (int)ids->dims[1];
    if (cu) safetensors_read_int32(f, cu, r.document);
    safetensors_close(f);
    memory_free(path);
    return r;
}

static void golden_close(struct golden *r) {
    memory_free(r->ids);
    memory_free(r->logits);
    memory_free(r->document);
}

static const char deck[] = "num_train_steps: 1\ndataset: {path: unused, alphabet: bytes}\n";

/* The documents, a piece of 1, 2, 3, 1, ... tokens of each in a pass, one more from document to
 * document: largest |logit - golden|. Every rank does all of them. */
static double pieces_error(struct model *m, const struct golden *r) {
    struct kept_all *k = kept_new(&m->s, m->be, r->n_documents, r->N, m->capacity);
    struct batch *b = batch_new(m->capacity);
    real_t *logits = m->be->alloc(m->be, (size_t)r->N * (size_t)r->V * m->be->real_bytes);
    float *ours = memory_alloc_array((size_t)r->N * (size_t)r->V, sizeof *ours);
    int *rows = memory_alloc_array((size_t)r->N, sizeof *rows),
        *token = memory_alloc_array((size_t)r->N, sizeof *token);
    double worst = 0;
    for (int pass = 0;; pass++) {
        batch_clear(b);
        for (int d = 0; d < r->n_documents; d++) {
            int at = r->document[d] + kept_length(k, d), left = r->document[d + 1] - at,
                n = 1 + (pass + d) % 3;
            n = n < left ? n : left;
            for (int i = 0; i < n; i++) rows[b->n + i] = b->n + i, token[b->n + i] = at + i;
            if (n) kept_append(k, b, d, r->ids + at, n);
        }
        if (b->n == 0) break;
        model_continue(m, b, k);
        model_logits_of(m, rows, b->n, logits);
        m->be->download_real(m->be, ours, logits, (size_t)b->n * (size_t)r->V);
        for (int i = 0; i < b->n; i++)
            for (int v = 0; v < r->V; v++) {
                double e =
                    fabs((double)ours[i * r->V + v] - (double)r->logits[token[i] * r->V + v]);
                if (!(e <= worst)) worst = e;
            }
    }
    kept_free(k);
    batch_free(b);
    m->be->release(m->be, logits);
    memory_free(ours);
    memory_free(rows);
    memory_free(token);
    return worst;
}

/* A task over all letters that the model has (and a letter can be); room for its prompts. */
static struct task task_of(const struct golden *r, const struct prompt *prompts, int n_prompts,
                           int32_t letters[256]) {
    int n = r->V < 256 ? r->V : 256;
    for (int i = 0; i < n; i++) letters[i] = i;
    return (struct task){.prompts = prompts,
                         .n_prompts = n_prompts,
                         .count = 1,
                         .length = 1,
                         .context = r->N,
                         .bos = -1,
                         .letters = letters,
                         .n_letters = n,
                         .sampling = {.temperature = 1, .top_p = 1}};
}

/* This rank's sequences; the caller frees them. */
static unsigned char *make(struct model *m, const struct task *t) {
    unsigned char *made = memory_alloc_array(
        (size_t)generator_share(t, m->be->grid, m->be->grid->rank) + 1, (size_t)t->length);
    if (!generator_run(m, t, made)) die("logits are not finite");
    return made;
}

/* Greedy, one letter behind every beginning of every document but the whole of the longest, which
 * fills the context. */
static void check_greedy(struct model *m, const struct golden *r) {
    const struct grid *g = m->be->grid;
    int32_t letters[256];
    int n = 0, wrong = 0;
    struct prompt *prompts = memory_alloc_array((size_t)r->N, sizeof *prompts);
    const float **expected = memory_alloc_array((size_t)r->N, sizeof *expected);
    for (int d = 0; d < r->n_documents; d++)
        for (int i = r->document[d]; i < r->document[d + 1]; i++) {
            prompts[n] =
                (struct prompt){.tokens = r->ids + r->document[d], .n = i + 1 - r->document[d]};
            if (prompts[n].n < r->N) expected[n++] = r->logits + i * r->V;
        }
    struct task t = task_of(r, prompts, n, letters);
    t.sampling.greedy = 1;
    unsigned char *made = make(m, &t);
    for (int k = 0, i = g->rank; i < n; i += g->n_ranks, k++) {
        int best = 0;
        for (int v = 0; v < t.n_letters; v++)
            if (expected[i][v] > expected[i][best]) best = v;
        wrong += made[k] != best;
    }
    tap_ok(wrong == 0,
           "greedy takes the largest golden logit behind each of %d beginnings: %d wrong", n,
           wrong);
    memory_free(made);
    memory_free(prompts);
    memory_free(expected);
}

/* How many letters of this rank's sequences differ with and without kept keys and values; a task
 * may be made in a batch of another size. */
static int64_t differ(struct model *m, const struct task *t) {
    void (*kept)(struct backend *, real_t *, float *, const real_t *, struct attention_shape,
                 struct kept) = m->be->attention_kept;
    unsigned char *with = make(m, t);
    m->be->attention_kept = NULL;
    unsigned char *without = make(m, t);
    m->be->attention_kept = kept;
    int64_t n = generator_share(t, m->be->grid, m->be->grid->rank) * t->length, wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += with[i] != without[i];
    memory_free(with);
    memory_free(without);
    return wrong;
}

/* Letter for letter, over several contexts, from four letters: of 256 some are so near to each
 * other that rounding would tell. */
static void check_kept(struct model *m, const struct golden *r) {
    int32_t letters[256];
    const struct prompt prompts[] = {{r->ids, 11}, {r->ids + 3, 1}, {r->ids + 1, 5}};
    struct task t = task_of(r, prompts, 3, letters);
    t.length = 100, t.context = 30, t.count = 3, t.seed = 5, t.n_letters = 4;
    int64_t wrong = differ(m, &t);
    tap_ok(wrong == 0, "drawn letters are the same with kept keys and values and without: %lld not",
           (long long)wrong);
    t.bos = 2, t.sampling = (struct sampling){.temperature = 0.7, .top_k = 3, .top_p = 0.8};
    wrong = differ(m, &t);
    tap_ok(wrong == 0, "and with BOS at each context, top-k and top-p: %lld not", (long long)wrong);
    t.context = 2, t.n_prompts = 1, t.count = 5;
    t.prompts = prompts + 1;
    wrong = differ(m, &t);
    tap_ok(wrong == 0, "and in the smallest context: %lld not", (long long)wrong);
}

/* The work of one sequence a rank: every token goes through each layer once. On one ep rank, where
 * a token is sent once. */
static void check_work(struct model *m, const struct golden *r) {
    enum { BEFORE = 11, LETTERS = 40 };
    int32_t letters[256];
    const struct prompt prompt = {r->ids, BEFORE};
    struct task t = task_of(r, &prompt, 1, letters);
    t.length = LETTERS, t.count = m->be->grid->n_ranks;
    uint64_t before = m->be->sent(m->be)[0];
    memory_free(make(m, &t));
    uint64_t sent = m->be->sent(m->be)[0] - before;
    tap_ok(sent == (uint64_t)(m->s.L * (BEFORE + LETTERS - 1)),
           "%d letters behind %d in %d layers: %lld tokens' work", LETTERS, BEFORE, m->s.L,
           (long long)sent);
}

/* A sequence behind a full context is what its second half alone leads to. */
static void check_slide(struct model *m, const struct golden *r) {
    int32_t letters[256], second[64];
    const struct prompt first = {r->ids, 19}, again = {second, 1 + 10};
    struct task t = task_of(r, &first, 1, letters);
    t.length = 11, t.context = 20, t.bos = 2, t.sampling.greedy = 1;
    unsigned char *made = make(m, &t);
    if (m->be->grid->rank != 0) memset(made, 0, 11);
    MPI_Bcast(made, 11, MPI_BYTE, 0, m->be->grid->world);
    /* the first letter fills the context: BOS, its last 10 tokens */
    second[0] = 2;
    for (int i = 0; i < 9; i++) second[1 + i] = r->ids[10 + i];
    second[10] = made[0];
    t.prompts = &again, t.length = 9;
    unsigned char *later = make(m, &t);
    int same = m->be->grid->rank != 0 || memcmp(later, made + 1, 9) == 0;
    tap_ok(same, "a full context gives way to its second half, behind BOS");
    memory_free(made);
    memory_free(later);
}

/* chi^2 of n draws of one letter against probabilities p[n_letters], and its degrees of freedom;
 * letters of less than 5 expected draws count together. Infinite where p is 0 and there are some.
 */
static double chi_square(const int64_t *counts, const double *p, int n_letters, int64_t n,
                         int *degrees) {
    double sum = 0, rest = 0, rest_count = 0;
    *degrees = -1;
    for (int v = 0; v < n_letters; v++) {
        double expected = p[v] * (double)n, seen = (double)counts[v];
        if (expected == 0 && seen > 0) return INFINITY;
        if (expected < 5) {
            rest += expected, rest_count += seen;
            continue;
        }
        sum += (seen - expected) * (seen - expected) / expected;
        ++*degrees;
    }
    if (rest >= 5) sum += (rest_count - rest) * (rest_count - rest) / rest, ++*degrees;
    return sum;
}

/* Many draws behind one prompt against the golden logits' probabilities, under these settings; the
 * seed is fixed, so the outcome is too. */
static void check_draws(struct model *m, const struct golden *r, struct sampling s,
                        const char *what) {
    enum { DRAWS = 6000, AFTER = 4 };
    const struct prompt prompt = {r->ids, AFTER};
    const float *logits = r->logits + (AFTER - 1) * r->V;
    int32_t letters[256];
    struct task t = task_of(r, &prompt, 1, letters);
    t.count = DRAWS, t.seed = 11, t.sampling = s;
    unsigned char *made = make(m, &t);
    int64_t counts[256] = {0};
    double p[256], all = 0;
    for (int64_t i = 0; i < generator_share(&t, m->be->grid, m->be->grid->rank); i++)
        counts[made[i]]++;
    MPI_Allreduce(MPI_IN_PLACE, counts, 256, MPI_INT64_T, MPI_SUM, m->be->grid->world);
    for (int v = 0; v < t.n_letters; v++) {
        int above = 0; /* the definition, by counting: how many, and what mass, are likelier */
        double mass = 0, total = 0;
        for (int w = 0; w < t.n_letters; w++) above += logits[w] > logits[v];
        for (int w = 0; w < t.n_letters; w++) {
            int rank = 0;
            for (int x = 0; x < t.n_letters; x++) rank += logits[x] > logits[w];
            if (s.top_k && rank >= s.top_k) continue;
            double q = exp((double)logits[w] / s.temperature);
            total += q;
            if (logits[w] > logits[v]) mass += q;
        }
        p[v] = (s.top_k && above >= s.top_k) || mass >= s.top_p * total
                   ? 0
                   : exp((double)logits[v] / s.temperature);
        all += p[v];
    }
    for (int v = 0; v < t.n_letters; v++) p[v] /= all;
    int degrees;
    double chi2 = chi_square(counts, p, t.n_letters, DRAWS, &degrees);
    /* mean d, variance 2 d: five deviations above */
    tap_ok(chi2 <= degrees + 5 * sqrt(2.0 * degrees) && degrees > 1,
           "%d draws, %s: chi^2 %.1f for %d degrees of freedom", DRAWS, what, chi2, degrees);
    memory_free(made);
}

static void check_case(const char *folder, const struct grid *g) {
    struct golden r = golden_open(folder);
    struct config *c = trial_golden_config(folder, deck, g);
    struct backend *be = trial_backend(g);
    if (!trial_serves(be, c, folder)) {
        backend_close(be);
        config_free(c);
        golden_close(&r);
        return;
    }
    struct model *m = model_new(c, be, r.N, /*with_gradients=*/0);
    tap_note("%s on %d x %d", file_basename(folder), g->dp_size, g->ep_size);
    weights_load(m, folder);
    if (be->attention_kept) {
        double e = pieces_error(m, &r);
        tap_ok(e <= 2e-5, "documents in pieces: logits within 2e-5 of the golden ones: worst %.2e",
               e);
        check_kept(m, &r);
        if (g->ep_size == 1) check_work(m, &r);
    }
    check_greedy(m, &r);
    check_slide(m, &r);
    if (strcmp(file_basename(folder), "tiny") == 0) {
        check_draws(m, &r, (struct sampling){.temperature = 1, .top_p = 1}, "temperature 1");
        check_draws(m, &r, (struct sampling){.temperature = 0.4, .top_p = 1}, "temperature 0.4");
        check_draws(m, &r, (struct sampling){.temperature = 1, .top_k = 7, .top_p = 1}, "top-k 7");
        check_draws(m, &r, (struct sampling){.temperature = 0.5, .top_p = 0.6}, "top-p 0.6");
        check_draws(m, &r, (struct sampling){.temperature = 0.5, .top_k = 12, .top_p = 0.7},
                    "top-k 12, then top-p 0.7");
    }
    model_free(m);
    backend_close(be);
    config_free(c);
    golden_close(&r);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"tiny", "finegrained_tied", "packed", "windowed_top1",
                                        "all_experts_tied"};
    const char *srcdir = getenv("srcdir");
    int n_ranks;
    tap_open(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    for (int ep = 1; ep <= n_ranks; ep *= 2) {
        struct grid g;
        grid_open(&g, MPI_COMM_WORLD, n_ranks / ep, ep);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            char *folder = memory_format("%s/tests/golden/%s", srcdir ? srcdir : ".", names[i]);
            check_case(folder, &g);
            memory_free(folder);
        }
        grid_close(&g);
    }
    return tap_close();
}
