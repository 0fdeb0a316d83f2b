/* What the CUDA backend takes of a device besides what the model asks for, and what it cannot
 * serve. Arithmetic alone, in every build: for the backend itself, and for `regulon plan`. */
#ifndef REGULON_BACKEND_CUDA_SIZES_H
#define REGULON_BACKEND_CUDA_SIZES_H
#include "backend/backend.h"
#include "backend/cudnn_sizes.h"

enum { CUDA_SIDES = 4 };             /* streams for the experts' products */
enum { CUDA_WAYS = CUDA_SIDES + 1 }; /* the main stream, and those */
enum { CUDA_WORKSPACE = 32 << 20 };  /* bytes of cuBLASLt's on each way */
enum { CUDA_STAGED = 4 << 20 };      /* elements of upload_real at a time */

/* Arrays of the backend: one allocation each, none where it has no bytes. */
enum cuda_room {
    CUDA_ROOM_STAGED,     /* FP32 on its way to the compute type */
    CUDA_ROOM_WORKSPACES, /* [CUDA_WAYS] */
    CUDA_ROOM_SCRATCH,    /* of one call at a time on the main stream */
    CUDA_ROOM_LOGITS,     /* [chunk, V] of the head */
    CUDA_ROOM_DLOGITS,    /* [chunk, V] */
    CUDA_ROOM_LOSSES,     /* [N] */
    CUDA_ROOM_ROPE,       /* [N, K] cosines and sines */
    CUDA_ROOM_BEGIN,      /* [N + 1] first token of each token's document */
    CUDA_ROOM_END,        /* [N + 1] one past its last */
    N_CUDA_ROOMS
};
struct cuda_rooms {
    int chunk; /* tokens of the head at a time */
    size_t bytes[N_CUDA_ROOMS];
};

/* STAGED and WORKSPACES do not depend on the work, which may be NULL for them. engine_scratch: the
 * most of those below. */
struct cuda_rooms cuda_rooms_of(const struct work *w, size_t real_bytes, size_t engine_scratch);

/* Scratch of the own kernel, which serves what cuDNN does not, and of both (workspace as in
 * cudnn_sizes.h). */
size_t cuda_own_scratch(const struct work *w);
size_t cuda_cudnn_scratch(const struct work *w, size_t workspace);
struct cudnn_attention_sizes cuda_cudnn_sizes(const struct work *w, int documents);
/* For how many documents its plans are made: first for as many as there are where they are long. */
enum { CUDA_PLANS = 2 };
int cuda_cudnn_documents(const struct work *w, int plan);

/* 1 when these options and sizes let cuDNN do the attention, else 0 and the reason in why[size]. A
 * build, a device or a cuDNN may still refuse. */
int cuda_cudnn_serves(const struct work *w, size_t real_bytes, const struct backend_options *o,
                      char *why, size_t size);

/* 1 when these options and sizes let the grouped kernels multiply the experts' matrices, else 0 and
 * the reason in why[size]. A build or a device may still refuse. */
int cuda_grouped_serves(const struct work *w, size_t real_bytes, const struct backend_options *o,
                        char *why, size_t size);

/* backend.h's row_unit, with the grouped kernels and without. */
int cuda_row_unit(int grouped, enum low low, enum low_way way);

/* How GPUs of this compute capability (90 for 9.0) compute in a recipe of eight bits, with the
 * option `emulate`. The one place that says so: model/low.c's refusals and `regulon plan` go by it.
 * The sizes below go by what it says, in struct work. */
enum low_way cuda_low_way(int capability, enum low low, int emulate);
/* The work as a GPU of this capability does it: what of struct work is the backend's. */
struct work cuda_work_on(struct work w, int capability, const struct backend_options *o);

/* Arrays of struct moe, and the largest R. */
enum cuda_moe_room {
    CUDA_MOE_OFFSETS,
    CUDA_MOE_ENDS,
    CUDA_MOE_ROW_OF,
    CUDA_MOE_ROW_P,
    CUDA_MOE_FIRST, /* from here on none on one rank or with peer memory */
    CUDA_MOE_COPY_OF,
    CUDA_MOE_PLACE_OF,
    N_CUDA_MOE_ROOMS
};
struct cuda_moe_rooms {
    size_t rows, bytes[N_CUDA_MOE_ROOMS];
};
/* peer: tokens travel over peer memory, not through NCCL; then ROW_P is shared. */
struct cuda_moe_rooms cuda_moe_rooms_of(struct moe_shape s, int row_unit, int ep_size, int peer);

/* backend.h's stashes, and bytes of a layer's places in n arrays. */
int cuda_stashes(int grouped, const struct backend_options *o, int ep_size);
size_t cuda_stash_bytes(size_t n);

