/* The one thread of a process that is in HDF5 after the start of a run: HDF5 as packaged is not
 * thread-safe, and writing must not hold up the step. It makes no MPI call. Work comes in jobs; a
 * long job (a checkpoint) is done a slice at a time, so that short ones (a row of metrics) do not
 * wait behind it. */
#ifndef REGULON_BASE_IO_H
#define REGULON_BASE_IO_H

/* A job: does one slice of its work and returns 1 if there is more. Jobs take turns, in the order
 * they were posted; one whose first slice is its last is done in that order. `context` is the job's
 * to free. */
typedef int io_job(void *context);

void io_open(void); /* starts the thread; before it, and after io_close, jobs are done at once by
                       the caller */
void io_post(io_job *job, void *context);
void io_wait(void);  /* until every job posted so far has ended */
void io_close(void); /* waits, then ends the thread */
#endif
