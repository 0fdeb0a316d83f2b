/* What `regulon plan` says of memory is what a model and an optimiser ask of the CPU backend on the
 * rank that needs most. */
#include "config.h"
#include "base/memory.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "plan/figures.h"
#include "tap.h"
#include <string.h>

static const char base_deck[] =
    "num_train_steps: 4\n"
    "dataset: {path: unused, alphabet: bytes, max_seq_length: 24, token_micro_batch_size: 56}\n"
    "backend: cpu\n"
    "model: {vocab_size: 13, hidden_size: 24, intermediate_size: 6, num_hidden_layers: 3,\n"
    "  num_attention_heads: 4, num_key_value_heads: 2, num_local_experts: 6,\n"
    "  num_experts_per_tok: 3, tie_word_embeddings: true}\n";

static double asked; /* of the backend's alloc, bytes */
static void *(*real_alloc)(struct backend *be, size_t bytes);

static void *counted_alloc(struct backend *be, size_t bytes) {
    asked += (double)bytes;
    return real_alloc(be, bytes);
}

/* Bytes that a model and its optimiser take on this rank. */
static double taken(const struct config *c, const struct grid *g) {
    struct backend *be = backend_open("cpu", g, NULL);
    real_alloc = be->alloc;
    be->alloc = counted_alloc;
    asked = 0;
    struct model *m = model_new(c, be, 56, /*with_gradients=*/1);
    struct optimizer *o = optimizer_new(m);
    optimizer_free(o);
    model_free(m);
    backend_close(be);
    return asked;
}

static void check(int dp, int ep, const char *words) {
    struct grid g;
    char *deck = memory_format("%sparallelism.ep_size: %d\n%s\n", base_deck, ep, words);
    struct config *c = config_parse(deck, "deck");
    struct plan p = {.config = c, .node_ranks = PLAN_NODE_RANKS};
    grid_open(&g, MPI_COMM_WORLD, dp, ep);
    char *problem = plan_grid(&p, g.n_ranks);
    struct plan_memory planned = plan_memory(&p);
    double real = taken(c, &g), said = 0;
    for (int k = 0; k <= PLAN_OTHER; k++) /* work space grows in the first steps */
        if (k != PLAN_WORKSPACE) said += planned.bytes[k];
    int last = g.rank == g.n_ranks - 1; /* the one that has most */
    tap_ok(!problem && (last ? said == real : said >= real), "%d x %d, %s: %.0f bytes", dp, ep,
           words, said);
    grid_close(&g);
    config_free(c);
    memory_free(deck);
}

static void note_ep(void *context, const char *words, double bytes) {
    int *n = context;
    *n += strstr(words, "parallelism.ep_size=") && bytes > 0;
}

/* Memory that is for experts: spreading them over more ranks is advised. */
static void check_advice(int cuda) {
    int n = 0;
    struct config *c = config_parse(base_deck, "deck");
    struct plan p = {.config = c, .node_ranks = PLAN_NODE_RANKS, .cuda = cuda}, spread;
    c->model.intermediate_size = 12000; /* memory is for experts */
    memory_free(plan_grid(&p, 6));
    struct config more = *c;
    more.parallelism.ep_size = 6;
    spread = p;
    spread.config = &more;
    memory_free(plan_grid(&spread, 6));
    p.limit = plan_memory(&spread).total; /* what fits with an expert a rank */
    plan_advise(&p, note_ep, &n);
    tap_ok(plan_memory(&p).total > p.limit && n > 0, "%s: ep_size is advised %d times",
           cuda ? "cuda" : "cpu", n);
    config_free(c);
}

int main(int argc, char **argv) {
    int n;
    tap_open(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    for (int ep = 1; ep <= n; ep *= 2) {
        check(n / ep, ep, "parallelism.shard: none");
        check(n / ep, ep, "parallelism.shard: optimizer");
        check(n / ep, ep, "parallelism.shard: full");
        check(n / ep, ep, "parallelism.shard: full\ntrain.freeze: ['*.experts.*', '*q_proj*']");
        check(n / ep, ep, "router.balance_over: world");
        check(n / ep, ep, "memory.recompute: activation");
        check(n / ep, ep, "memory.recompute: layer");
        check(n / ep, ep, "train.freeze: ['*.experts.*', '*.layers.1.*', '*q_proj*']");
        check(n / ep, ep, "parallelism.shard: none\ntrain.freeze: ['*.experts.*', '*.norm*']");
    }
    check_advice(/*cuda=*/0);
    check_advice(/*cuda=*/1);
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
