/* sparse_gemv: formats in kernels/params.h.
 *
 *   csr_scalar: a row per item       csr_vector: a row per group, its items stride over the kept elements
 *   two_four:   a row per group, an item per word of positions: 16 values, 32 columns of x
 */
#define SPARSE_ARGS                                                                              \
    const __global uchar *values, ulong values_offset, const __global uchar *columns,            \
        ulong columns_offset, const __global uchar *row_ptr, ulong row_ptr_offset,               \
        const __global uchar *x, ulong x_offset, __global uchar *y, ulong y_offset,              \
        struct sparse_gemv_params p

static void csr_scalar_step(const __global float *values, const __global int *columns,
                            const __global int *row_ptr, const __global float *x, __global float *y,
                            struct sparse_gemv_params p, uint group, uint n_groups)
{
    for (uint r = group * LWS + get_local_id(0); r < p.m; r += n_groups * LWS) {
        float sum = 0.0f;
        for (int i = row_ptr[r]; i < row_ptr[r + 1]; i++)
            sum = fma(values[i], x[columns[i]], sum);
        y[r] = sum;
    }
}

static void csr_vector_step(const __global float *values, const __global int *columns,
                            const __global int *row_ptr, const __global float *x, __global float *y,
                            struct sparse_gemv_params p, __local float *scratch, uint group,
                            uint n_groups)
{
    for (uint r = group; r < p.m; r += n_groups) {
        float sum = 0.0f;
        for (int i = row_ptr[r] + (int)get_local_id(0); i < row_ptr[r + 1]; i += LWS)
            sum = fma(values[i], x[columns[i]], sum);
        sum = group_sum(sum, scratch, LWS);
        if (get_local_id(0) == 0)
            y[r] = sum;
    }
}

static void two_four_step(const __global float *values, const __global uint *words,
                          const __global float *x, __global float *y, struct sparse_gemv_params p,
                          __local float *scratch, uint group, uint n_groups)
{
    const uint per_row = div_up(p.k, 32), fours = p.k / 4;
    for (uint r = group; r < p.m; r += n_groups) {
        const __global float *row = values + (ulong)r * (p.k / 2);
        float sum = 0.0f;
        for (uint w = get_local_id(0); w < per_row; w += LWS) {
            const uint word = words[(ulong)r * per_row + w];
            for (uint g = 0; g < min(8u, fours - 8 * w); g++) {
                const uint four = 8 * w + g, positions = word >> (4 * g);
                sum = fma(row[2 * four], x[4 * four + (positions & 3)], sum);
                sum = fma(row[2 * four + 1], x[4 * four + (positions >> 2 & 3)], sum);
            }
        }
        sum = group_sum(sum, scratch, LWS);
        if (get_local_id(0) == 0)
            y[r] = sum;
    }
}

KERNEL(LWS) void csr_scalar(SPARSE_ARGS)
{
    csr_scalar_step((const __global float *)(values + values_offset),
                    (const __global int *)(columns + columns_offset),
                    (const __global int *)(row_ptr + row_ptr_offset),
                    (const __global float *)(x + x_offset), (__global float *)(y + y_offset), p,
                    get_group_id(0), get_num_groups(0));
}

KERNEL(LWS) void csr_vector(SPARSE_ARGS)
{
    __local float scratch[LWS];
    csr_vector_step((const __global float *)(values + values_offset),
                    (const __global int *)(columns + columns_offset),
                    (const __global int *)(row_ptr + row_ptr_offset),
                    (const __global float *)(x + x_offset), (__global float *)(y + y_offset), p,
                    scratch, get_group_id(0), get_num_groups(0));
}

KERNEL(LWS) void two_four(SPARSE_ARGS)
{
    __local float scratch[LWS];
    two_four_step((const __global float *)(values + values_offset),
                  (const __global uint *)(columns + columns_offset),
                  (const __global float *)(x + x_offset), (__global float *)(y + y_offset), p, scratch,
                  get_group_id(0), get_num_groups(0));
}
