/* Greedy decoding of several tokens of one sequence in one launch: resident groups walk through the
 * layers together.
 *
 * Per layer five phases, each ending with an arrival of all groups at a counter and beginning with
 * a wait for it:
 *   qkv      norm of x (or of the embedding); q | k | v rows; rotation; cells of k and v
 *   att      a group per head and split of the cells: online softmax; splits are merged by readers
 *   o        += into x, whose rows always belong to the same group
 *   gate_up  norm of x; silu(gate) * up
 *   down     += into x
 * then head: norm of x; logits; each group's best; the next token is the best of all.
 *
 * A vector that a phase reads is read by every group, which quantises it to int8 blocks in local
 * memory (as ACT_Q8). To halve those reads vectors travel as bfloat16, whose rounding is below that
 * of int8 blocks; x itself stays float, in the hands of the group that owns its rows. 1 / rms is
 * applied to the sums, so the norm needs no wait of its own. Spins are capped: when groups do not
 * meet, all leave, the control buffer says so and the results are void.
 * decode_ring.cl does the same with weights streamed through local memory, decode_rows.cl for several
 * sequences.
 * Checked with: -DTHREADS=512 -DN_LAYER=2 -DN_EMBD=256 -DN_FF=512 -DN_HEAD=4 -DN_HEAD_KV=2
 * -DHEAD_DIM=64 -DN_ROT=64 -DN_CTX=256 -DN_VOCAB=1000 -DN_GROUPS=8 -DMAX_SLOTS=64 -DMAX_K=512
 * -DMAX_SPLITS=8 -DTEAM=0
 * -DTYPE_A=2 -DTYPE_B=14 -DTYPE_C=255 -DOP_DTYPE=14 -DAT_X=0 -DAT_XB=8192 -DAT_Q=16384
 * -DAT_ATT=32768 -DAT_PARTS=65536 -DAT_H=655360 -DAT_LOGITS=4194304.
 */
#define NUMBERS_ARE_HALVES 0
#include "nvidia/decode_dot.h"
#include "nvidia/decode_phases.h"

KERNEL(THREADS) void decode(DECODE_ARGS)
{
    __local uchar body[LOCAL_ALL] __attribute__((aligned(16)));
    __local float floats[WARPS];
    __local uint words[DECODE_WORDS];
    struct ctx c = DECODE_CONTEXT(1);
    keep_rows(&c, p);
    group_barrier();
    begin_times(&c);
    if (p.n_tokens == 0) {
        arrive(&c);
        wait_all(&c, DECODE_OUTPUT);
    }
    for (uint t = 0; t < p.n_tokens; t++) {
        struct share s;
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
