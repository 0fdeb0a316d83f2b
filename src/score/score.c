#include "config.h"
#include "score/score.h"
#include "base/die.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/sequences.h"
#include "score/output.h"
#include "score/variants.h"
#include <math.h>

/* Records on their way from windows to the output. */
struct scoring {
    struct strands strands; /* first: it is the source's context */
    enum strand_kind kind;
    struct output *out; /* rank 0 from here on */
    int64_t n_done;     /* records put out */
    float *values[2];   /* [longest record] of each strand, by place in the record */
};

static void put_out(struct scoring *s, int64_t record) {
    const int64_t *length = s->strands.corpus->length;
    float *one = s->values[s->kind == STRAND_REVERSE];
    while (s->n_done < record) output_record(s->out, s->n_done++, NULL); /* empty ones */
    for (int64_t i = 0; s->kind == STRAND_MEAN && i < length[record]; i++)
        one[i] = (one[i] + s->values[1][i]) / 2; /* NaN where either is */
    output_record(s->out, s->n_done++, one);
}

static void take(void *context, const struct window *w, const float *values) {
    struct scoring *s = context;
    for (int i = strands_fresh(&s->strands, w); i < w->n; i++) {
        int64_t place = strands_place(&s->strands, w, i);
        if (place >= 0) s->values[w->strand][place] = values[i];
    }
    if (strands_ends(&s->strands, w)) put_out(s, w->record);
}

static void score_records(struct trained *t, struct scoring *s, const struct request *o) {
    const struct corpus *c = s->strands.corpus;
    int64_t longest = 0;
    for (int64_t r = 0; r < c->n_records; r++)
        if (c->length[r] > longest) longest = c->length[r];
    if (t->grid.rank == 0) {
        for (int k = s->strands.first; k <= s->strands.last; k++)
            s->values[k] = memory_alloc_array((size_t)longest, sizeof(float));
        s->out = output_open(o, c, &s->strands);
    }
    user_agree();
    windows_score(t, &(struct windows_source){strands_next, strands_fill, take, s});
    if (t->grid.rank == 0) {
        while (s->n_done < c->n_records) output_record(s->out, s->n_done++, NULL);
        output_close(s->out);
    }
    memory_free(s->values[0]);
    memory_free(s->values[1]);
}

static void score(struct trained *t, const struct request *o) {
    struct scoring s = {.kind = o->strand};
    struct corpus *c = sequences_read(o->file, t->config, &t->grid);
    char *problem = strands_open(&s.strands, c, t->config, o->window, o->stride, o->strand);
    if (!problem && o->variants) problem = variants_refusal(&s.strands, t->config);
    if (problem && t->grid.rank == 0) die_user(EXIT_USAGE, "score: %s", problem);
    user_agree();
    trained_load(t, windows_capacity(t->config));
    if (o->variants)
        variants_score(t, &s.strands, o);
    else
        score_records(t, &s, o);
    strands_close(&s.strands);
    sequences_free(c);
}

int score_main(int argc, char **argv) {
    return request_run(VERB_SCORE, argc, argv, score);
}
