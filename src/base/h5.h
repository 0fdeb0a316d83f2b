/* What every HDF5 file of the program shares: how it is opened, its attributes, its /code, its
 * version check. HDF5 as packaged is not thread-safe: at any time one thread of a process may be in
 * these functions. HDF5's own errors end the run through one handler, so that calls stand bare. */
#ifndef REGULON_BASE_H5_H
#define REGULON_BASE_H5_H
#include <hdf5.h>
#include <stdint.h>

/* Starts HDF5 and installs the handler: a failed call ends all ranks with the function that failed
 * and the innermost reason, 74 for files and input/output, else 70. Once, in main, before any other
 * HDF5 call and before MPI_Init: a parallel HDF5 that finds MPI running cleans up in MPI_Finalize,
 * and crashes there after a failed close. So HDF5 does not clean up: whoever opens, closes. */
void h5_open_library(void);

/* From here on failed calls do not end the run but return what HDF5 returns, and later calls on
 * what did not come about fail as well; until h5_tolerate_end, which gives the innermost reason of
 * the first failure, or NULL when there was none. Borrowed until the next h5_tolerate. */
void h5_tolerate(void);
const char *h5_tolerate_end(void);

/* A file access property list: no locking (readers may look at a file that is being written),
 * oldest file format. The caller closes it (H5Pclose). */
hid_t h5_file_access(void);

/* Opens a file that the user named, read-only; die_user (65) when it is missing, not HDF5 or cut
 * short. The caller closes it (H5Fclose). On one rank. */
hid_t h5_open_user(const char *path);

/* Attributes: a scalar on `object` (file, group or dataset), created or replaced. Strings are UTF-8
 * of variable length, numbers little-endian 64 bit. */
void h5_string(hid_t object, const char *name, const char *value);
void h5_int64(hid_t object, const char *name, int64_t value);
void h5_real(hid_t object, const char *name, double value);

/* The two attributes that every dataset has; units "1" where there are none. */
void h5_describe(hid_t dataset, const char *units, const char *long_name);

/* Reading: the string (of variable or fixed length; the caller frees it), or NULL when there is no
 * such scalar attribute; the whole number, 1 on success. */
char *h5_get_string(hid_t object, const char *name);
int h5_get_int64(hid_t object, const char *name, int64_t *value);

/* Root attributes `format` ("regulon metrics") and `format_version`. */
void h5_format(hid_t file, const char *format, int version);

/* Group /code: version, revision, configure_line, compiler, hdf5, mpi. */
void h5_write_code(hid_t file);
/* UTF-8 of `bytes` bytes, those unused NUL; the caller closes it. */
hid_t h5_fixed_text(size_t bytes);

/* Group /run: start (now, UTC) and host. */
void h5_write_run(hid_t file);

/* The `format` of a file, for telling files apart: "" when it is HDF5 without one, NULL when it is
 * not HDF5 or cannot be read. The caller frees it. */
char *h5_read_format(const char *path);

/* The version of an open file of ours: 1 to `newest`. die_user (65), naming `path`, when its format
 * is another or its version is newer than this program reads. On one rank. */
int h5_check_format(hid_t file, const char *path, const char *format, int newest);
#endif
