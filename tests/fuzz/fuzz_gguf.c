/* Fuzz target: a GGUF from a stranger. Opens the bytes and reads everything a loader would. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "engine/model/hparams.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Results end here, so that no read is optimised away. */
static volatile uint64_t sink;

static void read_array(const struct gguf *g, const char *key, enum gguf_type want)
{
    uint64_t n;
    if (gguf_array(g, key, want, &n, NULL) != ST_OK)
        return;
    for (uint64_t i = 0; i < n; i++) {
        if (want == GGUF_STRING) {
            struct gguf_string text = gguf_array_string(g, key, i);
            sink += text.length > 0 ? (uint8_t)text.data[text.length - 1] : 0;
        } else if (want == GGUF_F32) {
            sink += gguf_array_f32(g, key, i) > 0.0f;
        } else {
            sink += (uint64_t)gguf_array_int(g, key, i);
        }
    }
}

static void read_value(const struct gguf *g, size_t i)
{
    const char *key = gguf_kv_key(g, i);
    enum gguf_type type;
    bool is_array, flag;
    uint64_t n;
    uint32_t u32;
    int64_t i64;
    float f32;
    struct gguf_string text;
    char buffer[24];
    if (gguf_kv_type(g, key, &type, &is_array, &n) && n > 0)
        sink += strlen(gguf_kv_text(g, i, n - 1, buffer, sizeof buffer));
    struct err e;
    if (gguf_get_u32(g, key, &u32, &e) == ST_OK)
        sink += u32;
    if (gguf_get_i64(g, key, &i64, &e) == ST_OK)
        sink += (uint64_t)i64;
    if (gguf_get_f32(g, key, &f32, &e) == ST_OK)
        sink += f32 > 0.0f;
    if (gguf_get_bool(g, key, &flag, &e) == ST_OK)
        sink += flag;
    if (gguf_get_string(g, key, &text, &e) == ST_OK && text.length > 0)
        sink += (uint8_t)text.data[text.length - 1];
    read_array(g, key, GGUF_I32);
    read_array(g, key, GGUF_F32);
    read_array(g, key, GGUF_STRING);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct err e;
    if (gguf_open_bytes(data, size, &g, &e) != ST_OK)
        return 0;
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        read_value(g, i);
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const uint8_t *bytes = t->data;
        sink += bytes[0];
        sink += bytes[t->n_bytes - 1];
        sink += gguf_tensor_find(g, t->name) == t;
    }
    struct hparams h;
    if (hparams_read(g, &h, &e) == ST_OK)
        sink += h.n_layer + h.n_head / h.n_head_kv + h.n_rot;
    gguf_close(g);
    return 0;
}
