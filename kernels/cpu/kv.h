/* KV_TILED caches of dtype KV_DTYPE (f16, f32). K [slot][n_head_kv][n_ctx / 16][head_dim][16], so
 * that 16 cells are scored at once; V [slot][n_head_kv][n_ctx][head_dim]. n_ctx is a multiple of
 * 16. */
#ifndef CPU_KV_H
#define CPU_KV_H

#include "cpu/vec.h"

#ifndef KV_DTYPE
#define KV_DTYPE OP_DTYPE
#endif

#if KV_DTYPE == DT_F16
typedef half kv_t;
#define KV_LOAD_16(p)     vload_half16(0, p)
#define KV_STORE_16(v, p) vstore_half16(v, 0, p)
#else
typedef float kv_t;
#define KV_LOAD_16(p)     vload16(0, p)
#define KV_STORE_16(v, p) vstore16(v, 0, p)
#endif

/* Elements before the first cell of a slot's head; the same in K and V. */
CPU_INLINE ulong kv_head(uint slot, uint head, uint n_head_kv, uint n_ctx, uint head_dim)
{
    return ((ulong)slot * n_head_kv + head) * n_ctx * head_dim;
}

#endif
