#include "config.h"
#include "checkpoint/hf_folder.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/hf_pieces.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char single_name[] = "model.safetensors",
                  index_name[] = "model.safetensors.index.json";

static int has(const char *folder, const char *name) {
    char *path = file_join(folder, name);
    int there = file_exists(path);
    memory_free(path);
    return there;
}

int hf_folder_exists(const char *path) {
    return has(path, single_name) || has(path, index_name);
}

/* ---- the index ---- */

/* {name: file} of the index. The caller frees it (json_decref). */
static json_t *read_index(const char *path) {
    enum { MOST_BYTES = 100000000 };
    size_t bytes;
    json_error_t where;
    char *text = file_read(path, MOST_BYTES, &bytes);
    if (!text)
        die_user(EXIT_DATA, "%s: %s", path,
                 errno == EFBIG ? "larger than 100 MB" : strerror(errno));
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    memory_free(text);
    if (!root) die_user(EXIT_DATA, "%s: not JSON: %s (line %d)", path, where.text, where.line);
    json_t *map = json_object_get(root, "weight_map"), *file;
    if (!json_is_object(map) || json_object_size(map) == 0)
        die_user(EXIT_DATA, "%s: no weight_map from tensors to files", path);
    const char *name;
    json_object_foreach(map, name, file) {
        const char *f = json_string_value(file);
        if (!f) die_user(EXIT_DATA, "%s: the file of '%s' is not a name", path, name);
        if (strchr(f, '/') || f[0] == '.' || !file_has_suffix(f, ".safetensors"))
            die_user(EXIT_DATA, "%s: '%s' is in '%s', which is no safetensors file of this folder",
                     path, name, f);
    }
    json_incref(map);
    json_decref(root);
    return map;
}

static void open_file(struct hf_folder *f, const char *name) {
    char *path = file_join(f->path, name);
    f->files = memory_resize(f->files, (size_t)(f->n_files + 1) * sizeof *f->files);
    f->files[f->n_files++] = safetensors_open(path);
    memory_free(path);
}

static int is_open(const struct hf_folder *f, const char *name) {
    for (int i = 0; i < f->n_files; i++)
        if (strcmp(file_basename(f->files[i]->path), name) == 0) return 1;
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct hf_tensor *)a)->tensor->name,
                  ((const struct hf_tensor *)b)->tensor->name);
}

/* NULL: there is none. */
static const struct hf_tensor *find(const struct hf_folder *f, const char *name) {
    struct safetensor wanted = {.name = (char *)(uintptr_t)name};
    struct hf_tensor key = {NULL, &wanted};
    return f->n ? bsearch(&key, f->list, (size_t)f->n, sizeof *f->list, by_name) : NULL;
}

/* Each tensor of the files must be listed with its file, and each that is listed be there. */
static void check_index(const struct hf_folder *f, json_t *map) {
    const char *name;
    json_t *file;
    for (int i = 0; i < f->n; i++) {
        const char *seen = file_basename(f->list[i].file->path),
                   *listed = json_string_value(json_object_get(map, f->list[i].tensor->name));
        if (!listed || strcmp(listed, seen) != 0)
            die_user(EXIT_DATA, "%s: tensor '%s' lies in %s, and %s lists it %s%s", f->path,
                     f->list[i].tensor->name, seen, index_name, listed ? "in " : "nowhere",
                     listed ? listed : "");
    }
    json_object_foreach(map, name, file) if (!find(f, name))
        die_user(EXIT_DATA, "%s: %s lists tensor '%s', which %s does not have", f->path, index_name,
                 name, json_string_value(file));
}

/* ---- the folder ---- */

