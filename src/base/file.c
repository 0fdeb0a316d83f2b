#include "config.h"
#include "base/file.h"
#include "base/memory.h"
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *file_read(const char *path, size_t limit, size_t *bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    size_t room = 65536, n = 0;
    char *data = memory_alloc(room);
    for (;;) {
        ssize_t got = read(fd, data + n, room - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) break;
        if (got > 0) n += (size_t)got;
        if (got < 0 || n > limit) {
            int reason = got < 0 ? errno : EFBIG;
            memory_free(data);
            close(fd);
            errno = reason;
            return NULL;
        }
        if (n + 1 == room) data = memory_resize(data, room *= 2);
    }
    close(fd);
    data[n] = 0;
    if (bytes) *bytes = n;
    return data;
}

int file_is_special(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && !S_ISREG(s.st_mode);
}

int file_exists(const char *path) {
    return access(path, F_OK) == 0;
}

int64_t file_size(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 ? (int64_t)s.st_size : -1;
}

int file_write_all(int fd, const void *data, size_t bytes) {
    for (const char *p = data; bytes > 0;) {
        ssize_t put = write(fd, p, bytes);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return 0;
        p += put, bytes -= (size_t)put;
    }
    return 1;
}

int file_write_all_at(int fd, const void *data, size_t bytes, int64_t offset) {
    for (const char *p = data; bytes > 0;) {
        ssize_t put = pwrite(fd, p, bytes, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return 0;
        p += put, bytes -= (size_t)put, offset += put;
    }
    return 1;
}

int file_write_atomic(const char *path, const void *data, size_t bytes) {
    char *temporary = memory_format("%s.%ld.tmp", path, (long)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int ok = fd >= 0 && file_write_all_at(fd, data, bytes, 0) && fsync(fd) == 0;
    int reason = errno;
    if (fd >= 0 && close(fd) != 0 && ok) ok = 0, reason = errno;
    if (ok && rename(temporary, path) != 0) ok = 0, reason = errno;
    if (!ok) unlink(temporary);
    memory_free(temporary);
    errno = reason;
    return ok;
}

int file_sync(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    int ok = fsync(fd) == 0 || errno == EINVAL; /* EINVAL: a folder on a file system that cannot */
    int reason = errno;
    close(fd);
    errno = reason;
    return ok;
}

int file_publish(const char *temporary, const char *path) {
    if (!file_sync(temporary) || rename(temporary, path) != 0) return 0;
    char *folder = file_folder(path);
    int ok = file_sync(folder), reason = errno;
    memory_free(folder);
    errno = reason;
    return ok;
}

int file_make_folders(const char *path) {
    if (path[0] == 0) return errno = ENOENT, 0;
    char *p = memory_string(path);
    int ok = 1;
    for (size_t i = 1; ok && p[i]; i++) {
        if (p[i] != '/') continue;
        p[i] = 0;
        ok = mkdir(p, 0777) == 0 || errno == EEXIST;
        p[i] = '/';
    }
    if (ok) ok = mkdir(p, 0777) == 0 || errno == EEXIST;
    memory_free(p);
    struct stat s;
    if (ok && stat(path, &s) == 0 && !S_ISDIR(s.st_mode)) ok = 0, errno = ENOTDIR;
    return ok;
}

char *file_join(const char *folder, const char *name) {
    if (name[0] == '/' || folder[0] == 0) return memory_string(name);
    return memory_format("%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
}

char *file_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return memory_string(".");
    if (slash == path) return memory_string("/");
    return memory_format("%.*s", (int)(slash - path), path);
}

const char *file_basename(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int file_has_suffix(const char *path, const char *suffix) {
    size_t n = strlen(path), m = strlen(suffix);
    return n >= m && strcmp(path + n - m, suffix) == 0;
}

void file_remove_folder(const char *folder) {
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char *path = file_join(folder, e->d_name);
        unlink(path);
        memory_free(path);
    }
    closedir(d);
    rmdir(folder);
}