/* Bytes for what travels between ep_size ranks: rows, and lists of ids or of probabilities. */
struct cuda_travel_rooms {
    size_t copies, arrivals, copy_lists, got_lists; /* of the lists two each */
};
struct cuda_travel_rooms cuda_travel_rooms_of(const struct work *w, size_t real_bytes, int ep_size);

/* 1 when these options, sizes and hosts let tokens travel over peer memory, else 0 and the reason
 * in why[size]. A device may still refuse. */
int cuda_peer_serves(const struct work *w, const struct grid *g, const struct backend_options *o,
                     char *why, size_t size);

/* The same for collectives beside other work. */
int cuda_pull_serves(const struct grid *g, const struct backend_options *o, char *why, size_t size);

/* Of these: bytes of one of two rooms for parts of sums, and bytes of the board; and what
 * communication_sms is divided by, for additions need less than NCCL. */
enum { CUDA_PULL_BOARD = 256, CUDA_PULL_SMS = 4 };
#ifndef CUDA_PULL_ROOM /* a test has smaller ones */
#define CUDA_PULL_ROOM (64 << 20)
#endif

/* Bytes of the order of a rank's choices, and of counters, with peer memory. */
struct cuda_order_rooms {
    size_t sent, begins, shift, choices; /* of choices two */
};
struct cuda_order_rooms cuda_order_rooms_of(const struct work *w, int ep_size);

/* What memory that other ranks reach takes: no other allocation lies in the same piece. */
size_t cuda_shared_bytes(size_t bytes);

/* Where the scales of so many codes begin, behind them, in either recipe. */
static inline size_t cuda_scales_at(size_t codes) {
    return (codes + 255) / 256 * 256;
}

/* Rooms for operands of fp8_block, with their scales, and what is kept of weights w[n, N, K] in
 * eight bits: as they are, and from the middle on transposed. */
enum cuda_low_room {
    CUDA_LOW_ROWS,      /* by rows */
    CUDA_LOW_GRADIENTS, /* by columns: gradients */
    CUDA_LOW_COLUMNS,   /* activations */
    CUDA_LOW_RESULTS,   /* gradients of the experts' results */
    N_CUDA_LOW_ROOMS
};
struct cuda_low_rooms {
    size_t bytes[N_CUDA_LOW_ROOMS];
};
struct cuda_low_rooms cuda_low_rooms_of(const struct work *w, int ep_size);
size_t cuda_low_copies(int n, int N, int K);

/* The same for MXFP8 where it is multiplied as such. */
enum cuda_mxfp8_room {
    CUDA_MXFP8_ROWS,      /* by rows */
    CUDA_MXFP8_GRADIENTS, /* by columns: gradients */
    CUDA_MXFP8_COLUMNS,   /* activations */
    N_CUDA_MXFP8_ROOMS
};
struct cuda_mxfp8_rooms {
    size_t bytes[N_CUDA_MXFP8_ROOMS];
};
struct cuda_mxfp8_rooms cuda_mxfp8_rooms_of(const struct work *w, int ep_size);
/* 1 when these sizes let one kernel multiply gate and up of all experts in MXFP8, else 0 and the
 * reason in why[size]. A build or a device may still refuse. */
int cuda_mxfp8_up_serves(const struct work *w, char *why, size_t size);
/* Of n matrices [rows, cols]: their codes, and from a multiple of 256 bytes on their scales. */
size_t cuda_mxfp8_bytes(size_t n, size_t rows, size_t cols);

/* The same where it is emulated: operands of a product, and of weights
 * w[n, N, K] two in BF16. */
struct cuda_emulate_rooms {
    size_t bytes[2];
};
struct cuda_emulate_rooms cuda_emulate_rooms_of(const struct work *w, int grouped, int ep_size);
size_t cuda_emulate_copies(int n, int N, int K);

/* low_bytes, low_kept_bytes and low_z_bytes of backend.h, with the recipe of reserve. */
size_t cuda_low_bytes(const struct work *w, int n, int N, int K);
size_t cuda_low_kept_bytes(enum low low, int N, int D);
size_t cuda_low_z_bytes(const struct backend *be, enum low low, size_t R, int F);

/* Scratch of the experts' engine. */
size_t cuda_experts_scratch(const struct work *w, int grouped, int ep_size);

/* What an allocation of these bytes takes. */
size_t cuda_alloc_bytes(size_t bytes);

/* Why the model is nothing for this version's kernels; NULL: it is. The caller frees it. */
char *cuda_work_refusal(const struct work *w);
#endif
