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
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "regulon import FOLDER -o CKPT [key=value ...]\n"
    "A Hugging Face folder of Mixtral's kind (config.json, safetensors) as a checkpoint, with a "
    "deck of its own:\n"
    "`regulon train DECK checkpoint.init_from=CKPT` begins a run with it; eval, info and export "
    "read it as any other.\n"
    "  -o CKPT        the folder to make; it must not be there\n"
    "  --experts N    of a dense model (Llama's or Mistral's kind): a mixture, every expert a copy "
    "of "
    "the layer's\n"
    "                 feed-forward block; model.num_experts_per_tok=A of them work on a token (2), "
    "the "
    "router begins\n"
    "                 as in a new run, by seed=S\n"
    "  --noise STD    normal(0, STD) added to the weights of the copies; default 0: then the "
    "mixture "
    "computes what\n"
    "                 the dense model does\n"
    "  key=value      for CKPT/used.yaml, for example dataset.alphabet=protein\n"
    "Any number of ranks shares the work; each needs some 70 MB beside its libraries.\n";

/* Words of the command line. */
struct request {
    char *model, *folder, *experts; /* experts: the word for the deck, NULL: not dense */
    double noise;
    char **words; /* [n] */
    int n;
};

/* On rank 0. */
static void read_request(struct request *r, int argc, char **argv) {
    int noisy = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0) {
            if (++i == argc) die_user(EXIT_USAGE, "import: -o needs a value");
            r->folder = argv[i];
        } else if (strcmp(argv[i], "--experts") == 0) {
            int64_t n;
            if (++i == argc) die_user(EXIT_USAGE, "import: --experts needs a value");
            if (!text_to_int(argv[i], &n) || n < 1 || n > 65536)
                die_user(EXIT_USAGE,
                         "import: --experts: '%s' is not a whole number from 1 to 65536", argv[i]);
            r->experts = memory_format("model.num_local_experts=%lld", (long long)n);
        } else if (strcmp(argv[i], "--noise") == 0) {
            if (++i == argc) die_user(EXIT_USAGE, "import: --noise needs a value");
            if (!text_to_real(argv[i], &r->noise) || !(r->noise >= 0) || isinf(r->noise))
                die_user(EXIT_USAGE, "import: --noise: '%s' is no number from 0 on", argv[i]);
            noisy = 1;
        } else if (argv[i][0] == '-')
            die_user(EXIT_USAGE, "import: unknown option '%s'; see regulon import --help", argv[i]);
        else if (!r->model)
            r->model = argv[i];
        else
            r->words[r->n++] = argv[i];
    }
    if (!r->model) die_user(EXIT_USAGE, "import: which folder? regulon import FOLDER -o CKPT");
    if (!r->folder) die_user(EXIT_USAGE, "import: -o CKPT is missing: the folder to make");
    if (noisy && !r->experts) die_user(EXIT_USAGE, "import: --noise needs --experts");
    if (r->experts) r->words[r->n++] = r->experts;
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

/* A dense model is not taken for anything else. On rank 0. */
static void check_dense(const struct request *r, const char *json) {
    json_t *root = json_load_file(json, 0, NULL);
    const char *type = json_string_value(json_object_get(root, "model_type"));
    if (!r->experts && type && !json_object_get(root, "num_local_experts") &&
        (strcmp(type, "llama") == 0 || strcmp(type, "mistral") == 0))
        die_user(EXIT_DATA, "%s: a dense model (%s); --experts N makes a mixture of N copies of it",
                 r->model, type);
    json_decref(root);
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
    struct upcycling u = {.noise = r->noise};
    int dense = agree_int(&g, r->experts != NULL);
    agree_bytes(&g, &u, sizeof u);
    struct weights *w = weights_open(&g, from, c, dense ? &u : NULL);
    char *problem = hf_import(w, &g, c, to);
    if (problem && g.rank == 0) die_user(EXIT_IO, "import: %s", problem);
    user_agree();
    text_count(count, sizeof count, params_count(weights_params(w)));
    if (dense)
        log_info("import",
                 "%s, a dense model, is now the checkpoint %s of %s parameters, %lld "
                 "copies of each feed-forward block",
                 from, to, count, (long long)c->model.num_local_experts);
    else
        log_info("import", "%s, a model of %s parameters, is now the checkpoint %s", from, count,
                 to);
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
    struct request r = {.words = memory_alloc_array((size_t)argc + 3, sizeof *r.words)};
    char *json = NULL, *more[2] = {NULL, NULL};
    if (log_rank() == 0) {
        read_request(&r, argc, argv);
        json = file_join(r.model, "config.json");
        if (!file_exists(json)) die_user(EXIT_DATA, "%s: no config.json in it", r.model);
        check_dense(&r, json);
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
    memory_free(r.experts);
    memory_free(r.words);
    return EXIT_FINISHED;
}
