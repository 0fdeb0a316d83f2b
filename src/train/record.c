#include "config.h"
#include "train/record.h"
#include "base/log.h"
#include "base/median.h"
#include "base/memory.h"
#include "grid/watchdog.h"
#include "train/journal.h"
#include "train/report.h"
#include <stdio.h>
#include <string.h>

void record_begin(struct record *r) {
    r->start = MPI_Wtime();
}
void record_drawn(struct record *r) {
    r->drawn = MPI_Wtime();
}

/* Minimum, median and maximum over ranks of this rank's mine[N_PHASES], on rank 0. */
static void gather_timing(const struct grid *g, const double *mine, double timing[N_PHASES][3]) {
    size_t P = (size_t)g->n_ranks;
    double *all = memory_alloc_array(P * N_PHASES, sizeof *all),
           *one = memory_alloc_array(P, sizeof *one);
    MPI_Gather(mine, N_PHASES, MPI_DOUBLE, all, N_PHASES, MPI_DOUBLE, 0, g->world);
    for (int k = 0; k < N_PHASES && g->rank == 0; k++) {
        for (size_t r = 0; r < P; r++) one[r] = all[r * N_PHASES + (size_t)k];
        timing[k][1] = median(one, P); /* sorts them */
        timing[k][0] = one[0];
        timing[k][2] = one[P - 1];
    }
    memory_free(all);
    memory_free(one);
}

/* Mean over layers of (tokens of the busiest expert / mean). */
static double load_balance(const struct model *m, const uint32_t *counts) {
    double sum = 0;
    for (int l = 0; l < m->s.L; l++) {
        double most = 0, all = 0;
        for (int e = 0; e < m->s.E; e++) {
            double n = counts[l * m->s.E + e];
            all += n;
            if (n > most) most = n;
        }
        sum += all > 0 ? most * m->s.E / all : 1;
    }
    return sum / m->s.L;
}

/* Most memory that a rank had in use so far, bytes: the largest of the ranks', on rank 0. */
static double peak_memory(struct backend *be) {
    double mine = be->memory_peak(be), most = 0;
    MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, be->grid->world);
    return most;
}

/* An event of a step, with the micro-batches it was made of (their numbers in the run). Rank 0. */
static void note(struct run *run, enum metrics_event kind, int64_t step, const char *what) {
    char text[240];
    int64_t M = run->grid.n_ranks * run->config->grad_acc_steps;
    snprintf(text, sizeof text, "%s; micro-batches %lld to %lld", what, (long long)((step - 1) * M),
             (long long)(step * M - 1));
    log_info("train", "step %lld %s: %s", (long long)step,
             kind == EVENT_SKIPPED ? "skipped" : "is a spike", text);
    journal_event(run->metrics, kind, step, text);
}

static void note_skipped(struct record *r, struct run *run, int64_t step,
                         const struct step_sums *s) {
    char text[120];
    snprintf(text, sizeof text, "loss %g, gradient norm %g, %lld in a row", s->loss, s->grad_norm,
             (long long)r->bad_steps);
    note(run, EVENT_SKIPPED, step, text);
}

/* The step itself has said so. */
static void note_overflow(struct run *run, int64_t step, double capacity) {
    char text[120];
    snprintf(text, sizeof text, "router.capacity %g was too small, it took %g: done again",
             run->config->router.capacity, capacity);
    journal_event(run->metrics, EVENT_OVERFLOW, step, text);
}

static void note_spike(struct record *r, struct run *run, int64_t step, double loss) {
    char text[120];
    struct spike spike = spike_note(&r->spikes, loss, run->config->train.spike_mads);
    if (!spike.found) return;
    snprintf(text, sizeof text, "loss %g, median before %g, median absolute deviation %.2g", loss,
             spike.median, spike.mad);
    note(run, EVENT_SPIKE, step, text);
}

/* Collective over world. */
static void write_statistics(struct run *run, int64_t step) {
    struct low_figures f = low_figures_new(run->model->s.L);
    low_statistics_read(run->model, &f);
    if (run->grid.rank == 0)
        journal_eight_bits(run->metrics, step, f);
    else
        low_figures_free(&f);
}

void record_end(struct record *r, struct run *run, int64_t step, const struct step_sums *s,
                double lr) {
    struct model *m = run->model;
    const struct config *c = run->config;
    double now = MPI_Wtime(), step_s = now - r->start;
    if (step_s > run->slowest_step_s) run->slowest_step_s = step_s;
    r->tokens += (int64_t)s->tokens;
    r->bad_steps = s->finite ? 0 : r->bad_steps + 1;
    if (s->capacity > 0 && run->grid.rank == 0) note_overflow(run, step, s->capacity);
    if (!s->finite && run->grid.rank == 0) note_skipped(r, run, step, s);
    if (s->finite && run->grid.rank == 0) note_spike(r, run, step, s->loss);
    watchdog_phase(WATCHDOG_RECORD, -1);
    if (m->sampled) write_statistics(run, step);
    if (!run_is_logged(c, step, c->logger.frequency)) return;
    double mine[N_PHASES] = {[PHASE_DATA] = r->drawn - r->start,
                             [PHASE_FORWARD] = s->seconds[CLOCK_FORWARD],
                             [PHASE_BACKWARD] = s->seconds[CLOCK_BACKWARD],
                             [PHASE_EXCHANGE] = s->seconds[CLOCK_EXCHANGE],
                             [PHASE_REDUCE] = s->seconds[CLOCK_REDUCE],
                             [PHASE_OPTIMIZER] = s->seconds[CLOCK_OPTIMIZER],
                             [PHASE_CHECKPOINT] = r->checkpoint_s,
                             [PHASE_TOTAL] = step_s};
    r->checkpoint_s = 0;
    double per_rank_s = 1 / step_s / run->grid.n_ranks,
           flops = shape_flops(&m->s, s->tokens, s->sum_len2) * per_rank_s,
           flops_6n = shape_flops(&m->s, s->tokens, /*sum_len2=*/0) * per_rank_s;
    float *entropy = memory_alloc_array((size_t)m->s.L, sizeof *entropy);
    for (int l = 0; l < m->s.L; l++)
        entropy[l] = (float)(s->entropy[l] / (s->tokens > 0 ? s->tokens : 1));
    struct metrics_step row = {.step = step,
                               .tokens = r->tokens,
                               .loss = s->loss,
                               .aux_loss = s->aux,
                               .z_loss = s->z,
                               .grad_norm = s->grad_norm,
                               .learning_rate = lr,
                               .step_s = step_s,
                               .tokens_per_s = s->tokens / step_s,
                               .tflops = flops / 1e12,
                               .mfu = flops / run->peak_flops,
                               .mfu_6n = flops_6n / run->peak_flops,
                               .memory_bytes = peak_memory(run->be),
                               .useful_tokens = (int64_t)s->targets,
                               .padded_tokens =
                                   (int64_t)run->grid.n_ranks * c->grad_acc_steps * m->capacity -
                                   (int64_t)s->tokens,
                               .expert_tokens = s->counts,
                               .router_entropy = entropy};
    gather_timing(&run->grid, mine, row.timing);
    if (run->grid.rank == 0) {
        report_step(c, &row, load_balance(m, s->counts));
        journal_step(run->metrics, &row, m->s.L, m->s.E);
    }
    memory_free(entropy);
}
