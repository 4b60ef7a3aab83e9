/* What the device can do at most: streaming reads, copies, and fused multiply-adds in f32.
 *
 * CPU devices (-DCPU): as many items as compute units, each walking one contiguous share of wide
 * vectors. Others: neighbour items read neighbour 16-byte words.
 */
#ifdef CPU
typedef uint16 word;
/* 12 sums are in registers on every CPU: half as wide, they go twice */
#ifdef __AVX512F__
typedef float16 lanes;
#define PASSES 1
#else
typedef float8 lanes;
#define PASSES 2
#endif
#define FIRST(n, id, items) ((n) / (items) * (id))
#define LAST(n, id, items)  ((n) / (items) * ((id) + 1))
#define STEP(items)         1
#define CHAINS              12
#else
typedef uint4 word;
typedef float lanes;
#define FIRST(n, id, items) (id)
#define LAST(n, id, items)  (n)
#define STEP(items)         (items)
#define CHAINS              16
#define PASSES              1
#endif

/* x [n] word -> y [items]: the exclusive or of what an item read. */
__kernel void read_all(__global const word *x, __global uint *y, ulong n)
{
    ulong id = get_global_id(0), items = get_global_size(0), end = LAST(n, id, items);
    word sum = (word)(0);
#ifndef CPU
    word other = (word)(0);
    ulong i = FIRST(n, id, items);
    for (; i + 3 * STEP(items) < end; i += 4 * STEP(items)) {
        word a = x[i], b = x[i + STEP(items)];
        word c = x[i + 2 * STEP(items)], d = x[i + 3 * STEP(items)];
        sum ^= a ^ b;
        other ^= c ^ d;
    }
    sum ^= other;
    for (; i < end; i += STEP(items))
        sum ^= x[i];
#else
    for (ulong i = FIRST(n, id, items); i < end; i++)
        sum ^= x[i];
#endif
    y[id] = sum.s0 ^ sum.s1 ^ sum.s2 ^ sum.s3;
}

/* x [n] word -> y [n] word. */
__kernel void copy_all(__global const word *x, __global word *y, ulong n)
{
    ulong id = get_global_id(0), items = get_global_size(0), end = LAST(n, id, items);
    for (ulong i = FIRST(n, id, items); i < end; i += STEP(items))
        y[i] = x[i];
}

/* rounds x PASSES x CHAINS independent multiply-adds per item, on `lanes`; 2 operations each. */
__kernel void multiply_add(__global float *y, float a, float b, uint rounds)
{
    lanes v[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        v[c] = (lanes)((float)get_global_id(0) + (float)c);
    for (uint r = 0; r < PASSES * rounds; r++) {
#pragma unroll
        for (int c = 0; c < CHAINS; c++)
            v[c] = fma(v[c], (lanes)(a), (lanes)(b));
    }
    lanes sum = (lanes)(0.0f);
    for (int c = 0; c < CHAINS; c++)
        sum += v[c];
#ifdef CPU
    y[get_global_id(0)] = sum.s0 + sum.s1 + sum.s4 + sum.s7;
#else
    y[get_global_id(0)] = sum;
#endif
}
