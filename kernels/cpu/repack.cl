/* repack: a weight from its file layout into LAYOUT_R16 (cpu/r16.h), one row group after another,
 * so that a mapped file is read in order. Each line of a unit is a transposition: dword `lane` of
 * the line comes from row `lane` of the row group. */
#include "cpu/r16.inc"

/* Bytes and columns of a block in the file. */
#if OP_DTYPE == DT_Q4_0
#define FILE_BYTES 18
#elif OP_DTYPE == DT_Q4_1
#define FILE_BYTES 20
#elif OP_DTYPE == DT_Q5_0
#define FILE_BYTES 22
#elif OP_DTYPE == DT_Q5_1
#define FILE_BYTES 24
#elif OP_DTYPE == DT_Q8_0
#define FILE_BYTES 34
#elif OP_DTYPE == DT_Q4_K
#define FILE_BYTES 144
#elif OP_DTYPE == DT_Q5_K
#define FILE_BYTES 176
#elif OP_DTYPE == DT_Q6_K
#define FILE_BYTES 210
#elif OP_DTYPE == DT_F32
#define FILE_BYTES 4
#else
#define FILE_BYTES 2
#endif
#if R16_IS_FLOAT
#define FILE_K 1
#elif R16_IS_K
#define FILE_K 256
#else
#define FILE_K 32
#endif

/* The file may lie at any byte: no wider access than a byte is aligned. */
CPU_INLINE uint load_u32(const __global uchar *p)
{
    return as_uint(vload4(0, p));
}

CPU_INLINE ushort load_u16(const __global uchar *p)
{
    return as_ushort(vload2(0, p));
}

#if R16_IS_FLOAT

/* Unit: columns 2u and 2u + 1. */
CPU_INLINE void repack_lane(const __global uchar *row, uint unit, __global uchar *out, uint lane)
{
    const __global uchar *src = row + (ulong)unit * 2 * FILE_BYTES;
    for (uint i = 0; i < 2; i++) {
#if OP_DTYPE == DT_F32
        ((__global uint *)out)[16 * i + lane] = load_u32(src + 4 * i);
#elif OP_DTYPE == DT_BF16
        ((__global ushort *)out)[2 * lane + i] = load_u16(src + 2 * i);
#else
        ((__global ushort *)out)[16 * i + lane] = load_u16(src + 2 * i);
#endif
    }
}

#elif !R16_IS_K

#if OP_DTYPE == DT_Q5_0 || OP_DTYPE == DT_Q5_1
/* Bit 4j + c of h to bit 8c + j. */
CPU_INLINE uint spread_high_bits(uint h)
{
    uint r = 0;
    CPU_UNROLL
    for (uint c = 0; c < 4; c++) {
        uint v = (h >> c) & 0x11111111u; /* bit 4j */
        v = (v | (v >> 3)) & 0x03030303u;
        v = (v | (v >> 6)) & 0x000f000fu;
        v = (v | (v >> 12)) & 0x000000ffu;
        r |= v << (8 * c);
    }
    return r;
}
#endif

/* Unit: blocks 2u and 2u + 1 of the row. */
CPU_INLINE void repack_lane(const __global uchar *row, uint unit, __global uchar *out, uint lane)
{
    __global uint *line = (__global uint *)out + lane;
    __global ushort *scales = (__global ushort *)(out + 64 * (R16_LINES - 1 - R16_HAS_MIN)) + lane;
    for (uint b = 0; b < 2; b++) {
        const __global uchar *src = row + (ulong)(2 * unit + b) * FILE_BYTES;
        scales[16 * b] = load_u16(src);
        src += 2;
#if R16_HAS_MIN
        scales[32 + 16 * b] = load_u16(src);
        src += 2;
#endif
#if OP_DTYPE == DT_Q8_0
        for (uint i = 0; i < 8; i++)
            line[16 * (8 * b + i)] = load_u32(src + 4 * i) ^ 0x80808080u;
#else
#if OP_DTYPE == DT_Q5_0 || OP_DTYPE == DT_Q5_1
        line[16 * (8 + b)] = spread_high_bits(load_u32(src));
        src += 4;
#endif
        for (uint i = 0; i < 4; i++)
            line[16 * (4 * b + i)] = load_u32(src + 4 * i);
#endif
    }
}

