/* Which keys would make a run fit: candidates are planned like the deck itself, first one key at a
 * time, then several together, by the fewest ranks. */
#include "config.h"
#include "plan/figures.h"
#include "base/memory.h"
#include "config/check.h"
#include "data/loader.h"
#include "model/low.h"
#include <inttypes.h>

enum {
    UNIT = 128,       /* tokens by which micro-batches are tried */
    MOST_RANKS = 1024 /* times as many */
};

/* The deck changed: sizes of the grid, tokens of a micro-batch, what is split, made again and not
 * kept. */
struct change {
    int ranks, ep_size, tokens, shard, recompute, fp8_weights;
};

static struct change as_it_is(const struct plan *p) {
    return (struct change){.ranks = p->ranks,
                           .ep_size = p->ep_size,
                           .tokens = loader_capacity(p->config),
                           .shard = p->config->parallelism.shard,
                           .recompute = p->config->memory.recompute,
                           .fp8_weights = p->config->precision.fp8_weights};
}

/* Bytes of a rank; 0 where the change gives no grid, or a deck that is refused. c is the changed
 * deck, whose strings are the deck's. */
static double planned(const struct plan *p, struct change x, struct config *c) {
    struct plan q = *p;
    *c = *p->config;
    q.config = c;
    if (c->model.num_local_experts % x.ep_size || x.ranks % x.ep_size) return 0;
    c->parallelism.ep_size = x.ep_size;
    if (c->parallelism.dp_size) c->parallelism.dp_size = x.ranks / x.ep_size;
    c->parallelism.shard = x.shard;
    c->memory.recompute = x.recompute;
    c->precision.fp8_weights = x.fp8_weights;
    if (x.tokens != loader_capacity(p->config)) {
        int64_t batch = c->grad_acc_steps * loader_capacity(p->config);
        c->grad_acc_steps = (batch + x.tokens - 1) / x.tokens;
        c->dataset.token_micro_batch_size = x.tokens;
        c->dataset.micro_batch_size = 0;
    }
    char *problem = plan_grid(&q, x.ranks);
    if (!problem) problem = check_steps(c);
    double bytes = problem ? 0 : plan_memory(&q).total;
    memory_free(problem);
    return bytes;
}

/* Appends to a text that is freed. */
static char *join(char *text, char *more) {
    char *both = memory_format("%s%s%s", text, text[0] ? " " : "", more);
    memory_free(text);
    memory_free(more);
    return both;
}

/* The words of the command line that make c of p's deck; the caller frees them. */
static char *words_of(const struct plan *p, struct change x, const struct config *c) {
    const struct config *d = p->config;
    char *text = memory_string("");
    if (x.ranks != p->ranks) text = join(text, memory_format("--ranks %d", x.ranks));
    if (x.ep_size != p->ep_size)
        text = join(text, memory_format("parallelism.ep_size=%d", x.ep_size));
    if (c->parallelism.dp_size != d->parallelism.dp_size)
        text = join(text, memory_format("parallelism.dp_size=%" PRId64, c->parallelism.dp_size));
    if (x.shard != d->parallelism.shard)
        text = join(text, memory_format("parallelism.shard=%s",
                                        x.shard == SHARD_FULL ? "full" : "optimizer"));
    if (x.recompute != d->memory.recompute)
        text = join(text, memory_format("memory.recompute=%s", plan_recompute_name(x.recompute)));
    if (x.fp8_weights != d->precision.fp8_weights)
        text = join(text, memory_string("precision.fp8_weights=true"));
    if (c->dataset.token_micro_batch_size != d->dataset.token_micro_batch_size)
        text = join(text, memory_format("dataset.token_micro_batch_size=%d", x.tokens));
    if (d->dataset.micro_batch_size && !c->dataset.micro_batch_size)
        text = join(text, memory_string("dataset.micro_batch_size="));
    if (c->grad_acc_steps != d->grad_acc_steps)
        text = join(text, memory_format("grad_acc_steps=%" PRId64, c->grad_acc_steps));
    return text;
}

