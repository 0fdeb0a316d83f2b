/* What a deck says, in words. */
#include "config.h"
#include "config/config.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/build.h"
#include "config/fields.h"
#include "config/value.h"
#include <inttypes.h>
#include <string.h>

/* Parameters of a Mixtral: embedding and head [V,D] (one if tied), in each layer the projections of
 * attention, two norms [D], a router [E,D] and E experts of three matrices [D,F], and a last norm.
 * With `experts` the number that a token meets, the parameters that work on one token. */
static double count_parameters(const struct config *c, int64_t experts) {
    double D = (double)c->model.hidden_size, V = (double)c->model.vocab_size,
           heads = (double)c->model.num_attention_heads;
    double shared = c->model.num_key_value_heads ? (double)c->model.num_key_value_heads : heads;
    double K = c->model.head_dim ? (double)c->model.head_dim : D / heads;
    double attention = 2 * D * K * (heads + shared),
           router = D * (double)c->model.num_local_experts;
    double expert = 3 * D * (double)c->model.intermediate_size;
    double layer = attention + router + 2 * D + (double)experts * expert;
    return V * D * (c->model.tie_word_embeddings ? 1 : 2) +
           (double)c->model.num_hidden_layers * layer + D;
}

static void write_grid(const struct config *c, FILE *out) {
    int64_t tokens = c->dataset.token_micro_batch_size
                         ? c->dataset.token_micro_batch_size
                         : c->dataset.micro_batch_size * c->dataset.max_seq_length;
    int64_t per_rank = tokens * c->grad_acc_steps, dp = c->parallelism.dp_size,
            ep = c->parallelism.ep_size;
    char buf[32];
    if (dp) {
        fprintf(out, "grid            dp %" PRId64 " x ep %" PRId64 ": %" PRId64 " ranks\n", dp, ep,
                dp * ep);
        fprintf(out, "tokens a step   %" PRId64 "\n", per_rank * dp * ep);
        fprintf(out, "tokens a run    %s\n",
                text_count(buf, sizeof buf,
                           (double)per_rank * (double)(dp * ep) * (double)c->num_train_steps));
    } else {
        fprintf(out,
                "grid            ranks / %" PRId64 " x ep %" PRId64 ": any multiple of %" PRId64
                " ranks\n",
                ep, ep, ep);
        fprintf(out, "tokens a step   %" PRId64 " on each rank\n", per_rank);
        fprintf(out, "tokens a run    %s on each rank\n",
                text_count(buf, sizeof buf, (double)per_rank * (double)c->num_train_steps));
    }
}

void config_info(const char *deck, FILE *out) {
    struct config *c = config_load(deck, NULL, 0), *plain = build_defaults();
    char total[32], active[32], experts[32];
    double all = count_parameters(c, c->model.num_local_experts);
    text_count(total, sizeof total, all);
    text_count(active, sizeof active, count_parameters(c, c->model.num_experts_per_tok));
    text_count(experts, sizeof experts, all - count_parameters(c, 0));
    fprintf(out, "deck            %s\n", c->deck_name);
    fprintf(out, "parameters      %s, of them %s in experts; %s work on a token\n", total, experts,
            active);
    fprintf(out,
            "model           %" PRId64 " layers, width %" PRId64 ", %" PRId64
            " experts of width %" PRId64 ", %" PRId64 " a token\n",
            c->model.num_hidden_layers, c->model.hidden_size, c->model.num_local_experts,
            c->model.intermediate_size, c->model.num_experts_per_tok);
    write_grid(c, out);
    fprintf(out, "run folder      %s\n\nkeys that are not at their defaults:\n",
            c->checkpoint.ckpt_dir);
    for (size_t i = 0; i < n_fields; i++) {
        char *value = value_text(c, &fields[i], /*quoted=*/0),
             *initial = value_text(plain, &fields[i], /*quoted=*/0);
        if (!fields[i].initial || strcmp(value, initial) != 0)
            fprintf(out, "  %s: %s\n", fields[i].key, value);
        memory_free(value);
        memory_free(initial);
    }
    config_free(c);
    config_free(plain);
}
