/* Keeps a queue busy for a while: what is enqueued meanwhile then runs without a gap. */

/* y [1] uint = what n steps of a chain make of n; one item. */
__kernel void hold(__global uint *y, uint n)
{
    uint v = n;
    for (uint i = 0; i < n; i++)
        v = (v >> 7 ^ v) * 1664525u + 1013904223u;
    y[0] = v;
}
