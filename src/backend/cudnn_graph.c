/* Every object of cuDNN's backend API is a descriptor: made, given attributes, finalized. All that
 * a graph consists of are kept until the graph goes, as the plan may refer to them. */
#include "config.h"
#include "backend/cudnn_graph.h"
#include "base/die.h"
#include "base/memory.h"
#include <assert.h>
#include <stdbool.h>
#include <stdio.h>

/* OLDEST: before 9.10 the mask's -inf had to be -FLT_MAX; 9.14 and 9.19 are measured */
enum { OLDEST = 91000, MADE = 256, OPERATIONS = 64, BOUND = 32, VALUES = 8, CONFIGS = 16 };

struct cudnn_graph {
    struct cudnn_target on;
    cudnnBackendDescriptor_t made[MADE]; /* the plan too; freed with the graph, last first */
    cudnnBackendDescriptor_t operations[OPERATIONS];
    int slots[BOUND]; /* of tensor i of the bound ones, whose id is i + 1 */
    float values[VALUES];
    int64_t value_ids[VALUES];
    int n_made, n_operations, n_bound, n_values;
    int64_t next_id; /* of constants and virtual tensors; an id is never used twice in a graph */
    cudnnBackendDescriptor_t plan;
    int64_t engine, workspace;
    int spoiled;
    char why[400];
};

static void explain(char *why, size_t size, const char *what, cudnnStatus_t status) {
    char text[300] = "";
    cudnnGetLastErrorString(text, sizeof text);
    snprintf(why, size, "%s: %s: %s", what, cudnnGetErrorString(status), text);
}

int cudnn_graph_open(struct cudnn_target *on, cudaStream_t stream, char *why, size_t size) {
    *on = (struct cudnn_target){0};
    if (cudnnGetVersion() < OLDEST) {
        snprintf(why, size, "cuDNN %zu is older than %d", cudnnGetVersion(), OLDEST);
        return 0;
    }
    cudnnStatus_t status = cudnnCreate(&on->handle);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnSetStream(on->handle, stream);
    if (status == CUDNN_STATUS_SUCCESS) return 1;
    explain(why, size, "handle", status);
    cudnn_graph_close(on);
    return 0;
}

void cudnn_graph_close(struct cudnn_target *on) {
    if (on->handle) cudnnDestroy(on->handle);
    *on = (struct cudnn_target){0};
}

/* ---- descriptors ---- */

static void expect(struct cudnn_graph *g, const char *what, cudnnStatus_t status) {
    if (status == CUDNN_STATUS_SUCCESS || g->spoiled) return;
    g->spoiled = 1;
    explain(g->why, sizeof g->why, what, status);
}

static cudnnBackendDescriptor_t make(struct cudnn_graph *g, cudnnBackendDescriptorType_t type,
                                     const char *what) {
    cudnnBackendDescriptor_t d = NULL;
    if (g->spoiled) return NULL;
    expect(g, what, cudnnBackendCreateDescriptor(type, &d));
    if (g->spoiled) return NULL;
    assert(g->n_made < MADE);
    return g->made[g->n_made++] = d;
}

static void set(struct cudnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values, const char *what) {
    if (!g->spoiled) expect(g, what, cudnnBackendSetAttribute(d, name, type, n, values));
}

/* NULL: the attribute is left out */
static void set_descriptor(struct cudnn_graph *g, cudnnBackendDescriptor_t d,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value,
                           const char *what) {
    if (value) set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}

static void set_type(struct cudnn_graph *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, cudnnDataType_t type, const char *what) {
    set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &type, what);
}

static void finalize(struct cudnn_graph *g, cudnnBackendDescriptor_t d, const char *what) {
    if (!g->spoiled) expect(g, what, cudnnBackendFinalize(d));
}

struct cudnn_graph *cudnn_graph_new(struct cudnn_target on) {
    struct cudnn_graph *g = memory_alloc(sizeof *g);
    g->on = on;
    g->next_id = BOUND + 1;
    return g;
}

void cudnn_graph_free(struct cudnn_graph *g) {
    if (g == NULL) return;
    while (g->n_made) cudnnBackendDestroyDescriptor(g->made[--g->n_made]);
    memory_free(g);
}

