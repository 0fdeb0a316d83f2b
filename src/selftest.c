/* The environment: what is there, whether the ranks are one world that can talk, and whether
 * products come out right. */
#include "config.h"
#include "selftest.h"
#include "backend/backend.h"
#include "base/die.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/revision.h"
#include "base/text.h"
#include "train/run.h"
#include <hdf5.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#ifdef HAVE_CUDA
#include "device.h"
#endif

int selftest_line(struct selftest *t, const char *name, char *problem, const char *format, ...) {
    char *first = agree_problem(t->g, problem);
    int ok = first == NULL;
    if (t->g->rank == 0) {
        printf("%-8s%-12s", ok ? "ok" : "FAILED", name);
        va_list args;
        va_start(args, format);
        if (ok)
            vprintf(format, args);
        else
            fputs(first, stdout);
        va_end(args);
        putchar('\n');
        fflush(stdout);
    }
    t->failed += !ok;
    memory_free(first);
    return ok;
}

/* ---- what is there ---- */

/* Ranks that run different programs, or load different libraries, fail in odd ways. */
static void check_program(struct selftest *t) {
    char mine[512], first[512], mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    unsigned major, minor, release;
    int n;
    memset(mine, 0, sizeof mine);
    MPI_Get_library_version(mpi, &n);
    mpi[strcspn(mpi, "\n")] = 0;
    for (char *tab = mpi; (tab = strchr(tab, '\t'));) *tab = ' ';
    H5get_libversion(&major, &minor, &release);
    snprintf(mine, sizeof mine, "%s revision %s; %.200s; HDF5 %u.%u.%u", PACKAGE_STRING,
             revision_name(), mpi, major, minor, release);
    memcpy(first, mine, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, t->g->world);
    selftest_line(t, "program",
                  strcmp(mine, first) == 0
                      ? NULL
                      : memory_format("runs '%s', but rank 0 runs '%s'", mine, first),
                  "%s", mine);
}

static void check_launch(struct selftest *t) {
    const char *variable = NULL;
    int64_t launched = grid_launched(&variable);
    char *problem = NULL;
    if (launched > t->g->n_ranks)
        problem = memory_format("the launcher started %lld processes (%s), but MPI sees %d",
                                (long long)launched, variable, t->g->n_ranks);
    selftest_line(t, "launch", problem, "one world of %d rank%s on %d node%s", t->g->n_ranks,
                  t->g->n_ranks == 1 ? "" : "s", t->g->n_nodes, t->g->n_nodes == 1 ? "" : "s");
}

/* Cores: those that the launcher lets a rank run on. */
static void check_cores(struct selftest *t, const struct backend *be) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    int n = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 0, least, most;
    MPI_Allreduce(&n, &least, 1, MPI_INT, MPI_MIN, t->g->world);
    MPI_Allreduce(&n, &most, 1, MPI_INT, MPI_MAX, t->g->world);
    selftest_line(t, "cores", NULL, "a rank may run on %d to %d; backend %s: %s", least, most,
                  be->name, be->details);
}

/* A GPU that cannot be asked, or for which the binary has no code, is a problem; none is not. */
static void check_gpus(struct selftest *t) {
    char *problem = NULL, *seen = memory_string("none seen by rank 0");
#ifdef HAVE_CUDA
    struct device_info d;
    const char *why;
    for (int i = 0; i < device_count() && !problem; i++) {
        if (!device_describe(i, &d))
            problem = memory_format("device %d cannot be asked", i);
        else if ((why = device_fails(i)) != NULL)
            problem = memory_format("device %d, %s: %s", i, d.name, why);
        char *more = problem  ? memory_string(seen)
                     : i == 0 ? memory_string(d.name)
                              : memory_format("%s, %s", seen, d.name);
        memory_free(seen);
        seen = more;
    }
#else
    memory_free(seen);
    seen = memory_string("not looked for: configured without CUDA");
#endif
    selftest_line(t, "GPUs", problem, "%s", seen);
    memory_free(seen);
}

/* ---- do the ranks talk? ---- */

static uint64_t word(int from, int to, int i) {
    return random_bits((uint64_t)from, RANDOM_TEST, ((uint64_t)to << 32) + (uint64_t)i);
}

/* Every rank sends every rank words that both know. The second, larger round goes another way
 * through MPI than the first. */
static char *exchange(const struct grid *g, int words, double *bytes_per_s) {
    size_t all = (size_t)g->n_ranks * (size_t)words;
    uint64_t *out = memory_alloc_array(all, sizeof *out), *in = memory_alloc_array(all, sizeof *in);
    char *problem = NULL;
    for (int r = 0; r < g->n_ranks; r++)
        for (int i = 0; i < words; i++)
            out[(size_t)r * (size_t)words + (size_t)i] = word(g->rank, r, i);
    MPI_Barrier(g->world);
    double start = MPI_Wtime();
    MPI_Alltoall(out, words, MPI_UINT64_T, in, words, MPI_UINT64_T, g->world);
    double s = MPI_Wtime() - start, slowest;
    MPI_Allreduce(&s, &slowest, 1, MPI_DOUBLE, MPI_MAX, g->world);
    *bytes_per_s = (double)(all * sizeof *out) / slowest;
    for (int r = 0; r < g->n_ranks && !problem; r++)
        for (int i = 0; i < words && !problem; i++)
            if (in[(size_t)r * (size_t)words + (size_t)i] != word(r, g->rank, i))
                problem = memory_format("word %d of %d from rank %d is wrong", i, words, r);
    memory_free(in);
    memory_free(out);
    return problem;
}

