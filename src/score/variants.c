#include "config.h"
#include "score/variants.h"
#include "base/die.h"
#include "base/memory.h"
#include "data/vcf.h"
#include "score/sink.h"
#include <math.h>
#include <string.h>

struct scoring {
    struct strands *strands;
    const struct request *o;
    struct vcf *vcf;
    int64_t at; /* the next window: of this variant, */
    int strand, allele;
    struct sink sink; /* rank 0 from here on */
    int64_t n_done;   /* variants put out */
    double sum[2];    /* log-likelihood of REF and ALT */
};

/* What a window holds of a record around a variant. */
struct passage {
    int64_t left, right; /* bases before and behind the allele */
    int marks;           /* BOS before them, on the strand */
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t longer(const struct variant *v) {
    return v->n_ref > v->n_alt ? v->n_ref : v->n_alt;
}

static struct passage passage_of(const struct strands *s, const struct variant *v, int strand) {
    int64_t rest = s->corpus->length[v->record] - v->place - v->n_ref,
            room = s->content - s->head - longer(v);
    struct passage p = {.left = least(v->place, room / 2)};
    p.right = least(rest, room - p.left);
    p.left = least(v->place, room - p.right);
    p.marks = s->wrapped || (s->head && (strand ? p.right == rest : p.left == v->place));
    return p;
}

/* A variant that fills more than half of the window has too little around it. */
static int is_short(const struct scoring *s, const struct variant *v) {
    return longer(v) <= s->strands->content / 2;
}

/* 1 where the alleles differ in a base that nothing precedes on a strand, not even BOS: it has no
 * probability. */
static int is_bare(const struct scoring *s, const struct variant *v) {
    const char *ref = s->vcf->text + v->ref, *alt = s->vcf->text + v->alt;
    for (int strand = s->strands->first; strand <= s->strands->last; strand++) {
        struct passage p = passage_of(s->strands, v, strand);
        int a = strand ? ref[v->n_ref - 1] : ref[0], b = strand ? alt[v->n_alt - 1] : alt[0];
        if (!p.marks && (strand ? p.right : p.left) == 0 && (a | 32) != (b | 32)) return 1;
    }
    return 0;
}

static int is_scored(const struct scoring *s, const struct variant *v) {
    return v->kind == VARIANT_BASES && is_short(s, v) && !is_bare(s, v);
}

/* w->record is 2 * variant + allele. */
static int next(void *context, struct window *w) {
    struct scoring *s = context;
    while (s->at < s->vcf->n && !is_scored(s, &s->vcf->list[s->at])) s->at++;
    if (s->at == s->vcf->n) return 0;
    const struct variant *v = &s->vcf->list[s->at];
    struct passage p = passage_of(s->strands, v, s->strand);
    *w = (struct window){.record = 2 * s->at + s->allele, .strand = s->strand};
    w->n = (int)(p.marks + p.left + (s->allele ? v->n_alt : v->n_ref) + p.right);
    if (s->allele == 0)
        s->allele = 1;
    else if (s->strand < s->strands->last)
        s->allele = 0, s->strand++;
    else
        s->allele = 0, s->strand = s->strands->first, s->at++;
    return 1;
}

/* ALT in the case of the bases that it stands for: case says nothing about it. */
static void read_alt(const struct scoring *s, const struct variant *v, int32_t *tokens) {
    const char *alt = s->vcf->text + v->alt;
    int32_t there = 0;
    for (int64_t i = 0; i < v->n_alt; i++) {
        if (i < v->n_ref) strands_read(s->strands, v->record, v->place + i, 1, &there);
        tokens[i] = (alt[i] & ~32) | (there & 32);
    }
}

static void fill(void *context, const struct window *w, int32_t *tokens, int32_t *labels,
                 float *room) {
    const struct scoring *s = context;
    const struct strands *strands = s->strands;
    const struct variant *v = &s->vcf->list[w->record / 2];
    struct passage p = passage_of(strands, v, w->strand);
    int64_t n = w->n - p.marks, n_allele = n - p.left - p.right;
    if (p.marks) tokens[0] = strands->bos, labels[0] = -100;
    tokens += p.marks, labels += p.marks;
    strands_read(strands, v->record, v->place - p.left, p.left, tokens);
    if (w->record % 2)
        read_alt(s, v, tokens + p.left);
    else
        strands_read(strands, v->record, v->place, n_allele, tokens + p.left);
    strands_read(strands, v->record, v->place + v->n_ref, p.right, tokens + p.left + n_allele);
    if (w->strand) strands_turn(strands, tokens, n);
    labels_fill(strands->labels, /*at=*/0, tokens, n, labels, room);
}

static const char *status_of(const struct scoring *s, const struct variant *v) {
    static const char *const names[] = {[VARIANT_BASES] = "too_long",
                                        [VARIANT_NONE] = "no_alt",
                                        [VARIANT_SYMBOLIC] = "symbolic",
                                        [VARIANT_DEGENERATE] = "degenerate"};
    if (is_scored(s, v)) return "scored";
    return v->kind == VARIANT_BASES && is_short(s, v) ? "no_context" : names[v->kind];
}

static void write_json(struct scoring *s, const struct variant *v, const char *contig,
                       const double x[3]) {
    static const char *const keys[] = {"ref_log_likelihood", "alt_log_likelihood",
                                       "log_likelihood_ratio"};
    FILE *f = s->sink.out;
    fputs("{\"contig\": ", f);
    sink_json(&s->sink, contig);
    fprintf(f, ", \"position\": %lld, \"id\": ", (long long)v->place + 1);
    sink_json(&s->sink, s->vcf->text + v->id);
    fputs(", \"ref\": ", f);
    sink_json(&s->sink, s->vcf->text + v->ref);
    fputs(", \"alt\": ", f);
    sink_json(&s->sink, s->vcf->text + v->alt);
    for (int k = 0; k < 3; k++) {
        fprintf(f, ", \"%s\": ", keys[k]);
        sink_real(&s->sink, x[k], "null");
    }
    fprintf(f, ", \"status\": \"%s\"}\n", status_of(s, v));
}

static void write_line(struct scoring *s, const struct variant *v, const char *contig,
                       const double x[3]) {
    const char *text = s->vcf->text;
    fprintf(s->sink.out, "%s\t%lld\t%s\t%s\t%s", contig, (long long)v->place + 1, text + v->id,
            text + v->ref, text + v->alt);
    for (int k = 0; k < 3; k++) {
        fputc('\t', s->sink.out);
        sink_real(&s->sink, x[k], "nan");
    }
    fprintf(s->sink.out, "\t%s\n", status_of(s, v));
}

static void put_out(struct scoring *s) {
    const struct variant *v = &s->vcf->list[s->n_done++];
    int scored = is_scored(s, v), strands = s->strands->last - s->strands->first + 1;
    double ref = scored ? s->sum[0] / strands : NAN, alt = scored ? s->sum[1] / strands : NAN;
    const double x[] = {ref, alt, alt - ref};
    char *contig = corpus_record_name(s->strands->corpus, v->record);
    if (s->o->format == FORMAT_JSONL)
        write_json(s, v, contig, x);
    else
        write_line(s, v, contig, x);
    memory_free(contig);
    s->sum[0] = s->sum[1] = 0;
}

static void take(void *context, const struct window *w, const float *values) {
    struct scoring *s = context;
    int64_t i_variant = w->record / 2;
    const struct variant *v = &s->vcf->list[i_variant];
    struct passage p = passage_of(s->strands, v, w->strand);
    while (s->n_done < i_variant) put_out(s); /* those that are not scored */
    for (int64_t i = p.marks + (w->strand ? p.right : p.left); i < w->n; i++)
        if (!isnan(values[i])) s->sum[w->record % 2] += (double)values[i];
    if (w->record % 2 && w->strand == s->strands->last) put_out(s);
}

char *variants_refusal(const struct strands *s, const struct config *c) {
    enum { LEAST = 8 }; /* an allele of half of it has context on both sides */
    if (s->corpus->ready || c->dataset.mask_tags)
        return memory_string("--variants: only text without tags (dataset.mask_tags) has variants");
    if (s->content < LEAST)
        return memory_format("--window: variants need one of %d tokens",
                             LEAST + (s->wrapped ? 2 : 0));
    return NULL;
}

void variants_score(struct trained *t, struct strands *strands, const struct request *o) {
    struct scoring s = {.strands = strands, .o = o, .strand = strands->first};
    s.vcf = vcf_read(o->variants, strands->corpus, &t->grid);
    if (t->grid.rank == 0) {
        sink_open(&s.sink, o->output, /*text=*/1);
        if (o->format == FORMAT_TSV)
            fputs("contig\tposition\tid\tref\talt\tref_log_likelihood\talt_log_likelihood\t"
                  "log_likelihood_ratio\tstatus\n",
                  s.sink.out);
    }
    user_agree();
    windows_score(t, &(struct windows_source){next, fill, take, &s});
    if (t->grid.rank == 0) {
        while (s.n_done < s.vcf->n) put_out(&s);
        sink_close(&s.sink);
    }
    vcf_free(s.vcf);
}
