/* Work beside other work: a stream of its own, whose kernels the device prefers, with events
 * between it and the main one, and NCCL communicators of its own (cuda_collectives.c): two streams
 * must not use one at the same time. While such work is asked for it is the stream of the state, so
 * that what serves the main stream serves it, too. Matrix products fill the device for as long as
 * they run: they leave some multiprocessors to it. */
#include "config.h"
#include "backend/cuda.h"
#include <assert.h>

static void beside(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    assert(s->beside && s->stream == s->main);
    cuda_check(cudaEventRecord(s->asked, s->main));
    cuda_check(cudaStreamWaitEvent(s->beside, s->asked, 0));
    s->stream = s->beside;
}

static void back(struct backend *be, int ticket) {
    struct cuda_state *s = cuda_state(be);
    assert(s->stream == s->beside && ticket < BESIDE_TICKETS);
    cuda_check(cudaEventRecord(s->done[ticket], s->beside));
    s->stream = s->main;
}

/* An event that was never recorded is no reason to wait. */
static void await(struct backend *be, int ticket) {
    struct cuda_state *s = cuda_state(be);
    assert(s->stream == s->main && ticket < BESIDE_TICKETS);
    cuda_check(cudaStreamWaitEvent(s->main, s->done[ticket], 0));
}

void cuda_beside_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    int least, most, sms = s->options.communication_sms, all;
    cuda_check(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, s->device));
    s->product_sms = sms > 0 && sms < all ? all - sms : 0;
    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &most));
    cuda_check(cudaStreamCreateWithPriority(&s->beside, cudaStreamNonBlocking, most));
    cuda_collectives_beside(be);
}

void cuda_fill_beside(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    s->main = s->stream;
    cuda_check(cudaEventCreateWithFlags(&s->asked, cudaEventDisableTiming));
    for (int i = 0; i < BESIDE_TICKETS; i++)
        cuda_check(cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming));
    be->beside = beside;
    be->back = back;
    be->await = await;
}

void cuda_beside_close(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    if (s->beside) cuda_check(cudaStreamSynchronize(s->beside));
    if (s->beside) cuda_check(cudaStreamDestroy(s->beside));
    cuda_check(cudaEventDestroy(s->asked));
    for (int i = 0; i < BESIDE_TICKETS; i++) cuda_check(cudaEventDestroy(s->done[i]));
}
