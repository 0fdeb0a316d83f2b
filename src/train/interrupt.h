/* What ends a start of a run before its last step. */
#ifndef REGULON_TRAIN_INTERRUPT_H
#define REGULON_TRAIN_INTERRUPT_H
#include "train/run.h"

/* 1 when this rank knows of a reason to save and leave: TERM or USR1 on any rank; on rank 0 also a
 * file `stop` in the run folder, or train.max_hours less train.reserve_minutes. The ranks agree on
 * it elsewhere: in the reduction of a step, between the micro-batches of a validation, after a
 * save. */
int interrupt_asked(const struct run *r);
#endif
