#include "config.h"
#include "bench/options.h"
#include "base/die.h"
#include "base/memory.h"
#include "base/text.h"
#include "bench/routing.h"
#include <stdlib.h>
#include <string.h>

/* clang-format off */
const char options_help[] =
    "regulon bench ops [--shape mixtral|fine|sonic|small] [--tokens N] [--csv FILE] [key=value ...]\n"
    "Each operation of a step on this machine, on one rank: time (median), the rate at which it moves the bytes that\n"
    "it cannot avoid, or computes the FLOPs that are of use; that rate as a share of a large copy's or a large\n"
    "matrix product's in the same run (ceiling); and its error against the CPU backend, at smaller sizes: exit code 70\n"
    "where one is wrong. Small shapes are for CPUs: the default is mixtral on a GPU, small without.\n"
    "Keys as in a deck: backend, deterministic, engine.*, precision.recipe and, with moe, comm and step, too,\n"
    "precision.fp8_dispatch.\n"
    "\n"
    "regulon bench gemm [--shape mixtral|fine|sonic|small] [--tokens N] [--routing balanced|skew:S|half|empty|one]\n"
    "[--only TEXT] [--seconds S] [--csv FILE] [key=value ...]\n"
    "The products of the experts on a GPU: TFLOP/s of rows that are of use by the grouped kernels, beside one dense\n"
    "product of cuBLASLt's of as many FLOPs and beside a product an expert with counts known to the host; taking turns,\n"
    "each for S seconds (2). Routing, of rows, which are tokens times experts a token: skew:S is log-normal with sigma S;\n"
    "half: one expert has half of them; empty: a third of the experts have none; one: one has all. --only: products\n"
    "whose names contain the text. precision.recipe=fp8_block: in eight bits, beside cuBLASLt's dense product with such\n"
    "scales and beside the grouped kernels in BF16; then the passes that round the operands.\n"
    "\n"
    "regulon bench moe [--shape mixtral|fine|sonic|small] [--tokens N] [--routing ...] [--experts E,E,...]\n"
    "[--seconds S] [--csv FILE] [key=value ...]\n"
    "A whole mixture-of-experts layer, forward and backward, by each engine for the experts (or by engine.experts), for\n"
    "these numbers of experts at the same number of tokens. A token goes to different experts, which softens the routing,\n"
    "and to all of them where there are fewer than the shape says. Launches: what a GPU is given one by one for the experts\n"
    "alone, forward and backward; GB written: what they write to memory meanwhile, counted from the shapes, not measured.\n"
    "\n"
    "regulon bench mlp, with the words of moe\n"
    "The experts of such a layer alone, without router and permutation. Their counts are known before: cublaslt, which\n"
    "waits for them in a layer, does not wait here. Beside grouped stands unfused, the same with engine.fused=false: the\n"
    "activation and its gradient in passes of their own.\n"
    "\n"
    "regulon bench comm [--shape mixtral|fine|sonic|small] [--tokens N,N,...] [--routing ...] [--seconds S] [--csv FILE]\n"
    "[key=value ...]\n"
    "What the ranks of this job send to each other as one expert-parallel group: a layer's tokens and their gradients, for\n"
    "these numbers of tokens of a rank, by each way that serves (or by engine.exchange), laid out by expert and summed up\n"
    "again included; then collectives, and those beside products of parallelism.shard full by each way (or by\n"
    "engine.collectives): add_WAY, what its gradients take, gather_WAY, its weights. Times of the slowest rank; GB/s of what\n"
    "a rank sends to others, in one direction; of collectives as a ring would send it. Exit code 70 where a result is wrong.\n"
    "\n"
    "regulon bench step DECK [--seconds S] [--csv FILE] [key=value ...]\n"
    "The whole training step of a deck's model, on the ranks of this job, by each engine for the experts (or by\n"
    "engine.experts), one after the other: 3 steps to warm up, then S seconds (2). Medians, in ms, of the slowest rank: of\n"
    "the step, of forward, backward, and optimizer with the gradient's norm, and of the exchange of tokens, waiting\n"
    "included. Tokens/s and TFLOP/s of a rank: the model's, as MFU takes them. GB: in use on a rank, on the CPU at most.\n"
    "Waits: of the host for the device, a step. Tokens and weights are random, documents have\n"
    "dataset.max_seq_length tokens. No data is read and no run folder made: what the deck says of data, validation,\n"
    "checkpoints, logging and limits changes nothing.\n";
/* clang-format on */

