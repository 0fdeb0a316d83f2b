/* What every HDF5 file of the program has in common: how the library is opened, attributes, format
 * numbers. */
#ifndef REGULON_BASE_H5_H
#define REGULON_BASE_H5_H
#include <hdf5.h>
#include <stdint.h>

/* Once per process, before any other HDF5 call: no clean-up at exit (HDF5 1.10 crashes there after
 * a failed close), no file locking, and errors of calls that stand bare end the program (exit 74).
 */
void h5_open_library(void);

/* A file access list for H5Fcreate and H5Fopen, locking off; the caller closes it. */
hid_t h5_access(void);

void h5_string(hid_t object, const char *name,
               const char *value); /* variable-length UTF-8 scalar */
void h5_int64(hid_t object, const char *name, int64_t value);

/* Every dataset says what it holds, as CF has it; units "1" if none. */
void h5_describe(hid_t dataset, const char *units, const char *long_name);

void h5_format(hid_t file, const char *format, int version); /* on the root */
void h5_write_code(
    hid_t file); /* group /code: version, revision, configure_line, compiler, hdf5, mpi */

/* The format version of an open file. die_user (65) if it is not of this format, or newer than
 * `newest`. */
int h5_check_format(hid_t file, const char *path, const char *format, int newest);
#endif
