/* The lock of a run folder, between real processes: this program started again as `lock.np1 owner
 * FOLDER`, which is told what to do by letters on its stdin and answers with a letter. */
#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/lock.h"
#include "checkpoint/owner.h"
#include "checkpoint/saver.h"
#include "tap.h"
#include "trial.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the other process ---- */

/* o: opens the lock, or ends with 78; a: asks, l: has it seen a loss? (y, n); end: closes it. */
static int be_owner(const char *folder) {
    struct lock *lock = NULL;
    char c;
    log_open(0);
    while (read(0, &c, 1) == 1) {
        char answer = 'o';
        if (c == 'o') lock = lock_open(folder);
        if (c == 'a') answer = lock_is_ours(lock) ? 'y' : 'n';
        if (c == 'l') answer = lock_is_lost(lock) ? 'y' : 'n';
        if (write(1, &answer, 1) != 1) return 1;
    }
    lock_close(lock);
    return memory_live() != 0;
}

struct other {
    pid_t pid;
    int to, from;
    char errors[64]; /* file with its stderr */
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(double s) {
    usleep((useconds_t)(s * 1e6));
}

/* job and restart: what Slurm says, NULL: there is no Slurm. */
static struct other start(const char *folder, const char *job, const char *restart) {
    static int n;
    int down[2], up[2];
    struct other p;
    snprintf(p.errors, sizeof p.errors, "lock.stderr.%d", n++);
    if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) die("pipe");
    p.pid = fork();
    if (p.pid == 0) {
        int errors = open(p.errors, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(down[0], 0), dup2(up[1], 1), dup2(errors, 2);
        unsetenv("SLURM_JOB_ID"), unsetenv("SLURM_RESTART_COUNT");
        if (job) setenv("SLURM_JOB_ID", job, 1);
        if (restart) setenv("SLURM_RESTART_COUNT", restart, 1);
        execl("/proc/self/exe", "lock", "owner", folder, (char *)NULL);
        _exit(99);
    }
    close(down[0]), close(up[1]);
    p.to = down[1], p.from = up[0];
    return p;
}

static void tell(const struct other *p, char c) {
    if (write(p->to, &c, 1) != 1) die("write");
}

/* Its answer; 0: it has ended; '?': there is none within `limit` seconds. */
static char hear(const struct other *p, double limit) {
    struct pollfd f = {.fd = p->from, .events = POLLIN};
    char c = 0;
    if (poll(&f, 1, (int)(limit * 1e3)) != 1) return '?';
    return read(p->from, &c, 1) == 1 ? c : 0;
}

static char ask(const struct other *p, char c) {
    tell(p, c);
    return hear(p, 60);
}

/* Its exit code, negative: the signal. */
static int end(const struct other *p) {
    int status = 0;
    close(p->to), close(p->from);
    waitpid(p->pid, &status, 0);
    unlink(p->errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int said(const struct other *p, const char *text) {
    char *all = file_read(p->errors, 1 << 20, NULL);
    int n = 0;
    for (const char *s = all; s && (s = strstr(s, text)); s++) n++;
    memory_free(all);
    return n;
}

/* ---- the folder ---- */

static void clear(const char *folder) {
    file_remove_folder(folder);
    mkdir(folder, 0777);
}

/* Its names, sorted, a space behind each. */
static char *list(const char *folder) {
    struct dirent **entries;
    char *all = memory_string("");
    int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char *more = memory_format("%s%s ", all, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') memory_free(all), all = more;
        if (entries[i]->d_name[0] == '.') memory_free(more);
        free(entries[i]);
    }
    free(entries);
    return all;
}

static int holds(const char *folder, const char *names) {
    char *all = list(folder);
    int same = strcmp(all, names) == 0;
    if (!same) tap_note("%s holds: %s", folder, all);
    memory_free(all);
    return same;
}

/* A lock as `o` would have made it, or any text, with a heartbeat of `age` seconds. */
static void plant(const char *folder, int n, const struct owner *o, const char *text, int age) {
    char *path = memory_format("%s/lock.%d", folder, n), *made = o ? owner_text(o) : NULL;
    struct timespec now;
    if (!file_write_atomic(path, made ? made : text, strlen(made ? made : text))) die("%s", path);
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec -= age;
    utimensat(AT_FDCWD, path, (struct timespec[2]){now, now}, 0);
    memory_free(made);
    memory_free(path);
}

static struct owner elsewhere(void) {
    struct owner o = owner_self();
    snprintf(o.machine, sizeof o.machine, "another boot");
    snprintf(o.host, sizeof o.host, "elsewhere");
    return o;
}

/* ---- what is checked ---- */

static void check_live(void) {
    clear("lock.a");
    struct other a = start("lock.a", "41", NULL), b = start("lock.a", "42", "3");
    char first = ask(&a, 'o');
    char *text = file_read("lock.a/lock.1", 4096, NULL);
    struct owner o = owner_parse(text);
    tap_ok(first == 'o' && holds("lock.a", "lock.1 ") && o.pid == a.pid &&
               strcmp(o.job, "41") == 0 && o.restart == 0 && o.process_start > 0,
           "a free folder is taken: %s", text ? strtok(text, "\n") : "");
    memory_free(text);
    double begin = seconds();
    char second = ask(&b, 'o');
    double took = seconds() - begin;
    char *name = memory_format("lock.a is in use by job 41, host %s, pid %d, whose heartbeat is",
                               o.host, (int)a.pid);
    int named = said(&b, name), code = end(&b);
    tap_ok(second == 0 && code == EXIT_CONFIG && took < 5, "a live owner: exit %d after %.2f s",
           code, took);
    tap_ok(named == 1 && holds("lock.a", "lock.1 "), "named, its lock left alone");
    memory_free(name);
    b = start("lock.a", "41", "0");
    second = ask(&b, 'o');
    code = end(&b);
    tap_ok(second == 0 && code == EXIT_CONFIG, "the same start of the same job, twice: exit %d",
           code);
    tap_ok(ask(&a, 'a') == 'y' && ask(&a, 'l') == 'n', "the owner has noticed nothing");

    b = start("lock.a", "41", "1");
    second = ask(&b, 'o');
    tap_ok(second == 'o' && said(&b, "an earlier start of this job") == 1 &&
               holds("lock.a", "lock.2 "),
           "a later start of the same job takes over");
    int seen = 0;
    for (int i = 0; i < 100 && !seen; i++, nap(0.1)) seen = ask(&a, 'l') == 'y';
    tap_ok(seen && ask(&a, 'a') == 'n' && said(&a, "has been taken over by job 41") == 1,
           "which the earlier one sees, and says once");
    tap_ok(end(&a) == 0 && holds("lock.a", "lock.2 "), "and it leaves the other's lock alone");
    tap_ok(ask(&b, 'a') == 'y' && end(&b) == 0 && holds("lock.a", ""), "a closed lock is gone");
}

static void check_dead(void) {
    clear("lock.a");
    struct other a = start("lock.a", NULL, NULL), b = start("lock.a", NULL, NULL);
    ask(&a, 'o');
    kill(a.pid, SIGKILL);
    hear(&a, 60); /* until its pipe closes: it is a zombie then, since nobody has waited for it */
    double begin = seconds();
    char second = ask(&b, 'o');
    double took = seconds() - begin;
    tap_ok(second == 'o' && took < 4 && said(&b, "its process has ended") == 1 &&
               holds("lock.a", "lock.2 "),
           "a killed owner's folder is taken over after %.2f s", took);
    end(&a);
    end(&b);
    struct owner o = owner_self();
    o.process_start--;
    plant("lock.a", 7, &o, NULL, 0);
    plant("lock.a", 4, &o, NULL, 0);
    b = start("lock.a", NULL, NULL);
    tap_ok(ask(&b, 'o') == 'o' && holds("lock.a", "lock.8 "),
           "a pid that has come again is not the owner; left-over locks go");
    end(&b);
}

/* On other machines only the heartbeat tells. All wait at the same time. */
static void check_silent(void) {
    enum { OLD, RECENT, YOUNG, EMPTY, BEATING, N };
    static const char *const folders[N] = {"lock.a", "lock.b", "lock.c", "lock.d", "lock.e"};
    struct owner o = elsewhere();
    struct other p[N];
    double took[N];
    char got[N];
    int wrong = 0;
    double planted = seconds();
    for (int i = 0; i < N; i++) {
        clear(folders[i]);
        plant(folders[i], 1, i == EMPTY ? NULL : &o, "{\"pid\": 1",
              i == RECENT                  ? 23
              : i == YOUNG || i == BEATING ? 0
                                           : 1000);
        p[i] = start(folders[i], NULL, NULL);
        got[i] = '?', took[i] = 0;
    }
    double begin = seconds();
    for (int i = 0; i < N; i++) tell(&p[i], 'o');
    for (int waiting = 1; waiting && seconds() - begin < 60;) {
        utimensat(AT_FDCWD, "lock.e/lock.1", NULL, 0);
        waiting = 0;
        for (int i = 0; i < N; i++) {
            if (got[i] != '?') continue;
            got[i] = hear(&p[i], 0.02), took[i] = seconds() - begin;
            waiting |= i != YOUNG && got[i] == '?';
        }
    }
    for (int i = 0; i < N; i++)
        wrong += i != YOUNG && i != BEATING && !holds(folders[i], "lock.2 ");
    tap_ok(got[OLD] == 'o' && took[OLD] > 4.9 && wrong == 0 &&
               said(&p[OLD], "from host elsewhere, pid") == 1,
           "another machine's old heartbeat: watched for 5 s, then taken over (%.2f s)", took[OLD]);
    tap_ok(got[EMPTY] == 'o' && took[EMPTY] > 4.9, "half a text: the same (%.2f s)", took[EMPTY]);
    tap_ok(got[RECENT] == 'o' && begin - planted + took[RECENT] > 6.9,
           "23 s old: until it is 30 (%.2f s)", took[RECENT]);
    tap_ok(got[YOUNG] == '?', "one second old: it waits still");
    kill(p[YOUNG].pid, SIGKILL);
    int code = 0;
    for (int i = 0; i < N; i++) {
        int ended = end(&p[i]);
        if (i == BEATING) code = ended;
    }
    tap_ok(got[BEATING] == 0 && code == EXIT_CONFIG && took[BEATING] < 5,
           "one that beats: exit %d (%.2f s)", code, took[BEATING]);
    for (int i = 0; i < N; i++) file_remove_folder(folders[i]);
}

/* Eight at once, for a free folder and for a dead owner's. */
static void check_race(void) {
    enum { N = 8 };
    struct owner dead = owner_self();
    dead.process_start--;
    for (int round = 0; round < 3; round++) {
        struct other p[N];
        int won = 0, refused = 0;
        clear("lock.a");
        if (round > 0) plant("lock.a", 3, &dead, NULL, 0);
        for (int i = 0; i < N; i++) p[i] = start("lock.a", NULL, NULL);
        nap(0.2); /* all are there */
        for (int i = 0; i < N; i++) tell(&p[i], 'o');
        double begin = seconds(), last = 0;
        char got[N];
        for (int i = 0; i < N; i++) {
            got[i] = hear(&p[i], 60), won += got[i] == 'o';
            if (got[i] == 0) last = seconds() - begin;
        }
        int one = holds("lock.a", round ? "lock.4 " : "lock.1 ");
        for (int i = 0; i < N; i++) refused += end(&p[i]) == EXIT_CONFIG && got[i] == 0;
        tap_ok(won == 1 && refused == N - 1 && one && last < 5,
               "eight at once: %d owns, %d refused in %.2f s", won, refused, last);
    }
    file_remove_folder("lock.a");
}

static void check_removed(void) {
    clear("lock.a");
    struct other a = start("lock.a", NULL, NULL), b = start("lock.a", NULL, NULL);
    ask(&a, 'o');
    int back = 0;
    for (int round = 0; round < 2; round++) {
        unlink("lock.a/lock.1");
        for (int i = 0; i < 100 && !file_exists("lock.a/lock.1"); i++) nap(0.1);
        back += holds("lock.a", "lock.1 ");
    }
    tap_ok(back == 2 && ask(&a, 'a') == 'y' && said(&a, "was removed while this job owns") == 1,
           "a lock that is removed under its owner is made anew, said once");
    tap_ok(ask(&b, 'o') == 0 && end(&b) == EXIT_CONFIG, "and still keeps others out");
    struct owner o = elsewhere();
    plant("lock.a", 1, &o, NULL, 0); /* in one step */
    tap_ok(ask(&a, 'a') == 'n' && ask(&a, 'l') == 'y' && end(&a) == 0 && holds("lock.a", "lock.1 "),
           "one that has become another's is lost");
    file_remove_folder("lock.a");
}

static const char deck[] =
    "num_train_steps: 20\n"
    "model: {vocab_size: 130, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1,\n"
    "  num_attention_heads: 2, num_local_experts: 2, num_experts_per_tok: 1}\n"
    "dataset: {path: unused, max_seq_length: 16}\n";

static void check_save(void) {
    struct trial t;
    struct owner o = elsewhere();
    clear("lock.a");
    struct lock *lock = lock_open("lock.a");
    trial_open(&t, MPI_COMM_WORLD, 1, 1, deck);
    struct saver *s = saver_new(t.o, "lock.a", "0123456789abcdef", /*keep=*/2, /*every=*/0);
    saver_guard(s, lock);
    saver_begin(s, (struct counters){.step = 1});
    int saved = saver_drain(s);
    plant("lock.a", 5, &o, NULL, 0);
    saver_begin(s, (struct counters){.step = 2});
    int refused = saver_drain(s);
    io_wait();
    tap_ok(saved == 1 && refused == -1 && file_exists("lock.a/step_000000001/checksums") &&
               !file_exists("lock.a/step_000000002") &&
               !file_exists("lock.a/step_000000002.1.2.tmp/checksums"),
           "a save of an owner that lost its lock fails before the rename");
    tap_ok(file_exists("lock.a/step_000000002.1.2.tmp/shard_d000_e000.h5"),
           "and removes nothing that may be the new owner's");
    saver_free(s);
    trial_close(&t);
    lock_close(lock);
    file_remove_folder("lock.a/step_000000001");
    file_remove_folder("lock.a/step_000000002.1.2.tmp");
    file_remove_folder("lock.a");
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "owner") == 0) return be_owner(argv[2]);
    tap_open(&argc, &argv);
    signal(SIGPIPE, SIG_IGN);
    h5_open_library();
    io_open();
    check_live();
    check_dead();
    check_silent();
    check_race();
    check_removed();
    check_save();
    io_close();
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
