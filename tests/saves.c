/* Many asynchronous saves while rows of metrics are written: the one I/O thread does both, a slice
 * of a save at a time. Built with -fsanitize=thread (tests/thread.supp) it shows that the threads
 * share nothing unguarded. */
#include "config.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/io.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "checkpoint/saver.h"
#include "tap.h"
#include "train/journal.h"
#include "trial.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

static const char deck[] =
    "num_train_steps: 1000\n"
    "model: {vocab_size: 130, hidden_size: 64, intermediate_size: 64, num_hidden_layers: 2,\n"
    "  num_attention_heads: 2, num_local_experts: 4, num_experts_per_tok: 2}\n"
    "dataset: {path: unused, max_seq_length: 16}\n";

enum { SAVES = 200, L = 2, E = 4 };
static const char run[] = "saves";

static struct metrics *open_metrics(const struct trial *t) {
    struct metrics_run of = {.grid = "dp 2 x ep 1",
                             .backend = "cpu",
                             .run_id = "0",
                             .n_layers = L,
                             .n_experts = E,
                             .n_rows = 100};
    for (int k = 0; k < MARKOV_ORDERS; k++) of.markov_bits_per_base[k] = NAN;
    return metrics_create("saves/metrics.h5", t->c, &of);
}

static void write_row(struct metrics *m, int64_t step) {
    uint32_t tokens[L * E] = {(uint32_t)step};
    float entropy[L] = {(float)step};
    struct metrics_step row = {.step = step,
                               .tokens = step,
                               .loss = (double)step,
                               .expert_tokens = tokens,
                               .router_entropy = entropy};
    journal_step(m, &row, L, E);
}

/* Saves until there were SAVES, a row a millisecond meanwhile; a weight changes as soon as a save
 * has begun. Returns the saves that failed, *rows the rows. */
static int save_many(struct trial *t, struct metrics *m, int64_t *rows) {
    int failed = 0;
    float *weights = t->m->weights;
    struct saver *s = saver_new(t->o, run, "0123456789abcdef", /*keep=*/3, /*every=*/0);
    *rows = 0;
    for (int64_t step = 1; step <= SAVES; step++) {
        weights[0] = (float)step;
        saver_begin(s, (struct counters){.step = step});
        weights[0] = -1;
        for (int ended = 0; ended == 0;) {
            double votes[SAVER_VOTES];
            if (m) write_row(m, ++*rows);
            usleep(1000);
            saver_vote(s, votes);
            agree_sum(&t->g, votes, SAVER_VOTES);
            ended = saver_count(s, votes);
            failed += ended < 0;
        }
    }
    saver_free(s);
    return failed;
}

int main(int argc, char **argv) {
    struct trial t;
    struct shard_header h;
    tap_open(&argc, &argv);
    h5_open_library();
    trial_open(&t, MPI_COMM_WORLD, 2, 1, deck);
    if (t.g.rank == 0) trial_remove_run(run);
    file_make_folders(run);
    struct metrics *m = t.g.rank == 0 ? open_metrics(&t) : NULL;
    int64_t rows;
    io_open();
    int failed = save_many(&t, m, &rows);
    io_close();
    metrics_close(m);
    tap_ok(failed == 0, "%d saves beside %lld rows: %d failed", SAVES, (long long)rows, failed);
    int found = checkpoint_restore(t.o, run, &h);
    tap_ok(found && h.counters.step == SAVES && ((float *)t.m->weights)[0] == (float)SAVES,
           "the last one holds what was there when it began");
    if (t.g.rank == 0) {
        struct metrics_run of = {
            .grid = "", .backend = "", .run_id = "0", .n_layers = L, .n_experts = E, .n_rows = 100};
        struct metrics *again = metrics_resume("saves/metrics.h5", t.c, &of, INT64_MAX);
        found = metrics_steps(again) == rows;
        metrics_close(again);
    }
    tap_ok(found, "all rows are in the file");
    MPI_Barrier(t.g.world);
    if (t.g.rank == 0) trial_remove_run(run);
    trial_close(&t);
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
