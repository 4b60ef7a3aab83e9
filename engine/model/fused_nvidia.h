/* Private to fused_nvidia*.c: what the one-launch kernels for NVIDIA GPUs are told about a model.
 */
#ifndef OINFER_MODEL_FUSED_NVIDIA_H
#define OINFER_MODEL_FUSED_NVIDIA_H

#include "engine/model/fused.h"
#include "kernels/nvidia/decode.h"

/* The sizes that the kernels are built for. */
struct decode_shape {
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_rot, n_ctx, n_vocab;
    uint32_t n_types, types[DECODE_TYPES];
    uint32_t max_k;
    enum dtype embed_type;
};

/* The decode plan as a table of places. */
struct decode_model {
    struct decode_shape shape;
    struct decode_settings settings;
    struct decode_head *head; /* the start of the table, table_bytes long; freed by its owner */
    struct decode_layer *layers;
    size_t table_bytes;
    struct buffer *weights[DECODE_ARENAS], *cells[DECODE_ARENAS]; /* borrowed */
    struct tensor rope;
    uint64_t phase_bytes[DECODE_PHASES]; /* weights read for one token, of all layers */
    bool dots;       /* for decode.cl and decode_ring.cl: all weights are in LAYOUT_R4 */
    bool float_dots; /* for decode_ring.cl: all weights are floats of one dtype */
    bool tiles;      /* for decode_rows.cl: rows divide into tiles */
};

/* Reads the plan's steps. ST_UNSUPPORTED: it holds what neither kernel does. The table is to be
 * freed in any case. */
enum status decode_read_plan(const struct plan *plan, struct decode_model *m, struct err *e);

#endif
