#include "config.h"
#include "plan/time.h"

/* BENCHMARKS.md: a step's passes at 4096 and at 8192 tokens, in BF16 and in eight bits, AdamW;
 * NCCL's sends; the network is its data sheet's rate less a fifth. */
struct plan_rates plan_rates_h200(int tokens, int low) {
    static const double flops[2][2] = {{520e12, 575e12}, {680e12, 760e12}};
    return (struct plan_rates){
        .flops = flops[low][tokens >= 8192], .memory = 4.1e12, .link = 284e9, .network = 40e9};
}

const char *plan_phase_name(enum plan_phase phase) {
    static const char *const names[N_PLAN_PHASES] = {[PLAN_PASSES] = "passes",
                                                     [PLAN_OPTIMIZER] = "optimizer",
                                                     [PLAN_SENDS_TOKENS] = "tokens",
                                                     [PLAN_SENDS_GRADIENTS] = "gradients",
                                                     [PLAN_SENDS_WEIGHTS] = "weights"};
    return names[phase];
}

/* Bytes that go round a ring: it is as fast as its slowest link, which leaves the node where the
 * ring does. */
static double ring(const struct plan *p, const struct plan_rates *r, double bytes) {
    return bytes / (p->ranks > p->node_ranks ? r->network : r->link);
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Others of its ep group on a rank's own node, where they are fewest. The group is a run of
 * neighbouring ranks, and so are those of a node. */
static int fewest_near(const struct plan *p) {
    int fewest = p->ep_size - 1;
    for (int rank = 0; rank < p->ranks; rank++) {
        int group = rank / p->ep_size * p->ep_size, node = rank / p->node_ranks * p->node_ranks,
            begin = group > node ? group : node,
            end = least(group + p->ep_size, node + p->node_ranks);
        fewest = least(fewest, end - begin - 1);
    }
    return fewest;
}

/* To each other rank of the ep group the same: those of this node over its links, the others over
 * the network at the same time. */
static double tokens(const struct plan *p, const struct plan_rates *r, double bytes) {
    int others = p->ep_size - 1, near = fewest_near(p);
    if (others == 0) return 0;
    double here = bytes * near / others / r->link,
           there = bytes * (others - near) / others / r->network;
    return here > there ? here : there;
}

/* Without layers that are made again. */
static double once_through(const struct plan *p, const struct plan_rates *r) {
    return plan_flops(p) / p->ranks / r->flops;
}

/* Of the passes a forward pass is a third; layers that are made again take another for them, at
 * most. */
static double passes(const struct plan *p, const struct plan_rates *r) {
    const struct config *c = p->config;
    double L = (double)c->model.num_hidden_layers, again = (double)c->memory.recompute_layers,
           once = once_through(p, r);
    if (c->memory.recompute != RECOMPUTE_LAYER) return once;
    if (again == 0 || again > L) again = L;
    return once * (1 + again / L / 3);
}

/* What a work beside leaves to be waited for. */
static double rest(double seconds, double beside) {
    return seconds > beside ? seconds - beside : 0;
}

/* Half of the weights comes beside the forward passes. */
static void overlap_all(double *s, double forward) {
    double backward = s[PLAN_PASSES] - forward, weights = s[PLAN_SENDS_WEIGHTS] / 2;
    s[PLAN_SENDS_GRADIENTS] = rest(weights + s[PLAN_SENDS_GRADIENTS], backward);
    s[PLAN_SENDS_WEIGHTS] = rest(weights, forward);
}

/* One backward pass of n. */
static void overlap_last(double *s, double forward, double n) {
    s[PLAN_SENDS_GRADIENTS] = rest(s[PLAN_SENDS_GRADIENTS], (s[PLAN_PASSES] - forward) / n);
    s[PLAN_SENDS_WEIGHTS] = rest(s[PLAN_SENDS_WEIGHTS], s[PLAN_OPTIMIZER]);
}

struct plan_time plan_time(const struct plan *p, const struct plan_rates *rates, double trained,
                           int reduce_beside) {
    enum { ADAMW = 30 }; /* bytes of a parameter: master and moments in and out, gradient, weight */
    struct plan_time t = {.total = 0};
    double sent[N_PLAN_LINKS], *s = t.seconds, forward = once_through(p, rates) / 3;
    plan_wire(p, sent);
    s[PLAN_PASSES] = passes(p, rates);
    s[PLAN_OPTIMIZER] = trained * ADAMW / rates->memory;
    s[PLAN_SENDS_TOKENS] = tokens(p, rates, sent[PLAN_TOKENS]);
    s[PLAN_SENDS_GRADIENTS] =
        ring(p, rates, sent[PLAN_DENSE_GRADIENTS] + sent[PLAN_EXPERT_GRADIENTS]);
    s[PLAN_SENDS_WEIGHTS] = ring(p, rates, sent[PLAN_DENSE_WEIGHTS] + sent[PLAN_EXPERT_WEIGHTS]);
    if (p->config->parallelism.shard == SHARD_FULL)
        overlap_all(s, forward);
    else if (reduce_beside)
        overlap_last(s, forward, (double)p->config->grad_acc_steps);
    for (int i = 0; i < N_PLAN_PHASES; i++) t.total += s[i];
    t.tokens_per_s = plan_tokens(p) / p->ranks / t.total;
    t.efficiency = (s[PLAN_PASSES] + s[PLAN_OPTIMIZER]) / t.total;
    return t;
}
