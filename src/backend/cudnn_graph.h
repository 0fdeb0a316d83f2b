/* cuDNN's backend graph API as far as attention needs it: tensors, operations on them, a plan, its
 * execution. What an operation does and takes is cuDNN's documentation's to say. The first call
 * that cuDNN refuses spoils the graph: the calls after it do nothing and return NULL,
 * cudnn_graph_plan returns 0 and cudnn_graph_why says what was refused. */
#ifndef REGULON_BACKEND_CUDNN_GRAPH_H
#define REGULON_BACKEND_CUDNN_GRAPH_H
#include <cudnn.h>
#include <stddef.h>
#include <stdint.h>

/* What plans are made for: the device of the handle or, without one, a device that is described (a
 * finalized CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR). The latter need no GPU, and cannot run. */
struct cudnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device;
};

/* A handle for the current device, working on the stream; close after the graphs made with it. 1,
 * or 0 and the reason in why[size] when there is no usable cuDNN. */
int cudnn_graph_open(struct cudnn_target *on, cudaStream_t stream, char *why, size_t size);
void cudnn_graph_close(struct cudnn_target *on);

typedef cudnnBackendDescriptor_t cudnn_tensor; /* lives as long as its graph */

/* Four dimensions; strides in elements. */
struct cudnn_view {
    int64_t dim[4], stride[4];
};

/* Empty; the caller frees it. */
struct cudnn_graph *cudnn_graph_new(struct cudnn_target on);
void cudnn_graph_free(struct cudnn_graph *g);

/* A tensor in device memory, at the address that stands at place `slot` when the graph runs, which
 * must be a multiple of 16. offsets, or NULL: where each index of the first dimension begins, in
 * elements: int32 [dim[0] + 1, 1, 1, 1]. */
cudnn_tensor cudnn_graph_bound(struct cudnn_graph *g, int slot, cudnnDataType_t type,
                               struct cudnn_view view, cudnn_tensor offsets);
/* One that is never in memory, or in the plan's workspace. */
cudnn_tensor cudnn_graph_virtual(struct cudnn_graph *g, cudnnDataType_t type,
                                 struct cudnn_view view, cudnn_tensor offsets);
/* A constant. */
cudnn_tensor cudnn_graph_value(struct cudnn_graph *g, float value);

/* Operations; each returns its result y. Arithmetic is FP32 unless a type is given.
 * y = mode(x [, b [, t]]), elementwise; b and t may be NULL */
cudnn_tensor cudnn_graph_pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode,
                                   cudnnDataType_t type, cudnn_tensor x, cudnn_tensor b,
                                   cudnn_tensor t, cudnn_tensor y);
/* y = each element's index along the axis */
cudnn_tensor cudnn_graph_index(struct cudnn_graph *g, int axis, cudnn_tensor x, cudnn_tensor y);
/* y = x reduced over the dimensions in which y is 1, or divides x's */
cudnn_tensor cudnn_graph_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t how, cudnn_tensor x,
                                cudnn_tensor y);
cudnn_tensor cudnn_graph_reshape(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y);
/* y = a b on the last two dimensions. m, n, k: for each index of the first dimension how much of
 * that size there really is, int32 [dim[0], 1, 1, 1]; NULL: all of it. */
cudnn_tensor cudnn_graph_matmul(struct cudnn_graph *g, cudnn_tensor a, cudnn_tensor b,
                                cudnn_tensor m, cudnn_tensor n, cudnn_tensor k, cudnn_tensor y);

/* Chooses an engine and compiles its kernels: seconds. 1, or 0 when there is none. */
int cudnn_graph_plan(struct cudnn_graph *g);
const char *cudnn_graph_why(const struct cudnn_graph *g);

/* Of a graph with a plan: cuDNN's number of the engine; bytes of workspace; run, which enqueues on
 * the handle's stream and dies when cuDNN refuses. at[slot] is the address of each bound tensor.
 * Costs 20 to 70 us of the host's time. */
int cudnn_graph_engine(const struct cudnn_graph *g);
size_t cudnn_graph_workspace(const struct cudnn_graph *g);
void cudnn_graph_run(const struct cudnn_graph *g, void *const at[], void *workspace);
#endif
