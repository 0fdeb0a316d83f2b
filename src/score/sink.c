#include "config.h"
#include "score/sink.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static void remove_temporary(void *sink) {
    unlink(((struct sink *)sink)->temporary);
}

void sink_open(struct sink *s, const char *path, int text) {
    *s = (struct sink){.out = stdout, .path = memory_string(path)};
    if (!path) return;
    if (file_is_special(path)) die_user(EXIT_USAGE, "%s: not a plain file", path);
    s->temporary = memory_format("%s.%ld.tmp", path, (long)getpid());
    s->out = fopen(s->temporary, "w");
    if (!s->out) die_user(EXIT_IO, "%s: cannot be written: %s", path, strerror(errno));
    before_leave(remove_temporary, s);
    if (text) return;
    fclose(s->out);
    s->out = NULL;
}

void sink_close(struct sink *s) {
    int ok = !s->out || (fflush(s->out) == 0 && !ferror(s->out)), reason = errno;
    if (s->out && s->path && fclose(s->out) != 0 && ok) ok = 0, reason = errno;
    if (ok && s->path && !file_publish(s->temporary, s->path)) ok = 0, reason = errno;
    if (s->path) before_leave(NULL, NULL);
    if (!ok && s->path) unlink(s->temporary);
    if (!ok) die_io("cannot write %s: %s", s->path ? s->path : "stdout", strerror(reason));
    memory_free(s->temporary);
    memory_free(s->path);
}

void sink_json(struct sink *s, const char *name) {
    uint32_t code;
    fputc('"', s->out);
    for (int n; *name; name += n) {
        unsigned char c = (unsigned char)*name;
        n = text_utf8(name, &code);
        if (n == 0 || c < 32 || c == 127)
            fprintf(s->out, "\\u%04x", c), n = 1;
        else
            fprintf(s->out, "%s%.*s", c == '"' || c == '\\' ? "\\" : "", n, name);
    }
    fputc('"', s->out);
}

void sink_tsv(struct sink *s, const char *name) {
    for (; *name; name++) fputc(strchr("\t\n\r", *name) ? ' ' : *name, s->out);
}

void sink_real(struct sink *s, double x, const char *none) {
    if (isnan(x))
        fputs(none, s->out);
    else
        fprintf(s->out, "%.6f", x);
}