#elif OP_DTYPE == DT_Q6_K

/* Block: ql 128, qh 64, scales 16, d 2 bytes. */
CPU_INLINE void repack_lane(const __global uchar *row, uint unit, __global uchar *out, uint lane)
{
    const __global uchar *src = row + (ulong)unit * FILE_BYTES;
    __global uint *line = (__global uint *)out + lane;
    for (uint i = 0; i < 48; i++)
        line[16 * i] = load_u32(src + 4 * i);
    for (uint s = 0; s < 16; s++)
        out[64 * 48 + 16 * s + lane] = src[192 + s];
    __global ushort *d = (__global ushort *)(out + 64 * 52);
    d[lane] = load_u16(src + 208);
    d[16 + lane] = 0;
}

#else

/* q4_K, q5_K. Block: d, dmin, scales 12, (qh 32,) qs 128 bytes. Sub-block s < 4: scale and min are
 * the low 6 bits of bytes s and s + 4; else their low 4 bits are in byte s + 4 and the top two in
 * the top bits of bytes s - 4 and s. */
CPU_INLINE void repack_lane(const __global uchar *row, uint unit, __global uchar *out, uint lane)
{
    const __global uchar *src = row + (ulong)unit * FILE_BYTES;
    const __global uchar *packed = src + 4, *qs = src + FILE_BYTES - 128;
    __global uint *line = (__global uint *)out + lane;
    for (uint i = 0; i < 32; i++)
        line[16 * i] = load_u32(qs + 4 * i);
#if OP_DTYPE == DT_Q5_K
    for (uint i = 0; i < 8; i++)
        line[16 * (32 + i)] = load_u32(src + 16 + 4 * i);
#endif
    __global uchar *scales = out + 64 * (R16_LINES - 5) + lane, *mins = scales + 128;
    for (uint s = 0; s < 4; s++) {
        uchar a = packed[s], b = packed[s + 4], c = packed[s + 8];
        scales[16 * s] = a & 63;
        mins[16 * s] = b & 63;
        scales[16 * (s + 4)] = (c & 15) | ((a >> 6) << 4);
        mins[16 * (s + 4)] = (c >> 4) | ((b >> 6) << 4);
    }
    __global ushort *d = (__global ushort *)(out + 64 * (R16_LINES - 1));
    d[lane] = load_u16(src);
    d[16 + lane] = load_u16(src + 2);
}

#endif

/* src [n_rows][k] in the file's blocks -> dst, row groups of p.m_total rows. p.row0 and, unless
 * p.group equals p.group_stride, both of them are multiples of 16. */
static void repack_step(const __global uchar *src, __global uchar *dst, struct repack_params p,
                        uint group, uint n_groups)
{
    const ulong row_bytes = (ulong)(p.k / FILE_K) * FILE_BYTES;
    const uint n_units = p.k / R16_UNIT_K;
    uint begin, end;
    cpu_share((p.n_rows + 15) / 16, group, n_groups, &begin, &end);
    for (uint g = begin; g < end; g++) {
        uint r = 16 * g;
        uint to = p.row0 + r / p.group * p.group_stride + r % p.group;
        const __global uchar *rows = src + r * row_bytes;
        __global uchar *out = dst + (to / 16) * r16_group_bytes(p.k);
        uint n_lanes = min(16u, p.n_rows - r);
        if (n_lanes < 16)
            for (ulong i = 0; i < r16_group_bytes(p.k) / 64; i++)
                ((__global uint16 *)out)[i] = (uint16)(0);
        for (uint u = 0; u < n_units; u++)
            for (uint lane = 0; lane < n_lanes; lane++)
                repack_lane(rows + lane * row_bytes, u, out + (ulong)u * R16_UNIT_BYTES, lane);
    }
}

KERNEL(1) void repack(__global uchar *src, ulong src_off, __global uchar *dst, ulong dst_off,
                       struct repack_params p)
{
    repack_step(src + src_off, dst + dst_off, p, get_group_id(0), get_num_groups(0));
}
