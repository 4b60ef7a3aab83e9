/* Instructions of NVIDIA GPUs by inline PTX, one per build: -DPROBE_WARP, _DP4A or _MMA; one
 * work-group of 32 items. Sources: the PTX ISA.
 */
#include "probe/common.h"

#ifdef PROBE_WARP
__kernel void probe(__global const uchar *in, __global uint *out)
{
    uint id = (uint)get_local_id(0), lane, got, mine = in[id];
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("shfl.sync.bfly.b32 %0, %1, 5, 31, 0xffffffff;" : "=r"(got) : "r"(mine));
    out[get_global_id(0)] = lane == id && got == in[id ^ 5u] ? PROBE_OK : PROBE_BAD;
}
#endif

#ifdef PROBE_DP4A
__kernel void probe(__global const uchar *in, __global uint *out)
{
    uint id = (uint)get_local_id(0);
    __global const uint *words = (__global const uint *)in;
    uint a = words[id], b = words[32 + id];
    int got, want = (int)id;
    asm volatile("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(got) : "r"(a), "r"(b), "r"(want));
    for (int i = 0; i < 4; i++)
        want += (int)(a >> (8 * i) & 0xFFu) * (int)(char)(b >> (8 * i) & 0xFFu);
    out[get_global_id(0)] = got == want ? PROBE_OK : PROBE_BAD;
}
#endif

#ifdef PROBE_MMA
/* c [16][8] = a [16][16] b [16][8]: a is copied to local memory by cp.async and taken from there by
 * ldmatrix; small integers, so every sum is exact.
 * a[r][k] = in[16 r + k] & 15, b[k][n] = in[k + 3 n] & 7. */
__kernel void probe(__global const uchar *in, __global uint *out)
{
    __local ushort tile[16 * 16] __attribute__((aligned(128)));
    __global ushort *halves = (__global ushort *)(out + PROBE_SCRATCH);
    uint lane = (uint)get_local_id(0);
    for (uint i = lane; i < 256; i += 32)
        vstore_half((float)(in[i] & 15), i, (__global half *)halves);
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
    uint base = (uint)(ulong)(__local void *)tile;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n\t"
                 "cp.async.commit_group;\n\t"
                 "cp.async.wait_group 0;"
                 :
                 : "r"(base + 16 * lane), "l"(halves + 8 * lane)
                 : "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    uint a[4], b[2];
    uint row = base + 32 * (lane % 16) + 16 * (lane / 16);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(row)
                 : "memory");
    for (uint i = 0; i < 2; i++) {
        ushort pair[2];
        for (uint j = 0; j < 2; j++)
            vstore_half((float)(in[(lane % 4) * 2 + j + 8 * i + 3 * (lane / 4)] & 7), j,
                        (half *)pair);
        b[i] = (uint)pair[0] | (uint)pair[1] << 16;
    }
    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    bool right = true;
    for (uint i = 0; i < 4; i++) {
        uint r = lane / 4 + 8 * (i / 2), n = 2 * (lane % 4) + i % 2;
        float want = 0.0f;
        for (uint k = 0; k < 16; k++)
            want += (float)(in[16 * r + k] & 15) * (float)(in[k + 3 * n] & 7);
        right = right && c[i] == want;
    }
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif
