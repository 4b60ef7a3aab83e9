/* What every matmul kernel uses: strides of the operands, the finish of an element, arguments.
 *
 *   a [batch][m][k]  b [batch][k][n]  c, y [batch][m][n]    (transposed ones: kernels/params.h)
 *   y[b][r][col] = alpha * sum over i of a[b][r][i] b[b][i][col] + beta * c[b][r][col]
 */
#ifndef MATMUL_H
#define MATMUL_H

#include "real.h"

/* k of private copies of the operands: padded with zeros to a multiple of this. */
#define MATMUL_PAD 16

static ulong matmul_padded_k(struct matmul_params p)
{
    return ((ulong)p.k + MATMUL_PAD - 1) / MATMUL_PAD * MATMUL_PAD;
}

/* Where element (row, i) of a, and (i, col) of b, of a batch lies. */
static ulong matmul_a(struct matmul_params p, uint batch, uint row, uint i)
{
    return (ulong)batch * p.m * p.k + (p.trans_a ? (ulong)i * p.m + row : (ulong)row * p.k + i);
}

static ulong matmul_b(struct matmul_params p, uint batch, uint i, uint col)
{
    return (ulong)batch * p.n * p.k + (p.trans_b ? (ulong)col * p.k + i : (ulong)i * p.n + col);
}

/* Stores element i of y (all batches in a row). */
static void matmul_finish(__global uchar *y, const __global uchar *c, struct matmul_params p, ulong i,
                          float sum)
{
    float v = p.alpha * sum;
    if (p.beta != 0.0f)
        v = fma(p.beta, real_load(c, i), v);
    real_store(y, i, v);
}

/* Arguments of the kernels without and with private memory. */
#define MATMUL_TENSORS                                                                           \
    const __global uchar *a, ulong a_offset, const __global uchar *b, ulong b_offset,            \
        const __global uchar *c, ulong c_offset, __global uchar *y, ulong y_offset
#define MATMUL_ARGS MATMUL_TENSORS, struct matmul_params p
#define MATMUL_SCRATCH_ARGS \
    MATMUL_TENSORS, __global uchar *scratch, ulong scratch_offset, struct matmul_params p

#endif
