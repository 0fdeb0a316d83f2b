#include "config.h"
#include "model/low.h"
#include "base/memory.h"
#include <assert.h>
#include <stdlib.h>

static const char *const names[] = {[LOW_FP8_BLOCK] = "fp8_block", [LOW_MXFP8] = "mxfp8"};

enum low low_recipe(const struct config *c) {
    assert(c->precision.recipe != PRECISION_AUTO8);
    return c->precision.recipe == PRECISION_FP8_BLOCK ? LOW_FP8_BLOCK
           : c->precision.recipe == PRECISION_MXFP8   ? LOW_MXFP8
                                                      : LOW_NONE;
}

/* Numbers with blanks between them, as check_config saw to. */
static int listed(const char *numbers, int layer) {
    char *end;
    for (const char *at = numbers; at; at = end) {
        long number = strtol(at, &end, 10);
        if (end == at) break;
        if (number == layer) return 1;
    }
    return 0;
}

enum low low_layer(const struct config *c, int layer) {
    int64_t first = c->precision.first_layers_bf16,
            end = c->model.num_hidden_layers - c->precision.last_layers_bf16;
    int out = layer < first || layer >= end || listed(c->precision.layers_bf16, layer);
    return out ? LOW_NONE : low_recipe(c);
}

static char *devices(int capability) {
    return capability
               ? memory_format("GPUs of compute capability %d.%d", capability / 10, capability % 10)
               : memory_string("the CPU");
}

/* What is fast there: Blackwell has units for E8M0 scales, Hopper multiplies E4M3 only. */
static int settle_auto8(struct config *c, int capability) {
    if (backend_low_way(capability, LOW_MXFP8, 0) == LOW_FAST)
        c->precision.recipe = PRECISION_MXFP8;
    else if (backend_low_way(capability, LOW_FP8_BLOCK, 0) == LOW_FAST)
        c->precision.recipe = PRECISION_FP8_BLOCK;
    return c->precision.recipe != PRECISION_AUTO8;
}

static char *settle_recipe(struct config *c, int capability) {
    int auto8 = c->precision.recipe == PRECISION_AUTO8,
        known = !auto8 || settle_auto8(c, capability);
    enum low low = known ? low_recipe(c) : LOW_NONE;
    enum low_way way =
        low == LOW_NONE ? LOW_FAST : backend_low_way(capability, low, c->precision.emulate);
    char *here = devices(capability), *problem = NULL;
    const char *other = backend_low_way(capability, LOW_FP8_BLOCK, 0) == LOW_FAST ? "fp8_block"
                        : capability                                              ? "bf16"
                                                                                  : "fp32";
    if (!known)
        problem = memory_format("precision.recipe is 'auto8', and there is no recipe of eight bits "
                                "for %s: mxfp8 is for GPUs of compute capability 10.0 and "
                                "later, fp8_block "
                                "for 9.0, bf16 for other GPUs, fp32 for the CPU",
                                here);
    else if (way == LOW_LACKING)
        problem = memory_format("precision.recipe is '%s'%s, which this version does not compute "
                                "on %s: precision.recipe=%s is fast there",
                                names[low], auto8 ? " (by auto8)" : "", here, other);
    else if (way == LOW_EMULATED && !c->precision.emulate)
        problem = memory_format("precision.recipe is '%s'%s, which %s cannot compute fast: "
                                "precision.emulate=true gives the same numbers slowly, "
                                "precision.recipe=%s is fast",
                                names[low], auto8 ? " (by auto8)" : "", here, other);
    memory_free(here);
    return problem;
}

char *low_settle(struct config *c, int capability) {
    char *problem = settle_recipe(c, capability);
    if (problem || !c->precision.fp8_dispatch || capability == 0 || capability >= 89)
        return problem;
    return memory_format("precision.fp8_dispatch needs GPUs of compute capability 8.9 or more; "
                         "these have %d.%d: with false tokens travel as they are",
                         capability / 10, capability % 10);
}

char *low_text(const struct config *c, int capability) {
    enum low low = low_recipe(c);
    if (low == LOW_NONE) return NULL;
    enum low_way kind = backend_low_way(capability, low, c->precision.emulate);
    const char *way = kind == LOW_EMULATED ? ", emulated"
                      : low == LOW_MXFP8   ? ", by cuBLASLt: compiled, never run before"
                                           : "";
    int L = (int)c->model.num_hidden_layers;
    char *layers = memory_string("");
    for (int l = 0, end; l < L; l = end + 1) {
        for (end = l; end < L && low_layer(c, end) != LOW_NONE;) end++;
        if (end == l) continue;
        const char *between = layers[0] ? ", " : "";
        char *more = end == l + 1 ? memory_format("%s%s%d", layers, between, l)
                                  : memory_format("%s%s%d to %d", layers, between, l, end - 1);
        memory_free(layers);
        layers = more;
    }
    char *text =
        layers[0] ? memory_format("%s%s, in layers %s of 0 to %d", names[low], way, layers, L - 1)
                  : memory_format("%s%s, in no layer", names[low], way);
    memory_free(layers);
    return text;
}
