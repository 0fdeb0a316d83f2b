/* The training loop. */
#include "config.h"
#include "train/train.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/hf.h"
#include "optim/schedule.h"
#include "train/evaluate.h"
#include "train/folder.h"
#include "train/record.h"
#include "train/report.h"
#include "train/run.h"
#include "train/step.h"
#include "train/verdict.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The loader lends one micro-batch at a time; a step needs the weight of all its targets first. */
static void draw(struct run *r) {
    for (int64_t i = 0; i < r->config->grad_acc_steps; i++)
        batch_copy(r->batches[i], loader_next(r->loader));
}

static void validate(struct run *r, int64_t step, int64_t tokens) {
    const struct config *c = r->config;
    struct evaluation e = evaluate_streams(r->model, r->data.held_out, r->data.n_held_out,
                                           c->validation.num_batches, r->scratch);
    if (r->grid.rank != 0) return;
    report_validation(c, step, e.loss, e.bits_per_base,
                      r->data.markov.bits_per_base[r->data.markov.best]);
    metrics_validation(r->metrics, step, tokens, e.loss, e.bits_per_base);
}

static int is_due(int64_t step, int64_t interval, const struct config *c) {
    return step % interval == 0 || step == c->num_train_steps;
}

/* Steps until num_train_steps; returns the exit code. *last is the last step. */
static int train_loop(struct run *r, int64_t *last) {
    const struct config *c = r->config;
    struct record record = {0};
    double first_loss = 0;
    for (int64_t step = 1; step <= c->num_train_steps; step++) {
        record_begin(&record, r);
        draw(r);
        record_drawn(&record);
        struct step_sums sums =
            step_gradients(r->model, r->optimizer, (const struct batch *const *)r->batches,
                           (int)c->grad_acc_steps);
        double lr = schedule_rate(c, step);
        record_gradients(&record);
        step_apply(r->optimizer, &sums, lr);
        record_end(&record, r, step, &sums, lr);
        *last = step;
        if (step == 1) first_loss = sums.loss;
        if (record.bad_steps >= c->train.max_bad_steps) return EXIT_NONFINITE;
        if (c->validation.enabled && is_due(step, c->validation.eval_interval, c))
            validate(r, step, record.tokens);
        if (step == c->num_train_steps && c->train.verdict) {
            if (r->grid.rank == 0) report_end(c);
            return verdict_print(r, first_loss, sums.loss);
        }
    }
    return EXIT_FINISHED;
}

static int train_run(struct config *c, int dp_size) {
    struct run r;
    int64_t last = 0;
    run_open(&r, c, dp_size);
    if (r.grid.rank == 0) report_legend();
    int code = train_loop(&r, &last);
    if (r.grid.rank == 0) report_end(c);
    if (code == EXIT_NONFINITE)
        log_info(
            "train",
            "stopped at step %lld: %lld steps in a row had a loss or a gradient that is not finite",
            (long long)last, (long long)c->train.max_bad_steps);
    if (code == EXIT_FINISHED && c->checkpoint.save_final_model) {
        char *folder = file_join(r.folder, "final_model");
        hf_save(r.model, folder);
        log_info("train", "the model is in %s", folder);
        memory_free(folder);
    }
    if (r.grid.rank == 0) folder_write_status(c, code, last);
    run_close(&r);
    return code;
}

static void print_help(void) {
    printf("regulon train DECK [--fresh] [key=value ...]\n"
           "Trains the model that DECK describes: a YAML file, or the name of an installed deck. "
           "Words key=value override\n"
           "the deck. Everything is written into the run folder, checkpoint.ckpt_dir. A finished "
           "run is left alone;\n"
           "--fresh, or a run that did not finish, starts anew and moves the earlier run's files "
           "into previous-N/.\n\n");
    config_write_help(stdout);
}

int train_main(int argc, char **argv) {
    int fresh = 0, n = 0, finished = 0;
    const char *deck = NULL;
    char **words = memory_alloc_array((size_t)argc + 1, sizeof *words);
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            if (log_rank() == 0) print_help();
            memory_free(words);
            return EXIT_FINISHED;
        }
        if (strcmp(argv[i], "--fresh") == 0)
            fresh = 1;
        else if (argv[i][0] == '-') {
            if (log_rank() == 0)
                die_user(EXIT_USAGE, "train: unknown option '%s'; see regulon train --help",
                         argv[i]);
            user_agree();
        } else if (!deck)
            deck = argv[i];
        else
            words[n++] = argv[i];
    }
    if (log_rank() == 0 && !deck)
        die_user(EXIT_USAGE, "train: which deck? regulon train DECK [key=value ...]");
    user_agree();
    struct config *c = config_load_all(deck, words, n);
    memory_free(words);
    int dp = run_dp_size(c);
    if (log_rank() == 0) {
        finished = folder_has_finished(c, fresh);
        if (finished)
            log_info("train", "the run in %s has finished; --fresh starts it anew",
                     c->checkpoint.ckpt_dir);
    }
    user_agree();
    MPI_Bcast(&finished, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (finished) {
        config_free(c);
        return EXIT_FINISHED;
    }
    return train_run(c, dp);
}