/* ---- tensors ---- */

enum kind { IN_MEMORY, VIRTUAL, BY_VALUE };

static cudnn_tensor tensor(struct cudnn_graph *g, enum kind kind, int64_t id, cudnnDataType_t type,
                           struct cudnn_view view, cudnn_tensor offsets) {
    static const char what[] = "tensor";
    cudnn_tensor t = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
    const int64_t alignment = 16;
    const bool yes = true;
    set_type(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, type, what);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, view.dim, what);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, view.stride, what);
    set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id, what);
    set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, what);
    if (kind == VIRTUAL) set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes, what);
    if (kind == BY_VALUE)
        set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes, what);
    set_descriptor(g, t, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offsets, what);
    finalize(g, t, what);
    return g->spoiled ? NULL : t;
}

cudnn_tensor cudnn_graph_bound(struct cudnn_graph *g, int slot, cudnnDataType_t type,
                               struct cudnn_view view, cudnn_tensor offsets) {
    assert(g->n_bound < BOUND);
    g->slots[g->n_bound++] = slot;
    return tensor(g, IN_MEMORY, g->n_bound, type, view, offsets);
}

cudnn_tensor cudnn_graph_virtual(struct cudnn_graph *g, cudnnDataType_t type,
                                 struct cudnn_view view, cudnn_tensor offsets) {
    return tensor(g, VIRTUAL, g->next_id++, type, view, offsets);
}

cudnn_tensor cudnn_graph_value(struct cudnn_graph *g, float value) {
    assert(g->n_values < VALUES);
    g->values[g->n_values] = value;
    g->value_ids[g->n_values++] = g->next_id;
    struct cudnn_view one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return tensor(g, BY_VALUE, g->next_id++, CUDNN_DATA_FLOAT, one, NULL);
}

/* ---- operations ---- */

static cudnn_tensor add(struct cudnn_graph *g, cudnnBackendDescriptor_t operation, cudnn_tensor y,
                        const char *what) {
    finalize(g, operation, what);
    if (g->spoiled) return NULL;
    assert(g->n_operations < OPERATIONS);
    g->operations[g->n_operations++] = operation;
    return y;
}

/* rule: what the operation does, a descriptor of its own */
static cudnn_tensor pointwise(struct cudnn_graph *g, cudnnBackendDescriptor_t rule, cudnn_tensor x,
                              cudnn_tensor b, cudnn_tensor t, cudnn_tensor y, const char *what) {
    finalize(g, rule, what);
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, rule, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, what);
    return add(g, op, y, what);
}

static cudnnBackendDescriptor_t pointwise_rule(struct cudnn_graph *g, cudnnPointwiseMode_t mode,
                                               cudnnDataType_t type, const char *what) {
    cudnnBackendDescriptor_t rule = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
    set(g, rule, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, what);
    set_type(g, rule, CUDNN_ATTR_POINTWISE_MATH_PREC, type, what);
    return rule;
}

cudnn_tensor cudnn_graph_pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode,
                                   cudnnDataType_t type, cudnn_tensor x, cudnn_tensor b,
                                   cudnn_tensor t, cudnn_tensor y) {
    static const char what[] = "pointwise";
    return pointwise(g, pointwise_rule(g, mode, type, what), x, b, t, y, what);
}

cudnn_tensor cudnn_graph_index(struct cudnn_graph *g, int axis, cudnn_tensor x, cudnn_tensor y) {
    static const char what[] = "index";
    const int64_t along = axis;
    cudnnBackendDescriptor_t rule =
        pointwise_rule(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, what);
    set(g, rule, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &along, what);
    return pointwise(g, rule, x, NULL, NULL, y, what);
}

cudnn_tensor cudnn_graph_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t how, cudnn_tensor x,
                                cudnn_tensor y) {
    static const char what[] = "reduction";
    cudnnBackendDescriptor_t rule = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what);
    set_type(g, rule, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT, what);
    set(g, rule, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how, what);
    finalize(g, rule, what);
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, rule, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, what);
    return add(g, op, y, what);
}

