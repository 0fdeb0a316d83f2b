#include "config.h"
#include "score/embed.h"
#include "base/die.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/sequences.h"
#include "score/score_file.h"
#include "score/sink.h"
#include "score/windows.h"

/* Hidden states on their way from windows to the file. */
struct embedding {
    struct strands strands;
    int per_base;
    size_t D;
    struct sink sink; /* rank 0 from here on */
    hid_t file, dataset;
    double *sum; /* [D] over the record's bases so far */
    float *mean; /* [D] */
};

static void put_mean(struct embedding *e, int64_t record) {
    for (size_t k = 0; k < e->D; k++) {
        e->mean[k] = (float)(e->sum[k] / (double)e->strands.corpus->length[record]);
        e->sum[k] = 0;
    }
    score_file_write(e->dataset, H5T_NATIVE_FLOAT, record, 1, e->mean);
}

static void take(void *context, const struct window *w, const float *values) {
    struct embedding *e = context;
    int i = strands_fresh(&e->strands, w);
    while (i < w->n && strands_place(&e->strands, w, i) < 0) i++; /* BOS */
    const float *fresh = values + (size_t)i * e->D;
    if (e->per_base) {
        int64_t first = e->strands.corpus->offset[w->record] + strands_place(&e->strands, w, i);
        score_file_write(e->dataset, H5T_NATIVE_FLOAT, first, w->n - i, fresh);
        return;
    }
    for (; i < w->n; i++, fresh += e->D)
        for (size_t k = 0; k < e->D; k++) e->sum[k] += (double)fresh[k];
    if (strands_ends(&e->strands, w)) put_mean(e, w->record);
}

static void open_file(struct embedding *e, const struct request *o, int64_t layer) {
    const struct corpus *c = e->strands.corpus;
    hsize_t size[2] = {(hsize_t)(e->per_base ? c->n_tokens : c->n_records), (hsize_t)e->D};
    sink_open(&e->sink, o->output, /*text=*/0);
    e->file = score_file_create(e->sink.temporary, EMBEDDINGS_FORMAT, EMBEDDINGS_VERSION, o, c,
                                &e->strands);
    h5_int64(e->file, "layer", layer);
    h5_string(e->file, "pool", e->per_base ? "none" : "mean");
    e->dataset = score_file_dataset(e->file, "/embedding", H5T_NATIVE_FLOAT, 2, size, "1",
                                    e->per_base ? "hidden state of each base"
                                                : "mean hidden state of each record's bases");
    e->sum = memory_alloc_array(e->D, sizeof *e->sum);
    e->mean = memory_alloc_array(e->D, sizeof *e->mean);
}

static void close_file(struct embedding *e) {
    H5Dclose(e->dataset);
    H5Fclose(e->file);
    sink_close(&e->sink);
    memory_free(e->sum);
    memory_free(e->mean);
}

static void embed(struct trained *t, const struct request *o) {
    int64_t L = t->config->model.num_hidden_layers, layer = o->layer < 0 ? L : o->layer;
    struct embedding e = {.per_base = o->per_base, .D = (size_t)t->config->model.hidden_size};
    if (layer > L && t->grid.rank == 0)
        die_user(EXIT_USAGE, "embed: --layer: %lld, but the model has %lld layers",
                 (long long)layer, (long long)L);
    user_agree();
    struct corpus *c = sequences_read(o->file, t->config, &t->grid);
    char *problem = strands_open(&e.strands, c, t->config, o->window, o->stride, STRAND_FORWARD);
    if (problem && t->grid.rank == 0) die_user(EXIT_USAGE, "embed: %s", problem);
    user_agree();
    trained_load(t, windows_capacity(t->config));
    t->model->depth = (int)layer;
    if (t->grid.rank == 0) open_file(&e, o, layer);
    user_agree();
    windows_embed(t, &(struct windows_source){strands_next, strands_fill, take, &e});
    if (t->grid.rank == 0) close_file(&e);
    strands_close(&e.strands);
    sequences_free(c);
}

int embed_main(int argc, char **argv) {
    return request_run(VERB_EMBED, argc, argv, embed);
}
