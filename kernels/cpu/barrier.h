/* A barrier of all groups of a launch, which must run at the same time: a group per thread of
 * the pool. A group announces the number of its meeting in a cache line of its own and waits for
 * the others'. Who waits long gives up its CPU again and again, since the other may be waiting for
 * just that one; who waits in vain says so to all, and the launch ends. Numbers grow from launch to
 * launch. */
#ifndef CPU_BARRIER_H
#define CPU_BARRIER_H

#include "cpu/decode.h"

#define SPINS_BEFORE_YIELD 2000
#ifdef CAP_ASM_X86
#define MAX_SPINS 5000000u /* most of them with a yield: some seconds */
#else
#define MAX_SPINS 200000000u
#endif

/* Between two looks at a word that another group will write. */
static void relax(uint spins)
{
#ifdef CAP_ASM_X86
    __asm__ volatile("pause" ::: "memory");
#ifdef __linux__
    if (spins > SPINS_BEFORE_YIELD) {
        long result;
        const long sched_yield = 24;
        __asm__ volatile("syscall" : "=a"(result) : "0"(sched_yield) : "rcx", "r11", "memory");
    }
#endif
#endif
}

/* Meeting number `phase`; false: not all came. */
static bool meet(__global uint *control, uint phase, uint group, uint n_groups)
{
    volatile __global uint *dead = control + CONTROL_DEAD;
    volatile __global uint *phases = control + CONTROL_PHASES;
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    atomic_xchg(phases + group * CONTROL_LINE, phase);
    for (uint other = 0; other < n_groups; other++) {
        for (uint spins = 0; (int)(phases[other * CONTROL_LINE] - phase) < 0; spins++) {
            if (*dead || spins > MAX_SPINS) {
                *dead = 1;
                return false;
            }
            relax(spins);
        }
    }
#ifdef CAP_ASM_X86
    __asm__ volatile("" ::: "memory"); /* what the others wrote is read after this point */
#endif
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    return true;
}

#endif
