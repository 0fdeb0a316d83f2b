/* The weights that a run starts with: each value is the one its place in the whole tensor says,
 * however the tensor is cut over ranks and filled by parts. A tensor has more values than a part.
 */
#include "config.h"
#include "base/memory.h"
#include "base/random.h"
#include "tap.h"
#include "trial.h"
#include <string.h>

enum { V = 5000, D = 64 };

static const char base_deck[] =
    "num_train_steps: 1\n"
    "seed: 77\n"
    "dataset: {path: unused, alphabet: bytes, max_seq_length: 32, token_micro_batch_size: 32}\n"
    "model: {vocab_size: 5000, hidden_size: 64, intermediate_size: 24, num_hidden_layers: 1,\n"
    "  num_attention_heads: 4, num_key_value_heads: 2, num_local_experts: 4}\n";

static size_t wrong_values(const struct trial *t, const struct param *p, int i,
                           const float *values) {
    size_t bad = 0;
    uint64_t first = (uint64_t)p->first_row * (uint64_t)p->cols;
    for (size_t k = 0; k < p->n; k++) {
        float want = p->std == 0 ? 1
                                 : p->std * random_normal((uint64_t)t->c->seed,
                                                          RANDOM_INIT + (uint64_t)i, first + k);
        bad += values[k] != want;
    }
    return bad;
}

static void check_grid(int dp, int ep, const char *shard) {
    struct trial t;
    char *deck = memory_format("%sparallelism.shard: %s\n", base_deck, shard);
    trial_open(&t, MPI_COMM_WORLD, dp, ep, deck);
    const struct params *p = t.m->params;
    size_t bad = 0, bad_masters = 0, largest = 0;
    for (int i = 0; i < p->n; i++) {
        const struct share *s = &t.m->shares[i];
        float *values = memory_alloc_array(p->list[i].n, sizeof *values),
              *mine = memory_alloc_array(s->n + 1, sizeof *mine);
        t.be->download_real(t.be, values, model_whole(t.m, i), p->list[i].n);
        bad += wrong_values(&t, &p->list[i], i, values);
        t.be->download(t.be, mine, model_master(t.m, i), s->n * sizeof *mine);
        bad_masters += memcmp(mine, values + s->first, s->n * sizeof *mine) != 0;
        if (p->list[i].n > largest) largest = p->list[i].n;
        memory_free(mine);
        memory_free(values);
    }
    tap_ok(largest > 1 << 18 && bad == 0, "%d x %d, %s: weights, up to %zu a tensor: %zu wrong", dp,
           ep, shard, largest, bad);
    tap_ok(bad_masters == 0, "%d x %d, %s: the masters of this rank's shares", dp, ep, shard);
    trial_close(&t);
    memory_free(deck);
}

int main(int argc, char **argv) {
    int n_ranks;
    tap_open(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    for (int ep = 1; ep <= n_ranks; ep *= 2) {
        check_grid(n_ranks / ep, ep, "optimizer");
        check_grid(n_ranks / ep, ep, "full");
    }
    return tap_close();
}
