#include "config.h"
#include "train/report.h"
#include "base/log.h"
#include "base/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void report_legend(void) {
    printf("#%9s %12s %9s %9s %9s %8s %9s %10s %6s\n", "step", "tokens", "loss", "grad_norm", "lr",
           "balance", "ms", "tokens/s", "mfu%");
    fflush(stdout);
}

/* Open MPI's mpiexec gives every rank a terminal of its own, also when its output goes to a file.
 */
static int with_bar(const struct config *c) {
    if (c->logger.progress != TRI_AUTO) return c->logger.progress == TRI_TRUE;
    return isatty(STDOUT_FILENO) && !getenv("OMPI_COMM_WORLD_SIZE");
}

static void erase_bar(const struct config *c) {
    if (with_bar(c)) fputs("\r\033[K", stdout);
}

/* [=====     ] 12 of 100 steps, 3 min 20 s left */
static void draw_bar(const struct config *c, int64_t step, double step_s) {
    enum { WIDTH = 30 };
    char left[32], bar[WIDTH + 1];
    if (!with_bar(c)) return;
    int full = (int)(WIDTH * step / c->num_train_steps);
    memset(bar, ' ', WIDTH);
    memset(bar, '=', (size_t)full);
    bar[WIDTH] = 0;
    printf("[%s] %lld of %lld steps, %s left", bar, (long long)step, (long long)c->num_train_steps,
           text_duration(left, sizeof left, step_s * (double)(c->num_train_steps - step)));
}

void report_step(const struct config *c, const struct metrics_step *r, double balance) {
    erase_bar(c);
    printf("%10lld %12lld %9.4f %9.4f %9.3g %8.3f %9.1f %10.0f %6.1f\n", (long long)r->step,
           (long long)r->tokens, r->loss, r->grad_norm, r->learning_rate, balance, r->step_s * 1e3,
           r->tokens_per_s, r->mfu * 100);
    draw_bar(c, r->step, r->step_s);
    fflush(stdout);
}

void report_validation(const struct config *c, int64_t step, double loss, double bits,
                       double markov) {
    erase_bar(c);
    printf("# step %lld: held-out loss %.4f nats/token, %.4f bits/base", (long long)step, loss,
           bits);
    if (!isnan(markov)) printf(" (best Markov chain %.4f)", markov);
    putchar('\n');
    fflush(stdout);
}

void report_end(const struct config *c) {
    erase_bar(c);
    fflush(stdout);
}
