/* HDF5 lays the file out and closes it; the tokens are then written at their place by plain writes.
 */
#include "config.h"
#include "data/corpus.h"
#include "base/h5.h"
#include "base/memory.h"
#include "data/tokens.h"

enum { ALIGN_FROM = 64 << 10, ALIGNMENT = 4096 }; /* bytes: large datasets begin on a page */

static void write_array(hid_t object, const char *name, hid_t type, int64_t n, const void *values) {
    hsize_t size = (hsize_t)n;
    hid_t space = H5Screate_simple(1, &size, NULL);
    hid_t a = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, type, values);
    H5Aclose(a);
    H5Sclose(space);
}

static void write_sources(hid_t file, const struct corpus_contents *c) {
    size_t n = (size_t)c->n_sources;
    const char **text = memory_alloc_array(n, sizeof *text);
    int64_t *number = memory_alloc_array(n, sizeof *number);
    hid_t string = H5Tcopy(H5T_C_S1);
    H5Tset_size(string, H5T_VARIABLE);
    H5Tset_cset(string, H5T_CSET_UTF8);
    for (size_t i = 0; i < n; i++) text[i] = c->sources[i].path;
    write_array(file, "sources", string, c->n_sources, text);
    for (size_t i = 0; i < n; i++) text[i] = c->sources[i].checksum;
    write_array(file, "sources_xxh128", string, c->n_sources, text);
    for (size_t i = 0; i < n; i++) number[i] = c->sources[i].bytes;
    write_array(file, "sources_bytes", H5T_NATIVE_INT64, c->n_sources, number);
    for (size_t i = 0; i < n; i++) number[i] = c->sources[i].modified;
    write_array(file, "sources_modified_ns", H5T_NATIVE_INT64, c->n_sources, number);
    H5Tclose(string);
    memory_free(number);
    memory_free(text);
}

/* A contiguous dataset whose place in the file is known at once; values NULL: not written. Returns
 * the place. */
static int64_t write_dataset(hid_t file, const char *name, hid_t type, int64_t n,
                             const void *values, const char *units, const char *long_name) {
    hsize_t size = (hsize_t)n;
    hid_t space = H5Screate_simple(1, &size, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(how, H5D_CONTIGUOUS);
    H5Pset_alloc_time(how, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
    hid_t d = H5Dcreate2(file, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
    h5_describe(d, units, long_name);
    if (values) H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    int64_t place = (int64_t)H5Dget_offset(d);
    H5Dclose(d);
    H5Pclose(how);
    H5Sclose(space);
    return place;
}

int64_t corpus_create(const char *path, const struct corpus_contents *c) {
    hid_t access = h5_file_access(), name = h5_fixed_text((size_t)c->name_bytes);
    H5Pset_alignment(access, ALIGN_FROM, ALIGNMENT);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    h5_format(file, "regulon corpus", CORPUS_VERSION);
    h5_string(file, "tool_version", PACKAGE_STRING);
    h5_string(file, "alphabet", tokens_alphabet_name((enum alphabet_kind)c->alphabet));
    h5_int64(file, "eos", c->eos);
    h5_int64(file, "ready_tokens", c->ready);
    h5_int64(file, "max_token", c->max_token);
    if (c->shuffled) h5_int64(file, "shuffle_seed", (int64_t)c->seed);
    write_sources(file, c);
    h5_write_code(file);
    h5_write_run(file);

    H5Gclose(H5Gcreate2(file, "/records", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    write_dataset(file, "/records/name", name, c->n_records, c->names, "1", "name of the record");
    write_dataset(file, "/records/offset", H5T_NATIVE_INT64, c->n_records, c->offset, "1",
                  "first token of the record in /tokens");
    write_dataset(file, "/records/length", H5T_NATIVE_INT64, c->n_records, c->length, "1",
                  "tokens of the record");
    write_dataset(file, "/records/source", H5T_NATIVE_UINT32, c->n_records, c->source, "1",
                  "file the record comes from, as an index into the attribute sources");
    hid_t type = c->token_bytes == 1   ? H5T_NATIVE_UINT8
                 : c->token_bytes == 2 ? H5T_NATIVE_UINT16
                                       : H5T_NATIVE_UINT32;
    int64_t place =
        write_dataset(file, "/tokens", type, c->n_tokens, NULL, "1",
                      c->token_bytes == 1 ? "token ids; for text, its bytes" : "token ids");
    H5Tclose(name);
    H5Fclose(file);
    return place;
}
