/* Stands in for a profiler: NVTX loads it into the program that NVTX_INJECTION64_PATH is set for.
 * Writes the ranges of rank 0 to $RANGES, a line each with its payload, indented by depth. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *out;
static int depth;

static int NVTX_API push(const nvtxEventAttributes_t *e) {
    if (!out) return 0;
    fprintf(out, "%*s%s %lld\n", 2 * depth, "", e->message.ascii, (long long)e->payload.llValue);
    fflush(out);
    return depth++;
}

static int NVTX_API pop(void) {
    if (--depth < 0 && out) fprintf(out, "left too often\n"), fflush(out);
    return depth;
}

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    const char *rank = getenv("PMI_RANK"), *path = getenv("RANGES");
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size))
        return 0;
    if (path && (!rank || strcmp(rank, "0") == 0)) out = fopen(path, "w");
    *table[NVTX_CBID_CORE_RangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
