/* Fills memory with one 32-bit pattern, 16 bytes an item: for drivers whose own fill fails on large
 * buffers. */

/* y [n] uint4 from word `first` on = value. */
__kernel void fill_words(__global uint4 *y, ulong first, uint value, ulong n)
{
    for (ulong i = get_global_id(0); i < n; i += get_global_size(0))
        y[first + i] = (uint4)(value);
}
