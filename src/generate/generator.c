/* Each pass takes what the model has not seen yet of as many sequences as fit: a prompt at first,
 * then the letter that was chosen last. A sequence that is seen whole gets its next letter; one
 * that has all of them makes way for the next. */
#include "config.h"
#include "generate/generator.h"
#include "base/memory.h"
#include "base/random.h"
#include <string.h>

enum { MOST_PLACES = 64 };                   /* sequences of a rank at a time */
static const double MOST_KEPT_BYTES = 4.0e9; /* and what their keys and values may take */

/* A sequence that is being made. */
struct growing {
    int64_t index;   /* among those of the task; -1: none */
    int64_t n_made;  /* letters */
    int32_t *tokens; /* [n], room for `context`: its document */
    int n;
    uint64_t seed;
    unsigned char *letters; /* [length] */
};

struct generator {
    struct model *m;
    const struct task *task;
    unsigned char *letters; /* of all of this rank's sequences */
    int64_t n_share, n_begun;
    struct growing *places; /* [n_places] */
    int n_places;
    struct kept_all *kept; /* NULL: none */
    struct batch *batch;
    int *rows, *ends; /* [n_ends] last tokens of what is seen whole by now, and their places */
    int n_ends;
    real_t *logits;     /* [n_places, V] */
    float *host_logits; /* the same */
    struct candidate *room;
};

int64_t generator_share(const struct task *t, const struct grid *g, int rank) {
    int64_t n = (int64_t)t->n_prompts * t->count;
    return (n - rank + g->n_ranks - 1) / g->n_ranks;
}

/* The next sequence of this rank's, if there is one, in a place. */
static void begin(struct generator *r, int place) {
    const struct task *t = r->task;
    const struct grid *g = r->m->be->grid;
    struct growing *s = &r->places[place];
    s->index = -1;
    if (r->n_begun == r->n_share) return;
    s->letters = r->letters + r->n_begun * t->length;
    s->index = r->n_begun++ * g->n_ranks + g->rank;
    const struct prompt *p = &t->prompts[s->index / t->count];
    s->seed = random_bits(t->seed, RANDOM_GENERATE,
                          (uint64_t)(s->index / t->count) << 32 | (uint64_t)(s->index % t->count));
    s->n_made = 0, s->n = p->n;
    memcpy(s->tokens, p->tokens, (size_t)p->n * sizeof *s->tokens);
    if (r->kept) kept_clear(r->kept, place);
}

/* A full document makes way for one that begins with its second half. */
static void slide(struct generator *r, int place) {
    const struct task *t = r->task;
    struct growing *s = &r->places[place];
    int head = t->bos >= 0, most = t->context - 1 - head,
        n = t->context / 2 < most ? t->context / 2 : most;
    memmove(s->tokens + head, s->tokens + s->n - n, (size_t)n * sizeof *s->tokens);
    if (head) s->tokens[0] = t->bos;
    s->n = head + n;
    if (r->kept) kept_clear(r->kept, place);
}

/* The tokens of a place that the next pass has to see, as far as there is room. */
static void add(struct generator *r, int place) {
    struct growing *s = &r->places[place];
    struct batch *b = r->batch;
    int seen = r->kept ? kept_length(r->kept, place) : 0, unseen = s->n - seen,
        room = b->capacity - b->n, n = unseen < room ? unseen : room;
    if (n == 0 || (!r->kept && n < unseen)) return;
    if (r->kept)
        kept_append(r->kept, b, place, s->tokens + seen, n);
    else
        batch_append(b, s->tokens, b->targets + b->n, NULL, n);
    if (n < unseen) return;
    r->rows[r->n_ends] = b->n - 1;
    r->ends[r->n_ends++] = place;
}

/* The letters that the last pass tells; 0: a logit is not finite. */
static int choose(struct generator *r) {
    const struct task *t = r->task;
    size_t V = (size_t)r->m->s.V;
    model_logits_of(r->m, r->rows, r->n_ends, r->logits);
    r->m->be->download_real(r->m->be, r->host_logits, r->logits, (size_t)r->n_ends * V);
    for (int i = 0; i < r->n_ends; i++) {
        struct growing *s = &r->places[r->ends[i]];
        double u = random_uniform(s->seed, RANDOM_GENERATE, (uint64_t)s->n_made);
        int32_t token = sample_token(&t->sampling, r->host_logits + (size_t)i * V, t->letters,
                                     t->n_letters, u, r->room);
        if (token < 0) return 0;
        s->letters[s->n_made++] = (unsigned char)token;
        s->tokens[s->n++] = token;
        if (s->n_made == t->length)
            begin(r, r->ends[i]);
        else if (s->n == t->context)
            slide(r, r->ends[i]);
    }
    return 1;
}

static void open_places(struct generator *r) {
    struct model *m = r->m;
    const struct task *t = r->task;
    size_t V = (size_t)m->s.V;
    double bytes = (double)kept_bytes(&m->s, m->be, t->context);
    int64_t most = m->capacity < MOST_PLACES ? m->capacity : MOST_PLACES;
    if (m->be->attention_kept && (double)most * bytes > MOST_KEPT_BYTES)
        most = (int64_t)(MOST_KEPT_BYTES / bytes);
    if (most > r->n_share) most = r->n_share;
    r->n_places = most > 0 ? (int)most : 1;
    size_t n = (size_t)r->n_places;
    if (m->be->attention_kept)
        r->kept = kept_new(&m->s, m->be, r->n_places, t->context, m->capacity);
    r->places = memory_alloc_array(n, sizeof *r->places);
    r->rows = memory_alloc_array(n, sizeof *r->rows);
    r->ends = memory_alloc_array(n, sizeof *r->ends);
    r->logits = m->be->alloc(m->be, n * V * m->be->real_bytes);
    r->host_logits = memory_alloc_array(n * V, sizeof *r->host_logits);
    r->room = memory_alloc_array((size_t)t->n_letters, sizeof *r->room);
    r->batch = batch_new(m->capacity);
    for (int p = 0; p < r->n_places; p++) {
        r->places[p].tokens = memory_alloc_array((size_t)t->context, sizeof(int32_t));
        begin(r, p);
    }
}

static void close_places(struct generator *r) {
    for (int p = 0; p < r->n_places; p++) memory_free(r->places[p].tokens);
    kept_free(r->kept);
    batch_free(r->batch);
    r->m->be->release(r->m->be, r->logits);
    memory_free(r->places);
    memory_free(r->rows);
    memory_free(r->ends);
    memory_free(r->host_logits);
    memory_free(r->room);
}

int generator_run(struct model *m, const struct task *t, unsigned char *letters) {
    const struct grid *g = m->be->grid;
    struct generator r = {.m = m, .task = t, .letters = letters};
    int finite = 1;
    r.n_share = generator_share(t, g, g->rank);
    open_places(&r);
    for (;;) {
        batch_clear(r.batch);
        r.n_ends = 0;
        for (int p = 0; p < r.n_places; p++)
            if (r.places[p].index >= 0) add(&r, p);
        double sums[2] = {r.batch->n, !finite};
        agree_sum(g, sums, 2);
        finite = sums[1] == 0;
        if (sums[0] == 0 || !finite) break;
        /* a rank without tokens takes part all the same: it may hold experts */
        if (r.kept)
            model_continue(m, r.batch, r.kept);
        else
            model_forward(m, r.batch);
        finite = choose(&r);
    }
    close_places(&r);
    return finite;
}
