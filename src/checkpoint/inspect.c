#include "config.h"
#include "checkpoint/inspect.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/contents.h"
#include "checkpoint/folder.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A file of the checkpoint as it lies there. */
struct found {
    int64_t bytes; /* -1: missing */
    char *damage;  /* NULL: none seen; names file and dataset */
};

static double total_bytes(const struct found *list, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (list[i].bytes > 0) sum += (double)list[i].bytes;
    return sum;
}

/* Looks at every file, and with `verify` hashes it. The caller frees it (free_found). */
static struct found *find(const struct contents *c, int verify) {
    struct found *list = memory_alloc_array((size_t)c->n_files + 1, sizeof *list);
    for (int i = 0; i < c->n_files; i++) {
        char *path = file_join(c->folder, c->files[i].name);
        errno = 0;
        list[i].bytes = file_size(path);
        if (list[i].bytes < 0)
            list[i].damage = memory_format("%s: %s", path, strerror(errno));
        else if (verify)
            list[i].damage = checksums_verify(c->folder, &c->files[i]);
        memory_free(path);
    }
    return list;
}

static void free_found(struct found *list, int n) {
    for (int i = 0; i < n; i++) memory_free(list[i].damage);
    memory_free(list);
}

/* ---- in words ---- */

/* One line of the table of tensors, which stands for all layers that look the same. */
struct line {
    char *text;
    double values;
};

/* "master exp_avg exp_avg_sq" */
static char *kinds_text(unsigned kinds) {
    char *text = memory_string("");
    for (enum state_kind k = 0; k < N_STATES; k++) {
        if (!(kinds >> k & 1)) continue;
        char *longer = memory_format("%s%s%s", text, text[0] ? " " : "", state_name(k));
        memory_free(text);
        text = longer;
    }
    return text;
}

/* The name with `*` for the number of its layer, the shape, the kinds. */
static struct line line_of(const struct contents_tensor *t) {
    static const char layers[] = "model.layers.";
    const char *rest = strncmp(t->param.name, layers, sizeof layers - 1) == 0
                           ? strchr(t->param.name + sizeof layers - 1, '.')
                           : NULL;
    char shape[80],
        *kinds = kinds_text(t->kinds),
        *name = rest ? memory_format("%s*%s", layers, rest) : memory_string(t->param.name);
    size_t used = 0;
    for (int d = 0; d < t->param.n_dims; d++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", d ? " x " : "",
                                 (long long)t->param.dims[d]);
    struct line l = {memory_format("%-50s %-20s %s", name, shape, kinds), (double)t->param.n};
    memory_free(name);
    memory_free(kinds);
    return l;
}

static int by_text(const void *a, const void *b) {
    return strcmp(((const struct line *)a)->text, ((const struct line *)b)->text);
}

static void print_tensors(const struct contents *c, FILE *out) {
    char count[32], size[32];
    struct line *lines = memory_alloc_array((size_t)c->n_tensors + 1, sizeof *lines);
    for (int i = 0; i < c->n_tensors; i++) lines[i] = line_of(&c->tensors[i]);
    qsort(lines, (size_t)c->n_tensors, sizeof *lines, by_text);
    fprintf(out, "tensors      %d, FP32\n", c->n_tensors);
    for (int i = 0, n; i < c->n_tensors; i += n) {
        for (n = 1; i + n < c->n_tensors && strcmp(lines[i].text, lines[i + n].text) == 0;) n++;
        fprintf(out, "  %s", lines[i].text);
        if (n > 1) fprintf(out, "  (%d layers)", n);
        putc('\n', out);
    }
    for (int i = 0; i < c->n_tensors; i++) memory_free(lines[i].text);
    memory_free(lines);
    for (enum state_kind k = 0; k < N_STATES; k++) {
        double values = 0;
        for (int i = 0; i < c->n_tensors; i++)
            if (c->tensors[i].kinds >> k & 1) values += (double)c->tensors[i].param.n;
        fprintf(out, "  %-10s %s values, %s\n", state_name(k),
                text_count(count, sizeof count, values),
                text_bytes(size, sizeof size, values * (double)sizeof(float)));
    }
}

static void print_files(const struct contents *c, const struct found *found, int verify,
                        FILE *out) {
    char size[32];
    fprintf(out, "files        %d and their checksums, %s; XXH3-128\n", c->n_files,
            text_bytes(size, sizeof size, total_bytes(found, c->n_files)));
    for (int i = 0; i < c->n_files; i++) {
        const char *damage = found[i].damage;
        text_bytes(size, sizeof size, (double)found[i].bytes);
        fprintf(out, "  %s  %8s  %s%s\n", c->files[i].hash, found[i].bytes < 0 ? "-" : size,
                c->files[i].name,
                found[i].bytes < 0 ? "  MISSING"
                : damage           ? "  DAMAGED"
                : verify           ? "  ok"
                                   : "");
    }
}

