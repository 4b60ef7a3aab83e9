/* Placement of the cache: layers in a row, in as few buffers as the device allows. */
#include "engine/model/kv.h"

#include "engine/base/mem.h"

#define KV_ALIGN 128

enum status kv_place(struct chooser *c, const struct hparams *h, enum dtype dtype, uint32_t n_slots,
                     uint32_t n_ctx, const uint32_t *n_tokens, uint32_t n, struct kv *kv,
                     struct err *e)
{
    *kv =
        (struct kv){.device = c->device, .dtype = dtype, .n_layer = h->n_layer, .n_slots = n_slots};
    kv->n_ctx = (n_ctx + KV_POSITION_STEP - 1) / KV_POSITION_STEP * KV_POSITION_STEP;
    uint64_t cell_bytes;
    if (!dtype_row_bytes(dtype, h->head_dim_k, &cell_bytes))
        return err_set(e, ST_UNSUPPORTED,
                       "KV cache of %s: heads have %u dimensions, expected a "
                       "multiple of %u",
                       dtype_name(dtype), h->head_dim_k, dtype_info(dtype)->block);
    enum status status = choose_kv_layout(c, dtype, h->head_dim_k, n_tokens, n, &kv->layout, e);
    if (status != ST_OK)
        return status;
    uint64_t bytes = cell_bytes * kv->n_ctx * h->n_head_kv * n_slots;
    kv->layer_bytes = (bytes + KV_ALIGN - 1) / KV_ALIGN * KV_ALIGN;
    uint64_t per_buffer = buffer_max_bytes(c->device) / (2 * kv->layer_bytes); /* layers */
    if (per_buffer == 0)
        return err_set(e, ST_NO_DEVICE_MEMORY,
                       "KV cache: a layer takes %llu bytes, the largest buffer of %s has %llu",
                       (unsigned long long)(2 * kv->layer_bytes), device_info(c->device)->name,
                       (unsigned long long)buffer_max_bytes(c->device));
    kv->n_buffers = (uint32_t)((h->n_layer + per_buffer - 1) / per_buffer);
    kv->buffers = mem_array(kv->n_buffers, sizeof(struct buffer *));
    kv->k = mem_array(h->n_layer, sizeof *kv->k);
    kv->v = mem_array(h->n_layer, sizeof *kv->v);
    if (!kv->buffers || !kv->k || !kv->v) {
        kv_close(kv);
        return err_set(e, ST_NO_MEMORY, "KV cache: %u layers", h->n_layer);
    }
    for (uint32_t i = 0; i < h->n_layer; i++) {
        kv->k[i] = (struct tensor){
            .offset = i % per_buffer * 2 * kv->layer_bytes,
            .bytes = kv->layer_bytes,
            .dtype = dtype,
            .layout = kv->layout,
            .ne = {h->head_dim_k, kv->n_ctx, h->n_head_kv, n_slots},
        };
        kv->v[i] = kv->k[i];
        kv->v[i].offset += kv->layer_bytes;
    }
    return ST_OK;
}

uint64_t kv_bytes(const struct kv *kv)
{
    return 2 * kv->layer_bytes * kv->n_layer;
}

enum status kv_allocate(struct kv *kv, struct err *e)
{
    enum status status = ST_OK;
    uint32_t layer = 0;
    for (uint32_t b = 0; b < kv->n_buffers && status == ST_OK; b++) {
        uint32_t first = layer;
        while (layer < kv->n_layer && (layer == first || kv->k[layer].offset > 0))
            layer++;
        uint64_t bytes = (layer - first) * 2 * kv->layer_bytes;
        status = buffer_open(kv->device, bytes, BUFFER_KV, "KV cache", &kv->buffers[b], e);
        for (uint32_t i = first; i < layer && status == ST_OK; i++)
            kv->k[i].buffer = kv->v[i].buffer = kv->buffers[b];
        if (status == ST_OK)
            status = queue_fill(kv->device, QUEUE_COMPUTE, kv->buffers[b], 0, bytes, 0, "clear", e);
    }
    return status;
}

void kv_close(struct kv *kv)
{
    for (uint32_t i = 0; kv->buffers && i < kv->n_buffers; i++)
        buffer_close(kv->buffers[i]);
    mem_free(kv->buffers);
    mem_free(kv->k);
    mem_free(kv->v);
    *kv = (struct kv){0};
}
