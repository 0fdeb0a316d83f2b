/* The training order: a permutation an epoch, the same for every grid, found again at any step;
 * mixtures; the thread. */
#include "config.h"
#include "base/memory.h"
#include "data/loader.h"
#include "data/mixture.h"
#include "hand.h"
#include "tap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 32 };

/* One corpus of numbered tokens, so that the first token of a chunk says which chunk it is. */
struct setting {
    struct corpus *corpus;
    struct stream *stream;
    struct config config;
    int n_chunks;
};

static struct setting setting_new(int64_t n_tokens) {
    struct setting t = {.corpus = hand_numbered(&n_tokens, 1, 4),
                        .config = hand_config(16, 0, CAPACITY)};
    t.config.dataset.bos_eos = BOS_NONE;
    t.stream = stream_open(t.corpus, &t.config, STREAM_TRAIN);
    t.n_chunks = (int)loader_chunks(t.stream, CAPACITY);
    return t;
}

static void setting_free(struct setting *t) {
    stream_close(t->stream);
    hand_free(t->corpus);
}

static int chunk_of(const struct batch *b) {
    return (b->tokens[0] - 100) / CAPACITY;
}

/* The chunks that a rank sees from a step on. */
static void order(const struct setting *t, int64_t grad_acc_steps, int rank, int n_ranks,
                  int64_t first_step, int n, int *chunks) {
    struct config c = t->config;
    double weight = 3;
    c.grad_acc_steps = grad_acc_steps;
    struct loader *l = loader_open(&c, &t->stream, &weight, 1, rank, n_ranks, first_step);
    for (int i = 0; i < n; i++) chunks[i] = chunk_of(loader_next(l));
    loader_close(l);
}

static void test_order(void) {
    enum { EPOCHS = 3, M = 4 };
    struct setting t = setting_new(CAPACITY * 21 - 5);
    int n = EPOCHS * t.n_chunks / M * M, all[EPOCHS * 21], whole = 1, differ = 0,
        last[EPOCHS] = {0};
    order(&t, M, 0, 1, 0, n, all);
    for (int e = 0; e < EPOCHS; e++) {
        int seen[21] = {0};
        for (int i = 0; i < t.n_chunks && e * t.n_chunks + i < n; i++) {
            int chunk = all[e * t.n_chunks + i];
            seen[chunk]++;
            last[e] += chunk == 20;
            differ += e > 0 && chunk != all[i];
        }
        for (int k = 0; k < t.n_chunks && (e + 1) * t.n_chunks <= n; k++)
            whole = whole && seen[k] == 1;
    }
    tap_ok(t.n_chunks == 21 && whole && last[0] == 1,
           "every chunk comes once an epoch, the padded one too");
    tap_ok(differ > 20, "each epoch has its own order");

    int same = 1, resumed = 1;
    for (int n_ranks = 2; n_ranks <= 4; n_ranks *= 2)
        for (int rank = 0; rank < n_ranks; rank++) {
            int mine[EPOCHS * 21], per_step = M / n_ranks;
            order(&t, per_step, rank, n_ranks, 0, n / n_ranks, mine);
            for (int i = 0; i < n / n_ranks; i++) {
                int step = i / per_step, m = i % per_step * n_ranks + rank;
                same = same && mine[i] == all[step * M + m];
            }
            for (int step = 0; step < n / M; step++) {
                int again[M];
                order(&t, per_step, rank, n_ranks, step, per_step, again);
                resumed = resumed && memcmp(again, mine + step * per_step,
                                            (size_t)per_step * sizeof *mine) == 0;
            }
        }
    tap_ok(same, "1, 2 and 4 ranks see the same global batches");
    tap_ok(resumed, "a run resumed at any step gets the batches it would have got");

    int other[21];
    t.config.seed = 2;
    order(&t, 1, 0, 1, 0, 21, other);
    tap_ok(memcmp(other, all, sizeof other) != 0, "the seed changes the order");
    setting_free(&t);
}

static void test_whole_batches(void) {
    int64_t lengths[] = {70, 0, 3, 200, 31};
    struct corpus *corpus = hand_random(lengths, 5, "ACGTNacgt", 9);
    struct config c = hand_config(20, 3, CAPACITY);
    c.dataset.reverse_complement = 1;
    c.dataset.lowercase_weight = 0.5;
    struct stream *s = stream_open(corpus, &c, STREAM_TRAIN);
    double one = 1;
    struct loader *l = loader_open(&c, &s, &one, 1, 0, 1, 0);
    int64_t n_chunks = loader_chunks(s, CAPACITY);
    int found = 0;
    for (int64_t i = 0; i < n_chunks; i++) {
        const struct batch *got = loader_next(l);
        for (int64_t k = 0; k < n_chunks; k++) {
            struct batch *b = batch_new(CAPACITY);
            loader_fill_chunk(s, k, b);
            found += b->n == got->n && b->n_documents == got->n_documents &&
                     b->n_targets == got->n_targets && b->weight == got->weight &&
                     memcmp(b->tokens, got->tokens, CAPACITY * 4) == 0 &&
                     memcmp(b->targets, got->targets, CAPACITY * 4) == 0 &&
                     memcmp(b->weights, got->weights, CAPACITY * 4) == 0 &&
                     memcmp(b->positions, got->positions, CAPACITY * 4) == 0;
            batch_free(b);
        }
    }
    tap_ok(found == n_chunks, "the thread's batches are the stream's chunks");
    tap_ok(loader_epoch(l, 0) == 0 && loader_epoch(l, n_chunks) == 1 &&
               fabs(loader_epoch(l, 1) - 1.0 / (double)n_chunks) < 1e-12,
           "epochs are counted");
    loader_close(l);
    stream_close(s);
    hand_free(corpus);
}

