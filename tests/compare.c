/* Two checkpoints compared: saved on different grids they are equal; one value, one bias, another
 * model is found and named, in pieces of some rows and of everything; and the numbers by which a
 * run decides whether its checkpoints fit. */
#include "config.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint/compare.h"
#include "checkpoint/folder.h"
#include "checkpoint/probe.h"
#include "checkpoint/saver.h"
#include "tap.h"
#include "trial.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* of the vocabulary's size and more keys */
#define DECK                                                                                  \
    "num_train_steps: 20\n"                                                                   \
    "model: {vocab_size: %d, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2,\n" \
    "  num_attention_heads: 2, num_local_experts: 4, num_experts_per_tok: 2}\n"               \
    "dataset: {path: unused, max_seq_length: 16}\n%s"
static const char changed[] = "model.layers.1.mlp.experts.gate_up_proj";

/* Values that depend on their logical place alone; of `changed`, the element [2, 5, 7] of
 * exp_avg_sq and all elements after it get `plus`, if that is not 0. */
static void fill(struct trial *t, float plus) {
    enum { FIRST = (2 * 48 + 5) * 16 + 7 };
    int n;
    struct piece *list = state_to_load(t->o, &n);
    for (int i = 0; i < n; i++) {
        const struct param *p = list[i].param;
        uint64_t stream = RANDOM_INIT + (uint64_t)(p - t->m->params->list) * 4 + list[i].kind,
                 first = (uint64_t)(list[i].first_row * p->cols);
        int here = list[i].kind == STATE_EXP_AVG_SQ && strcmp(p->name, changed) == 0;
        for (size_t k = 0; k < list[i].n; k++) {
            list[i].data[k] = random_normal(7, stream, first + k);
            if (here && first + k >= FIRST) list[i].data[k] += plus;
        }
    }
    for (int k = 0; k < t->m->s.L * t->m->s.E; k++) t->m->bias[k] = 0.01f * (float)k;
    memory_free(list);
}

/* Saves as step `step` on a dp x ep grid of comm. */
static void save(MPI_Comm comm, int dp, int ep, int vocab, const char *keys, const char *folder,
                 int64_t step, float plus, float bias) {
    char *text = memory_format(DECK, vocab, keys);
    struct trial t;
    trial_open(&t, comm, dp, ep, text);
    fill(&t, plus);
    t.m->bias[6] += bias; /* layer 1, expert 2 */
    struct saver *s = saver_new(t.o, folder, "0123456789abcdef", /*keep=*/0, /*every=*/0);
    saver_begin(s, (struct counters){.step = step, .updates = step - 1, .tokens = 1000 * step});
    saver_drain(s);
    saver_free(s);
    trial_close(&t);
    memory_free(text);
}

/* On rank 0: compares two steps and looks for `expected` in what it says. */
static void check(const char *folder, int64_t a, int64_t b, int code, const char *expected,
                  const char *what) {
    static const size_t pieces[] = {2000, 16 << 20}; /* some rows; everything */
    int rank, ok = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 2 && rank == 0; i++) {
        char *text = NULL, *x = checkpoint_folder(folder, a), *y = checkpoint_folder(folder, b);
        size_t n = 0;
        FILE *out = open_memstream(&text, &n);
        int got = compare_checkpoints(x, y, pieces[i], out);
        fclose(out);
        ok = ok && got == code && strstr(text, expected);
        if (!ok) tap_note("%d: %s", got, text);
        free(text);
        memory_free(x);
        memory_free(y);
    }
    tap_ok(ok, "%s", what);
}

static void test_compare(int rank) {
    static const char folder[] = "compare.np2.run";
    if (rank == 0) trial_remove_run(folder); /* of a test that was stopped */
    MPI_Barrier(MPI_COMM_WORLD);
    save(MPI_COMM_WORLD, 1, 2, 130, "", folder, 1, 0, 0);
    save(MPI_COMM_WORLD, 2, 1, 130, "parallelism.shard: none\n", folder, 2, 0, 0);
    save(MPI_COMM_WORLD, 2, 1, 130, "", folder, 4, 1, 0);
    save(MPI_COMM_WORLD, 1, 2, 130, "", folder, 5, 0, 1);
    save(MPI_COMM_WORLD, 1, 2, 130, "model.tie_word_embeddings: true\n", folder, 6, 0, 0);
    save(MPI_COMM_WORLD, 1, 2, 140, "", folder, 7, 0, 0);
    if (rank == 0) save(MPI_COMM_SELF, 1, 1, 130, "", folder, 3, 0, 0);
    check(folder, 1, 2, 0, "\nequal\n", "saved on 1 x 2 and on 2 x 1: equal");
    check(folder, 2, 3, 0, "\nequal\n", "and on one rank");
    /* [2, 5, 7] to the end of [4, 48, 16] */
    check(folder, 3, 4, 1,
          "different: /exp_avg_sq/model.layers.1.mlp.experts.gate_up_proj[2, 5, 7] is ",
          "the first value that differs");
    check(folder, 4, 1, 1, "; 1449 of its 3072 values differ", "how many do");
    check(folder, 1, 5, 1,
          "different: /router_bias[1, 2] is 0.0599999987 and 1.05999994; 1 of its 8 values differ",
          "the router's bias");
    check(folder, 1, 6, 1, "different: lm_head.weight is in compare.np2.run/step_000000001 only",
          "a tensor that one has not");
    check(folder, 1, 7, 1, "different: lm_head.weight has another shape", "another shape");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) trial_remove_run(folder);
}

static int64_t most(int64_t steps, int64_t every, int64_t keep, int64_t stay) {
    struct config c = {.num_train_steps = steps};
    c.checkpoint.save_every_n_steps = every;
    c.checkpoint.max_checkpoints = keep;
    c.checkpoint.keep_every_n_steps = stay;
    return probe_most_checkpoints(&c);
}

/* 10 bytes a checkpoint. -1: enough room, 0: a warning, 1: refused. */
static int decide(double free_bytes, int64_t at_most, int64_t there) {
    int refuse;
    char *text = probe_space(free_bytes, 10, at_most, there, &refuse);
    int verdict = text ? refuse : -1;
    memory_free(text);
    return verdict;
}

static void test_space(void) {
    tap_ok(most(100, 10, 3, 0) == 4 && most(20, 10, 3, 0) == 2 && most(101, 10, 0, 0) == 11,
           "the newest 3 and the one being written; never more than there are saves; all");
    tap_ok(most(100, 10, 2, 20) == 8 && most(100, 6, 2, 4) == 11 &&
               most(100, 10, 3, 1000000000000) == 4,
           "and those that stay");
    tap_ok(decide(19, 4, 0) == 1 && decide(20, 4, 0) == 0 && decide(39, 4, 0) == 0 &&
               decide(40, 4, 0) == -1,
           "refused below twice a checkpoint, a warning below what is kept");
    tap_ok(decide(9, 4, 1) == 1 && decide(10, 4, 1) == 0 && decide(30, 4, 1) == -1 &&
               decide(10, 4, 3) == -1 && decide(10, 4, 9) == -1 && decide(9, 4, 9) == 1,
           "those that are there count");
    double bytes = probe_checkpoint_bytes(1e9, 300, 8);
    tap_ok(bytes > 12e9 && bytes < 12.1e9, "12 bytes a parameter, and little more: %.0f", bytes);
}

int main(int argc, char **argv) {
    int rank;
    tap_open(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    h5_open_library();
    test_compare(rank);
    test_space();
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
