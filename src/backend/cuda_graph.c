/* Work that is repeated, as CUDA graphs: what is launched between replay and recorded is captured
 * once it has been asked for a few times, and from then on launched as a whole. That saves the host
 * some microseconds an operation, which is what a step of a small model consists of. Where the
 * experts' products are asked for one by one, or tokens travel through NCCL, nothing can be
 * recorded: the host reads how many rows there are. */
#include "config.h"
#include "backend/cuda.h"
#include "base/log.h"
#include "base/memory.h"
#include <string.h>

enum {
    GRAPHS = 32,
    TOLD = 4, /* of how many the log speaks */
    PLAIN = 2 /* times that work is done as it is: libraries load their code then, plans are made */
};

/* What is launched, and with which arguments, follows from N, from whether gradients are added to,
 * from these two, and from what neither the owner nor the backend changes after `reserve`: sizes,
 * addresses, options, the deck (recomputation, bias, frozen tensors). Where documents begin, tokens
 * and the experts' counts lie in device memory, and no launch's size depends on them. */
struct graph {
    struct recording what;
    int attention, forced;
    int asked;     /* 0: this place is free */
    uint64_t used; /* when last */
    uint64_t sent; /* tokens that the work counts as sent */
    cudaGraphExec_t exec;
};

struct cuda_graphs {
    struct graph list[GRAPHS];
    uint64_t now;
    struct graph *open; /* being recorded */
    uint64_t sent;      /* before it */
    int n_told;
};

static int same(const struct graph *g, const struct backend *be, struct recording what) {
    return g->asked && g->what.owner == what.owner && strcmp(g->what.name, what.name) == 0 &&
           g->what.N == what.N && g->what.accumulate == what.accumulate &&
           g->attention == cuda_attention_choice(be) && g->forced == be->forced;
}

static void forget(struct graph *g) {
    if (g->exec) cuda_check(cudaGraphExecDestroy(g->exec));
    *g = (struct graph){0};
}

/* The entry of this work: there already, or in the place that was used least recently. */
static struct graph *entry(struct backend *be, struct recording what) {
    struct cuda_graphs *c = cuda_state(be)->graphs;
    struct graph *oldest = c->list;
    for (struct graph *g = c->list; g < c->list + GRAPHS; g++) {
        if (same(g, be, what)) return g;
        if (g->used < oldest->used) oldest = g;
    }
    forget(oldest);
    oldest->what = what;
    oldest->attention = cuda_attention_choice(be), oldest->forced = be->forced;
    return oldest;
}

static int replay(struct backend *be, struct recording what) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_graphs *c = s->graphs;
    if (s->options.no_graph || !s->grouped || s->travel || what.N == 0) return 0;
    struct graph *g = entry(be, what);
    g->used = ++c->now;
    if (g->exec) {
        cuda_check(cudaGraphLaunch(g->exec, s->stream));
        be->sent_rows[0] += g->sent;
        return 1;
    }
    if (g->asked++ < PLAIN) return 0;
    c->open = g, c->sent = be->sent_rows[0];
    cuda_check(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    return 0;
}

static void recorded(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_graphs *c = s->graphs;
    struct graph *g = c->open;
    cudaGraph_t graph;
    size_t n = 0;
    if (!g) return;
    c->open = NULL;
    cuda_check(cudaStreamEndCapture(s->stream, &graph));
    cuda_check(cudaGraphInstantiate(&g->exec, graph, 0));
    cuda_check(cudaGraphGetNodes(graph, NULL, &n));
    cuda_check(cudaGraphDestroy(graph));
    cuda_check(cudaGraphLaunch(g->exec, s->stream));
    g->sent = be->sent_rows[0] - c->sent;
    if (c->n_told++ < TOLD)
        log_info("graph", "%s of %d tokens: its %zu operations are launched as a whole from now on",
                 g->what.name, g->what.N, n);
}

static int operations(struct backend *be, void (*work)(void *), void *context) {
    cudaStream_t stream = cuda_state(be)->stream;
    cudaGraph_t graph;
    size_t n = 0;
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    work(context);
    cuda_check(cudaStreamEndCapture(stream, &graph));
    cuda_check(cudaGraphGetNodes(graph, NULL, &n));
    cuda_check(cudaGraphDestroy(graph));
    return (int)n;
}

void cuda_fill_graph(struct backend *be) {
    cuda_state(be)->graphs = memory_alloc(sizeof *cuda_state(be)->graphs);
    be->replay = replay;
    be->recorded = recorded;
    be->operations = operations;
}

void cuda_graph_close(struct backend *be) {
    struct cuda_graphs *c = cuda_state(be)->graphs;
    for (int i = 0; i < GRAPHS; i++) forget(&c->list[i]);
    memory_free(c);
}
