#include "config.h"
#include "train/journal.h"
#include "base/io.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

struct step_entry {
    struct metrics *m;
    struct metrics_step row;
};

static int write_step(void *context) {
    struct step_entry *e = context;
    metrics_step(e->m, &e->row);
    memory_free((void *)(uintptr_t)e->row.expert_tokens);
    memory_free((void *)(uintptr_t)e->row.router_entropy);
    memory_free(e);
    return 0;
}

static void *copy(const void *data, size_t bytes) {
    return memcpy(memory_alloc(bytes), data, bytes);
}

void journal_step(struct metrics *m, const struct metrics_step *row, int64_t n_layers,
                  int64_t n_experts) {
    struct step_entry *e = memory_alloc(sizeof *e);
    e->m = m, e->row = *row;
    e->row.expert_tokens =
        copy(row->expert_tokens, (size_t)(n_layers * n_experts) * sizeof *row->expert_tokens);
    e->row.router_entropy =
        copy(row->router_entropy, (size_t)n_layers * sizeof *row->router_entropy);
    io_post(write_step, e);
}

struct eight_entry {
    struct metrics *m;
    int64_t step;
    struct low_figures f;
};

static int write_eight_bits(void *context) {
    struct eight_entry *e = context;
    metrics_eight_bits(e->m, e->step, &e->f);
    low_figures_free(&e->f);
    memory_free(e);
    return 0;
}

void journal_eight_bits(struct metrics *m, int64_t step, struct low_figures f) {
    struct eight_entry *e = memory_alloc(sizeof *e);
    *e = (struct eight_entry){m, step, f};
    io_post(write_eight_bits, e);
}

struct other_entry {
    struct metrics *m;
    int64_t step, tokens;
    double loss, bits;
    enum metrics_event kind;
    char text[256];
};

static int write_validation(void *context) {
    struct other_entry *e = context;
    metrics_validation(e->m, e->step, e->tokens, e->loss, e->bits);
    memory_free(e);
    return 0;
}

void journal_validation(struct metrics *m, int64_t step, int64_t tokens, double loss, double bits) {
    struct other_entry *e = memory_alloc(sizeof *e);
    e->m = m, e->step = step, e->tokens = tokens, e->loss = loss, e->bits = bits;
    io_post(write_validation, e);
}

static int write_event(void *context) {
    struct other_entry *e = context;
    metrics_event(e->m, e->kind, e->step, e->text);
    memory_free(e);
    return 0;
}

void journal_event(struct metrics *m, enum metrics_event kind, int64_t step, const char *text) {
    struct other_entry *e = memory_alloc(sizeof *e);
    e->m = m, e->kind = kind, e->step = step;
    snprintf(e->text, sizeof e->text, "%s", text);
    io_post(write_event, e);
}
