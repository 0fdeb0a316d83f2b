#include "config.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/check.h"
#include "data/loader.h"
#include "model/low.h"
#include "plan/figures.h"
#include "plan/time.h"
#include <jansson.h>

static const struct {
    enum shard_kind kind;
    const char *name;
} shards[] = {{SHARD_NONE, "none"}, {SHARD_OPTIMIZER, "optimizer"}, {SHARD_FULL, "full"}};
enum { SHARDS = sizeof shards / sizeof *shards, RECOMPUTES = RECOMPUTE_LAYER + 1 };

/* Everything, for both forms of output. */
struct result {
    struct plan_memory memory[SHARDS];
    int own; /* which of them is the deck's */
    double totals[RECOMPUTES][SHARDS];
    double parameters, active, checkpoint, tokens, flops, sent[N_PLAN_LINKS];
};

static struct result result_of(const struct plan *p) {
    struct result r = {.own = 0};
    for (int i = 0; i < SHARDS; i++) {
        struct config c = *p->config;
        struct plan q = *p;
        c.parallelism.shard = shards[i].kind;
        q.config = &c;
        r.memory[i] = plan_memory(&q);
        for (int k = 0; k < RECOMPUTES; k++) {
            c.memory.recompute = k;
            r.totals[k][i] = plan_memory(&q).total;
        }
        if (p->config->parallelism.shard == (int)shards[i].kind) r.own = i;
    }
    plan_parameters(p, &r.parameters, &r.active, &r.checkpoint);
    plan_wire(p, r.sent);
    r.tokens = plan_tokens(p), r.flops = plan_flops(p);
    return r;
}

static const char *plural(int n) {
    return n == 1 ? "" : "s";
}

/* ---- text ---- */

static void print_memory(const struct plan *p, const struct result *r, FILE *out) {
    char buf[32];
    fprintf(out, "\n%-28s", "memory of a rank");
    for (int i = 0; i < SHARDS; i++)
        fprintf(out, "%11s%s", shards[i].name, r->own == i ? "*" : " ");
    fprintf(out, "  (parallelism.shard; * the deck's)\n");
    for (int k = 0; k < N_PLAN_KINDS; k++) {
        double sum = 0;
        for (int i = 0; i < SHARDS; i++) sum += r->memory[i].bytes[k];
        if (sum == 0) continue;
        fprintf(out, "  %-26s", plan_kind_text(k));
        for (int i = 0; i < SHARDS; i++)
            fprintf(out, "%11s ", text_bytes(buf, sizeof buf, r->memory[i].bytes[k]));
        fprintf(out, "\n");
    }
    fprintf(out, "  %-26s", "together");
    for (int i = 0; i < SHARDS; i++)
        fprintf(out, "%11s ", text_bytes(buf, sizeof buf, r->memory[i].total));
    fprintf(out, "  of %s\n", text_bytes(buf, sizeof buf, p->limit));
    for (int k = 0; k < RECOMPUTES; k++) {
        if (k == p->config->memory.recompute) continue;
        fprintf(out, "  %-26s", "or together");
        for (int i = 0; i < SHARDS; i++)
            fprintf(out, "%11s ", text_bytes(buf, sizeof buf, r->totals[k][i]));
        fprintf(out, "  with memory.recompute=%s\n", plan_recompute_name(k));
    }
}

static void print_sent(const struct plan *p, const struct result *r, FILE *out) {
    const struct {
        const char *what, *group;
        int ranks;
    } links[N_PLAN_LINKS] = {
        [PLAN_TOKENS] = {"tokens", "ep group", p->ep_size},
        [PLAN_DENSE_GRADIENTS] = {"gradients, dense", "all", p->ranks},
        [PLAN_DENSE_WEIGHTS] = {"weights, dense", "all", p->ranks},
        [PLAN_EXPERT_GRADIENTS] = {"gradients, experts", "dp group", p->dp_size},
        [PLAN_EXPERT_WEIGHTS] = {"weights, experts", "dp group", p->dp_size}};
    char buf[32];
    fprintf(out, "\na rank sends in a step\n");
    for (int k = 0; k < N_PLAN_LINKS; k++)
        fprintf(out, "  %-26s%11s   %s: %d rank%s\n", links[k].what,
                text_bytes(buf, sizeof buf, r->sent[k]), links[k].group, links[k].ranks,
                plural(links[k].ranks));
}

