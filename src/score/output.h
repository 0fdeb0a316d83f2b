/* The scores of records as text or HDF5, in the order of the input. Rank 0. */
#ifndef REGULON_SCORE_OUTPUT_H
#define REGULON_SCORE_OUTPUT_H
#include "data/corpus.h"
#include "score/request.h"

struct output;

/* The file is begun; die_user (74) when it cannot be. Everything is borrowed until output_close. */
struct output *output_open(const struct request *o, const struct corpus *corpus,
                           const struct strands *strands);

/* Record i, each exactly once and in order: values[length] log-likelihoods in nats, NaN for bases
 * that are not scored. */
void output_record(struct output *out, int64_t i, const float *values);
void output_close(struct output *out); /* the file appears */
#endif