static void test_mixture(void) {
    static const double weights[] = {5, 0, 3, 1e-9, 1.5};
    struct mixture *m = mixture_new(weights, 5);
    int64_t count[5] = {0}, worst = 0, index;
    int in_turn = 1, closed = 1;
    for (int64_t g = 0; g < 5000; g++) {
        for (int i = 0; i < 5; i++)
            closed = closed && (g % 97 || mixture_draws(m, i, g) == count[i]);
        int i = mixture_source(m, g, &index);
        in_turn = in_turn && index == count[i];
        count[i]++;
        int64_t off =
            llabs((int64_t)llround(1000 * ((double)count[0] - (double)(g + 1) * 5 / 9.5)));
        if (off > worst) worst = off;
    }
    tap_ok(in_turn && closed,
           "draws of each source are numbered without a gap, and counted in closed form");
    tap_ok(count[1] == 0 && count[3] >= 4 && count[3] <= 5 &&
               fabs((double)count[0] / 5000 - 5 / 9.5) < 2e-3 &&
               fabs((double)count[4] / 5000 - 1.5 / 9.5) < 2e-3,
           "shares: %lld %lld %lld %lld %lld of 5000", (long long)count[0], (long long)count[1],
           (long long)count[2], (long long)count[3], (long long)count[4]);
    tap_ok(worst < 4000, "spread evenly: never more than %.1f draws from the share",
           (double)worst / 1000);
    int first = mixture_source(m, (int64_t)1 << 40, &index);
    tap_ok(first == mixture_source(m, 0, &index) &&
               mixture_draws(m, first, (int64_t)1 << 40) > (int64_t)1 << 38,
           "any draw is found at once");
    mixture_free(m);

    struct setting a = setting_new(CAPACITY * 5), b = setting_new(CAPACITY * 3);
    struct stream *streams[] = {a.stream, b.stream};
    int alone[20], i_alone = 0, as_alone = 1;
    order(&a, 1, 0, 1, 0, 20, alone);
    struct loader *l = loader_open(&a.config, streams, (const double[]){0.5, 0.5}, 2, 0, 1, 0);
    for (int g = 0; g < 40; g++) {
        int chunk = chunk_of(loader_next(l));
        if (g % 2 == 0)
            as_alone = as_alone && chunk == alone[i_alone++];
        else
            as_alone = as_alone && chunk < 3;
    }
    tap_ok(as_alone, "in a mixture a source keeps its own order");
    tap_ok(loader_epoch(l, 10) == 1, "epochs of a mixture are the first source's");
    loader_close(l);
    setting_free(&a);
    setting_free(&b);
}

static void test_small(void) {
    struct setting t = setting_new(7);
    double one = 1;
    struct loader *l = loader_open(&t.config, &t.stream, &one, 1, 0, 1, 1000000);
    int ok = t.n_chunks == 1;
    for (int i = 0; i < 5; i++) {
        const struct batch *b = loader_next(l);
        ok = ok && b->n == 7 && b->n_targets == 6;
    }
    tap_ok(ok, "a corpus shorter than a window is one padded chunk, over and over");
    loader_close(l);
    setting_free(&t);

    struct config c = hand_config(16, 0, 0);
    int neither = loader_capacity(&c);
    c.dataset.micro_batch_size = 3;
    int windows = loader_capacity(&c);
    c.dataset.micro_batch_size = 0;
    c.dataset.token_micro_batch_size = 77;
    tap_ok(neither == 16 && windows == 48 && loader_capacity(&c) == 77, "size of a micro-batch");
}

static void test_thread(void) {
    struct setting t = setting_new(CAPACITY * 50);
    int ok = 1;
    double one = 1;
    for (int i = 0; i < 300; i++) {
        t.config.dataset.read_ahead = i % 4;
        struct loader *l = loader_open(&t.config, &t.stream, &one, 1, 0, 1, i);
        for (int k = 0; k < i % 7; k++) {
            /* what is lent stays as it is while the thread works on */
            const struct batch *b = loader_next(l);
            int before = chunk_of(b);
            for (int j = 0; j < CAPACITY; j++)
                ok = ok && b->tokens[j] == 100 + before * CAPACITY + j;
        }
        loader_close(l);
    }
    tap_ok(ok, "opened and closed 300 times, at every depth of reading ahead");
    loader_close(NULL);
    setting_free(&t);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    test_order();
    test_whole_batches();
    test_mixture();
    test_small();
    test_thread();
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
