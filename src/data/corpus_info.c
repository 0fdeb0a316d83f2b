#include "config.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/corpus.h"
#include "data/tokens.h"
#include <string.h>

static void print_records(const struct corpus *c, FILE *out) {
    int64_t longest = 0, shortest = 0;
    for (int64_t i = 1; i < c->n_records; i++) {
        if (c->length[i] > c->length[longest]) longest = i;
        if (c->length[i] < c->length[shortest]) shortest = i;
    }
    char *a = corpus_record_name(c, longest), *b = corpus_record_name(c, shortest);
    fprintf(out, "longest      %lld tokens (%s)\n", (long long)c->length[longest], a);
    fprintf(out, "shortest     %lld tokens (%s)\n", (long long)c->length[shortest], b);
    memory_free(a);
    memory_free(b);
}

/* Each letter's share, both cases together, and that of everything else. */
static void print_composition(const struct corpus *c, FILE *out) {
    int64_t count[256] = {0}, other = 0;
    const unsigned char *tokens = c->tokens;
    for (int64_t i = 0; i < c->n_tokens; i++) count[tokens[i]]++;
    fprintf(out, "composition ");
    for (int letter = 'A'; letter <= 'Z'; letter++) {
        int64_t n = count[letter] + count[letter | 32];
        if (n) fprintf(out, " %c %.3f %%", letter, 100.0 * (double)n / (double)c->n_tokens);
    }
    for (int t = 0; t < 256; t++)
        if ((t | 32) < 'a' || (t | 32) > 'z') other += count[t];
    if (other) fprintf(out, " other %.3f %%", 100.0 * (double)other / (double)c->n_tokens);
    fprintf(out, "\n");
}

void corpus_info(const char *path, FILE *out) {
    struct corpus *c = corpus_open(path);
    int64_t n;
    struct corpus_source *s = corpus_read_sources(path, &n);
    char size[32];
    fprintf(out, "%s: a packed corpus\n", path);
    fprintf(out, "format       regulon corpus, version %d\n", CORPUS_VERSION);
    fprintf(out, "alphabet     %s\n", tokens_alphabet_name((enum alphabet_kind)c->alphabet));
    fprintf(out, "records      %lld\n", (long long)c->n_records);
    fprintf(out, "tokens       %lld%s of %d byte%s, largest %u\n", (long long)c->n_tokens,
            c->ready ? " ready ones" : "", c->token_bytes, c->token_bytes > 1 ? "s" : "",
            c->max_token);
    print_records(c, out);
    if (!c->ready) print_composition(c, out);
    for (int64_t i = 0; i < n; i++)
        fprintf(out, "source       %s, %s, xxh128 %s\n", s[i].path,
                text_bytes(size, sizeof size, (double)s[i].bytes), s[i].checksum);
    corpus_free_sources(s, n);
    corpus_close(c);
}
