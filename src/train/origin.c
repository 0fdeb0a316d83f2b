#include "config.h"
#include "train/origin.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/restore.h"
#include "config/build.h"

/* NULL: it cannot be read; the weights are checked elsewhere. */
static struct config *read_deck(const char *deck) {
    if (!file_has_suffix(deck, ".yaml")) {
        struct config *c = build_defaults();
        config_read_hf(c, deck);
        return c;
    }
    char *text = file_read(deck, 1 << 20, NULL);
    struct config *c = text ? config_parse(text, deck) : NULL;
    memory_free(text);
    return c;
}

void origin_compare(const struct config *c, const char *from, const char *folder) {
    char *deck = checkpoint_find_deck(from, folder);
    struct config *origin = deck ? read_deck(deck) : NULL;
    if (origin) {
        const struct {
            const char *key;
            double here, there;
        } list[] = {
            {"rope_theta", c->model.rope_theta, origin->model.rope_theta},
            {"rms_norm_eps", c->model.rms_norm_eps, origin->model.rms_norm_eps},
            {"sliding_window", (double)c->model.sliding_window,
             (double)origin->model.sliding_window},
            {"num_experts_per_tok", (double)c->model.num_experts_per_tok,
             (double)origin->model.num_experts_per_tok},
        };
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)
            if (list[i].here != list[i].there)
                log_warn("checkpoint", "model.%s is %g here and %g where the weights are from (%s)",
                         list[i].key, list[i].here, list[i].there, deck);
    }
    config_free(origin);
    memory_free(deck);
}
