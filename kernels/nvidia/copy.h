/* Copies from global to local memory in the background, of parts of 16 bytes and of single numbers. */
#ifndef OINFER_KERNELS_COPY_H
#define OINFER_KERNELS_COPY_H

#include "nvidia/ptx.h"

/* Copies 16 bytes from global to local memory in the background; zeros when `valid` is 0. */
PTX_INLINE void ptx_copy16(uint local_address, const __global void *from, bool valid)
{
    uint bytes = valid ? 16 : 0;
    __asm__ volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(local_address), "l"(from), "r"(bytes)
                 : "memory");
}

PTX_INLINE void ptx_copy_commit(void)
{
    __asm__ volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits until at most one, or none, of the committed groups is under way. */
PTX_INLINE void ptx_copy_wait1(void)
{
    __asm__ volatile("cp.async.wait_group 1;" : : : "memory");
}

PTX_INLINE void ptx_copy_wait0(void)
{
    __asm__ volatile("cp.async.wait_group 0;" : : : "memory");
}

/* Copies 16 bytes of which the last 16 - bytes become zeros. */
PTX_INLINE void ptx_copy_bytes(uint local_address, const __global void *from, uint bytes)
{
    __asm__ volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                     :
                     : "r"(local_address), "l"(from), "r"(bytes)
                     : "memory");
}

/* Copies 4 bytes; zeros when `bytes` is 0. */
PTX_INLINE void ptx_copy4(uint local_address, const __global void *from, uint bytes)
{
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :
                     : "r"(local_address), "l"(from), "r"(bytes)
                     : "memory");
}

/* Waits until at most n (a constant) of the committed copies are under way. */
#define PTX_COPY_WAIT(n) __asm__ volatile("cp.async.wait_group %0;" : : "n"(n) : "memory")

#endif
