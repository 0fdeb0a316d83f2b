/* Tensor maps: what the bulk copies of Hopper are told of a matrix. BF16 unless said otherwise;
 * lines of 128 bytes, swizzled; sizes in elements, innermost first. */
#ifndef REGULON_KERNELS_TENSOR_MAP_CUH
#define REGULON_KERNELS_TENSOR_MAP_CUH
#include "check.h"
#include "driver.h"
#include <cuda.h>
#include <cuda_runtime.h>
#include <initializer_list>

using encode_tensor_map = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                       const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                       const cuuint32_t *, CUtensorMapInterleave,
                                       CUtensorMapSwizzle, CUtensorMapL2promotion,
                                       CUtensorMapFloatOOBfill);

/* The driver's encoder, NULL: it has none. */
static inline encode_tensor_map tensor_map_encoder() {
    return reinterpret_cast<encode_tensor_map>(driver_function("cuTensorMapEncodeTiled"));
}

/* One dimension: its size, the distance between neighbours in elements (the first one's is 1), and
 * how many of them a box has. */
struct dimension {
    size_t size, stride;
    int box;
};

enum class element { bf16, fp32, byte };

static inline CUtensorMap tensor_map(encode_tensor_map encode, element type, const void *base,
                                     std::initializer_list<dimension> dims) {
    const size_t bytes = type == element::byte ? 1 : type == element::bf16 ? 2 : 4;
    const CUtensorMapDataType data = type == element::byte   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                     : type == element::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                             : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    CUtensorMap map;
    cuuint64_t sizes[4], strides[4];
    cuuint32_t boxes[4], ones[4];
    cuuint32_t rank = 0;
    for (const dimension &d : dims) {
        sizes[rank] = d.size, boxes[rank] = static_cast<cuuint32_t>(d.box), ones[rank] = 1;
        if (rank) strides[rank - 1] = d.stride * bytes;
        rank++;
    }
    CUresult status = encode(&map, data, rank, const_cast<void *>(base), sizes, strides, boxes,
                             ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status != CUDA_SUCCESS)
        kernel_failed(__FILE__, __LINE__, "cuTensorMapEncodeTiled refused a matrix");
    return map;
}
#endif
