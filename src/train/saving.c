#include "config.h"
#include "train/saving.h"
#include "base/log.h"
#include "base/text.h"
#include "grid/watchdog.h"
#include "train/interrupt.h"
#include "train/journal.h"
#include <math.h>
#include <stdio.h>

/* What the lead of --signal must hold: the step under way, a save that has just begun, and the last
 * one. Said once; rank 0. */
static void say_lead(struct run *r, double save_s) {
    enum { MARGIN_S = 10 };
    double lead = ceil(2 * save_s + r->slowest_step_s + MARGIN_S);
    if (r->said_lead) return;
    r->said_lead = 1;
    log_info("checkpoint",
             "to save before its end a job needs a signal %.0f s ahead of it: --signal=USR1@%.0f, "
             "or train.reserve_minutes=%.2g",
             lead, lead, lead / 60);
}

/* `ended` is what the saver returned: 1 well, -1 not, 0 not yet. */
static void note(struct run *r, int ended) {
    char text[200], size[32], rate[32];
    if (ended == 0) return;
    r->failed_saves = ended > 0 ? 0 : r->failed_saves + 1;
    if (r->grid.rank != 0) return;
    struct saver_figures f = saver_figures(r->saver);
    if (ended > 0)
        snprintf(text, sizeof text,
                 "step %lld saved: %s in %.2f s (%s/s), training stood still for %.3f s",
                 (long long)f.step, text_bytes(size, sizeof size, f.bytes), f.total_s,
                 text_bytes(rate, sizeof rate, f.bytes / f.total_s), f.stall_s);
    else
        snprintf(text, sizeof text,
                 "the save of step %lld failed, %d in a row; the checkpoints before it stay",
                 (long long)f.step, r->failed_saves);
    log_info("checkpoint", "%s", text);
    journal_event(r->metrics, EVENT_CHECKPOINT, f.step, text);
    if (ended > 0) say_lead(r, f.total_s);
}

void saving_go_on(struct run *r, const double sums[SAVER_VOTES]) {
    note(r, saver_count(r->saver, sums));
}

void saving_end(struct run *r) {
    watchdog_part(WATCHDOG_CHECKPOINT, -1);
    note(r, saver_drain(r->saver));
}

static void begin(struct run *r, struct record *record, int64_t step) {
    saver_begin(r->saver, (struct counters){.step = step,
                                            .updates = r->optimizer->t,
                                            .tokens = record->tokens,
                                            .bad_steps = record->bad_steps});
}

int saving_start(struct run *r, struct record *record, int64_t step) {
    double start = MPI_Wtime();
    saving_end(r);
    begin(r, record, step);
    if (!r->config->checkpoint.async_save) saving_end(r);
    int leave = agree_any(&r->grid, interrupt_asked(r));
    record->checkpoint_s += MPI_Wtime() - start;
    return leave;
}

int saving_last(struct run *r, struct record *record, int64_t step) {
    saving_end(r);
    int has_it = (saver_figures(r->saver).step == step && r->failed_saves == 0) ||
                 (step == r->start.step && step > 0); /* what this start began with */
    for (int tries = 0; !has_it && tries < 2; tries++) {
        begin(r, record, step);
        saving_end(r);
        has_it = r->failed_saves == 0;
    }
    return has_it;
}

int saving_is_hopeless(const struct run *r) {
    return r->failed_saves >= r->config->checkpoint.max_failures;
}