cudnn_tensor cudnn_graph_reshape(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y) {
    static const char what[] = "reshape";
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y, what);
    return add(g, op, y, what);
}

cudnn_tensor cudnn_graph_matmul(struct cudnn_graph *g, cudnn_tensor a, cudnn_tensor b,
                                cudnn_tensor m, cudnn_tensor n, cudnn_tensor k, cudnn_tensor y) {
    static const char what[] = "matmul";
    cudnnBackendDescriptor_t rule = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, what);
    set_type(g, rule, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT, what);
    finalize(g, rule, what);
    cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, rule, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n, what);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k, what);
    return add(g, op, y, what);
}

/* ---- plan ---- */

/* Tries one of the configurations that the heuristics offer; a plan that cannot be made does not
 * spoil the graph. */
static int plan_with(struct cudnn_graph *g, cudnnBackendDescriptor_t config) {
    int64_t n;
    cudnnBackendDescriptor_t engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine"),
                             plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
    if (g->on.handle)
        set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->on.handle, "plan");
    set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, g->on.device, "plan");
    set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config, "plan");
    if (g->spoiled) return 0;
    cudnnStatus_t status = cudnnBackendFinalize(plan);
    if (status != CUDNN_STATUS_SUCCESS) {
        explain(g->why, sizeof g->why, "plan", status);
        return 0;
    }
    expect(g, "engine",
           cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine));
    expect(g, "engine",
           cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                    &g->engine));
    expect(g, "workspace",
           cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                    CUDNN_TYPE_INT64, 1, &n, &g->workspace));
    g->plan = g->spoiled ? NULL : plan;
    return g->plan != NULL;
}

int cudnn_graph_plan(struct cudnn_graph *g) {
    static const char what[] = "operation graph";
    assert(g->plan == NULL);
    cudnnBackendDescriptor_t graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, what);
    if (g->on.handle)
        set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->on.handle, what);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_operations,
        g->operations, what);
    finalize(g, graph, what);

    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t choice = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
    set_descriptor(g, choice, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph, "heuristics");
    set(g, choice, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, "heuristics");
    set_descriptor(g, choice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, g->on.device, "heuristics");
    finalize(g, choice, "heuristics");
    cudnnBackendDescriptor_t configs[CONFIGS];
    for (int i = 0; i < CONFIGS; i++)
        configs[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "configuration");
    if (g->spoiled) return 0;
    /* success and no configurations: no engine fits */
    snprintf(g->why, sizeof g->why, "cuDNN %zu has no engine for it", cudnnGetVersion());
    int64_t n = 0;
    expect(g, "heuristics",
           cudnnBackendGetAttribute(choice, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &n, configs));
    for (int i = 0; i < n && !g->spoiled; i++)
        if (plan_with(g, configs[i])) {
            g->why[0] = 0;
            return 1;
        }
    return 0;
}

const char *cudnn_graph_why(const struct cudnn_graph *g) {
    return g->why;
}

int cudnn_graph_engine(const struct cudnn_graph *g) {
    return (int)g->engine;
}

size_t cudnn_graph_workspace(const struct cudnn_graph *g) {
    return (size_t)g->workspace;
}

/* ---- execution ---- */

void cudnn_graph_run(const struct cudnn_graph *g, void *const at[], void *workspace) {
    int64_t ids[BOUND + VALUES];
    const void *addresses[BOUND + VALUES];
    int n = 0;
    for (int i = 0; i < g->n_bound; i++) ids[n] = i + 1, addresses[n++] = at[g->slots[i]];
    for (int i = 0; i < g->n_values; i++) ids[n] = g->value_ids[i], addresses[n++] = &g->values[i];

    assert(g->plan && g->on.handle);
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                          CUDNN_TYPE_INT64, n, ids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, n, addresses);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendFinalize(pack);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendExecute(g->on.handle, g->plan, pack);
    if (status != CUDNN_STATUS_SUCCESS) {
        char why[400];
        explain(why, sizeof why, "execution", status);
        die("cuDNN: %s", why);
    }
    cudnnBackendDestroyDescriptor(pack);
}