static void check_exchange(struct selftest *t) {
    enum { FEW = 16, MOST_WORDS = 1 << 22 /* of a rank: 32 MiB */ };
    int many = MOST_WORDS / t->g->n_ranks;
    if (many > 1 << 17) many = 1 << 17; /* 1 MiB a pair */
    if (many < FEW) many = FEW;
    double rate;
    char *problem = exchange(t->g, FEW, &rate), *second = exchange(t->g, many, &rate), text[2][32];
    if (problem)
        memory_free(second);
    else
        problem = second;
    selftest_line(t, "exchange", problem, "all pairs of ranks, %s each: %s/s out of a rank",
                  text_bytes(text[0], sizeof text[0], (double)many * sizeof(uint64_t)),
                  text_bytes(text[1], sizeof text[1], rate));
}

/* ---- do they compute? ---- */

/* y = x w^T by the backend against plain loops in FP64; the largest error, relative to the sum of
 * the terms' magnitudes, where FP32 of any order of additions stays below D times its unit. */
static char *multiply(struct backend *be, double *worst) {
    enum { N = 67, M = 130, D = 200 };
    float *x = be->alloc(be, (N + M) * D * sizeof *x), *w = x + N * D,
          *y = be->alloc(be, N * M * sizeof *y);
    char *problem = NULL;
    for (size_t i = 0; i < (N + M) * D; i++) x[i] = (float)random_uniform(1, RANDOM_TEST, i) - 0.5f;
    be->matmul(be, y, x, w, N, M, D);
    *worst = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < M; j++) {
            double sum = 0, scale = 0;
            for (int k = 0; k < D; k++) {
                double term = (double)x[i * D + k] * (double)w[j * D + k];
                sum += term, scale += fabs(term);
            }
            double error = fabs((double)y[i * M + j] - sum) / scale;
            if (!(error <= *worst)) *worst = error;
        }
    if (!(*worst <= D * 0x1p-24))
        problem = memory_format("a product is off by %.2g of its terms", *worst);
    be->release(be, y);
    be->release(be, x);
    return problem;
}

static void check_products(struct selftest *t, struct backend *be) {
    double worst, flops = run_measure_peak(be), least, most;
    char *problem = multiply(be, &worst);
    MPI_Allreduce(&flops, &least, 1, MPI_DOUBLE, MPI_MIN, t->g->world);
    MPI_Allreduce(&flops, &most, 1, MPI_DOUBLE, MPI_MAX, t->g->world);
    selftest_line(
        t, "products", problem,
        "matrix products as plain loops give them, within %.1g; %.1f to %.1f GFLOP/s a rank", worst,
        least / 1e9, most / 1e9);
}

/* ---- */

static const char help[] = "regulon selftest [--path DIR] [--size MIB]\n"
                           "Tries the environment: libraries, launcher, cores, GPUs, an exchange "
                           "between all ranks, matrix "
                           "products. With --path\n"
                           "also a folder, from every rank, as a run uses it, and how fast it is: "
                           "MIB mebibytes a rank, 256 "
                           "by default, less where\n"
                           "space is short. Start it as a run would be started. Exit code 0: all "
                           "is well, 74: DIR will not "
                           "do, 70: something else.\n";

struct options {
    const char *path;
    int64_t mebibytes;
};

/* Every rank reads the words; rank 0 says what is wrong with them. */
static struct options read_options(int argc, char **argv) {
    struct options o = {NULL, 256};
    for (int i = 0; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        int path = strcmp(argv[i], "--path") == 0, size = strcmp(argv[i], "--size") == 0,
            fine = (path || size) && value;
        if (fine && path) o.path = value;
        if (fine && size)
            fine = text_to_int(value, &o.mebibytes) && o.mebibytes > 0 && o.mebibytes <= 1 << 20;
        if (!fine && log_rank() == 0) {
            if (!path && !size)
                die_user(EXIT_USAGE, "selftest: unknown word '%s'; see regulon selftest --help",
                         argv[i]);
            die_user(EXIT_USAGE, "selftest: %s takes %s", argv[i],
                     path ? "a folder" : "mebibytes, 1 to 1048576");
        }
        i += fine;
    }
    user_agree();
    return o;
}

int selftest_main(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        if (log_rank() == 0) fputs(help, stdout);
        return EXIT_FINISHED;
    }
    struct options o = read_options(argc, argv);
    struct grid g;
    int n_ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    grid_open(&g, MPI_COMM_WORLD, n_ranks, 1);
    struct backend *be = backend_open("cpu", &g, NULL);
    struct selftest environment = {.g = &g}, folder = {.g = &g};
    check_program(&environment);
    check_launch(&environment);
    check_cores(&environment, be);
    check_gpus(&environment);
    check_exchange(&environment);
    check_products(&environment, be);
    if (o.path) selftest_path(&folder, o.path, o.mebibytes << 20);
    backend_close(be);
    grid_close(&g);
    return environment.failed ? EXIT_INTERNAL : folder.failed ? EXIT_IO : EXIT_FINISHED;
}
