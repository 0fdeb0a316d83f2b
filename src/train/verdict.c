#include "config.h"
#include "train/verdict.h"
#include "base/die.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* One hash an expert of this rank, over all its layers' weights: hashes[E / ep_size]. Collective.
 */
static void hash_experts(struct model *m, uint64_t *hashes) {
    const struct params *p = m->params;
    size_t n = (size_t)(m->s.E / m->be->grid->ep_size);
    memset(hashes, 0, n * sizeof *hashes);
    for (int i = p->n_dense; i < p->n; i++) {
        size_t size = p->list[i].n / n, bytes = size * m->be->real_bytes;
        const real_t *all = model_whole(m, i);
        void *w = memory_alloc(bytes);
        for (size_t e = 0; e < n; e++) {
            m->be->download(m->be, w, real_at(m->be, all, e * size), bytes);
            hashes[e] = XXH3_64bits_withSeed(w, bytes, hashes[e]);
        }
        memory_free(w);
    }
}

/* 1 when the E experts of the first ep group are all different, and the same on every dp rank. */
static int experts_differ(struct run *r) {
    const struct grid *g = &r->grid;
    int E = r->model->s.E, n = E / g->ep_size, ok = 1;
    uint64_t *mine = memory_alloc_array((size_t)n, sizeof *mine),
             *all = memory_alloc_array((size_t)E, sizeof *all),
             *first = memory_alloc_array((size_t)n, sizeof *first);
    hash_experts(r->model, mine);
    MPI_Allgather(mine, n, MPI_UINT64_T, all, n, MPI_UINT64_T, g->ep);
    for (int i = 0; i < n; i++) first[i] = mine[i];
    MPI_Bcast(first, n, MPI_UINT64_T, 0, g->dp);
    for (int i = 0; i < n; i++) ok = ok && first[i] == mine[i];
    for (int i = 0; i < E; i++)
        for (int j = 0; j < i; j++) ok = ok && all[i] != all[j];
    memory_free(mine);
    memory_free(all);
    memory_free(first);
    return !agree_any(g, !ok);
}

/* Rows of tokens that rank i sent to ep rank j. */
static int print_exchange(struct run *r) {
    const struct grid *g = &r->grid;
    int ep = g->ep_size, ok = 1;
    uint64_t *all = memory_alloc_array((size_t)g->n_ranks * (size_t)ep, sizeof *all);
    MPI_Gather(r->be->sent(r->be), ep, MPI_UINT64_T, all, ep, MPI_UINT64_T, 0, g->world);
    for (int i = 0; i < g->n_ranks && g->rank == 0; i++) {
        printf("#   rank %d sent", i);
        for (int j = 0; j < ep; j++) {
            printf(" %llu to rank %d%s", (unsigned long long)all[i * ep + j], i / ep * ep + j,
                   j + 1 < ep ? "," : "\n");
            ok = ok && all[i * ep + j] > 0;
        }
    }
    memory_free(all);
    return agree_int(g, ok);
}

static const char *word(int ok) {
    return ok ? "ok" : "WRONG";
}

int verdict_print(struct run *r, double first_loss, double last_loss) {
    const struct grid *g = &r->grid;
    int fell = last_loss < first_loss, root = g->rank == 0;
    if (root) {
        printf("# verdict\n#   grid dp_size %d x ep_size %d on %d node%s, backend %s (%s)\n",
               g->dp_size, g->ep_size, g->n_nodes, g->n_nodes == 1 ? "" : "s", r->be->name,
               r->be->details);
        printf("# token rows sent to the ranks that hold their experts\n");
    }
    int exchanged = print_exchange(r), differ = experts_differ(r), ok = fell && exchanged && differ;
    if (root)
        printf("#   %s: every pair of ranks exchanged tokens\n#   %s: loss fell from %.4f to %.4f\n"
               "#   %s: all %d experts differ, copies agree\n# verdict: %s\n",
               word(exchanged), word(fell), first_loss, last_loss, word(differ), r->model->s.E,
               ok ? "this machine trains as it should" : "something is wrong");
    return ok ? EXIT_FINISHED : EXIT_INTERNAL;
}
