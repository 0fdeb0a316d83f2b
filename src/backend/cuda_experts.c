/* The experts: the choice between two engines (cuda_grouped.c, cuda_each.c), and their products in
 * the compute type, or in eight bits by one of three ways. */
#include "config.h"
#include "backend/cuda.h"
#include "base/log.h"
#include "grouped_gemm.h"

static void experts_up(struct backend *be, struct moe *m, real_t *z, real_t *h, const real_t *rows,
                       const real_t *up) {
    struct cuda_rows r = cuda_moe_rows(be, m);
    if (be->low == LOW_NONE)
        cuda_state(be)->products->up(be, &r, z, h, rows, up);
    else
        cuda_state(be)->eight->up(be, &r, z, h, rows, up);
}

static void experts_down(struct backend *be, struct moe *m, real_t *y, const real_t *h,
                         const real_t *down) {
    struct cuda_rows r = cuda_moe_rows(be, m);
    if (be->low == LOW_NONE)
        cuda_state(be)->products->down(be, &r, y, h, down);
    else
        cuda_state(be)->eight->down(be, &r, y, h, down);
}

static void experts_down_backward(struct backend *be, struct moe *m, real_t *dz, float *dp_rows,
                                  struct gradient ddown, const real_t *dy, const real_t *z,
                                  real_t *h, const real_t *down) {
    const struct cuda_products *p = cuda_state(be)->products;
    struct cuda_rows r = cuda_moe_rows(be, m);
    if (be->low == LOW_NONE) {
        p->down_gradient(be, &r, dz, h, dp_rows, dy, z, down);
        p->down_weights(be, &r, ddown, dy, h);
    } else {
        cuda_state(be)->eight->down_backward(be, &r, dz, dp_rows, ddown, dy, z, h, down);
    }
}

static void experts_up_backward(struct backend *be, struct moe *m, real_t *drows,
                                struct gradient dup, const real_t *dz, const real_t *rows,
                                const real_t *up) {
    const struct cuda_products *p = cuda_state(be)->products;
    struct cuda_rows r = cuda_moe_rows(be, m);
    if (be->low == LOW_NONE) {
        p->up_gradient(be, &r, drows, dz, up);
        p->up_weights(be, &r, dup, dz, rows);
    } else {
        cuda_state(be)->eight->up_backward(be, &r, drows, dup, dz, rows, up);
    }
}

void cuda_fill_experts(struct backend *be) {
    be->experts_up = experts_up;
    be->experts_down = experts_down;
    be->experts_down_backward = experts_down_backward;
    be->experts_up_backward = experts_up_backward;
}

/* The deck may ask for the grouped kernels, or have nothing against them. */
static void without_grouped(struct backend *be, const char *why) {
    struct cuda_state *s = cuda_state(be);
    enum experts_engine asked = s->options.experts;
    if (s->grouped) why = "the GPU of another rank does not serve";
    grouped_close(s->grouped);
    s->grouped = NULL;
    if (be->grid->rank == 0 && s->work.way == LOW_FAST && s->work.low == LOW_FP8_BLOCK)
        die_user(EXIT_CONFIG,
                 "precision.recipe: the grouped kernels compute in eight bits, and cannot here: %s",
                 why);
    if (s->eight == &cuda_mxfp8 && asked == EXPERTS_GROUPED) return; /* cuda_mxfp8_reserve */
    if (be->grid->rank == 0 && asked == EXPERTS_GROUPED)
        die_user(EXIT_CONFIG, "engine.experts: grouped: %s", why);
    if (asked == EXPERTS_AUTO) log_info("experts", "cublaslt, not grouped: %s", why);
}

void cuda_experts_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    char reason[200];
    const char *why = reason;
    if (cuda_grouped_serves(&s->work, be->real_bytes, &s->options, reason, sizeof reason))
        s->grouped = grouped_open(&why);
    if (agree_any(be->grid, !s->grouped)) without_grouped(be, why);
    user_agree();
    be->row_unit = cuda_row_unit(s->grouped != NULL, s->work.low, s->work.way);
    be->stashes = cuda_stashes(s->grouped != NULL, &s->options, be->grid->ep_size);
    s->products = !s->grouped          ? &cuda_each
                  : s->options.unfused ? &cuda_grouped_apart
                                       : &cuda_grouped;
    if (s->options.unfused && !s->grouped)
        log_info("experts",
                 "engine.fused is of no account: a product an expert has passes besides");
}

const char *cuda_experts_name(const struct backend *be) {
    const struct cuda_state *s = cuda_state(be);
    if (!s->grouped) return s->mxfp8_up ? "cublaslt, gate and up grouped" : "cublaslt";
    return s->options.unfused ? "grouped, not fused" : "grouped";
}

void cuda_experts_close(struct backend *be) {
    grouped_close(cuda_state(be)->grouped);
}
