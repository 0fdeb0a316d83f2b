/* What a run asks of its folder, tried before it starts: every rank must be able to write there,
 * all ranks must see the same folder, and the checkpoints must fit. */
#ifndef REGULON_CHECKPOINT_PROBE_H
#define REGULON_CHECKPOINT_PROBE_H
#include "config/config.h"
#include "grid/grid.h"

/* Writes a small file of this rank, regulon-probe-RANK, into the folder as a checkpoint is written:
 * under a temporary name, fsync, rename, fsync of the folder. NULL, or what failed: call, path,
 * errno's text; the caller frees it. The file stays until probe_remove. Local. */
char *probe_write(const char *folder, int rank);
char *probe_name(const char *folder, int rank); /* its path; the caller frees it */
void probe_remove(const char *folder, int rank);

/* After all ranks' probe_write: NULL, or, on a rank that does not see another's file, which; the
 * caller frees it. Waits up to 5 s for a slow file server. Local. */
char *probe_see(const char *folder, int n_ranks);

/* Bytes free for this user where the path lies; -1: not known. */
double probe_free_bytes(const char *path);

/* Bytes of a checkpoint of this many parameters in `tensors` tensors, saved by n_ranks ranks: 12 a
 * parameter (FP32 master and two moments), and HDF5's own: a file a rank, index.h5 and checksums.
 */
double probe_checkpoint_bytes(double parameters, int tensors, int n_ranks);

/* Checkpoints in the folder at one time, at most, over a run of `steps` steps by checkpoint.*:
 * those kept and the one being written. */
int64_t probe_most_checkpoints(const struct config *c);

/* Do they fit? `there` checkpoints lie there already and go as new ones come. NULL: yes. Otherwise
 * what to say, freed by the caller: *refuse 1 when two checkpoints do not fit, the older of which
 * must stay until the newer is whole; 0 when as many as are to be kept do not. */
char *probe_space(double free_bytes, double checkpoint_bytes, int64_t most, int64_t there,
                  int *refuse);

/* All of it for a run: refuses with 74 (a rank cannot write, naming rank, host, path and errno's
 * text; no room for two checkpoints) or 78 (not the same folder on all ranks); warns where room for
 * what is kept is short. Space is looked at only when checkpoint.save_every_n_steps is set; the
 * checkpoints there count when the run `resumes` from them, if there are any. Unfinished ones of
 * earlier starts are removed first; nothing of the probe stays. Collective over world. */
void probe_run(const struct grid *g, const struct config *c, int resumes);
#endif
