#include "config.h"
#include "base/h5.h"
#include "base/die.h"
#include "base/memory.h"
#include "base/revision.h"
#include <errno.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The innermost record of the error stack says why, the outermost which call of ours it was. */
struct failure {
    char call[64], reason[256];
    int in_file; /* a file or its driver failed, not the program */
};

static herr_t note_failure(unsigned depth, const H5E_error2_t *e, void *context) {
    struct failure *f = context;
    if (depth == 0) {
        snprintf(f->reason, sizeof f->reason, "%s", e->desc ? e->desc : "no reason given");
        f->in_file = e->maj_num == H5E_IO || e->maj_num == H5E_VFL || e->maj_num == H5E_FILE;
    }
    snprintf(f->call, sizeof f->call, "%s", e->func_name ? e->func_name : "HDF5");
    return 0;
}

static herr_t fail(hid_t stack, void *unused) {
    (void)unused;
    struct failure f = {"HDF5", "no reason given", 0};
    H5Ewalk2(stack, H5E_WALK_UPWARD, note_failure, &f);
    if (f.in_file) die_io("%s: %s", f.call, f.reason);
    die("%s: %s", f.call, f.reason);
}

static struct failure tolerated; /* the first one; call "": none. The one thread's in HDF5. */

static herr_t tolerate(hid_t stack, void *unused) {
    (void)unused;
    if (tolerated.call[0]) return 0;
    H5Ewalk2(stack, H5E_WALK_UPWARD, note_failure, &tolerated);
    return 0;
}

void h5_tolerate(void) {
    memset(&tolerated, 0, sizeof tolerated);
    H5Eset_auto2(H5E_DEFAULT, tolerate, NULL);
}

const char *h5_tolerate_end(void) {
    H5Eset_auto2(H5E_DEFAULT, fail, NULL);
    return tolerated.call[0] ? tolerated.reason : NULL;
}

void h5_open_library(void) {
#ifndef HAVE_H5PSET_FILE_LOCKING
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
#endif
    /* 1.10 crashes in its exit handler after a failed close, so it gets none; this comes before
     * H5open. */
    H5dont_atexit();
    H5open();
    H5Eset_auto2(H5E_DEFAULT, fail, NULL);
}

hid_t h5_file_access(void) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
#ifdef HAVE_H5PSET_FILE_LOCKING
    H5Pset_file_locking(access, /*use_file_locking=*/0, /*ignore_when_disabled=*/1);
#endif
    H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST);
    return access;
}

hid_t h5_open_user(const char *path) {
    if (access(path, R_OK) != 0) die_user(EXIT_DATA, "%s: %s", path, strerror(errno));
    hid_t list = h5_file_access(), file;
    htri_t known;
    H5E_BEGIN_TRY {
        known = H5Fis_hdf5(path);
        file = known > 0 ? H5Fopen(path, H5F_ACC_RDONLY, list) : H5I_INVALID_HID;
    }
    H5E_END_TRY
    H5Pclose(list);
    if (known <= 0) die_user(EXIT_DATA, "%s: not an HDF5 file", path);
    if (file < 0) die_user(EXIT_DATA, "%s: an HDF5 file, but damaged or cut short", path);
    return file;
}

static void put(hid_t object, const char *name, hid_t file_type, hid_t memory_type,
                const void *value) {
    if (H5Aexists(object, name) > 0) H5Adelete(object, name);
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, memory_type, value);
    H5Aclose(attribute);
    H5Sclose(space);
}

