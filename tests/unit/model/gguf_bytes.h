/* Builds GGUF files in memory, right or wrong, for the tests of the reader. */
#ifndef OINFER_TESTS_GGUF_BYTES_H
#define OINFER_TESTS_GGUF_BYTES_H

#include <stdint.h>
#include <string.h>

#include "engine/base/strbuf.h"
#include "engine/model/gguf.h"

#define BYTES_CEILING ((size_t)1 << 24)

struct gguf_bytes {
    struct strbuf values, infos, file;
    uint64_t n_values, n_tensors; /* as the header says; tests may change them */
    uint32_t version;
    size_t data_bytes; /* zeros after the padding */
    size_t alignment;
};

static inline void bytes_put(struct strbuf *s, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        strbuf_putc(s, (char)(value >> (8 * i)));
}

static inline void bytes_put_string(struct strbuf *s, const char *text)
{
    bytes_put(s, strlen(text), 8);
    strbuf_puts(s, text);
}

static inline void bytes_init(struct gguf_bytes *b)
{
    memset(b, 0, sizeof *b);
    strbuf_init(&b->values, BYTES_CEILING);
    strbuf_init(&b->infos, BYTES_CEILING);
    strbuf_init(&b->file, BYTES_CEILING);
    b->version = 3;
    b->alignment = 32;
}

static inline void bytes_free(struct gguf_bytes *b)
{
    strbuf_free(&b->values);
    strbuf_free(&b->infos);
    strbuf_free(&b->file);
}

static inline void bytes_key(struct gguf_bytes *b, const char *key, uint32_t type)
{
    bytes_put_string(&b->values, key);
    bytes_put(&b->values, type, 4);
    b->n_values++;
}

/* A scalar of n bytes. */
static inline void bytes_scalar(struct gguf_bytes *b, const char *key, enum gguf_type type,
                                uint64_t value, size_t n)
{
    bytes_key(b, key, type);
    bytes_put(&b->values, value, n);
}

static inline void bytes_u32(struct gguf_bytes *b, const char *key, uint32_t value)
{
    bytes_scalar(b, key, GGUF_U32, value, 4);
}

static inline void bytes_f32(struct gguf_bytes *b, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bytes_scalar(b, key, GGUF_F32, bits, 4);
}

static inline void bytes_string(struct gguf_bytes *b, const char *key, const char *value)
{
    bytes_key(b, key, GGUF_STRING);
    bytes_put_string(&b->values, value);
}

/* The head of an array; its elements follow by bytes_put or bytes_put_string on b->values. */
static inline void bytes_array(struct gguf_bytes *b, const char *key, uint32_t type, uint64_t n)
{
    bytes_key(b, key, GGUF_ARRAY);
    bytes_put(&b->values, type, 4);
    bytes_put(&b->values, n, 8);
}

static inline void bytes_tensor(struct gguf_bytes *b, const char *name, uint32_t n_dims,
                                const uint64_t *ne, uint32_t type, uint64_t offset)
{
    bytes_put_string(&b->infos, name);
    bytes_put(&b->infos, n_dims, 4);
    for (uint32_t i = 0; i < n_dims && i < 8; i++)
        bytes_put(&b->infos, ne[i], 8);
    bytes_put(&b->infos, type, 4);
    bytes_put(&b->infos, offset, 8);
    b->n_tensors++;
}

/* Puts the parts together in b->file. */
static inline void bytes_finish(struct gguf_bytes *b)
{
    strbuf_clear(&b->file);
    strbuf_puts(&b->file, "GGUF");
    bytes_put(&b->file, b->version, 4);
    bytes_put(&b->file, b->n_tensors, 8);
    bytes_put(&b->file, b->n_values, 8);
    strbuf_append(&b->file, strbuf_text(&b->values), b->values.length);
    strbuf_append(&b->file, strbuf_text(&b->infos), b->infos.length);
    if (b->data_bytes > 0)
        while (b->file.length % b->alignment != 0)
            strbuf_putc(&b->file, 0);
    for (size_t i = 0; i < b->data_bytes; i++)
        strbuf_putc(&b->file, 0);
}

#endif
