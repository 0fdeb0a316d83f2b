/* Variants of a VCF file (4.x, plain, gzip or bgzip) on the records of a corpus: one an ALT allele,
 * in the order of the file. */
#ifndef REGULON_DATA_VCF_H
#define REGULON_DATA_VCF_H
#include "data/corpus.h"
#include "grid/grid.h"

enum variant_kind {
    VARIANT_BASES,      /* REF and ALT are bases that may be targets */
    VARIANT_NONE,       /* ALT is '.' */
    VARIANT_SYMBOLIC,   /* ALT is <NAME>, '*' or a breakend */
    VARIANT_DEGENERATE, /* REF or ALT has other letters than the alphabet's */
};

struct variant {
    int64_t record, place; /* of the first base of REF, from 0 */
    int64_t n_ref, n_alt;  /* bases; n_alt of VARIANT_BASES and VARIANT_DEGENERATE */
    int64_t id, ref, alt;  /* strings in struct vcf's text */
    int64_t kind;          /* enum variant_kind */
};

struct vcf {
    int64_t n;
    struct variant *list; /* [n] */
    char *text;
};

/* Reads it on rank 0 and gives it to all. die_user (65) with file and line for what is no VCF, a
 * contig that the corpus does not have or has twice, a place beyond its end, and a REF that is
 * not what the corpus has there, in either case. Collective over world; vcf_free frees it. */
struct vcf *vcf_read(const char *path, const struct corpus *c, const struct grid *g);
void vcf_free(struct vcf *v);
#endif