static hid_t text_type(void) {
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

hid_t h5_fixed_text(size_t bytes) {
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, bytes);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

void h5_string(hid_t object, const char *name, const char *value) {
    hid_t type = text_type();
    put(object, name, type, type, &value);
    H5Tclose(type);
}

void h5_int64(hid_t object, const char *name, int64_t value) {
    put(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

void h5_real(hid_t object, const char *name, double value) {
    put(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

void h5_describe(hid_t dataset, const char *units, const char *long_name) {
    h5_string(dataset, "units", units);
    h5_string(dataset, "long_name", long_name);
}

/* The attribute if it is a scalar (h5py may write [1]) of that class, else H5I_INVALID_HID. */
static hid_t find(hid_t object, const char *name, H5T_class_t class) {
    if (H5Aexists(object, name) <= 0) return H5I_INVALID_HID;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    int fits = H5Tget_class(type) == class && H5Sget_simple_extent_npoints(space) == 1;
    H5Sclose(space);
    H5Tclose(type);
    if (fits) return attribute;
    H5Aclose(attribute);
    return H5I_INVALID_HID;
}

char *h5_get_string(hid_t object, const char *name) {
    hid_t attribute = find(object, name, H5T_STRING);
    if (attribute < 0) return NULL;
    hid_t type = H5Aget_type(attribute);
    char *text;
    if (H5Tis_variable_str(type) > 0) {
        char *value = NULL;
        hid_t memory = H5Tcopy(type);
        H5Aread(attribute, memory, &value);
        text = memory_string(value ? value : "");
        H5Tclose(memory);
        if (value) H5free_memory(value);
    } else {
        text = memory_alloc(H5Tget_size(type) + 1);
        H5Aread(attribute, type, text);
    }
    H5Tclose(type);
    H5Aclose(attribute);
    return text;
}

int h5_get_int64(hid_t object, const char *name, int64_t *value) {
    hid_t attribute = find(object, name, H5T_INTEGER);
    if (attribute < 0) return 0;
    H5Aread(attribute, H5T_NATIVE_INT64, value);
    H5Aclose(attribute);
    return 1;
}

void h5_format(hid_t file, const char *format, int version) {
    h5_string(file, "format", format);
    h5_int64(file, "format_version", version);
}

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

void h5_write_code(hid_t file) {
    char hdf5[32], mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    unsigned major, minor, release;
    int n;
    H5get_libversion(&major, &minor, &release);
    snprintf(hdf5, sizeof hdf5, "%u.%u.%u", major, minor, release);
    MPI_Get_library_version(mpi, &n);
    mpi[strcspn(mpi, "\n")] = 0; /* MPICH goes on with its configure line */
    for (char *tab = mpi; (tab = strchr(tab, '\t'));) *tab = ' ';
    hid_t code = H5Gcreate2(file, "code", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    h5_string(code, "version", PACKAGE_VERSION);
    h5_string(code, "revision", revision_name());
    h5_string(code, "configure_line", revision_configure_line());
    h5_string(code, "compiler", COMPILER);
    h5_string(code, "hdf5", hdf5);
    h5_string(code, "mpi", mpi);
    H5Gclose(code);
}

void h5_write_run(hid_t file) {
    char host[256] = "", start[32];
    time_t now = time(NULL);
    struct tm utc;
    gethostname(host, sizeof host - 1);
    strftime(start, sizeof start, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    hid_t run = H5Gcreate2(file, "/run", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    h5_string(run, "start", start);
    h5_string(run, "host", host);
    H5Gclose(run);
}

char *h5_read_format(const char *path) {
    hid_t list = h5_file_access(), file = H5I_INVALID_HID;
    H5E_BEGIN_TRY {
        if (H5Fis_hdf5(path) > 0) file = H5Fopen(path, H5F_ACC_RDONLY, list);
    }
    H5E_END_TRY
    H5Pclose(list);
    if (file < 0) return NULL;
    char *format = h5_get_string(file, "format");
    H5Fclose(file);
    return format ? format : memory_string("");
}

int h5_check_format(hid_t file, const char *path, const char *format, int newest) {
    char *found = h5_get_string(file, "format");
    int64_t version;
    if (!found) die_user(EXIT_DATA, "%s: no '%s' file: it has no attribute 'format'", path, format);
    if (strcmp(found, format) != 0)
        die_user(EXIT_DATA, "%s: a '%s' file where '%s' is wanted", path, found, format);
    if (!h5_get_int64(file, "format_version", &version) || version < 1)
        die_user(EXIT_DATA, "%s: a '%s' file without a format_version of 1 or more", path, format);
    if (version > newest)
        die_user(EXIT_DATA, "%s: format_version %lld of '%s' is newer than this program reads (%d)",
                 path, (long long)version, format, newest);
    memory_free(found);
    return (int)version;
}
