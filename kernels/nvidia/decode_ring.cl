/* decode.cl with weights and cells streamed through local memory (decode_ring.h), and for weights that
 * are floats, all of one dtype.
 * Checked with: -DTHREADS=256 -DN_LAYER=2 -DN_EMBD=256 -DN_FF=512 -DN_HEAD=4 -DN_HEAD_KV=2
 * -DHEAD_DIM=64 -DN_ROT=64 -DN_CTX=256 -DN_VOCAB=1000 -DMAX_SLOTS=64 -DMAX_K=512
 * -DMAX_SPLITS=8 -DTEAM=0 -DN_GROUPS=8
 * -DLOCAL_BYTES=98304 -DTYPE_A=1 -DTYPE_B=255 -DTYPE_C=255 -DOP_DTYPE=14 -DAT_X=0 -DAT_XB=8192 -DAT_Q=16384
 * -DAT_ATT=32768 -DAT_PARTS=65536 -DAT_H=655360 -DAT_LOGITS=4194304.
 */
#define NUMBERS_ARE_HALVES FLOATS /* blocks of int8 round more than bfloat16 does */
#include "nvidia/decode_ring.h"
#include "nvidia/decode_phases.h"

KERNEL(THREADS + FEEDERS) void decode_ring(DECODE_ARGS)
{
    __local uchar stages[WARPS * STAGES * STAGE_BYTES] __attribute__((aligned(128)));
    __local ulong barriers[WARPS * STAGES * 2];
    __local uint types[WARPS * STAGES];
    __local uchar body[LOCAL_ALL] __attribute__((aligned(16)));
    __local float floats[WARPS];
    __local uint words[DECODE_WORDS];
    struct ctx c = DECODE_CONTEXT(1);
    struct share s;
    s.rings.stages = stages;
    s.rings.barriers = barriers;
    s.rings.types = types;
    s.rings.old = p.position[0];
    s.stage = s.parity = 0;
    keep_rows(&c, p);
    ring_open(&s.rings, c.thread);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (c.warp >= WARPS) {
        feed_all(&c, &s.rings, p.n_tokens);
        return;
    }
    begin_times(&c);
    if (p.n_tokens == 0) {
        arrive(&c);
        wait_all(&c, DECODE_OUTPUT);
    }
    for (uint t = 0; t < p.n_tokens; t++) {
        begin_linear(&c, c.layers->qkv, DECODE_QKV_PARTS, N_EMBD, QKV_GROUPS, 1, &s);
        for (uint l = 0; l < N_LAYER; l++)
            if (!run_layer(&c, l, &s))
                return;
        head_phase(&c, &s);
        if (!wait_all(&c, DECODE_OUTPUT))
            return;
        next_tokens(&c, t);
    }
}
