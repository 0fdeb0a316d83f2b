#include "config.h"
#include "generate/settings.h"
#include "base/memory.h"
#include "base/text.h"
#include <string.h>

/* clang-format off */
const char settings_help[] =
    "regulon generate RUN|STEP_FOLDER [option ...] [key=value ...]\n"
    "New sequences from a trained model, as FASTA, on any number of ranks.\n"
    "\n"
    "  --prompt TEXT       letters to go on from; without a prompt sequences begin at BOS\n"
    "  --prompts FILE      a FASTA file: go on from each of its records\n"
    "  -n COUNT            sequences from each prompt; default 1\n"
    "  --length N          letters to make for each; default 1000\n"
    "  --temperature T     logits are divided by it; default 1\n"
    "  --top-k K           choose among the likeliest K letters; default all\n"
    "  --top-p P           then among the fewest whose probabilities reach P; default 1\n"
    "  --greedy            always the likeliest letter\n"
    "  --seed S            of the random numbers; default 0\n"
    "  --letters WHICH     plain (default): the alphabet's own, such as A C G T; all: whatever FASTA holds\n"
    "  --no-bos            prompts are from within a sequence, not its beginning: no BOS before them\n"
    "  --with-prompt       put the prompt before the letters made\n"
    "  -o FILE             write there; default stdout\n"
    "\n"
    "Prompts are shorter than the context, dataset.max_seq_length. A sequence that fills it goes on from the second\n"
    "half. Keys override the run's own, for example parallelism.ep_size=2.\n";
/* clang-format on */

enum option {
    OPTION_PROMPT,
    OPTION_PROMPTS,
    OPTION_COUNT,
    OPTION_LENGTH,
    OPTION_TEMPERATURE,
    OPTION_TOP_K,
    OPTION_TOP_P,
    OPTION_SEED,
    OPTION_LETTERS,
    OPTION_OUTPUT,
    OPTION_GREEDY, /* from here on without a value */
    OPTION_NO_BOS,
    OPTION_WITH_PROMPT,
    OPTION_HELP,
    N_OPTIONS
};

/* Names, and what a value must be. */
static const struct {
    const char *name, *takes;
} options[N_OPTIONS] = {
    [OPTION_PROMPT] = {"--prompt", "letters"},
    [OPTION_PROMPTS] = {"--prompts", "a FASTA file"},
    [OPTION_COUNT] = {"-n", "a whole number, 1 to 2147483647"},
    [OPTION_LENGTH] = {"--length", "a whole number, 1 to 2147483647"},
    [OPTION_TEMPERATURE] = {"--temperature", "a number above 0"},
    [OPTION_TOP_K] = {"--top-k", "a whole number, 1 or more"},
    [OPTION_TOP_P] = {"--top-p", "a number above 0, up to 1"},
    [OPTION_SEED] = {"--seed", "a whole number, 0 or more"},
    [OPTION_LETTERS] = {"--letters", "plain or all"},
    [OPTION_OUTPUT] = {"-o", "a file to write"},
    [OPTION_GREEDY] = {"--greedy", NULL},
    [OPTION_NO_BOS] = {"--no-bos", NULL},
    [OPTION_WITH_PROMPT] = {"--with-prompt", NULL},
    [OPTION_HELP] = {"--help", NULL},
};

static int read_count(const char *text, int64_t *n) {
    return text_to_int(text, n) && *n >= 1 && *n <= INT32_MAX;
}

/* 0: the value will not do. */
static int set_option(struct settings *o, int option, const char *value) {
    switch (option) {
    case OPTION_PROMPT:
        return *(o->prompt = value) != 0;
    case OPTION_PROMPTS:
        return *(o->prompts = value) != 0;
    case OPTION_COUNT:
        return read_count(value, &o->count);
    case OPTION_LENGTH:
        return read_count(value, &o->length);
    case OPTION_TEMPERATURE:
        return text_to_real(value, &o->sampling.temperature) && o->sampling.temperature > 0;
    case OPTION_TOP_K:
        return text_to_int(value, &o->sampling.top_k) && o->sampling.top_k >= 1;
    case OPTION_TOP_P:
        return text_to_real(value, &o->sampling.top_p) && o->sampling.top_p > 0 &&
               o->sampling.top_p <= 1;
    case OPTION_SEED:
        return text_to_uint(value, &o->seed);
    case OPTION_LETTERS:
        o->all_letters = strcmp(value, "all") == 0;
        return o->all_letters || strcmp(value, "plain") == 0;
    case OPTION_OUTPUT:
        return *(o->output = value) != 0;
    case OPTION_GREEDY:
        return o->sampling.greedy = 1;
    case OPTION_NO_BOS:
        return o->no_bos = 1;
    case OPTION_WITH_PROMPT:
        return o->with_prompt = 1;
    default:
        return o->help = 1;
    }
}

/* What does not go together. */
static char *check(const struct settings *o, const char *seen) {
    static const int samplers[] = {OPTION_COUNT, OPTION_TEMPERATURE, OPTION_TOP_K, OPTION_TOP_P,
                                   OPTION_SEED};
    if (!o->model)
        return memory_string("which model? regulon generate RUN [option ...] [key=value ...]");
    if (o->prompt && o->prompts) return memory_string("--prompt or --prompts, not both");
    for (size_t i = 0; o->sampling.greedy && i < sizeof samplers / sizeof *samplers; i++)
        if (seen[samplers[i]])
            return memory_format("--greedy always takes the likeliest letter: %s changes nothing",
                                 options[samplers[i]].name);
    if (o->no_bos && !o->prompt && !o->prompts)
        return memory_string("--no-bos needs a prompt: a sequence begins with one or with BOS");
    return NULL;
}

static char *unknown(const char *word) {
    const char *names[N_OPTIONS];
    for (int i = 0; i < N_OPTIONS; i++) names[i] = options[i].name;
    const char *nearest = text_nearest(word, names, N_OPTIONS);
    if (nearest) return memory_format("unknown option '%s'; did you mean %s?", word, nearest);
    return memory_format("unknown option '%s'; see regulon generate --help", word);
}

char *settings_read(struct settings *o, int argc, char **argv) {
    char seen[N_OPTIONS] = {0};
    *o = (struct settings){.count = 1, .length = 1000, .sampling = {.temperature = 1, .top_p = 1}};
    o->words = memory_alloc_array((size_t)argc + 1, sizeof *o->words);
    for (int i = 0; i < argc && !o->help; i++) {
        const char *word = argv[i], *value = NULL;
        int option = 0;
        while (option < N_OPTIONS && strcmp(word, options[option].name) != 0) option++;
        if (option == N_OPTIONS && word[0] == '-') return unknown(word);
        if (option == N_OPTIONS) {
            if (o->model)
                o->words[o->n_words++] = argv[i];
            else
                o->model = word;
            continue;
        }
        if (seen[option]) return memory_format("%s is given twice", word);
        seen[option] = 1;
        if (options[option].takes && i + 1 < argc) value = argv[++i];
        if (options[option].takes && !value)
            return memory_format("%s takes %s", word, options[option].takes);
        if (!set_option(o, option, value))
            return memory_format("%s takes %s, not '%s'", word, options[option].takes, value);
    }
    return o->help ? NULL : check(o, seen);
}
