/* Matrix products of a warp on the matrix units: mma.sync and ldmatrix.
 *
 * Source of the fragment layouts: the PTX ISA, "Matrix Fragments for mma.m16n8k16".
 */
#ifndef OINFER_KERNELS_MMA_H
#define OINFER_KERNELS_MMA_H

#include "nvidia/ptx.h"

/* Loads four 8 x 8 matrices of halves; lane l gives the address of row l % 8 of matrix l / 8. */
PTX_INLINE void ptx_load_matrix4(uint *r, uint local_address)
{
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(local_address)
                 : "memory");
}

/* The same, each matrix transposed. */
PTX_INLINE void ptx_load_matrix4_transposed(uint *r, uint local_address)
{
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(local_address)
                     : "memory");
}

/* c [16][8] float += a [16][16] half * b [16][8] half, over the 32 lanes of a warp. */
PTX_INLINE void ptx_mma_16816(float *c, const uint *a, const uint *b)
{
    __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The same for a and b of bfloat16. */
PTX_INLINE void ptx_mma_16816_bf16(float *c, const uint *a, const uint *b)
{
    __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Two floats rounded to a pair of bfloat16. */
PTX_INLINE uint ptx_bfloat2_of(float low, float high)
{
    uint r;
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

#endif
