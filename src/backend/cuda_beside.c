/* Work beside other work: a stream of its own, whose kernels the device prefers, with events
 * between it and the main one. Its collectives copy from the other ranks' memory (cuda_pull.c), or
 * have NCCL communicators of their own (cuda_collectives.c): two streams must not use one at the
 * same time. While such work is asked for it is the stream of the state, so that what serves the
 * main stream serves it, too. Matrix products fill the device for as long as they run: they leave
 * some multiprocessors to it, always where there is work beside all passes, else from the first
 * that is asked for until it is awaited. */
#include "config.h"
#include "backend/cuda.h"
#include "backend/cuda_pull.h"
#include "backend/cuda_window.h"
#include "base/log.h"
#include "base/memory.h"
#include "grouped_sizes.h"
#include <assert.h>

enum { BLOCKS = 16 /* of additions, where products leave them nothing */ };

static void beside(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    assert(s->beside && s->stream == s->main);
    cuda_check(cudaEventRecord(s->asked, s->main));
    cuda_check(cudaStreamWaitEvent(s->beside, s->asked, 0));
    s->stream = s->beside;
    s->product_sms = s->sms_beside_work;
}

/* Sums have a stream of their own: a stretch without any waits for those of its ticket before it.
 */
static void back(struct backend *be, int ticket) {
    struct cuda_state *s = cuda_state(be);
    assert(s->stream == s->beside && ticket < BESIDE_TICKETS);
    cudaStream_t last = s->pull ? cuda_pull_end(be) : s->beside;
    cuda_check(cudaStreamWaitEvent(last, s->done[ticket], 0));
    cuda_check(cudaEventRecord(s->done[ticket], last));
    s->stream = s->main;
}

/* An event that was never recorded is no reason to wait. */
static void await(struct backend *be, int ticket) {
    struct cuda_state *s = cuda_state(be);
    assert(s->stream == s->main && ticket < BESIDE_TICKETS);
    cuda_check(cudaStreamWaitEvent(s->main, s->done[ticket], 0));
    if (s->work.beside == BESIDE_LAST_PASS) s->product_sms = 0;
}

/* The deck may ask for peer memory, or have nothing against it. */
static void without_pull(const struct backend *be, const char *why) {
    enum exchange_engine asked = cuda_state(be)->options.collectives;
    if (be->grid->rank == 0 && asked == EXCHANGE_PEER)
        die_user(EXIT_CONFIG, "engine.collectives: peer: %s", why);
    user_agree();
    if (asked == EXCHANGE_AUTO) log_info("collectives", "NCCL, not peer memory: %s", why);
}

/* With copies only the additions take multiprocessors; those of dense tensors alone, where nobody
 * else has a rank's experts, are few, and take their place between products. */
static int sms_beside(const struct backend *be, int pulls) {
    const struct cuda_state *s = cuda_state(be);
    int sms = s->options.communication_sms,
        few = s->work.beside == BESIDE_LAST_PASS && be->grid->dp_size == 1;
    return !pulls ? sms : few ? 0 : (sms + CUDA_PULL_SMS - 1) / CUDA_PULL_SMS;
}

static void choose_way(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    char reason[200], *why = NULL;
    int sms = sms_beside(be, /*pulls=*/1);
    if (cuda_pull_serves(be->grid, &s->options, reason, sizeof reason))
        why = cuda_pull_open(be, sms > 0 ? sms : BLOCKS);
    else
        why = memory_string(reason);
    if (why) without_pull(be, why);
    memory_free(why);
    if (!s->pull) cuda_collectives_beside(be);
    be->own_unit = s->pull && s->grouped ? GROUPED_LINES : 0;
}

void cuda_beside_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    int least, most, all;
    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &most));
    cuda_check(cudaStreamCreateWithPriority(&s->beside, cudaStreamNonBlocking, most));
    if (be->grid->n_ranks > 1) choose_way(be);
    int sms = sms_beside(be, s->pull != NULL);
    cuda_check(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, s->device));
    s->sms_beside_work = sms > 0 && sms < all ? all - sms : 0;
    if (s->work.beside == BESIDE_PASSES) s->product_sms = s->sms_beside_work;
}

const char *cuda_beside_name(const struct backend *be) {
    return cuda_state(be)->pull ? "peer memory" : "NCCL";
}

static void *alloc_beside(struct backend *be, size_t bytes) {
    return cuda_state(be)->pull ? cuda_window_alloc(be, be->grid->world, bytes)
                                : be->alloc(be, bytes);
}

void cuda_fill_beside(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    s->main = s->stream;
    cuda_check(cudaEventCreateWithFlags(&s->asked, cudaEventDisableTiming));
    for (int i = 0; i < BESIDE_TICKETS; i++)
        cuda_check(cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming));
    be->alloc_beside = alloc_beside;
    be->beside = beside;
    be->back = back;
    be->await = await;
    be->overlaps = 1;
}

void cuda_beside_close(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    if (s->beside) cuda_check(cudaStreamSynchronize(s->beside));
    cuda_pull_close(be);
    if (s->beside) cuda_check(cudaStreamDestroy(s->beside));
    cuda_check(cudaEventDestroy(s->asked));
    for (int i = 0; i < BESIDE_TICKETS; i++) cuda_check(cudaEventDestroy(s->done[i]));
}
