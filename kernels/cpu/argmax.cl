/* argmax on CPU devices: a group takes a run of rows, 16 candidates in vectors. The lowest index
 * wins ties; NaN never wins, unless there is nothing else (then index 0). */
#include "cpu/vec.h"

/* The first index whose value is above -infinity and not below any other; else len. */
CPU_INLINE uint argmax_row(const __global float *x, uint len)
{
    const int16 lanes = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    float16 best = (float16)(-INFINITY);
    int16 at = (int16)(0);
    uint i = 0;
    for (; i + 16 <= len; i += 16) {
        const float16 v = vload16(0, x + i);
        const int16 better = v > best;
        best = select(best, v, better);
        at = select(at, lanes + (int)i, better);
    }
    float values[16], winner = -INFINITY;
    int indices[16];
    uint index = len;
    vstore16(best, 0, values);
    vstore16(at, 0, indices);
    for (uint lane = 0; lane < 16; lane++) {
        if (values[lane] > winner ||
            (values[lane] == winner && winner > -INFINITY && (uint)indices[lane] < index)) {
            winner = values[lane];
            index = (uint)indices[lane];
        }
    }
    for (; i < len; i++) {
        if (x[i] > winner) {
            winner = x[i];
            index = i;
        }
    }
    return index;
}

/* x [n_rows][x_stride] -> index, found [n_rows]. */
static void argmax_cpu_step(const __global float *x, __global int *index, __global float *found,
                            struct argmax_params p, uint group, uint n_groups)
{
    uint begin, end;
    cpu_share(p.n_rows, group, n_groups, &begin, &end);
    for (uint r = begin; r < end; r++) {
        const __global float *row = x + (ulong)r * p.x_stride;
        uint best = argmax_row(row, p.len);
        /* nothing above -infinity: the first that is a number, else the first */
        for (uint i = 0; best == p.len && i < p.len; i++)
            if (!isnan(row[i]))
                best = i;
        best = best == p.len ? 0 : best;
        index[r] = (int)best;
        found[r] = row[best];
    }
}

KERNEL(1) void argmax_cpu(__global uchar *x, ulong x_off, __global uchar *index, ulong index_off,
                          __global uchar *found, ulong found_off, struct argmax_params p)
{
    argmax_cpu_step((const __global float *)(x + x_off), (__global int *)(index + index_off),
                    (__global float *)(found + found_off), p, get_group_id(0), get_num_groups(0));
}
