/* embed: rows of the table, unpacked. An item per 16 columns of a token.
 *
 *   table [n_vocab][k]   y[t][i] = table[ids[t]][i] * scale, zeros for an id outside the table
 *   item = t * ceil(k / 16) + i / 16
 */
#include "weight.h"

static void embed_plain_step(const __global uchar *table, const __global int *ids,
                             __global float *y, struct embed_params p, uint group, uint n_groups)
{
    const uint pieces = div_up(p.k, 16);
    const ulong n = (ulong)pieces * p.n_tokens, row_bytes = weight_row_bytes(p.k);
    for (ulong item = (ulong)group * LWS + get_local_id(0); item < n;
         item += (ulong)n_groups * LWS) {
        const uint t = (uint)(item / pieces), i = (uint)(item % pieces) * 16;
        const bool known = ids[t] >= 0 && (uint)ids[t] < p.n_vocab;
        const __global uchar *row = table + (known ? (uint)ids[t] : 0u) * row_bytes;
        const float scale = known ? p.scale : 0.0f;
        __global float *out = y + (ulong)t * p.k;
#if WEIGHT_BLOCK == 1
        if (i + 16 > p.k) {
            for (uint j = i; j < p.k; j++)
                out[j] = known ? weight_at(row, j) * scale : 0.0f;
            continue;
        }
#endif
        vstore16(known ? weight_16(row, i) * scale : (float16)(0.0f), 0, out + i);
    }
}

KERNEL(LWS) void embed_plain(const __global uchar *table, ulong table_offset,
                             const __global uchar *ids, ulong ids_offset, __global uchar *y,
                             ulong y_offset, struct embed_params p)
{
    embed_plain_step(table + table_offset, (const __global int *)(ids + ids_offset),
                     (__global float *)(y + y_offset), p, get_group_id(0), get_num_groups(0));
}
