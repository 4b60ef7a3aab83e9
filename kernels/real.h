/* Plain numbers of OP_DTYPE (f32, or f16 or bf16 storage with f32 arithmetic), element i of an array. */
#ifndef REAL_H
#define REAL_H

#if OP_DTYPE == DT_F16
#define REAL_BYTES 2

static float real_load(const __global uchar *x, ulong i)
{
    return vload_half(0, (const __global half *)(x + 2 * i));
}

static void real_store(__global uchar *x, ulong i, float v)
{
    vstore_half_rte(v, 0, (__global half *)(x + 2 * i));
}

static float4 real_load4(const __global uchar *x, ulong i)
{
    return vload_half4(0, (const __global half *)(x + 2 * i));
}

static void real_store4(__global uchar *x, ulong i, float4 v)
{
    vstore_half4_rte(v, 0, (__global half *)(x + 2 * i));
}

static float16 real_load16(const __global uchar *x, ulong i)
{
    return vload_half16(0, (const __global half *)(x + 2 * i));
}

static void real_store16(__global uchar *x, ulong i, float16 v)
{
    vstore_half16_rte(v, 0, (__global half *)(x + 2 * i));
}
#elif OP_DTYPE == DT_BF16
#define REAL_BYTES 2

static float real_load(const __global uchar *x, ulong i)
{
    return as_float((uint)((const __global ushort *)x)[i] << 16);
}

/* The upper half of a float, rounded to nearest even; NaN stays NaN. */
static ushort real_round(float v)
{
    const uint bits = as_uint(v);
    return (ushort)((isnan(v) ? bits | 0x400000 : bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void real_store(__global uchar *x, ulong i, float v)
{
    ((__global ushort *)x)[i] = real_round(v);
}

static float4 real_load4(const __global uchar *x, ulong i)
{
    return as_float4(convert_uint4(vload4(0, (const __global ushort *)x + i)) << 16u);
}

static void real_store4(__global uchar *x, ulong i, float4 v)
{
    const uint4 bits = as_uint4(v), rounded = bits + 0x7FFF + (bits >> 16 & 1);
    vstore4(convert_ushort4((isnan(v) ? bits | 0x400000 : rounded) >> 16), 0, (__global ushort *)x + i);
}

static float16 real_load16(const __global uchar *x, ulong i)
{
    return as_float16(convert_uint16(vload16(0, (const __global ushort *)x + i)) << 16u);
}

static void real_store16(__global uchar *x, ulong i, float16 v)
{
    const uint16 bits = as_uint16(v), rounded = bits + 0x7FFF + (bits >> 16 & 1);
    vstore16(convert_ushort16((isnan(v) ? bits | 0x400000 : rounded) >> 16), 0,
             (__global ushort *)x + i);
}
#else
#define REAL_BYTES 4

static float real_load(const __global uchar *x, ulong i)
{
    return ((const __global float *)x)[i];
}

static void real_store(__global uchar *x, ulong i, float v)
{
    ((__global float *)x)[i] = v;
}

static float4 real_load4(const __global uchar *x, ulong i)
{
    return vload4(0, (const __global float *)x + i);
}

static void real_store4(__global uchar *x, ulong i, float4 v)
{
    vstore4(v, 0, (__global float *)x + i);
}

static float16 real_load16(const __global uchar *x, ulong i)
{
    return vload16(0, (const __global float *)x + i);
}

static void real_store16(__global uchar *x, ulong i, float16 v)
{
    vstore16(v, 0, (__global float *)x + i);
}
#endif

#endif
