/* Common part of every program. OpenCL C 1.2 without optional features; no double anywhere.
 *
 * Every kernel is a thin wrapper around a device function NAME_step(tensors..., params, [local
 * memory,] group, n_groups), in which work-group `group` of `n_groups` does its share of the blocks
 * of the output (kernels.def says what a block is). A launch of one step passes its own group
 * numbers; a launch of many steps calls the functions one after another.
 *
 * The host passes LWS (local size of the first stage, a power of two), LWS2 (of the second), ROWS
 * and TOKENS (of a block), OP_ACT, OP_LAYOUT and OP_DTYPE where the op has one. Defaults here and
 * in the files let each file be compiled alone.
 */
#ifndef LWS
#define LWS 64
#endif
#ifndef LWS2
#define LWS2 64
#endif
#ifndef OP_ACT
#define OP_ACT 0
#endif
#ifndef OP_LAYOUT
#define OP_LAYOUT 0
#endif
#ifndef OP_DTYPE
#define OP_DTYPE 0
#endif

/* GGUF numbers of the dtypes, as in engine/tensor/dtype.def. */
#define DT_F32  0
#define DT_F16  1
#define DT_Q4_0 2
#define DT_Q4_1 3
#define DT_Q5_0 6
#define DT_Q5_1 7
#define DT_Q8_0 8
#define DT_Q4_K 12
#define DT_Q5_K 13
#define DT_Q6_K 14
#define DT_BF16 30

/* A kernel whose groups have exactly n items: compilers give it all the registers it can have. */
#define KERNEL(n) __kernel __attribute__((reqd_work_group_size(n, 1, 1)))

static uint div_up(uint a, uint b)
{
    return a / b + (a % b != 0);
}

/* The half at p, in any address that is a multiple of 2. */
static float load_half(const __global uchar *p)
{
    return vload_half(0, (const __global half *)p);
}

/* 16 bytes at p, a multiple of 2. */
static uchar16 load_bytes16(const __global uchar *p)
{
    return as_uchar16(vload8(0, (const __global ushort *)p));
}

static float sum_16(float16 v)
{
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
    return (b.x + b.y) + (b.z + b.w);
}

static float max_16(float16 v)
{
    float8 a = fmax(v.lo, v.hi);
    float4 b = fmax(a.lo, a.hi);
    return fmax(fmax(b.x, b.y), fmax(b.z, b.w));
}

/* Sum and maximum over the n items (a power of two) of the group, given to all of them. `scratch`:
 * n floats, free again on return. Called by all items. */
static float group_sum(float v, __local float *scratch, uint n)
{
    const uint lid = get_local_id(0);
    scratch[lid] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_n = n / 2; half_n > 0; half_n /= 2) {
        if (lid < half_n)
            scratch[lid] += scratch[lid + half_n];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    v = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return v;
}

static float group_max(float v, __local float *scratch, uint n)
{
    const uint lid = get_local_id(0);
    scratch[lid] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_n = n / 2; half_n > 0; half_n /= 2) {
        if (lid < half_n)
            scratch[lid] = fmax(scratch[lid], scratch[lid + half_n]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    v = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return v;
}

