/* CPUID (x86-64) and the auxiliary vector (ARM). */
#include "engine/cl/cpuflags.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* The register state that the system saves (XCR0). */
static uint64_t saved_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

uint32_t cpuflags_read(void)
{
    uint32_t a, b, c, d, flags = CPU_FLAG_X86;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0)
        return flags;
    uint64_t state = saved_state();
    if ((state & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return flags;
    uint32_t avx512 = UINT32_C(1) << 16 | UINT32_C(1) << 30 | UINT32_C(1) << 31; /* F, BW, VL */
    bool wide = (state & 0xE6) == 0xE6 && (b & avx512) == avx512;
    if (b & UINT32_C(1) << 5)
        flags |= CPU_FLAG_AVX2;
    if (wide)
        flags |= CPU_FLAG_AVX512;
    if (wide && (c & UINT32_C(1) << 11))
        flags |= CPU_FLAG_VNNI512;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        if (a & UINT32_C(1) << 4)
            flags |= CPU_FLAG_AVXVNNI;
        if (wide && (a & UINT32_C(1) << 5))
            flags |= CPU_FLAG_BF16;
    }
    return flags;
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

#define HWCAP_DOT_PRODUCT (1UL << 20) /* ASIMDDP */

uint32_t cpuflags_read(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_DOT_PRODUCT) != 0 ? CPU_FLAG_DOTPROD : 0;
}

#else

uint32_t cpuflags_read(void)
{
    return 0;
}

#endif
