/* The training loop. */
#include "config.h"
#include "train/train.h"
#include "base/die.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/stop.h"
#include "checkpoint/hf.h"
#include "grid/watchdog.h"
#include "optim/schedule.h"
#include "train/evaluate.h"
#include "train/folder.h"
#include "train/interrupt.h"
#include "train/journal.h"
#include "train/report.h"
#include "train/saving.h"
#include "train/step.h"
#include "train/verdict.h"
#include <stdio.h>
#include <string.h>

/* The loader lends one micro-batch at a time; a step needs the weight of all its targets first. */
static void draw(struct run *r) {
    for (int64_t i = 0; i < r->config->grad_acc_steps; i++) {
        watchdog_phase(WATCHDOG_DATA, -1);
        batch_copy(r->batches[i], loader_next(r->loader));
    }
}

static int asked(const void *run) {
    return interrupt_asked(run);
}

/* Returns 0 when the run was asked to leave before it was through. */
static int validate(struct run *r, int64_t step, int64_t tokens) {
    const struct config *c = r->config;
    watchdog_part(WATCHDOG_VALIDATION, step);
    struct evaluation e = evaluate_streams(r->model, r->data.held_out, r->data.n_held_out,
                                           c->validation.num_batches, r->scratch, asked, r, NULL);
    if (!e.stopped && r->grid.rank == 0) {
        report_validation(c, step, e.loss, e.bits_per_base,
                          r->data.markov.bits_per_base[r->data.markov.best]);
        journal_validation(r->metrics, step, tokens, e.loss, e.bits_per_base);
    }
    return !e.stopped;
}

/* What ranks tell each other in the reduction of a step: the saver's votes, and these. */
enum { VOTE_LEAVE = SAVER_VOTES, VOTE_SAVE, VOTE_LOST, N_VOTES };

/* One step; votes become their sums. Returns its loss. */
static double train_step(struct run *r, struct record *record, int64_t step,
                         double votes[N_VOTES]) {
    watchdog_part(WATCHDOG_STEP, step);
    record_begin(record);
    draw(r);
    record_drawn(record);
    saver_vote(r->saver, votes);
    votes[VOTE_LEAVE] = interrupt_asked(r);
    votes[VOTE_SAVE] = stop_take_save();
    votes[VOTE_LOST] = lock_is_lost(r->lock);
    double lr = schedule_rate(r->config, step);
    r->model->sampled =
        low_statistics_wanted(r->config) &&
        run_is_logged(r->config, step, r->config->precision.statistics_every_n_steps);
    struct step_sums sums = step_take(r->optimizer, (const struct batch *const *)r->batches,
                                      (int)r->config->grad_acc_steps, lr, votes, N_VOTES);
    record_end(record, r, step, &sums, lr);
    r->model->sampled = 0;
    return sums.loss;
}

/* The steps that a profiler records; those that an earlier start did not do. */
static void begin_profile(struct run *r, int64_t step) {
    int64_t first = r->config->profiler.start_step, last = r->config->profiler.end_step;
    if (step == first || (step == r->start.step + 1 && step > first && step <= last))
        r->be->profile(r->be, 1), r->profiled_from = step;
}

/* After the last step recorded, if one is. */
static void end_profile(struct run *r, int64_t step) {
    if (!r->profiled_from) return;
    r->be->profile(r->be, 0);
    log_info("profiler", "recorded steps %lld to %lld", (long long)r->profiled_from,
             (long long)step);
    r->profiled_from = 0;
}

/* Steps until num_train_steps or until something ends the run; returns the exit code. *last is the
 * last step done. */
static int train_loop(struct run *r, int64_t *last) {
    const struct config *c = r->config;
    struct record record = {.tokens = r->start.tokens, .bad_steps = r->start.bad_steps};
    double first_loss = 0, loss = 0;
    if (r->validate_first && !validate(r, *last, record.tokens)) return EXIT_SAVED;
    for (int64_t step = *last + 1; step <= c->num_train_steps; step++) {
        double votes[N_VOTES];
        begin_profile(r, step);
        loss = train_step(r, &record, step, votes);
        if (step == c->profiler.end_step) end_profile(r, step);
        *last = step;
        if (step == r->start.step + 1) first_loss = loss;
        if (votes[VOTE_LOST] > 0) return EXIT_CONFIG; /* leave_if_lost says why */
        if (record.bad_steps >= c->train.max_bad_steps) return EXIT_NONFINITE;
        saving_go_on(r, votes);
        int leave = votes[VOTE_LEAVE] > 0 && step < c->num_train_steps;
        if (!leave &&
            (votes[VOTE_SAVE] > 0 || run_is_due(c, step, c->checkpoint.save_every_n_steps)))
            leave = saving_start(r, &record, step);
        if (!leave && c->validation.enabled && run_is_due(c, step, c->validation.eval_interval))
            leave = !validate(r, step, record.tokens);
        if (leave) return saving_last(r, &record, step) ? EXIT_SAVED : EXIT_IO;
        if (saving_is_hopeless(r)) return EXIT_IO;
    }
    if (c->checkpoint.save_every_n_steps > 0 && !saving_last(r, &record, *last)) return EXIT_IO;
    if (!c->train.verdict || *last == r->start.step) return EXIT_FINISHED;
    if (r->grid.rank == 0) report_end(c);
    return verdict_print(r, first_loss, loss);
}

