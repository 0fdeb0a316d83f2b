/* Files and folders as the program uses them. Functions that return 0 on failure leave errno set.
 */
#ifndef REGULON_BASE_FILE_H
#define REGULON_BASE_FILE_H
#include <stddef.h>
#include <stdint.h>

/* The whole file, with a NUL behind it; *bytes may be NULL. NULL on failure, or, with errno EFBIG,
 * when it is larger than `limit` bytes. The caller frees it (memory_free). */
char *file_read(const char *path, size_t limit, size_t *bytes);
int file_exists(const char *path);
int file_is_special(const char *path); /* there is something that is no plain file */
int64_t file_size(const char *path);   /* bytes, -1 if it cannot be seen */

int file_write_all(int fd, const void *data,
                   size_t bytes); /* write(2) until all of it is written */
int file_write_all_at(int fd, const void *data, size_t bytes, int64_t offset);

/* Writes under a temporary name in the same folder, fsyncs, renames: path holds the old text or the
 * new. */
int file_write_atomic(const char *path, const void *data, size_t bytes);
/* The same for a file that lies under its temporary name already: fsync, rename, fsync of the
 * folder. */
int file_publish(const char *temporary, const char *path);
int file_sync(const char *path);             /* fsync of a file or a folder */
void file_remove_folder(const char *folder); /* one that holds only files; what cannot go stays */
int file_make_folders(const char *path);     /* as mkdir -p */

/* `name` if it is absolute, else folder/name. The caller frees it. */
char *file_join(const char *folder, const char *name);
char *file_folder(const char *path);         /* as dirname; the caller frees it */
const char *file_basename(const char *path); /* points into path */
int file_has_suffix(const char *path, const char *suffix);
#endif