/* The tensors of all files by their names, no name twice. */
static void list_tensors(struct hf_folder *f) {
    for (int i = 0; i < f->n_files; i++) f->n += f->files[i]->n;
    f->list = memory_alloc_array((size_t)f->n + 1, sizeof *f->list);
    int n = 0;
    for (int i = 0; i < f->n_files; i++)
        for (int k = 0; k < f->files[i]->n; k++)
            f->list[n++] = (struct hf_tensor){f->files[i], &f->files[i]->list[k]};
    qsort(f->list, (size_t)f->n, sizeof *f->list, by_name);
    for (int i = 1; i < f->n; i++)
        if (by_name(&f->list[i - 1], &f->list[i]) == 0)
            die_user(EXIT_DATA, "%s: tensor '%s' lies in %s and in %s", f->path,
                     f->list[i].tensor->name, file_basename(f->list[i - 1].file->path),
                     file_basename(f->list[i].file->path));
}

/* Which names the experts have; those of both generations: refused. */
static enum hf_naming naming_of(const struct hf_folder *f) {
    const char *before = NULL, *now = NULL, *dense = NULL;
    for (int i = 0; i < f->n; i++) {
        const char *name = f->list[i].tensor->name;
        if (!before && strstr(name, ".block_sparse_moe.")) before = name;
        if (!now && (strstr(name, ".mlp.experts.") || strstr(name, ".mlp.gate."))) now = name;
        if (!dense && strstr(name, ".mlp.gate_proj.")) dense = name;
    }
    if (before && now)
        die_user(EXIT_DATA, "%s: the names of two generations are mixed: '%s' and '%s'", f->path,
                 before, now);
    return before ? HF_OLD : dense && !now ? HF_DENSE : HF_FUSED;
}

struct hf_folder *hf_folder_open(const char *path) {
    struct hf_folder *f = memory_alloc(sizeof *f);
    f->path = memory_string(path);
    json_t *map = NULL, *file;
    const char *name;
    if (has(path, single_name) && has(path, index_name))
        die_user(EXIT_DATA, "%s: has both %s and %s; one of them must go", path, single_name,
                 index_name);
    if (has(path, index_name)) {
        char *index = file_join(path, index_name);
        map = read_index(index);
        json_object_foreach(map, name, file) if (!is_open(f, json_string_value(file)))
            open_file(f, json_string_value(file));
        memory_free(index);
    } else
        open_file(f, single_name);
    list_tensors(f);
    if (map) check_index(f, map);
    json_decref(map);
    f->naming = naming_of(f);
    return f;
}

void hf_folder_close(struct hf_folder *f) {
    if (!f) return;
    for (int i = 0; i < f->n_files; i++) safetensors_close(f->files[i]);
    memory_free(f->files);
    memory_free(f->list);
    memory_free(f->path);
    memory_free(f);
}

/* ---- against a model ---- */

enum { SHOWN = 8 }; /* of either kind */
enum misfit {
    UNFIT,
    LEFT_OVER,
    N_MISFITS
}; /* the model's, and not or not so in the folder; not the
      model's */

/* What does not fit, as text: the first few of each kind, and how many. */
struct misfits {
    const struct hf_folder *folder;
    unsigned char *used; /* [folder->n] */
    char *text;
    int n[N_MISFITS];
};

/* `problem` is freed. */
static void note(struct misfits *m, enum misfit kind, char *problem) {
    if (m->n[kind]++ < SHOWN) {
        char *longer = m->text ? memory_format("%s; %s", m->text, problem) : memory_string(problem);
        memory_free(m->text);
        m->text = longer;
    }
    memory_free(problem);
}

static char *dims_text(int n_dims, const int64_t *dims) {
    char *text = memory_string("");
    for (int d = 0; d < n_dims; d++) {
        char *longer = memory_format("%s%s%lld", text, d ? " x " : "", (long long)dims[d]);
        memory_free(text);
        text = longer;
    }
    return text;
}

static int is_weight(const struct safetensor *t) {
    return strcmp(t->dtype, "F32") == 0 || strcmp(t->dtype, "BF16") == 0 ||
           strcmp(t->dtype, "F16") == 0;
}

