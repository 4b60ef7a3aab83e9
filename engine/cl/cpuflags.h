/* What the CPU this process runs on can do, read from the CPU itself and from what the system
 * saves of its registers. Constant; any thread. */
#ifndef OINFER_CL_CPUFLAGS_H
#define OINFER_CL_CPUFLAGS_H

#include <stdint.h>

enum cpu_flag {
    CPU_FLAG_X86 = 1 << 0,
    CPU_FLAG_AVX2 = 1 << 1,
    CPU_FLAG_AVX512 = 1 << 2,  /* F, BW and VL: 512-bit registers, and EVEX forms of 256 bits */
    CPU_FLAG_VNNI512 = 1 << 3, /* AVX512_VNNI */
    CPU_FLAG_AVXVNNI = 1 << 4, /* the VEX form, 256 bits */
    CPU_FLAG_BF16 = 1 << 5,    /* AVX512_BF16 */
    CPU_FLAG_DOTPROD = 1 << 6  /* ARM */
};

uint32_t cpuflags_read(void);

#endif
