/* The KV cache of a model: K and V of every layer, for n_slots sequences of n_ctx tokens.
 *
 * A slot is a sequence's seat: (slot, position) addresses a cell. Cells are never moved; rewinding
 * a sequence only forgets how many are in use. The memory is zeroed once, so that no kernel meets
 * a NaN in a cell it masks. Belongs to the device's thread.
 */
#ifndef OINFER_MODEL_KV_H
#define OINFER_MODEL_KV_H

#include "engine/model/choose.h"
#include "engine/model/hparams.h"

/* Positions are padded to a multiple of it: KV_TILED stores them in tiles. */
#define KV_POSITION_STEP 64

struct kv {
    struct device *device;
    enum dtype dtype;
    uint32_t layout;                  /* KV_* */
    uint32_t n_layer, n_slots, n_ctx; /* n_ctx: padded, as kernels see it */
    uint64_t layer_bytes;             /* of K, and as many of V */
    struct tensor *k, *v;             /* [n_layer]; buffers known after kv_allocate */
    uint32_t n_buffers;
    struct buffer **buffers;
};

/* Chooses the layout for steps of the counts of tokens given. ST_UNSUPPORTED (no kernel, or heads
 * that q8_0 blocks do not divide), ST_NO_DEVICE_MEMORY (one layer passes the largest buffer). */
enum status kv_place(struct chooser *c, const struct hparams *h, enum dtype dtype, uint32_t n_slots,
                     uint32_t n_ctx, const uint32_t *n_tokens, uint32_t n, struct kv *kv,
                     struct err *e);
uint64_t kv_bytes(const struct kv *kv);
enum status kv_allocate(struct kv *kv, struct err *e);
void kv_close(struct kv *kv); /* a zeroed struct is fine */

#endif
