#include "config.h"
#include "grid/ranges.h"
#include "grid/judge.h"
#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

static void push(const char *name, int64_t payload) {
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .payloadType = NVTX_PAYLOAD_TYPE_INT64,
                                   .payload.llValue = payload,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message.ascii = name};
    nvtxRangePushEx(&event);
}

static void pop(void) {
    nvtxRangePop();
}
#else
static void push(const char *name, int64_t payload) {
    (void)name;
    (void)payload;
}

static void pop(void) {}
#endif

/* Ranges that are open, as NVTX counts them for the one thread that sets marks. */
static int depth;

static void enter(int level, const char *name, int64_t payload) {
    for (; depth > level; depth--) pop();
    if (!name[0]) return;
    push(name, payload);
    depth++;
}

void ranges_part(enum watchdog_part part, int64_t step) {
    enter(0, judge_part_name(part), step);
}

void ranges_phase(enum watchdog_phase phase, int layer) {
    enter(1, judge_phase_name(phase), layer);
}

void ranges_exchange(int waits) {
    enter(2, waits ? "exchange" : "", -1);
}
