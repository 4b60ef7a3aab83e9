/* The PTX instructions that OpenCL C does not reach, for NVIDIA devices of compute capability 8.0 up.
 *
 * Included by the kernels of this folder only, whose variants need CAP_PTX_MMA (proven by a probe).
 * Source of the fragment layouts: the PTX ISA, "Matrix Fragments for mma.m16n8k16".
 */
#ifndef OINFER_KERNELS_PTX_H
#define OINFER_KERNELS_PTX_H

#define PTX_INLINE static inline __attribute__((always_inline))

/* The 32-bit address of a place in local memory, as PTX instructions want it. */
PTX_INLINE uint ptx_local(const __local void *p)
{
    return (uint)(ulong)p;
}

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

/* The value that lane `lane ^ mask` of the warp has. */
PTX_INLINE float ptx_shuffle_xor(float v, uint mask)
{
    float r;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                     : "=f"(r)
                     : "f"(v), "r"(mask));
    return r;
}

/* e to the x, to about 2 units in the last place near 0; 0 for -inf. */
PTX_INLINE float ptx_exp(float x)
{
    float r;
    __asm__("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x * 1.44269504f));
    return r;
}

/* The value that lane `lane` has. */
PTX_INLINE float ptx_shuffle(float v, uint lane)
{
    float r;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                     : "=f"(r)
                     : "f"(v), "r"(lane));
    return r;
}

/* Bytes of {a, b} picked by the four digits of `selector`. */
PTX_INLINE uint ptx_permute(uint a, uint b, uint selector)
{
    uint r;
    __asm__("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

/* Arithmetic on pairs of halves held in a word. */
PTX_INLINE uint ptx_half2_add(uint a, uint b)
{
    uint r;
    __asm__("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

PTX_INLINE uint ptx_half2_mul(uint a, uint b)
{
    uint r;
    __asm__("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

PTX_INLINE uint ptx_half2_fma(uint a, uint b, uint c)
{
    uint r;
    __asm__("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/* Two floats rounded to a pair of halves: `low` in the lower half of the word. */
PTX_INLINE uint ptx_half2_of(float low, float high)
{
    uint r;
    __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* Two floats rounded to a pair of bfloat16. */
PTX_INLINE uint ptx_bfloat2_of(float low, float high)
{
    uint r;
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* The float of the half whose bits are h. */
PTX_INLINE float ptx_float_of(ushort h)
{
    float r;
    __asm__("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
    return r;
}

#endif