/* Who is told. */
struct told {
    plan_fits *fits;
    void *context;
};

/* 1 when the changed deck fits, which is then told. */
static int try(const struct plan *p, struct change x, const struct told *to) {
    struct config c;
    double bytes = planned(p, x, &c);
    if (bytes == 0 || bytes > p->limit) return 0;
    char *words = words_of(p, x, &c);
    to->fits(to->context, words, bytes);
    memory_free(words);
    return 1;
}

/* Units up to n, half of it at least, in which the tokens that a rank has in a step can be split; n
 * where there are none. */
static int splitting(int64_t step_tokens, int n) {
    for (int k = n; k > n / 2; k--)
        if (step_tokens % (k * UNIT) == 0) return k;
    return n;
}

/* The largest micro-batch that fits or, so that a step keeps its tokens, one a little smaller. */
static int try_tokens(const struct plan *p, struct change x, const struct told *to) {
    struct config c;
    int low = 0, high = (x.tokens - 1) / UNIT; /* units: low fits or is 0 */
    while (low < high) {
        int middle = (low + high + 1) / 2;
        x.tokens = middle * UNIT;
        if (planned(p, x, &c) <= p->limit)
            low = middle;
        else
            high = middle - 1;
    }
    x.tokens = splitting(p->config->grad_acc_steps * as_it_is(p).tokens, low) * UNIT;
    return low > 0 && try(p, x, to);
}

/* Where weights have copies in eight bits. */
static int may_leave_weights(const struct plan *p) {
    return p->cuda && low_recipe(p->config) != LOW_NONE && !p->config->precision.fp8_weights;
}

static int try_fp8_weights(const struct plan *p, struct change x, const struct told *to) {
    x.fp8_weights = 1;
    return may_leave_weights(p) && try(p, x, to);
}

static int try_recompute(const struct plan *p, struct change x, const struct told *to) {
    for (x.recompute++; x.recompute <= RECOMPUTE_LAYER; x.recompute++)
        if (try(p, x, to)) return 1;
    return 0;
}

static int try_ep_sizes(const struct plan *p, struct change x, const struct told *to) {
    for (x.ep_size++; x.ep_size <= p->config->model.num_local_experts; x.ep_size++)
        if (try(p, x, to)) return 1;
    return 0;
}

static int try_ranks(const struct plan *p, struct change x, const struct told *to) {
    for (x.ranks *= 2; x.ranks <= MOST_RANKS * p->ranks; x.ranks *= 2)
        if (try(p, x, to)) return 1;
    return 0;
}

static int try_together(const struct plan *p, struct change x, const struct told *to) {
    int tokens = x.tokens, ep = x.ep_size, experts = (int)p->config->model.num_local_experts;
    int recompute = x.recompute;
    if (x.shard == SHARD_NONE) x.shard = SHARD_OPTIMIZER;
    int shard = x.shard;
    if (may_leave_weights(p)) x.fp8_weights = 1;
    for (; x.ranks <= MOST_RANKS * p->ranks; x.ranks *= 2)
        for (x.tokens = tokens; x.tokens >= UNIT && x.tokens > tokens / 16; x.tokens /= 2)
            for (x.ep_size = ep; x.ep_size <= experts; x.ep_size++)
                for (x.shard = shard; x.shard <= SHARD_FULL; x.shard++)
                    for (x.recompute = recompute; x.recompute <= RECOMPUTE_LAYER; x.recompute++)
                        if (try(p, x, to)) return 1;
    return 0;
}

int plan_advise(const struct plan *p, plan_fits *fits, void *context) {
    struct told to = {.fits = fits, .context = context};
    struct change x = as_it_is(p), sharded = x;
    int n = 0;
    while (n == 0 && ++sharded.shard <= SHARD_FULL) n += try(p, sharded, &to);
    n += try_fp8_weights(p, x, &to);
    n += try_recompute(p, x, &to);
    n += try_tokens(p, x, &to);
    n += try_ep_sizes(p, x, &to);
    n += try_ranks(p, x, &to);
    return n ? n : try_together(p, x, &to);
}
