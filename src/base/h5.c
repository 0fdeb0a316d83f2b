#include "config.h"
#include "base/h5.h"
#include "base/die.h"
#include "base/memory.h"
#include "base/revision.h"
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* The innermost entry of the error stack is the one that says what the system refused. */
static herr_t innermost(unsigned n, const H5E_error2_t *e, void *text) {
    (void)n;
    memory_free(*(char **)text);
    *(char **)text = memory_format("%s: %s", e->func_name, e->desc ? e->desc : "no description");
    return 0;
}

static herr_t die_of_hdf5(hid_t stack, void *unused) {
    (void)unused;
    char *text = NULL;
    H5Ewalk2(stack, H5E_WALK_DOWNWARD, innermost, &text);
    die_io("HDF5: %s", text ? text : "failed without a word");
}

void h5_open_library(void) {
    H5dont_atexit();
#ifndef HAVE_H5PSET_FILE_LOCKING
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
#endif
    H5open();
    H5Eset_auto2(H5E_DEFAULT, die_of_hdf5, NULL);
}

hid_t h5_access(void) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
#ifdef HAVE_H5PSET_FILE_LOCKING
    H5Pset_file_locking(access, /*use=*/0, /*ignore_when_disabled=*/1);
#endif
    return access;
}

static hid_t string_type(void) {
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

void h5_string(hid_t object, const char *name, const char *value) {
    hid_t type = string_type(), space = H5Screate(H5S_SCALAR);
    hid_t a = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, type, &value);
    H5Aclose(a);
    H5Sclose(space);
    H5Tclose(type);
}

void h5_int64(hid_t object, const char *name, int64_t value) {
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t a = H5Acreate2(object, name, H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, H5T_NATIVE_INT64, &value);
    H5Aclose(a);
    H5Sclose(space);
}

void h5_describe(hid_t dataset, const char *units, const char *long_name) {
    h5_string(dataset, "units", units);
    h5_string(dataset, "long_name", long_name);
}

void h5_format(hid_t file, const char *format, int version) {
    h5_string(file, "format", format);
    h5_int64(file, "format_version", version);
}

void h5_write_code(hid_t file) {
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    unsigned v[3];
    MPI_Get_library_version(mpi, &n);
    mpi[strcspn(mpi, "\r\n")] =
        0; /* the first line names it; MPICH goes on with its configure options */
    H5get_libversion(&v[0], &v[1], &v[2]);
    char *hdf5 = memory_format("%u.%u.%u", v[0], v[1], v[2]);
    hid_t code = H5Gcreate2(file, "/code", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    h5_string(code, "version", PACKAGE_VERSION);
    h5_string(code, "revision", revision_name());
    h5_string(code, "configure_line", revision_configure_line());
    h5_string(code, "compiler", __VERSION__);
    h5_string(code, "hdf5", hdf5);
    h5_string(code, "mpi", mpi);
    H5Gclose(code);
    memory_free(hdf5);
}

/* The string attribute `format` of the root, or NULL. */
static char *read_format(hid_t file) {
    char *value = NULL, *copy = NULL;
    hid_t a = H5Aopen(file, "format", H5P_DEFAULT), type = a < 0 ? -1 : H5Aget_type(a);
    hid_t space = a < 0 ? -1 : H5Aget_space(a), memory_type = string_type();
    if (type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) > 0 &&
        H5Sget_simple_extent_type(space) == H5S_SCALAR && H5Aread(a, memory_type, &value) >= 0 &&
        value) {
        copy = memory_string(value);
        H5Dvlen_reclaim(memory_type, space, H5P_DEFAULT, &value);
    }
    H5Tclose(memory_type);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (a >= 0) H5Aclose(a);
    return copy;
}

int h5_check_format(hid_t file, const char *path, const char *format, int newest) {
    int64_t version = 0;
    char *found = NULL;
    H5E_BEGIN_TRY {
        found = read_format(file);
        hid_t a = H5Aopen(file, "format_version", H5P_DEFAULT);
        hid_t space = a < 0 ? -1 : H5Aget_space(a);
        if (a < 0 || H5Sget_simple_extent_npoints(space) != 1 ||
            H5Aread(a, H5T_NATIVE_INT64, &version) < 0)
            version = 0;
        if (space >= 0) H5Sclose(space);
        if (a >= 0) H5Aclose(a);
    }
    H5E_END_TRY
    if (found == NULL) die_user(EXIT_DATA, "%s: an HDF5 file, but not a %s", path, format);
    if (strcmp(found, format) != 0)
        die_user(EXIT_DATA, "%s: a '%s', not a %s", path, found, format);
    if (version < 1) die_user(EXIT_DATA, "%s: damaged: no usable format_version", path);
    if (version > newest)
        die_user(EXIT_DATA, "%s: its format version is %lld, this program reads up to %d", path,
                 (long long)version, newest);
    memory_free(found);
    return (int)version;
}
