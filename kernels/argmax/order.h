/* The one order of argmax and top_k, so that a result does not depend on how a row is cut: a number beats
 * NaN, the larger beats the smaller, the lower index beats the higher.
 */
#ifndef ARGMAX_ORDER_H
#define ARGMAX_ORDER_H

struct candidate {
    float value;
    uint index; /* NO_INDEX: nothing seen yet */
};

#define NO_INDEX 0xffffffffu

static bool argmax_beats(struct candidate a, struct candidate b)
{
    const bool a_nan = isnan(a.value), b_nan = isnan(b.value);
    if (a.index == NO_INDEX || b.index == NO_INDEX)
        return b.index == NO_INDEX;
    if (a_nan != b_nan)
        return b_nan;
    return a.value > b.value || ((a_nan || a.value == b.value) && a.index < b.index);
}

/* The best candidate of the n items of the group (a power of two), in local[0]. */
static void argmax_reduce(struct candidate mine, __local struct candidate *local_best, uint n)
{
    const uint lid = get_local_id(0);
    local_best[lid] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_n = n / 2; half_n > 0; half_n /= 2) {
        if (lid < half_n && argmax_beats(local_best[lid + half_n], local_best[lid]))
            local_best[lid] = local_best[lid + half_n];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#endif
