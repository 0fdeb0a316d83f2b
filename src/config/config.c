/* Files and command line around build.c: finds them, turns them into lists of entries, and ends the
 * program where build.c returned an error. */
#include "config.h"
#include "config/config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/place.h"
#include "base/text.h"
#include "config/build.h"
#include "config/check.h"
#include "config/fields.h"
#include "config/hf.h"
#include "config/value.h"
#include "config/yaml.h"
#include <dirent.h>
#include <errno.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 20 }; /* of a deck or a config.json */

void config_free(struct config *c) {
    if (c == NULL) return;
    for (size_t i = 0; i < n_fields; i++) value_free(c, &fields[i]);
    memory_free(c->deck_name);
    memory_free(c);
}

static void stop_on(char *error) {
    if (error) die_user(EXIT_CONFIG, "%s", error);
}

static char *read_text(const char *path, size_t *bytes) {
    char *text = file_read(path, MOST_BYTES, bytes);
    if (!text)
        die_user(EXIT_CONFIG, "%s: %s", path,
                 errno == EFBIG ? "larger than 1 MB" : strerror(errno));
    return text;
}

static char *working_folder(void) {
    char *cwd = getcwd(NULL, 0);
    if (!cwd) die("working directory: %s", strerror(errno));
    char *folder = memory_string(cwd);
    free(cwd);
    return folder;
}

static char *decks_folder(void) {
    return place_folder(SOURCE_FOLDER "/input", INSTALLED_FOLDER "/input");
}

char *config_find_deck(const char *name) {
    if (name[0] == 0 || strchr(name, '/')) return NULL;
    char *folder = decks_folder(), *path = memory_format("%s/%s.yaml", folder, name);
    memory_free(folder);
    if (file_exists(path)) return path;
    memory_free(path);
    return NULL;
}

noreturn static void no_such_deck(const char *name) {
    enum { MOST = 64 };
    char *names[MOST], *place = decks_folder();
    size_t n = 0;
    DIR *folder = opendir(place);
    for (struct dirent *d; folder && n < MOST && (d = readdir(folder));) {
        if (!file_has_suffix(d->d_name, ".yaml")) continue;
        names[n] = memory_string(d->d_name);
        names[n++][strlen(d->d_name) - 5] = 0;
    }
    char *file = memory_format("%s.yaml", name), *shown = entries_quote(name);
    const char *nearest = text_nearest(name, (const char *const *)names, n);
    if (file_exists(file))
        die_user(EXIT_CONFIG, "no installed deck is named '%s'; did you mean ./%s.yaml?", shown,
                 shown);
    if (file_exists(name))
        die_user(EXIT_CONFIG, "no installed deck is named '%s'; did you mean ./%s?", shown, shown);
    if (nearest)
        die_user(EXIT_CONFIG, "no installed deck is named '%s'; did you mean '%s'? (%s)", shown,
                 nearest, place);
    die_user(EXIT_CONFIG, "no installed deck is named '%s' (%s)", shown, place);
}

/* A list on the command line is YAML; all other values are taken as they are. */
static void read_words(char *const *words, int n, struct entries *e) {
    for (int i = 0; i < n; i++) {
        const char *equals = strchr(words[i], '=');
        char *shown = entries_quote(words[i]);
        if (!equals || equals == words[i])
            die_user(EXIT_USAGE, "'%s' is not of the form key=value", shown);
        char *key = memory_format("%.*s", (int)(equals - words[i]), words[i]);
        const char *value = equals + 1;
        const struct field *f = field_find(key, strlen(key));
        int list = f && (f->type == FIELD_SOURCES || f->type == FIELD_WORDS);
        if (list && value[0] == '[') {
            char *text = memory_format("%s: %s", key, value);
            stop_on(yaml_to_entries(text, strlen(text), e));
            memory_free(text);
        } else {
            entries_add(e, ENTRY_VALUE, key, value[0] && strcmp(value, "null") != 0 ? value : NULL,
                        0);
        }
        memory_free(key);
        memory_free(shown);
    }
    for (size_t i = 0; i < e->n; i++) e->entry[i].line = 0;
}

/* The file that model.config names, on the command line or else in the deck; NULL if it is not
 * given or null. */
static char *model_file(const struct entries *line, const struct entries *deck) {
    const struct entries *lists[] = {line, deck};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->n; i++) {
            const struct entry *e = &lists[k]->entry[i];
            if (strcmp(e->key, "model.config") == 0)
                return e->value ? file_join(lists[k]->folder, e->value) : NULL;
        }
    return NULL;
}

