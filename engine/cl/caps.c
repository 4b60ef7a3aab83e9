/* The capability table and its probes. */
#include "engine/cl/caps.h"

#include <string.h>

static const struct {
    enum device_cap cap;
    const char *name;  /* for people and kernels.def */
    const char *macro; /* for kernels */
} rows[] = {
    {CAP_CPU, "cpu", "CAP_CPU"},
    {CAP_GPU, "gpu", "CAP_GPU"},
    {CAP_HALF, "half", "CAP_HALF"},
    {CAP_FP64, "fp64", "CAP_FP64"},
    {CAP_SUBGROUPS, "subgroups", "CAP_SUBGROUPS"},
    {CAP_IMAGES, "images", "CAP_IMAGES"},
    {CAP_ASM_X86, "asm_x86", "CAP_ASM_X86"},
    {CAP_ASM_VNNI512, "vnni512", "CAP_ASM_VNNI512"},
    {CAP_ASM_VNNI256, "vnni256", "CAP_ASM_VNNI256"},
    {CAP_ASM_BF16, "bf16", "CAP_ASM_BF16"},
    {CAP_ASM_AVX2, "avx2", "CAP_ASM_AVX2"},
    {CAP_ASM_F16C512, "f16c512", "CAP_ASM_F16C512"},
    {CAP_PTX, "ptx", "CAP_PTX"},
    {CAP_PTX_DP4A, "ptx_dp4a", "CAP_PTX_DP4A"},
    {CAP_PTX_MMA, "ptx_mma", "CAP_PTX_MMA"},
    {CAP_PTX_SM90A, "ptx_sm90a", "CAP_PTX_SM90A"},
    {CAP_BIG_LOCAL, "big_local", "CAP_BIG_LOCAL"},
    {CAP_PERSISTENT, "persistent", "CAP_PERSISTENT"},
    {CAP_ASM_SDOT, "sdot", "CAP_ASM_SDOT"},
};

#define CAP_COUNT (sizeof rows / sizeof rows[0])

const char *device_cap_name(enum device_cap cap)
{
    for (size_t i = 0; i < CAP_COUNT; i++)
        if (rows[i].cap == cap)
            return rows[i].name;
    return NULL;
}

const char *caps__macro(enum device_cap cap)
{
    for (size_t i = 0; i < CAP_COUNT; i++)
        if (rows[i].cap == cap)
            return rows[i].macro;
    return NULL;
}

enum status caps__probe(struct device *d, struct err *e)
{
    (void)e;
    d->caps = d->info.kind == DEVICE_CPU ? CAP_CPU : CAP_GPU;
    return ST_OK;
}