static struct plan_time time_of(const struct plan *p, const struct plan_rates *rates,
                                const struct result *r) {
    const struct plan_memory *own = &r->memory[r->own];
    return plan_time(p, rates, own->bytes[PLAN_MOMENTS] / (2 * sizeof(float)), own->reduce_beside);
}

static void print_time(const struct plan *p, const struct plan_rates *rates, const struct result *r,
                       FILE *out) {
    struct plan_time t = time_of(p, rates, r);
    char buf[2][32];
    fprintf(out, "\na step would take, with %s overlapping\n",
            p->config->parallelism.shard == SHARD_FULL ? "passes, weights and gradients"
            : r->memory[r->own].reduce_beside
                ? "the last backward pass and gradients, AdamW and weights"
                : "nothing");
    for (int k = 0; k < N_PLAN_PHASES; k++)
        if (t.seconds[k] > 0) fprintf(out, "  %-26s%8.3f s\n", plan_phase_name(k), t.seconds[k]);
    fprintf(out, "  %-26s%8.3f s   %s tokens/s a rank, %s tokens a day, %.1f %% of it computing\n",
            "together", t.total, text_count(buf[0], sizeof buf[0], t.tokens_per_s),
            text_count(buf[1], sizeof buf[1], t.tokens_per_s * p->ranks * 86400),
            100 * t.efficiency);
    fprintf(out, "  at %.0f TFLOP/s, %.0f GB/s within nodes of %d, %.0f GB/s between them\n",
            rates->flops / 1e12, rates->link / 1e9, p->node_ranks, rates->network / 1e9);
}

static void print_head(const struct plan *p, const struct result *r, FILE *out) {
    char buf[2][32];
    const struct config *c = p->config;
    int bf16 = p->cuda && c->precision.recipe != PRECISION_FP32;
    fprintf(out, "deck            %s on %d rank%s: dp %d x ep %d, %s in %s, attention %s\n",
            c->deck_name, p->ranks, plural(p->ranks), p->dp_size, p->ep_size,
            p->cuda ? "cuda" : "cpu", bf16 ? "BF16" : "FP32", r->memory[r->own].attention);
    char *low = low_text(c, plan_capability(p));
    if (low) fprintf(out, "eight bits      %s\n", low);
    memory_free(low);
    fprintf(out, "parameters      %s, %s work on a token\n",
            text_count(buf[0], sizeof buf[0], r->parameters),
            text_count(buf[1], sizeof buf[1], r->active));
    fprintf(out, "a step          %.0f tokens, %lld micro-batch%s of %d a rank; ", r->tokens,
            (long long)c->grad_acc_steps, c->grad_acc_steps == 1 ? "" : "es", loader_capacity(c));
    fprintf(out, "%sFLOP, %sFLOP a rank\n", text_count(buf[0], sizeof buf[0], r->flops),
            text_count(buf[1], sizeof buf[1], r->flops / p->ranks));
    fprintf(out, "a checkpoint    %s, after a copy of %s to the host memory of each rank\n",
            text_bytes(buf[0], sizeof buf[0], r->checkpoint),
            text_bytes(buf[1], sizeof buf[1], r->memory[r->own].copies));
}

static void print_advice(void *out, const char *words, double bytes) {
    char buf[32];
    fprintf(out, "  %-10s %s\n", text_bytes(buf, sizeof buf, bytes), words);
}

