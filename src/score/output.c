#include "config.h"
#include "score/output.h"
#include "base/die.h"
#include "base/memory.h"
#include "score/score_file.h"
#include "score/sink.h"
#include <math.h>
#include <string.h>

struct output {
    const struct request *o;
    const struct corpus *corpus;
    struct sink sink;
    struct score_file *file; /* HDF5, else NULL */
};

static struct record_score sum_up(const float *values, int64_t n) {
    struct record_score r = {.length = n};
    for (int64_t i = 0; i < n; i++)
        if (!isnan(values[i])) r.log_likelihood += (double)values[i], r.scored++;
    r.per_base = r.scored ? r.log_likelihood / (double)r.scored : NAN;
    r.bits_per_base = -r.per_base / M_LN2;
    return r;
}

struct output *output_open(const struct request *o, const struct corpus *corpus,
                           const struct strands *strands) {
    struct output *out = memory_alloc(sizeof *out);
    out->o = o, out->corpus = corpus;
    sink_open(&out->sink, o->output, o->format != FORMAT_H5);
    if (o->format == FORMAT_H5)
        out->file = score_file_open(out->sink.temporary, o, corpus, strands);
    else if (o->format == FORMAT_TSV)
        fputs(o->per_base ? "name\tposition\tbase\tlog_likelihood\n"
                          : "name\tlength\tscored\tlog_likelihood\tlog_likelihood_per_base\t"
                            "bits_per_base\n",
              out->sink.out);
    return out;
}

static void write_bases(struct output *out, int64_t record, const char *name, const float *values,
                        int64_t n) {
    enum { SOME = 4096 };
    uint32_t tokens[SOME];
    for (int64_t i = 0; i < n; i++) {
        if (i % SOME == 0) corpus_read(out->corpus, record, i, n - i < SOME ? n - i : SOME, tokens);
        sink_tsv(&out->sink, name);
        fprintf(out->sink.out, out->corpus->ready ? "\t%lld\t%u\t" : "\t%lld\t%c\t",
                (long long)i + 1, tokens[i % SOME]);
        sink_real(&out->sink, (double)values[i], "nan");
        fputc('\n', out->sink.out);
    }
}

static void write_line(struct output *out, const char *name, const struct record_score *r) {
    const double reals[] = {r->log_likelihood, r->per_base, r->bits_per_base};
    sink_tsv(&out->sink, name);
    fprintf(out->sink.out, "\t%lld\t%lld", (long long)r->length, (long long)r->scored);
    for (int k = 0; k < 3; k++) {
        fputc('\t', out->sink.out);
        sink_real(&out->sink, reals[k], "nan");
    }
    fputc('\n', out->sink.out);
}

static void write_json(struct output *out, const char *name, const struct record_score *r,
                       const float *values) {
    FILE *f = out->sink.out;
    fputs("{\"name\": ", f);
    sink_json(&out->sink, name);
    fprintf(f, ", \"length\": %lld, \"scored\": %lld, \"log_likelihood\": ", (long long)r->length,
            (long long)r->scored);
    sink_real(&out->sink, r->log_likelihood, "null");
    fputs(", \"log_likelihood_per_base\": ", f);
    sink_real(&out->sink, r->per_base, "null");
    fputs(", \"bits_per_base\": ", f);
    sink_real(&out->sink, r->bits_per_base, "null");
    for (int64_t i = 0; out->o->per_base && i < r->length; i++) {
        fputs(i == 0 ? ", \"bases\": [" : ", ", f);
        sink_real(&out->sink, (double)values[i], "null");
    }
    fputs(out->o->per_base ? r->length ? "]}\n" : ", \"bases\": []}\n" : "}\n", f);
}

void output_record(struct output *out, int64_t i, const float *values) {
    const struct corpus *c = out->corpus;
    struct record_score r = sum_up(values, c->length[i]);
    char *name = corpus_record_name(c, i);
    if (out->file)
        score_file_record(out->file, i, &r, values);
    else if (out->o->format == FORMAT_JSONL)
        write_json(out, name, &r, values);
    else if (out->o->per_base)
        write_bases(out, i, name, values, r.length);
    else
        write_line(out, name, &r);
    memory_free(name);
}

void output_close(struct output *out) {
    if (out->file) score_file_close(out->file);
    sink_close(&out->sink);
    memory_free(out);
}
