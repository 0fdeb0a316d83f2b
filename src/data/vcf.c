#include "config.h"
#include "data/vcf.h"
#include "base/die.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/entries.h"
#include "data/reader.h"
#include "data/tokens.h"
#include <stdlib.h>
#include <string.h>

enum { CHROM, POS, ID, REF, ALT, N_COLUMNS };

struct contig {
    char *name;
    int64_t record;
};

struct parser {
    const char *path;
    const struct corpus *corpus;
    struct contig *contigs; /* [n_records], by name */
    int64_t line;
    struct variant *list;
    int64_t n, room;
    char *text;
    size_t n_text, text_room;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct contig *)a)->name, ((const struct contig *)b)->name);
}

static struct contig *list_contigs(const struct corpus *c) {
    struct contig *list = memory_alloc_array((size_t)c->n_records, sizeof *list);
    for (int64_t r = 0; r < c->n_records; r++)
        list[r] = (struct contig){corpus_record_name(c, r), r};
    qsort(list, (size_t)c->n_records, sizeof *list, by_name);
    return list;
}

/* Ends the program at this line: `what`, a constant, with the word in its place. */
static void refuse(const struct parser *p, const char *what, const char *word) {
    char *shown = entries_quote(word), *problem = memory_format(what, shown);
    die_user(EXIT_DATA, "%s:%lld: %s", p->path, (long long)p->line, problem);
}

static int64_t find_record(const struct parser *p, char *name) {
    const struct contig key = {name, 0}, *end = p->contigs + p->corpus->n_records,
                        *found = bsearch(&key, p->contigs, (size_t)p->corpus->n_records, sizeof key,
                                         by_name);
    if (!found) refuse(p, "the sequences have no contig '%s'", name);
    if ((found > p->contigs && by_name(found - 1, &key) == 0) ||
        (found + 1 < end && by_name(found + 1, &key) == 0))
        refuse(p, "the sequences have several contigs '%s'", name);
    return found->record;
}

static int upper(int x) {
    return x >= 'a' && x <= 'z' ? x - 'a' + 'A' : x;
}

/* 2: bases of the alphabet; 1: letters; 0: something else, or nothing. */
static int bases(const struct parser *p, const char *s) {
    const char *letters = tokens_letters((enum alphabet_kind)p->corpus->alphabet);
    int kind = *s ? 2 : 0;
    for (; *s && kind; s++) {
        int x = upper((unsigned char)*s);
        if (x < 'A' || x > 'Z')
            kind = 0;
        else if (letters[0] && !strchr(letters, x))
            kind = 1;
    }
    return kind;
}

static int64_t keep(struct parser *p, const char *s) {
    size_t n = strlen(s) + 1, at = p->n_text;
    if (at + n > p->text_room)
        p->text = memory_resize(p->text, p->text_room = 2 * p->text_room + n + 4096);
    memcpy(p->text + at, s, n);
    p->n_text += n;
    return (int64_t)at;
}

/* What VCF writes for a letter of a sequence: of a degenerate one the first base that it may be
 * (section 1.6.1, REF), or N. */
static int stands_for(int ref, int letter) {
    static const char degenerate[] = "RYSWKMBDHVN", first[] = "ACCAGACAAAN";
    const char *found = letter ? strchr(degenerate, letter) : NULL;
    return ref == letter || (found && (ref == first[found - degenerate] || ref == 'N'));
}

/* REF must be what lies there; returns whether all of it are bases. */
static int check_ref(const struct parser *p, const struct variant *v, const char *name,
                     const char *ref) {
    const struct corpus *c = p->corpus;
    uint32_t *there = memory_alloc_array((size_t)v->n_ref, sizeof *there);
    char *seen = memory_alloc((size_t)v->n_ref + 1);
    int differs = 0;
    corpus_read(c, v->record, v->place, v->n_ref, there);
    for (int64_t i = 0; i < v->n_ref; i++) {
        seen[i] = (char)there[i];
        differs |= !stands_for(upper((unsigned char)ref[i]), upper((int)there[i]));
    }
    if (differs) {
        char *shown = entries_quote(ref), *here = entries_quote(seen), *where = entries_quote(name);
        die_user(EXIT_DATA, "%s:%lld: REF is '%s', but the sequence has '%s' at %s:%lld", p->path,
                 (long long)p->line, shown, here, where, (long long)v->place + 1);
    }
    int plain = bases(p, seen) == 2;
    memory_free(there);
    memory_free(seen);
    return plain;
}

