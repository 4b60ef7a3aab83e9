/* Co-resident work-groups with a device-wide barrier: ROUNDS times every group writes its word,
 * waits for all, and reads its neighbour's. Each wait is bounded by SPIN polls; a group that hits
 * the bound tells the others, so that a device without forward progress fails and does not hang.
 *
 * Scratch: [0] the barrier's counter, [1] the flag "given up", [64 + 32 g] the word of group g.
 */
#include "probe/common.h"

#ifndef ROUNDS
#define ROUNDS 16
#endif
#ifndef SPIN
#define SPIN 1024
#endif

__kernel void probe(__global const uchar *in, __global volatile uint *out)
{
    __global volatile uint *counter = out + PROBE_SCRATCH, *given_up = counter + 1;
    __global volatile uint *words = counter + 64;
    uint n = (uint)get_num_groups(0), group = (uint)get_group_id(0);
    uint right = 0;
    if (get_local_id(0) == 0) {
        bool going = true;
        for (uint round = 1; round <= ROUNDS && going; round++) {
            words[32 * group] = round * 1000u + group;
            for (uint half_round = 0; half_round < 2 && going; half_round++) {
                uint target = (2 * round - 1 + half_round) * n, polls = 0;
                mem_fence(CLK_GLOBAL_MEM_FENCE);
                atomic_inc(counter);
                while (atomic_add(counter, 0u) < target && going)
                    going = ++polls < SPIN && atomic_add(given_up, 0u) == 0u;
                mem_fence(CLK_GLOBAL_MEM_FENCE);
                uint next = (group + 1) % n;
                if (half_round == 0 && going)
                    right += atomic_add(words + 32 * next, 0u) == round * 1000u + next;
            }
            if (!going)
                atomic_inc(given_up);
        }
    }
    out[get_global_id(0)] = get_local_id(0) != 0 || right == ROUNDS ? PROBE_OK : PROBE_BAD;
}