/* A word that is no option: a key or, for step, first the deck and then any key. 0: it is none. */
static int read_word(struct options *o, char *word) {
    static const char *const keys[] = {"backend=", "deterministic=", "engine.",
                                       "precision.recipe=", "precision.fp8_dispatch="};
    if (o->what == STEP && word[0] != '-') {
        if (o->deck)
            o->words[o->n_words++] = word;
        else
            o->deck = word;
        return 1;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strncmp(word, keys[i], strlen(keys[i])) == 0) {
            o->words[o->n_words++] = word;
            return 1;
        }
    return 0;
}

/* 0: those are no numbers up to `most`. */
static int read_numbers(struct options *o, const char *text, long most) {
    for (o->n = 0; o->n < OPTIONS_NUMBERS; text++) {
        char *end;
        long n = strtol(text, &end, 10);
        if (end == text || n < 1 || n > most) return 0;
        o->list[o->n++] = (int)n;
        text = end;
        if (*text == 0) return 1;
        if (*text != ',') return 0;
    }
    return 0;
}

/* One option with its value; 0 when that will not do, with what it takes in *takes; NULL there: no
 * such option. */
static int read_option(struct options *o, const char *name, const char *value, const char **takes) {
    int has_sizes = o->what != STEP, has_experts = o->what == MLP || o->what == MOE;
    *takes = NULL;
    if (has_sizes && strcmp(name, "--shape") == 0) {
        *takes = "mixtral, fine, sonic or small";
        return value && (o->shape = options_shape(value));
    }
    if (o->what == COMM && strcmp(name, "--tokens") == 0) {
        *takes = "numbers of tokens with commas between, 1 to 1048576 each, 32 at most";
        return value && read_numbers(o, value, 1 << 20);
    }
    if (has_sizes && strcmp(name, "--tokens") == 0) {
        *takes = "a number of tokens, 1 to 1048576";
        return value && text_to_int(value, &o->tokens) && o->tokens > 0 && o->tokens <= 1 << 20;
    }
    if ((has_experts || o->what == GEMM || o->what == COMM) && strcmp(name, "--routing") == 0) {
        double weight;
        *takes = "balanced, skew:S with S from 0 to 5, half, empty or one";
        return value && routing_weights(o->routing = value, &weight, 1);
    }
    if (o->what == GEMM && strcmp(name, "--only") == 0) {
        *takes = "a part of products' names";
        return (o->only = value) != NULL;
    }
    if (has_experts && strcmp(name, "--experts") == 0) {
        *takes = "numbers of experts with commas between, 1 to 256 each, 32 at most";
        return value && read_numbers(o, value, 256);
    }
    if (o->what != OPS && strcmp(name, "--seconds") == 0) {
        *takes = "seconds, 0.01 to 60";
        return value && text_to_real(value, &o->seconds) && o->seconds >= 0.01 && o->seconds <= 60;
    }
    if (strcmp(name, "--csv") == 0) {
        *takes = "a file to write";
        return (o->csv = value) != NULL;
    }
    return 0;
}

static const char *const names[] = {
    [OPS] = "ops", [GEMM] = "gemm", [MLP] = "mlp", [MOE] = "moe", [COMM] = "comm", [STEP] = "step"};

const char *options_name(enum what what) {
    return names[what];
}

struct options options_read(int argc, char **argv) {
    struct options o = {.words = memory_alloc_array((size_t)argc + 1, sizeof *o.words),
                        .routing = "balanced",
                        .seconds = 2};
    while (argc > 0 && o.what <= STEP && strcmp(argv[0], names[o.what]) != 0) o.what++;
    if (argc < 1 || o.what > STEP)
        die_user(EXIT_USAGE,
                 "bench: what? regulon bench ops, gemm, mlp, moe, comm or step; see regulon "
                 "bench --help");
    for (int i = 1; i < argc; i++) {
        const char *takes;
        if (read_word(&o, argv[i])) continue;
        if (!read_option(&o, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &takes)) {
            if (takes) die_user(EXIT_USAGE, "bench: %s takes %s", argv[i], takes);
            die_user(EXIT_USAGE, "bench: unknown word '%s'; see regulon bench --help", argv[i]);
        }
        i++;
    }
    if (o.what == STEP && !o.deck)
        die_user(EXIT_USAGE, "bench: which deck? regulon bench step DECK [key=value ...]");
    return o;
}

const struct shape_kind *options_shape(const char *name) {
    for (size_t i = 0; i < n_shape_kinds; i++)
        if (strcmp(shape_kinds[i].name, name) == 0) return &shape_kinds[i];
    return NULL;
}