static int is_symbolic(const char *alt) {
    size_t n = strlen(alt);
    return alt[0] == '<' || strcmp(alt, "*") == 0 || strchr(alt, '[') || strchr(alt, ']') ||
           (n > 1 && (alt[0] == '.' || alt[n - 1] == '.'));
}

static void add_allele(struct parser *p, struct variant v, int ref_bases, const char *alt) {
    int alt_bases = bases(p, alt);
    v.n_alt = (int64_t)strlen(alt);
    v.alt = keep(p, alt);
    v.kind = strcmp(alt, ".") == 0              ? VARIANT_NONE
             : is_symbolic(alt)                 ? VARIANT_SYMBOLIC
             : ref_bases == 2 && alt_bases == 2 ? VARIANT_BASES
                                                : VARIANT_DEGENERATE;
    if (v.kind == VARIANT_DEGENERATE && !alt_bases)
        refuse(p, "ALT '%s' is neither bases nor a symbolic allele", alt);
    if (p->n == p->room) {
        p->room = 2 * p->room + 64;
        p->list = memory_resize(p->list, (size_t)p->room * sizeof *p->list);
    }
    p->list[p->n++] = v;
}

/* A line of data, which is changed. */
static void add_line(struct parser *p, char *line) {
    char *column[N_COLUMNS];
    int64_t position;
    for (int k = 0; k < N_COLUMNS; k++) {
        column[k] = line;
        line = line ? strchr(line, '\t') : NULL;
        if (line) *line++ = 0;
    }
    if (!column[ALT]) refuse(p, "fewer than five columns with tabs between them: '%s'", column[0]);
    int ref_bases = bases(p, column[REF]);
    if (!text_to_int(column[POS], &position))
        refuse(p, "POS '%s' is not a whole number", column[POS]);
    if (!ref_bases) refuse(p, "REF '%s' is not bases", column[REF]);
    struct variant v = {.record = find_record(p, column[CHROM]),
                        .n_ref = (int64_t)strlen(column[REF])};
    if (position < 1 || position > p->corpus->length[v.record] - v.n_ref + 1)
        refuse(p, "the position lies outside contig '%s'", column[CHROM]);
    v.place = position - 1;
    if (!check_ref(p, &v, column[CHROM], column[REF])) ref_bases = 1;
    v.id = keep(p, column[ID]);
    v.ref = keep(p, column[REF]);
    for (char *alt = column[ALT], *next; alt; alt = next) {
        next = strchr(alt, ',');
        if (next) *next++ = 0;
        add_allele(p, v, ref_bases, alt);
    }
}

static void parse(struct parser *p, struct reader *r) {
    struct piece s;
    int header = 0;
    for (int first = 1; reader_line(r, &s); first = 0) {
        p->line = s.line;
        char *line = memory_format("%.*s", (int)s.n, (const char *)s.text);
        if (first && strncmp(line, "##fileformat=VCF", 16) != 0)
            refuse(p, "'%s' is not the first line of a VCF, ##fileformat=VCFv4.x", line);
        if (strncmp(line, "#CHROM\t", 7) == 0)
            header = 1;
        else if (line[0] && line[0] != '#' && !header)
            refuse(p, "'%s' comes before the line #CHROM", line);
        else if (line[0] && line[0] != '#')
            add_line(p, line);
        memory_free(line);
    }
    if (reader_error(r)) die_user(reader_error_code(r), "%s", reader_error(r));
    if (!header) die_user(EXIT_DATA, "%s: not a VCF: it has no line #CHROM", p->path);
}

struct vcf *vcf_read(const char *path, const struct corpus *c, const struct grid *g) {
    struct parser p = {.path = path, .corpus = c};
    if (g->rank == 0) {
        struct reader *r = reader_open(path, READER_TEXT);
        p.contigs = list_contigs(c);
        parse(&p, r);
        reader_close(r);
        for (int64_t i = 0; i < c->n_records; i++) memory_free(p.contigs[i].name);
        memory_free(p.contigs);
    }
    user_agree();
    int64_t sizes[2] = {p.n, (int64_t)p.n_text};
    agree_bytes(g, sizes, sizeof sizes);
    struct vcf *v = memory_alloc(sizeof *v);
    v->n = sizes[0];
    v->list = g->rank == 0 ? p.list : memory_alloc_array((size_t)v->n, sizeof *v->list);
    v->text = g->rank == 0 ? p.text : memory_alloc((size_t)sizes[1]);
    agree_bytes(g, v->list, v->n * (int64_t)sizeof *v->list);
    agree_bytes(g, v->text, sizes[1]);
    return v;
}

void vcf_free(struct vcf *v) {
    memory_free(v->list);
    memory_free(v->text);
    memory_free(v);
}
