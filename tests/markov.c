/* The Markov baseline against a hand-computed case, a brute-force count, and known figures of a
 * real genome. */
#include "config.h"
#include "base/memory.h"
#include "data/loader.h"
#include "data/markov.h"
#include "genome.h"
#include "hand.h"
#include "tap.h"
#include <math.h>
#include <string.h>

static void score(const struct corpus *train, const struct corpus *held_out, const struct config *c,
                  struct markov_result *r) {
    struct stream *a = stream_open(train, c, STREAM_TRAIN),
                  *b = stream_open(held_out, c, STREAM_ALL);
    struct markov *m = markov_fit(a, c);
    markov_score(m, b, c->validation.num_batches, r, NULL);
    markov_free(m);
    stream_close(a);
    stream_close(b);
}

/* Train AAAC: after BOS A, A, A, C. Held out: AC, after BOS: A, then C after A. */
static void test_by_hand(void) {
    static const char *const train[] = {"AAAC"}, *const held_out[] = {"aC", "N"};
    struct config c = hand_config(16, 8, 64);
    struct corpus *a = hand_text(train, 1), *b = hand_text(held_out, 2);
    struct markov_result r;
    score(a, b, &c, &r);
    double alpha = r.alpha[0], A = (3 + alpha) / (4 + 4 * alpha), C = (1 + alpha) / (4 + 4 * alpha);
    tap_ok(r.n_targets == 2 && fabs(r.bits_per_base[0] + (log2(A) + log2(C)) / 2) < 1e-12,
           "order 0: %.6f bits", r.bits_per_base[0]);
    /* the first base has no context: order 0, C after A: 1 of 3 */
    double after_A = (1 + r.alpha[1]) / (3 + 4 * r.alpha[1]);
    tap_ok(fabs(r.bits_per_base[1] + (log2(A) + log2(after_A)) / 2) < 1e-12, "order 1: %.6f bits",
           r.bits_per_base[1]);
    /* no target of `held_out` has two letters before it: as order 1 */
    tap_ok(r.bits_per_base[2] == r.bits_per_base[1] && r.bits_per_base[8] == r.bits_per_base[1],
           "a short context falls back to the order it allows");
    c.validation.num_batches = 1;
    c.dataset.token_micro_batch_size = 2; /* the first micro-batch: BOS, A */
    struct markov_result first;
    score(a, b, &c, &first);
    tap_ok(first.n_targets == 1, "as many micro-batches as validation takes");
    hand_free(a);
    hand_free(b);

    /* without BOS: T knows the C before it, not the record before that */
    static const char *const repeats[] = {"AGCAAGCAAGCACT"}, *const two[] = {"AG", "CT"};
    a = hand_text(repeats, 1), b = hand_text(two, 2);
    c = hand_config(16, 8, 64);
    c.dataset.bos_eos = BOS_NONE;
    score(a, b, &c, &r);
    tap_ok(r.n_targets == 2 && r.bits_per_base[3] == r.bits_per_base[1],
           "no letter counts across documents");
    hand_free(a);
    hand_free(b);

    static const char *const nothing[] = {"NNN"};
    a = hand_text(nothing, 1);
    c = hand_config(16, 8, 64);
    score(a, a, &c, &r);
    tap_ok(r.n_targets == 0 && isnan(r.bits_per_base[3]) && r.best == 0, "no targets, no bits");
    hand_free(a);
}

/* A genome's letters with a bias that chains of order 3 see. */
static struct corpus *biased(int64_t n, const char *letters, uint64_t seed) {
    struct corpus *c = hand_random(&n, 1, letters, seed);
    char *text = (char *)c->map + c->offset[0];
    for (int64_t i = 3; i < n; i++)
        if (text[i - 1] == 'A' && text[i - 3] == 'C') text[i] = 'G';
    return c;
}

/* How often gram[n] is followed by each letter, read off the text. */
static void brute_count(const char *text, const char *gram, size_t n, double count[4]) {
    memset(count, 0, 4 * sizeof *count);
    for (const char *p = text; strlen(p) > n; p++)
        if (memcmp(p, gram, n) == 0 && strspn(p, "ACGT") > n)
            count[strchr("ACGT", p[n]) - "ACGT"]++;
}

