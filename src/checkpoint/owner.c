#include "config.h"
#include "checkpoint/owner.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Start of a process, clock ticks since boot, and its state (proc(5), fields 22 and 3 of stat); -1
 * when there is no such process or it cannot be seen. */
static int64_t process_start(int64_t pid, char *state) {
    char *path = memory_format("/proc/%lld/stat", (long long)pid),
         *text = file_read(path, 4096, NULL);
    /* the name, field 2, may hold anything; the last ')' ends it */
    const char *rest = text ? strrchr(text, ')') : NULL;
    unsigned long long start = 0;
    int found = rest && sscanf(rest + 1,
                               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                               "%*d %*d %*d %llu",
                               state, &start) == 2;
    memory_free(text);
    memory_free(path);
    return found ? (int64_t)start : -1;
}

/* A host's name does not tell machines apart (all may be "localhost"), nor whether one was booted
 * since; and in a container the pids are others. */
static void describe_machine(char *machine, size_t size) {
    char namespace[64];
    char *boot = file_read("/proc/sys/kernel/random/boot_id", 256, NULL);
    ssize_t n = readlink("/proc/self/ns/pid", namespace, sizeof namespace - 1);
    if (boot && n > 0) {
        namespace[n] = 0;
        snprintf(machine, size, "%.*s %s", (int)strcspn(boot, "\n"), boot, namespace);
    }
    memory_free(boot);
}

struct owner owner_self(void) {
    struct owner o = {.pid = getpid()};
    const char *job = getenv("SLURM_JOB_ID"), *restart = getenv("SLURM_RESTART_COUNT");
    time_t now = time(NULL);
    struct tm utc;
    char state;
    if (job) snprintf(o.job, sizeof o.job, "%s", job);
    if (!restart || !text_to_int(restart, &o.restart)) o.restart = 0;
    if (gethostname(o.host, sizeof o.host - 1) != 0) o.host[0] = 0;
    describe_machine(o.machine, sizeof o.machine);
    strftime(o.start, sizeof o.start, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    o.process_start = process_start(o.pid, &state);
    return o;
}

char *owner_text(const struct owner *o) {
    json_t *j = json_pack("{s:s, s:I, s:s, s:I, s:I, s:s, s:s}", "job", o->job, "restart",
                          (json_int_t)o->restart, "host", o->host, "pid", (json_int_t)o->pid,
                          "process_start", (json_int_t)o->process_start, "machine", o->machine,
                          "start", o->start);
    char *line = j ? json_dumps(j, JSON_PRESERVE_ORDER) : NULL;
    if (!line) die("the host's name or the job's id is not UTF-8");
    char *text = memory_format("%s\n", line);
    free(line);
    json_decref(j);
    return text;
}

static void get_string(const json_t *j, const char *key, char *value, size_t size) {
    const char *s = json_string_value(json_object_get(j, key));
    snprintf(value, size, "%s", s ? s : "");
}

static int64_t get_int(const json_t *j, const char *key, int64_t absent) {
    const json_t *value = json_object_get(j, key);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : absent;
}

struct owner owner_parse(const char *text) {
    struct owner o;
    json_t *j = text ? json_loads(text, 0, NULL) : NULL;
    memset(&o, 0, sizeof o);
    get_string(j, "job", o.job, sizeof o.job);
    get_string(j, "host", o.host, sizeof o.host);
    get_string(j, "machine", o.machine, sizeof o.machine);
    get_string(j, "start", o.start, sizeof o.start);
    o.restart = get_int(j, "restart", 0);
    o.pid = get_int(j, "pid", 0);
    o.process_start = get_int(j, "process_start", -1);
    json_decref(j);
    return o;
}

char *owner_name(const struct owner *o) {
    return memory_format("%s%s%shost %s, pid %lld", o->job[0] ? "job " : "", o->job,
                         o->job[0] ? ", " : "", o->host[0] ? o->host : "unknown",
                         (long long)o->pid);
}

int owner_is_gone(const struct owner *o, const struct owner *self) {
    char state = 0;
    if (o->pid <= 0 || !self->machine[0] || strcmp(o->machine, self->machine) != 0) return 0;
    if (kill((pid_t)o->pid, 0) != 0 && errno == ESRCH) return 1;
    int64_t start = process_start(o->pid, &state);
    if (start < 0 || o->process_start < 0) return 0; /* another user's, hidden from us */
    return start != o->process_start || state == 'Z' || state == 'X';
}

int owner_is_earlier(const struct owner *o, const struct owner *self) {
    return self->job[0] && strcmp(o->job, self->job) == 0 && o->restart < self->restart;
}
