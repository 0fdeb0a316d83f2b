#include "config.h"
#include "export.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/restore.h"
#include <stdio.h>
#include <string.h>

static const char help[] =
    "regulon export MODEL -o FOLDER [--dtype fp32|bf16] [--file-gb N] [--drop-bias]\n"
    "MODEL, a run folder, a step folder of one or a Hugging Face folder, as a new Hugging Face "
    "folder. Of a\n"
    "run the newest checkpoint or, where that is later, the final model.\n"
    "  -o FOLDER      the folder to make; it must not be there\n"
    "  --dtype TYPE   of the weights: fp32 (default) or bf16\n"
    "  --file-gb N    files of N GB of tensors at most and an index; default: one file\n"
    "  --drop-bias    leave the router's selection bias out, which such a folder cannot hold\n"
    "Any number of ranks shares the work; each needs some 50 MB beside its libraries.\n";

/* Words of the command line. */
struct request {
    const char *model, *folder;
    struct hf_export how;
    int drop_bias;
};

static const char *value_of(int *i, int argc, char **argv) {
    if (*i + 1 >= argc) die_user(EXIT_USAGE, "export: %s needs a value", argv[*i]);
    return argv[++*i];
}

/* Option argv[*i], with its value. */
static void read_option(struct request *r, int *i, int argc, char **argv) {
    const char *option = argv[*i];
    if (strcmp(option, "-o") == 0)
        r->folder = value_of(i, argc, argv);
    else if (strcmp(option, "--drop-bias") == 0)
        r->drop_bias = 1;
    else if (strcmp(option, "--dtype") == 0) {
        const char *type = value_of(i, argc, argv);
        r->how.half = strcmp(type, "bf16") == 0;
        if (!r->how.half && strcmp(type, "fp32") != 0)
            die_user(EXIT_USAGE, "export: --dtype: '%s' is neither fp32 nor bf16", type);
    } else if (strcmp(option, "--file-gb") == 0) {
        double gb;
        const char *text = value_of(i, argc, argv);
        if (!text_to_real(text, &gb) || !(gb > 0))
            die_user(EXIT_USAGE, "export: --file-gb: '%s' is no number above 0", text);
        r->how.file_bytes = gb * 1e9;
    } else
        die_user(EXIT_USAGE, "export: unknown option '%s'; see regulon export --help", option);
}

/* On rank 0. */
static void read_words(struct request *r, int argc, char **argv) {
    for (int i = 0; i < argc; i++)
        if (argv[i][0] == '-')
            read_option(r, &i, argc, argv);
        else if (!r->model)
            r->model = argv[i];
        else
            die_user(EXIT_USAGE, "export: one model at a time, not '%s' and '%s'", r->model,
                     argv[i]);
    if (!r->model) die_user(EXIT_USAGE, "export: which model? regulon export MODEL -o FOLDER");
    if (!r->folder) die_user(EXIT_USAGE, "export: -o FOLDER is missing: the folder to make");
    for (size_t n = strlen(r->folder); n > 1 && r->folder[n - 1] == '/'; n--)
        ((char *)(uintptr_t)r->folder)[n - 1] = 0;
    if (file_exists(r->folder))
        die_user(EXIT_USAGE, "export: -o %s is there already; give another name or remove it",
                 r->folder);
}

/* The folder with the weights, and the file that says what model they are. On rank 0. */
static void find_model(const char *model, char **weights, char **deck) {
    *weights = checkpoint_find_weights(model);
    if (!*weights)
        die_user(EXIT_DATA,
                 "%s: no weights in it: neither a run folder with a checkpoint or a final_model, "
                 "nor a step folder, nor a Hugging Face folder",
                 model);
    *deck = checkpoint_find_deck(model, *weights);
    if (!*deck)
        die_user(EXIT_DATA,
                 "%s: what model is it? There is no used.yaml with its checkpoint, nor a "
                 "config.json",
                 model);
}

/* A bias that is not zero and may not be dropped. On rank 0. */
static void check_bias(const struct weights *w, const struct config *c, int drop) {
    const float *bias = weights_bias(w);
    int64_t n = c->model.num_hidden_layers * c->model.num_local_experts, set = 0;
    for (int64_t i = 0; bias && i < n; i++) set += bias[i] != 0;
    if (set > 0 && !drop)
        die_user(EXIT_DATA,
                 "export: the router has a selection bias (%lld of %lld values are not 0), which a "
                 "Hugging Face folder cannot hold; --drop-bias leaves it out, and tokens go to "
                 "other experts",
                 (long long)set, (long long)n);
}

static void export_model(struct request *r, const struct config *c, const char *name) {
    struct grid g;
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    grid_open(&g, MPI_COMM_WORLD, ranks, 1);
    char *folder = checkpoint_share_name(&g, name), *to = checkpoint_share_name(&g, r->folder);
    MPI_Bcast(&r->how, sizeof r->how, MPI_BYTE, 0, g.world);
    struct weights *w = weights_open(&g, folder, c, NULL);
    if (g.rank == 0) check_bias(w, c, r->drop_bias);
    user_agree();
    char *problem = hf_export(w, &g, c, to, r->how), step[32] = "";
    if (problem && g.rank == 0) die_user(EXIT_IO, "export: %s", problem);
    user_agree();
    if (weights_step(w) >= 0)
        snprintf(step, sizeof step, ", after step %lld", (long long)weights_step(w));
    log_info("export", "the model of %s%s, is in %s", folder, step, to);
    weights_close(w);
    grid_close(&g);
    memory_free(folder);
    memory_free(to);
}

int export_main(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        if (log_rank() == 0) fputs(help, stdout);
        return EXIT_FINISHED;
    }
    struct request r = {.model = NULL};
    char *weights = NULL, *deck = NULL, *words[2];
    int n = 0;
    if (log_rank() == 0) {
        read_words(&r, argc, argv);
        find_model(r.model, &weights, &deck);
        /* used.yaml has the keys of the file that it names here, which may be gone */
        if (file_has_suffix(deck, ".yaml"))
            words[n++] = memory_string("model.config=null");
        else
            n = hf_files_words(deck, NULL, 0, words);
    }
    user_agree();
    struct config *c = config_load_model(deck, words, n);
    export_model(&r, c, weights);
    config_free(c);
    while (n > 0) memory_free(words[--n]);
    memory_free(weights);
    memory_free(deck);
    return EXIT_FINISHED;
}