int plan_print(const struct plan *p, const struct plan_rates *rates, FILE *out) {
    struct result r = result_of(p);
    double left = p->limit - r.memory[r.own].total;
    char buf[32];
    print_head(p, &r, out);
    print_memory(p, &r, out);
    print_sent(p, &r, out);
    if (rates) print_time(p, rates, &r, out);
    if (left >= 0) {
        fprintf(out, "\nfits, with %s left\n", text_bytes(buf, sizeof buf, left));
        return 1;
    }
    fprintf(out, "\ndoes not fit, %s too much; it would fit with\n",
            text_bytes(buf, sizeof buf, -left));
    if (!plan_advise(p, print_advice, out))
        fprintf(out, "  nothing that was tried: smaller micro-batches, experts on more ranks, more "
                     "ranks\n");
    return 0;
}

/* ---- JSON ---- */

static json_t *whole(double x) {
    return json_integer((json_int_t)x);
}

static json_t *memory_json(const struct result *r) {
    json_t *all = json_object();
    for (int i = 0; i < SHARDS; i++) {
        json_t *one = json_object();
        for (int k = 0; k < N_PLAN_KINDS; k++)
            json_object_set_new(one, plan_kind_name(k), whole(r->memory[i].bytes[k]));
        json_object_set_new(one, "total", whole(r->memory[i].total));
        json_object_set_new(all, shards[i].name, one);
    }
    return all;
}

/* Totals, by recompute and shard. */
static json_t *recompute_json(const struct result *r) {
    json_t *all = json_object();
    for (int k = 0; k < RECOMPUTES; k++) {
        json_t *one = json_object();
        for (int i = 0; i < SHARDS; i++)
            json_object_set_new(one, shards[i].name, whole(r->totals[k][i]));
        json_object_set_new(all, plan_recompute_name(k), one);
    }
    return all;
}

static json_t *sent_json(const struct result *r) {
    json_t *all = json_object();
    for (int k = 0; k < N_PLAN_LINKS; k++)
        json_object_set_new(all, plan_link_name(k), whole(r->sent[k]));
    return all;
}

static void advice_json(void *list, const char *words, double bytes) {
    json_array_append_new(list,
                          json_pack("{s:s, s:I}", "words", words, "bytes", (json_int_t)bytes));
}

static json_t *time_json(const struct plan *p, const struct plan_rates *rates,
                         const struct result *r) {
    struct plan_time t = time_of(p, rates, r);
    json_t *all = json_object();
    for (int k = 0; k < N_PLAN_PHASES; k++)
        json_object_set_new(all, plan_phase_name(k), json_real(t.seconds[k]));
    json_object_set_new(all, "total", json_real(t.total));
    json_object_set_new(all, "tokens_per_s_of_a_rank", json_real(t.tokens_per_s));
    json_object_set_new(all, "computing", json_real(t.efficiency));
    return all;
}

int plan_print_json(const struct plan *p, const struct plan_rates *rates, FILE *out) {
    struct result r = result_of(p);
    const struct plan_memory *own = &r.memory[r.own];
    int fits = own->total <= p->limit;
    json_t *advice = json_array();
    if (!fits) plan_advise(p, advice_json, advice);
    json_t *root = json_pack(
        "{s:s, s:i, s:i, s:i, s:s, s:s, s:s, s:b, s:o, s:o, s:o}", "deck", p->config->deck_name,
        "ranks", p->ranks, "dp_size", p->dp_size, "ep_size", p->ep_size, "backend",
        p->cuda ? "cuda" : "cpu", "attention", own->attention, "shard", shards[r.own].name, "fits",
        fits, "would_fit", advice, "memory", memory_json(&r), "sent_bytes", sent_json(&r));
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"parameters", r.parameters},  {"active_parameters", r.active},
                   {"tokens_per_step", r.tokens}, {"checkpoint_bytes", r.checkpoint},
                   {"copy_bytes", own->copies},   {"limit_bytes", p->limit},
                   {"total_bytes", own->total}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(root, numbers[i].name, whole(numbers[i].value));
    json_object_set_new(root, "totals_by_recompute", recompute_json(&r));
    json_object_set_new(root, "flops_per_step", json_real(r.flops)); /* 2^63 is soon passed */
    if (rates) json_object_set_new(root, "step_seconds", time_json(p, rates, &r));
    json_dumpf(root, out, JSON_INDENT(2));
    fputc('\n', out);
    json_decref(root);
    return fits;
}