/* The last words of a run. */
static void conclude(struct run *r, int code, int64_t last) {
    const struct config *c = r->config;
    char text[200] = "";
    if (code == EXIT_NONFINITE)
        snprintf(text, sizeof text,
                 "stopped at step %lld: %lld steps in a row had a loss or a gradient that is not "
                 "finite",
                 (long long)last, (long long)c->train.max_bad_steps);
    if (code == EXIT_IO)
        snprintf(text, sizeof text,
                 "stopped at step %lld, which could not be saved; start it again to go on from the "
                 "newest checkpoint",
                 (long long)last);
    if (code == EXIT_SAVED)
        snprintf(text, sizeof text, "saved after step %lld of %lld: start it again to go on",
                 (long long)last, (long long)c->num_train_steps);
    if (text[0]) log_info("train", "%s", text);
    if (text[0] && r->grid.rank == 0)
        journal_event(r->metrics, code == EXIT_SAVED ? EVENT_PREEMPTION : EVENT_STOP, last, text);
    if (code == EXIT_FINISHED && c->checkpoint.save_final_model) {
        char *folder = file_join(r->folder, "final_model");
        watchdog_part(WATCHDOG_FINAL_MODEL, last);
        hf_save(r->model, folder, last);
        log_info("train", "the model is in %s", folder);
        memory_free(folder);
    }
}

/* Ends the run (78) when another job has taken the folder over: nothing more is written there, open
 * files stay as a kill would leave them. Collective. */
static void leave_if_lost(struct run *r, int64_t last) {
    if (r->grid.rank == 0 && !lock_is_ours(r->lock)) {
        io_close();
        die_user(EXIT_CONFIG, "another job has taken over the run in %s; stopped after step %lld",
                 r->folder, (long long)last);
    }
    user_agree();
}

static int train_run(struct config *c, int dp_size, int fresh, struct lock *lock) {
    struct run r;
    run_open(&r, c, dp_size, fresh);
    r.lock = lock;
    saver_guard(r.saver, lock);
    int64_t last = r.start.step;
    if (r.grid.rank == 0) report_legend();
    int code = train_loop(&r, &last);
    end_profile(&r, last); /* it may have left before end_step */
    saving_end(&r);
    leave_if_lost(&r, last);
    if (r.grid.rank == 0) report_end(c);
    conclude(&r, code, last);
    if (r.grid.rank == 0) folder_write_status(c, code, last, NULL);
    run_close(&r);
    lock_close(lock);
    return code;
}

static void print_help(void) {
    printf("regulon train DECK [--fresh] [key=value ...]\n"
           "Trains the model that DECK describes: a YAML file, or the name of an installed deck. "
           "Words key=value override\n"
           "the deck. Everything is written into the run folder, checkpoint.ckpt_dir. A finished "
           "run is left alone;\n"
           "one that was stopped goes on from its newest checkpoint. --fresh starts anew and moves "
           "the earlier run's\n"
           "files into previous-N/. TERM and USR1 save and end the run (exit code 75), USR2 "
           "saves.\n\n");
    config_write_help(stdout);
}

/* The words of the command line: the deck, and the keys in words[*n]; *fresh. */
static const char *read_words(int argc, char **argv, int *fresh, char **words, int *n) {
    const char *deck = NULL;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--fresh") == 0)
            *fresh = 1;
        else if (argv[i][0] == '-' && log_rank() == 0)
            die_user(EXIT_USAGE, "train: unknown option '%s'; see regulon train --help", argv[i]);
        else if (!deck)
            deck = argv[i];
        else
            words[(*n)++] = argv[i];
    }
    if (log_rank() == 0 && !deck)
        die_user(EXIT_USAGE, "train: which deck? regulon train DECK [key=value ...]");
    user_agree();
    return deck;
}

/* How a start ends that has nothing to do; -1: there is something to train, and the folder is
 * *lock'ed. Rank 0. */
static int end_at_once(const struct config *c, int fresh, struct lock **lock) {
    int code = -1;
    if (!folder_has_finished(c, fresh)) *lock = lock_open(c->checkpoint.ckpt_dir);
    char *stop = file_join(c->checkpoint.ckpt_dir, "stop");
    if (folder_has_finished(c, fresh)) { /* the lock's last owner may have ended just now */
        log_info("train", "the run in %s has finished; --fresh starts it anew",
                 c->checkpoint.ckpt_dir);
        code = EXIT_FINISHED;
    } else if (file_exists(stop)) {
        log_info("train", "there is a file %s: remove it to go on", stop);
        code = EXIT_SAVED;
    }
    memory_free(stop);
    return code;
}

int train_main(int argc, char **argv) {
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) {
            if (log_rank() == 0) print_help();
            return EXIT_FINISHED;
        }
    int fresh = 0, n = 0, code = -1;
    stop_install(); /* who is told during a long start leaves after its first step */
    char **words = memory_alloc_array((size_t)argc + 1, sizeof *words);
    const char *deck = read_words(argc, argv, &fresh, words, &n);
    struct config *c = config_load_all(deck, words, n);
    memory_free(words);
    int dp_size = run_dp_size(c);
    struct lock *lock = NULL;
    if (log_rank() == 0) code = end_at_once(c, fresh, &lock);
    user_agree();
    MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (code < 0) return train_run(c, dp_size, fresh, lock);
    lock_close(lock);
    config_free(c);
    return code;
}