static void test_brute_force(void) {
    enum { N = 1500, HELD = 120 };
    struct corpus *train = biased(N, "ACGTACGTACGTACGTACGTN", 1),
                  *held_out = biased(HELD, "ACGTACGTACGTN", 2);
    char text[N + 1] = {0}, other[N + 1] = {0}, seen[HELD + 1] = {0};
    memcpy(text, train->tokens, N);
    memcpy(seen, held_out->tokens, HELD);
    for (int i = 0; i < N; i++)
        other[N - 1 - i] = text[i] == 'N' ? 'N' : "TGCA"[strchr("ACGT", text[i]) - "ACGT"];

    struct config c = hand_config(64, 10, 100000);
    c.dataset.reverse_complement = 1;
    struct markov_result r;
    score(train, held_out, &c, &r);
    double worst = 0;
    int n_targets = 0;
    for (int k = 0; k < MARKOV_ORDERS; k++) {
        double bits = 0;
        n_targets = 0;
        for (int i = 0; i < HELD; i++) {
            if (seen[i] == 'N') continue;
            int used = 0;
            while (used < k && used < i && seen[i - used - 1] != 'N') used++;
            double n[4], m[4];
            brute_count(text, seen + i - used, (size_t)used, n);
            brute_count(other, seen + i - used, (size_t)used, m);
            int x = (int)(strchr("ACGT", seen[i]) - "ACGT");
            double all = n[0] + n[1] + n[2] + n[3] + m[0] + m[1] + m[2] + m[3];
            bits -= log2((n[x] + m[x] + r.alpha[used]) / (all + 4 * r.alpha[used]));
            n_targets++;
        }
        double off = fabs(bits / n_targets - r.bits_per_base[k]);
        if (off > worst) worst = off;
    }
    tap_ok(worst < 1e-9 && r.n_targets == n_targets,
           "orders 0 to 8 as counted by brute force, both strands: off by %.1e", worst);
    tap_ok(r.bits_per_base[r.best] < 1.95 && r.bits_per_base[8] > r.bits_per_base[r.best] &&
               r.best == 3,
           "the chain's own order is the best: %d, %.3f bits", r.best, r.bits_per_base[r.best]);
    hand_free(train);
    hand_free(held_out);
}

/* alpha: each training target given all others; order 0 in closed form */
static void test_alpha(void) {
    static const char *const text[] = {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACG"};
    struct config c = hand_config(64, 8, 64);
    struct corpus *a = hand_text(text, 1);
    struct markov_result r;
    score(a, a, &c, &r);
    double best = 0, most = -INFINITY;
    for (int e = -8; e <= 12; e++) {
        double alpha = ldexp(1, e), all = 41 + 4 * alpha;
        double sum = 40 * log((39 + alpha) / all) + 2 * log(alpha / all);
        if (sum > most) most = sum, best = alpha;
    }
    tap_ok(r.alpha[0] == best, "alpha %g is the most likely one", r.alpha[0]);
    hand_free(a);
}

static void test_genome(void) {
    enum { ROOM = 6000000 };
    char *path, *text = memory_alloc(ROOM);
    size_t n = genome_read(text, ROOM - 1, &path);
    text[n] = '\0';
    const char *record = text;
    struct corpus *c = n ? hand_text(&record, 1) : NULL;
    memory_free(text);
    tap_ok(c != NULL && c->n_tokens == 4938920, "E. coli 536 from %s", path);
    memory_free(path);
    if (c == NULL) return;
    struct config k = hand_config(8192, 8, 16384);
    k.dataset.reverse_complement = 1;
    k.dataset.holdout_by = HOLDOUT_BLOCK;
    k.dataset.holdout_share = 0.1;
    struct stream *train = stream_open(c, &k, STREAM_TRAIN),
                  *held_out = stream_open(c, &k, STREAM_HELD_OUT);
    struct markov_result r;
    struct markov *m = markov_fit(train, &k);
    struct markov_sum *parts = memory_alloc_array((size_t)stream_segments(held_out), sizeof *parts);
    markov_score(m, held_out, k.validation.num_batches, &r, parts);
    /* figures of an independent count (NumPy, whole contexts): 1.96525, and 1.93780 for order 7
     * with alpha 8 */
    tap_ok(fabs(r.bits_per_base[2] - 1.96525) < 1e-4, "order 2: %.4f bits", r.bits_per_base[2]);
    tap_ok(r.best == 7 && fabs(r.bits_per_base[7] - 1.93780) < 1e-4, "best is order %d: %.4f bits",
           r.best, r.bits_per_base[r.best]);
    int64_t lost = stream_targets(held_out) - r.n_targets;
    tap_ok(lost >= 0 && lost < loader_chunks(held_out, 16384),
           "scored on the targets of validation");
    struct markov_sum sum = {.n_targets = 0};
    for (int64_t i = 0; i < stream_segments(held_out); i++) {
        sum.n_targets += parts[i].n_targets;
        sum.bits[7] += parts[i].bits[7];
    }
    double mean = sum.bits[7] / (double)sum.n_targets;
    tap_ok(sum.n_targets == r.n_targets && fabs(mean - r.bits_per_base[7]) < 1e-9,
           "the parts of all %lld segments are the whole", (long long)stream_segments(held_out));
    memory_free(parts);
    markov_free(m);
    stream_close(train);
    stream_close(held_out);
    hand_free(c);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    test_by_hand();
    test_brute_force();
    test_alpha();
    test_genome();
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
