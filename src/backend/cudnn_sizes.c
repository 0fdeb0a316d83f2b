#include "config.h"
#include "backend/cudnn_sizes.h"
#include <stdint.h>
#include <stdio.h>

int cudnn_sizes_serve(const struct cudnn_attention_sizes *s, char *why, size_t size) {
    int64_t row = (int64_t)(s->H + 2 * s->G) * s->K;
    /* cuDNN plans other widths, too, but 256 with wrong gradients (9.14), and the rest is not tried
     */
    if (s->K != 16 && s->K != 32 && s->K != 64 && s->K != 128)
        snprintf(why, size, "heads of %d: cuDNN's are tried with 16, 32, 64 and 128", s->K);
    else if (s->N * row > INT32_MAX)
        snprintf(why, size, "%d tokens of %lld elements pass 2^31", s->N, (long long)row);
    else
        return 1;
    return 0;
}

static size_t take(struct cudnn_scratch *s, size_t bytes) {
    size_t at = s->bytes;
    s->bytes += (bytes + 255) / 256 * 256;
    return at;
}

struct cudnn_scratch cudnn_scratch_of(const struct cudnn_attention_sizes *s, size_t workspace) {
    struct cudnn_scratch p = {0};
    size_t N = (size_t)s->N, wide = N * (size_t)(s->H * s->K), narrow = N * (size_t)(s->G * s->K);
    p.workspace = take(&p, workspace);
    p.dq = take(&p, 2 * wide);
    p.dk = take(&p, 2 * narrow);
    p.dv = take(&p, 2 * narrow);
    p.dq_sum = take(&p, s->deterministic ? 0 : 4 * wide);
    p.dk_wide = take(&p, s->H == s->G ? 0 : 2 * wide);
    p.dv_wide = take(&p, s->H == s->G ? 0 : 2 * wide);
    p.row_sum = take(&p, 4 * N * (size_t)s->H);
    return p;
}