static void print_words(const struct contents *c, const struct found *found, const char *problem,
                        int verify, FILE *out) {
    const struct shard_header *h = &c->header;
    fprintf(out, "checkpoint   %s\n", c->folder);
    if (!problem) {
        fprintf(out, "run          %s, after step %lld: %lld updates, %lld tokens\n", h->run_id,
                (long long)h->counters.step, (long long)h->counters.updates,
                (long long)h->counters.tokens);
        fprintf(out, "grid         saved by dp %d x ep %d, %lld micro-batches a step\n", h->dp_size,
                h->ep_size, (long long)h->micro_batches);
        print_tensors(c, out);
    }
    print_files(c, found, verify, out);
}

/* ---- in JSON ---- */

static void set_int(json_t *object, const char *key, int64_t value) {
    json_object_set_new(object, key, json_integer(value));
}

static void set_text(json_t *object, const char *key, const char *value) {
    json_object_set_new(object, key, value ? json_string(value) : json_null());
}

static json_t *json_tensor(const struct contents_tensor *t) {
    json_t *tensor = json_object(), *shape = json_array(), *kinds = json_array();
    for (int d = 0; d < t->param.n_dims; d++)
        json_array_append_new(shape, json_integer(t->param.dims[d]));
    for (enum state_kind k = 0; k < N_STATES; k++)
        if (t->kinds >> k & 1) json_array_append_new(kinds, json_string(state_name(k)));
    set_text(tensor, "name", t->param.name);
    json_object_set_new(tensor, "shape", shape);
    json_object_set_new(tensor, "kinds", kinds);
    return tensor;
}

static json_t *json_file(const struct checksum *file, const struct found *found) {
    json_t *object = json_object();
    set_text(object, "name", file->name);
    set_int(object, "bytes", found->bytes);
    set_text(object, "xxh128", file->hash);
    set_text(object, "problem", found->damage);
    return object;
}

static void print_json(const struct contents *c, const struct found *found, const char *problem,
                       FILE *out) {
    const struct shard_header *h = &c->header;
    json_t *root = json_object(), *files = json_array(), *tensors = json_array();
    set_text(root, "checkpoint", c->folder);
    set_text(root, "problem", problem);
    if (!problem) {
        set_text(root, "run_id", h->run_id);
        set_int(root, "step", h->counters.step);
        set_int(root, "updates", h->counters.updates);
        set_int(root, "tokens", h->counters.tokens);
        set_int(root, "dp_size", h->dp_size);
        set_int(root, "ep_size", h->ep_size);
        set_int(root, "micro_batches", h->micro_batches);
    }
    for (int i = 0; i < c->n_tensors; i++)
        json_array_append_new(tensors, json_tensor(&c->tensors[i]));
    for (int i = 0; i < c->n_files; i++)
        json_array_append_new(files, json_file(&c->files[i], &found[i]));
    json_object_set_new(root, "tensors", tensors);
    json_object_set_new(root, "files", files);
    json_dumpf(root, out, JSON_INDENT(1));
    putc('\n', out);
    json_decref(root);
}

/* ---- */

int inspect_checkpoint(const char *folder, struct inspection how, FILE *out) {
    struct contents c;
    char *unreadable = contents_files(&c, folder);
    if (unreadable) die_user(EXIT_DATA, "%s", unreadable);
    struct found *found = find(&c, how.verify);
    char *problem = contents_tensors(&c);
    if (how.json)
        print_json(&c, found, problem, out);
    else
        print_words(&c, found, problem, how.verify, out);
    fflush(out);
    int bad = problem != NULL, said = 0;
    for (int i = 0; i < c.n_files; i++) {
        if (!found[i].damage) continue;
        bad = 1;
        said |= problem && strcmp(problem, found[i].damage) == 0;
        fprintf(stderr, "regulon: %s\n", found[i].damage);
    }
    if (problem && !said) fprintf(stderr, "regulon: %s\n", problem);
    free_found(found, c.n_files);
    memory_free(problem);
    contents_close(&c);
    return bad ? EXIT_DATA : EXIT_FINISHED;
}

void inspect_run(const char *run, FILE *out) {
    int n;
    int64_t *steps = checkpoint_list(run, &n);
    if (n > 0) fprintf(out, "checkpoints  %d\n", n);
    for (int i = 0; i < n; i++) {
        struct contents c;
        char *folder = checkpoint_folder(run, steps[i]), *problem = contents_files(&c, folder),
             size[32];
        struct found *found = find(&c, /*verify=*/0);
        for (int k = 0; k < c.n_files && !problem; k++)
            if (found[k].damage) problem = memory_string(found[k].damage);
        fprintf(out, "  step %lld  %s  %s\n", (long long)steps[i],
                problem ? "damaged" : text_bytes(size, sizeof size, total_bytes(found, c.n_files)),
                problem ? problem : folder);
        free_found(found, c.n_files);
        memory_free(problem);
        memory_free(folder);
        contents_close(&c);
    }
    memory_free(steps);
}
