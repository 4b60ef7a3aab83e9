/* What background copies need, on NVIDIA devices of compute capability 9.0 up: barriers in local memory
 * (mbarrier) that count arrivals and bytes, and warps that act as one. Addresses are those of ptx_local().
 */
#ifndef OINFER_KERNELS_MBARRIER_H
#define OINFER_KERNELS_MBARRIER_H

#include "nvidia/ptx.h"

/* A number that is the same in all lanes, as one that the compiler knows to be the same: what follows
 * from it stays in uniform registers, as the copy engine's instructions want it. */
PTX_INLINE uint ptx_uniform(uint v)
{
    uint r;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}

/* Whether this lane is the one of its warp that acts for all of them. */
PTX_INLINE bool ptx_elect(void)
{
    uint r;
    __asm__ volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(r));
    return r != 0;
}

/* Whether it is so for any lane. */
PTX_INLINE bool ptx_any(bool v)
{
    uint r;
    __asm__ volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %1, 0;\n\t"
                     "vote.sync.any.pred p, p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(r)
                     : "r"((uint)v));
    return r != 0;
}

PTX_INLINE void mbarrier_init(uint at, uint arrivals)
{
    __asm__ volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(at), "r"(arrivals) : "memory");
}

PTX_INLINE void mbarrier_arrive(uint at)
{
    __asm__ volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared::cta.b64 state, [%0];\n\t}"
                     :
                     : "r"(at)
                     : "memory");
}

/* Waits until the phase of this parity is complete. */
PTX_INLINE void mbarrier_wait(uint at, uint parity)
{
    uint done;
    do {
        __asm__ volatile("{\n\t.reg .pred p;\n\t"
                         "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                         "selp.u32 %0, 1, 0, p;\n\t}"
                         : "=r"(done)
                         : "r"(at), "r"(parity)
                         : "memory");
    } while (done == 0);
}

PTX_INLINE void ptx_warp_sync(void)
{
    __asm__ volatile("bar.warp.sync 0xffffffff;" : : : "memory");
}

/* An arrival that lets the phase wait for n bytes more. */
PTX_INLINE void mbarrier_expect(uint at, uint n)
{
    __asm__ volatile("{\n\t.reg .b64 state;\n\t"
                     "mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n\t}"
                     :
                     : "r"(at), "r"(n)
                     : "memory");
}

#endif
