#include "config.h"
#include "import.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/restore.h"
#include <stdio.h>
#include <string.h>

static const char help[] =
    "regulon import FOLDER -o CKPT [key=value ...]\n"
    "A Hugging Face folder of Mixtral's kind (config.json, safetensors) as a checkpoint, with a "
    "deck of its own:\n"
    "`regulon train DECK checkpoint.init_from=CKPT` begins a run with it; eval, info and export "
    "read it as any other.\n"
    "  -o CKPT        the folder to make; it must not be there\n"
    "  key=value      for CKPT/used.yaml, for example dataset.alphabet=protein\n"
    "Any number of ranks shares the work; each needs some 70 MB beside its libraries.\n";

/* Words of the command line. */
struct request {
    char *model, *folder;
    char **words; /* [n] */
    int n;
};

/* On rank 0. */
static void read_request(struct request *r, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0) {
            if (++i == argc) die_user(EXIT_USAGE, "import: -o needs a value");
            r->folder = argv[i];
        } else if (argv[i][0] == '-')
            die_user(EXIT_USAGE, "import: unknown option '%s'; see regulon import --help", argv[i]);
        else if (!r->model)
            r->model = argv[i];
        else
            r->words[r->n++] = argv[i];
    }
    if (!r->model) die_user(EXIT_USAGE, "import: which folder? regulon import FOLDER -o CKPT");
    if (!r->folder) die_user(EXIT_USAGE, "import: -o CKPT is missing: the folder to make");
    for (size_t n = strlen(r->folder); n > 1 && r->folder[n - 1] == '/';) r->folder[--n] = 0;
    if (file_exists(r->folder))
        die_user(EXIT_USAGE, "import: -o %s is there already; give another name or remove it",
                 r->folder);
    if (!hf_folder_exists(r->model))
        die_user(EXIT_DATA,
                 "%s: not a Hugging Face folder: no model.safetensors, no "
                 "model.safetensors.index.json",
                 r->model);
}

/* A deck without what only says where it came from. */
static void cut_ties(struct config *c) {
    memory_free(c->model.config);
    memory_free(c->checkpoint.ckpt_dir);
    c->model.config = c->checkpoint.ckpt_dir = NULL;
}

static void import_model(const struct request *r, struct config *c) {
    struct grid g;
    int ranks;
    char count[32];
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    grid_open(&g, MPI_COMM_WORLD, ranks, 1);
    char *from = checkpoint_share_name(&g, r->model), *to = checkpoint_share_name(&g, r->folder);
    cut_ties(c);
    struct weights *w = weights_open(&g, from, c);
    char *problem = hf_import(w, &g, c, to);
    if (problem && g.rank == 0) die_user(EXIT_IO, "import: %s", problem);
    user_agree();
    log_info("import", "%s, a model of %s parameters, is now the checkpoint %s", from,
             text_count(count, sizeof count, params_count(weights_params(w))), to);
    weights_close(w);
    grid_close(&g);
    memory_free(from);
    memory_free(to);
}

int import_main(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        if (log_rank() == 0) fputs(help, stdout);
        return EXIT_FINISHED;
    }
    struct request r = {.words = memory_alloc_array((size_t)argc + 2, sizeof *r.words)};
    char *json = NULL, *more[2] = {NULL, NULL};
    if (log_rank() == 0) {
        read_request(&r, argc, argv);
        json = file_join(r.model, "config.json");
        if (!file_exists(json)) die_user(EXIT_DATA, "%s: no config.json in it", r.model);
        int n = hf_files_words(json, r.words, r.n, more);
        for (int i = 0; i < n; i++) r.words[r.n++] = more[i];
    }
    user_agree();
    struct config *c = config_load_model(json, r.words, r.n);
    import_model(&r, c);
    config_free(c);
    memory_free(more[0]);
    memory_free(more[1]);
    memory_free(json);
    memory_free(r.words);
    return EXIT_FINISHED;
}