/* Entries of a config.json; the text's name is kept for messages and owned by the caller. */
static void read_hf(const char *path, struct entries *e, char **name) {
    struct stat s;
    char *file = stat(path, &s) == 0 && S_ISDIR(s.st_mode) ? file_join(path, "config.json")
                                                           : memory_string(path);
    size_t bytes;
    char *text = read_text(file, &bytes);
    *name = memory_string(file_basename(file));
    e->name = *name;
    stop_on(hf_to_entries(text, bytes, *name, e));
    memory_free(text);
    memory_free(file);
}

void config_read_hf(struct config *c, const char *path) {
    struct entries e = {0};
    char *name;
    unsigned char *given = memory_alloc(n_fields);
    read_hf(path, &e, &name);
    stop_on(build_apply(c, &e, given));
    for (size_t i = 0; i < n_fields; i++)
        if (!fields[i].initial && strncmp(fields[i].key, "model.", 6) == 0 && !given[i])
            die_user(EXIT_CONFIG, "%s: required, but not given (%s)", fields[i].key + 6, name);
    memory_free(given);
    entries_free(&e);
    memory_free(name);
}

static char *deck_name(const char *deck) {
    char *name = memory_string(file_basename(deck));
    if (file_has_suffix(name, ".yaml")) name[strlen(name) - 5] = 0;
    return name;
}

/* `path` is a deck's file or, with hf, the config.json of a model, which is then all that is known:
 * as a deck that says no more than model.config. */
static struct config *load(const char *path, int hf_folder, char *const *words, int n) {
    char *cwd = working_folder(), *folder = file_folder(path), *hf_name = NULL;
    char *base = strcmp(folder, ".") == 0 ? memory_string(cwd) : file_join(cwd, folder);
    struct entries hf = {0}, file = {.name = file_basename(path), .folder = base},
                   line = {.name = "command line", .folder = cwd};
    size_t bytes;
    char *text = NULL;
    if (hf_folder) {
        entries_add(&file, ENTRY_VALUE, "model.config", file_basename(path), 0);
        entries_add(&file, ENTRY_VALUE, "num_train_steps", "1", 0); /* required, and never taken */
    } else {
        text = read_text(path, &bytes);
        stop_on(yaml_to_entries(text, bytes, &file));
    }
    read_words(words, n, &line);

    struct config *c = build_defaults();
    unsigned char *given = memory_alloc(n_fields);
    char *model = model_file(&line, &file);
    if (model) read_hf(model, &hf, &hf_name);
    stop_on(build_apply(c, &hf, given));
    stop_on(build_apply(c, &file, given));
    stop_on(build_apply(c, &line, given));
    c->deck_name = deck_name(path);
    if (!c->checkpoint.ckpt_dir)
        c->checkpoint.ckpt_dir = memory_format("%s/runs/%s", cwd, c->deck_name);
    stop_on(build_finish(c, given, file.name));

    entries_free(&hf);
    entries_free(&file);
    entries_free(&line);
    char *const owned[] = {cwd, folder, base, hf_name, text, model, (char *)given};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) memory_free(owned[i]);
    return c;
}

struct config *config_load(const char *deck, char *const *words, int n) {
    int is_file = strchr(deck, '/') || file_has_suffix(deck, ".yaml");
    char *path = is_file ? memory_string(deck) : config_find_deck(deck);
    if (!path) no_such_deck(deck);
    struct config *c = load(path, /*hf_folder=*/0, words, n);
    stop_on(check_steps(c));
    memory_free(path);
    return c;
}

struct config *config_parse(const char *text, const char *name) {
    struct config *c;
    stop_on(build_parse(text, strlen(text), file_basename(name), &c));
    c->deck_name = deck_name(name);
    return c;
}

static void broadcast_text(char **text) {
    int rank;
    uint64_t bytes = *text ? strlen(*text) + 1 : 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Bcast(&bytes, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank != 0) *text = memory_alloc(bytes);
    MPI_Bcast(*text, (int)bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static char *written(const struct config *c) {
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) die("open_memstream: %s", strerror(errno));
    config_write(c, out);
    if (fclose(out) != 0) die("open_memstream: %s", strerror(errno));
    char *copy = memory_string(text);
    free(text);
    return copy;
}

/* Rank 0's on every rank; c is NULL on the others. */
static struct config *share(struct config *c) {
    char *text = c ? written(c) : NULL, *name = c ? memory_string(c->deck_name) : NULL;
    broadcast_text(&text);
    broadcast_text(&name);
    if (!c) c = config_parse(text, name);
    memory_free(text);
    memory_free(name);
    return c;
}

struct config *config_load_all(const char *deck, char *const *words, int n) {
    int rank;
    struct config *c = NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        c = config_load(deck, words, n);
        stop_on(check_training(c));
    }
    user_agree();
    return share(c);
}

struct config *config_load_model(const char *path, char *const *words, int n) {
    int rank;
    struct config *c = NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) c = load(path, strcmp(file_basename(path), "config.json") == 0, words, n);
    user_agree();
    return share(c);
}
