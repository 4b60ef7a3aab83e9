/* matmul by warps, whose broadcast is a shuffle: see matmul/subgroup.h. */
static float warp_broadcast(float v, uint lane)
{
    float out;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                     : "=f"(out)
                     : "f"(v), "r"(lane));
    return out;
}

#define SUBGROUP_LANES           32u
#define SUBGROUP_LANE            ((uint)get_local_id(0) % 32)
#define SUBGROUP_INDEX           ((uint)get_local_id(0) / 32)
#define SUBGROUP_COUNT           (LWS / 32)
#define SUBGROUP_BROADCAST(v, i) warp_broadcast(v, i)
#include "matmul/subgroup.h"