static void check_piece(const struct param *t, const struct hf_piece *p, void *context) {
    struct misfits *m = context;
    const struct hf_tensor *found = find(m->folder, p->name);
    (void)t;
    if (m->folder->naming == HF_DENSE && p->expert > 0) return; /* a copy of the first */
    if (!found) return note(m, UNFIT, memory_format("'%s' is missing", p->name));
    m->used[found - m->folder->list] = 1;
    const struct safetensor *s = found->tensor;
    if (s->n_dims != p->n_dims || memcmp(s->dims, p->dims, (size_t)p->n_dims * sizeof *p->dims)) {
        char *seen = dims_text(s->n_dims, s->dims), *wanted = dims_text(p->n_dims, p->dims);
        note(m, UNFIT, memory_format("'%s' is %s, the model's %s", p->name, seen, wanted));
        memory_free(seen);
        memory_free(wanted);
    } else if (!is_weight(s))
        note(m, UNFIT, memory_format("'%s' is %s, not F32, BF16 or F16", p->name, s->dtype));
}

/* A head beside a tied embedding must be the embedding. */
static void check_tied(struct misfits *m) {
    enum { MOST = 1 << 20 };
    const struct hf_tensor *head = find(m->folder, "lm_head.weight"),
                           *embed = find(m->folder, "model.embed_tokens.weight");
    if (!head || !embed) return;
    m->used[head - m->folder->list] = 1;
    int same =
        head->tensor->n == embed->tensor->n && is_weight(head->tensor) && is_weight(embed->tensor);
    float *a = memory_alloc_array(MOST, sizeof *a), *b = memory_alloc_array(MOST, sizeof *b);
    for (int64_t at = 0, n; same && at < embed->tensor->n; at += n) {
        n = embed->tensor->n - at < MOST ? embed->tensor->n - at : MOST;
        safetensors_read(head->file, head->tensor, at, n, a);
        safetensors_read(embed->file, embed->tensor, at, n, b);
        same = memcmp(a, b, (size_t)n * sizeof *a) == 0;
    }
    memory_free(a);
    memory_free(b);
    if (!same)
        note(m, UNFIT,
             memory_string("'lm_head.weight' is not the embedding, and the config says that "
                           "they are tied"));
}

void hf_folder_check(const struct hf_folder *f, const struct params *p, int dense) {
    if (dense && f->naming != HF_DENSE)
        die_user(EXIT_DATA, "%s: not a dense model: it has no mlp.gate_proj", f->path);
    if (!dense && f->naming == HF_DENSE)
        die_user(EXIT_DATA,
                 "%s: a dense model, without experts; regulon import --experts N makes a mixture "
                 "of N copies of it",
                 f->path);
    struct misfits m = {.folder = f, .used = memory_alloc((size_t)f->n + 1)};
    for (int i = 0; i < p->n; i++) hf_each_piece(&p->list[i], f->naming, check_piece, &m);
    if (p->head == p->embed) check_tied(&m);
    for (int i = 0; i < f->n; i++)
        if (!m.used[i])
            note(&m, LEFT_OVER, memory_format("the model has no '%s'", f->list[i].tensor->name));
    int n = m.n[UNFIT] + m.n[LEFT_OVER], more = m.n[UNFIT] > SHOWN || m.n[LEFT_OVER] > SHOWN;
    if (n > 0)
        die_user(EXIT_DATA, "%s: %d tensor%s not fit the model: %s%s", f->path, n,
                 n == 1 ? " does" : "s do", m.text, more ? "; ..." : "");
    memory_free(m.used);
}

/* ---- values ---- */

struct reading {
    const struct hf_folder *folder;
    int64_t first, n;
    float *out;
};

static void read_piece(const struct param *t, const struct hf_piece *p, void *context) {
    const struct reading *r = context;
    (void)t;
    int64_t from = p->at > r->first ? p->at : r->first,
            to = p->at + p->n < r->first + r->n ? p->at + p->n : r->first + r->n;
    if (from >= to) return;
    const struct hf_tensor *found = find(r->folder, p->name);
    safetensors_read(found->file, found->tensor, p->first + from - p->at, to - from,
                     r->out + (from - r->first));
}

void hf_folder_read(const struct hf_folder *f, const struct param *t, int64_t first, int64_t n,
                    float *out) {
    struct reading r = {.folder = f, .first = first, .n = n, .out = out};
    hf_each_piece(t, f->naming, read_piece, &r);
}
