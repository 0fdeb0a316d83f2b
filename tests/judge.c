/* Whom the watchdog names, case by case. */
#include "config.h"
#include "grid/judge.h"
#include "tap.h"
#include <string.h>

#define SECOND INT64_C(1000000000)
enum { N = 4, LIMIT = 10, NOW = 1000 };

/* Four ranks at the same mark, set and heard of just now. */
static void fresh(struct watched w[N]) {
    for (int i = 0; i < N; i++)
        w[i] = (struct watched){.rank = i,
                                .pid = 100 + i,
                                .host = "node7",
                                .code = -1,
                                .heard = NOW * SECOND,
                                .mark = {.step = 12,
                                         .order = 50,
                                         .time = NOW * SECOND,
                                         .part = WATCHDOG_STEP,
                                         .phase = WATCHDOG_FORWARD,
                                         .layer = 3}};
}

static void all_stand(struct watched w[N], int64_t seconds) {
    for (int i = 0; i < N; i++) w[i].mark.time -= seconds * SECOND + i;
}

static void expect(const struct watched w[N], enum cause cause, int rank, const char *what) {
    struct verdict v = judge_presence(w, N, NOW * SECOND, LIMIT * SECOND);
    if (v.cause == FINE) v = judge_progress(w, N, NOW * SECOND, LIMIT * SECOND);
    tap_ok(v.cause == cause && (cause == FINE || v.i == rank), "%s", what);
    if (v.cause != cause || v.i != rank) tap_note("cause %d, rank %d", (int)v.cause, v.i);
}

static void expect_text(const struct watched *w, enum cause cause, const char *expected) {
    char text[300];
    judge_text(text, sizeof text, w, cause, NOW * SECOND);
    tap_ok(strcmp(text, expected) == 0, "%s", expected);
    if (strcmp(text, expected) != 0) tap_note("it is: %s", text);
}

int main(int argc, char **argv) {
    struct watched w[N];
    tap_open(&argc, &argv);

    fresh(w);
    expect(w, FINE, 0, "all work");
    w[1].presence = GONE;
    expect(w, IS_GONE, 1, "one is gone");
    expect_text(&w[1], IS_GONE,
                "rank 1 (node7, pid 101) has died; last heard of in step 12, forward, layer 3");
    fresh(w);
    w[2].presence = ENDED, w[2].code = 0, w[2].heard -= 5 * SECOND;
    expect(w, FINE, 0, "one has left a moment ago");
    w[2].mark.time -= 11 * SECOND;
    expect(w, HAS_LEFT, 2, "one has left, the others work on");
    expect_text(&w[2], HAS_LEFT,
                "rank 2 (node7, pid 102) left with code 0 in step 12, the others did not");
    for (int i = 0; i < N; i++) w[i].code = 0;
    expect(w, FINE, 0, "all have left");

    fresh(w);
    w[3].heard -= 12 * SECOND, w[3].mark.time -= 12 * SECOND;
    expect(w, FINE, 0, "one gives no sign, not for long");
    w[3].heard -= 2 * SECOND, w[3].mark.time -= 2 * SECOND;
    expect(w, IS_SILENT, 3, "one gives no sign");
    expect_text(&w[3], IS_SILENT,
                "rank 3 (node7, pid 103) gives no sign for 14 s, stopped or out of reach in "
                "step 12, forward, layer 3");

    fresh(w);
    all_stand(w, 9);
    expect(w, FINE, 0, "all stand still, not for long");
    all_stand(w, 2);
    expect(w, IS_STUCK, 3, "all stand still at the same mark: the oldest");
    w[1].mark.order--, w[1].mark.time += SECOND / 2;
    expect(w, IS_STUCK, 1, "all stand still: the one behind, though its mark is newer");
    w[1].mark.waits = WAITS_FOR_RANKS;
    expect_text(&w[1], IS_STUCK,
                "rank 1 (node7, pid 101) stands still for 10 s in step 12, forward, layer 3, "
                "exchange");
    w[1].mark.waits = WAITS_FOR_GPU;
    expect_text(
        &w[1], IS_STUCK,
        "rank 1 (node7, pid 101) stands still for 10 s in step 12, waiting for its GPU with "
        "work enqueued up to forward, layer 3");
    w[2].heard -= 6 * SECOND;
    expect(w, IS_SILENT, 2, "all stand still and one gives no sign: that one");
    w[2].heard = NOW * SECOND, w[0].code = 65, w[0].mark.order = 1000;
    expect(w, HAS_LEFT, 0, "all stand still and one has left: that one");

    fresh(w);
    all_stand(w, 50);
    w[0].mark.time = NOW * SECOND;
    expect(w, FINE, 0, "three wait for one at the same mark that works");
    w[0].mark.order++;
    expect(w, IS_STUCK, 3, "one is ahead and works: those behind stand still");

    fresh(w);
    all_stand(w, 99);
    for (int i = 0; i < N; i++) w[i].mark.part = WATCHDOG_LOADING;
    expect(w, FINE, 0, "loading may take ten times as long");
    all_stand(w, 2);
    expect(w, IS_STUCK, 3, "but no longer");
    expect_text(&w[0], IS_GONE,
                "rank 0 (node7, pid 100) has died; last heard of in loading, forward, layer 3");
    for (int i = 0; i < N; i++) w[i].mark.part = WATCHDOG_STEP;
    all_stand(w, -10);
    for (int i = 0; i < N; i++) w[i].mark.first = 1;
    expect(w, FINE, 0, "so may the first step");
    return tap_close();
}
