/* Typed access to the key-values of an opened GGUF. Read-only: any thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/span.h"
#include "engine/model/gguf_internal.h"

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

size_t gguf__type_bytes(uint32_t type)
{
    return type < sizeof types / sizeof types[0] ? types[type].bytes : 0;
}

const char *gguf_type_name(enum gguf_type type)
{
    return (size_t)type < sizeof types / sizeof types[0] ? types[type].name : "unknown";
}

const struct gguf_kv *gguf__find_kv(const struct gguf_shard *shard, const char *key)
{
    size_t low = 0, high = shard->n_kvs;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(key, shard->by_key[middle]->key);
        if (order == 0)
            return shard->by_key[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static const struct gguf_kv *find(const struct gguf *g, const char *key)
{
    return gguf__find_kv(&g->shards[0], key);
}

/* Element i as a signed 64-bit number; false for another type or a u64 beyond INT64_MAX. */
static bool integer_at(const struct gguf_kv *kv, uint64_t i, int64_t *out)
{
    size_t size = gguf__type_bytes(kv->type);
    struct span s = span_make(kv->data + i * size, size);
    switch (kv->type) {
    case GGUF_U8: *out = span_u8(&s); return true;
    case GGUF_I8: *out = (int8_t)span_u8(&s); return true;
    case GGUF_U16: *out = span_u16(&s); return true;
    case GGUF_I16: *out = (int16_t)span_u16(&s); return true;
    case GGUF_U32: *out = span_u32(&s); return true;
    case GGUF_I32: *out = (int32_t)span_u32(&s); return true;
    case GGUF_I64: *out = (int64_t)span_u64(&s); return true;
    case GGUF_U64: *out = (int64_t)span_u64(&s); return *out >= 0;
    case GGUF_F32:
    case GGUF_F64:
    case GGUF_BOOL:
    case GGUF_STRING:
    case GGUF_ARRAY: return false;
    }
    return false;
}

/* Element i as a double; false for a type that is not floating-point. */
static bool float_at(const struct gguf_kv *kv, uint64_t i, double *out)
{
    size_t size = gguf__type_bytes(kv->type);
    if (kv->type != GGUF_F32 && kv->type != GGUF_F64)
        return false;
    struct span s = span_make(kv->data + i * size, size);
    *out = kv->type == GGUF_F32 ? (double)span_f32(&s) : span_f64(&s);
    return true;
}

static struct gguf_string string_at(const struct gguf_kv *kv, uint64_t i)
{
    const unsigned char *position = kv->is_array ? kv->positions[i] : kv->position;
    struct span s = span_make(position, sizeof(uint64_t));
    size_t length = (size_t)span_u64(&s); /* checked when the file was parsed */
    return (struct gguf_string){.data = (const char *)position + sizeof(uint64_t),
                                .length = length};
}

static bool is_integer(enum gguf_type type)
{
    return type <= GGUF_I32 || type == GGUF_U64 || type == GGUF_I64;
}

static void kv_text(const struct gguf_kv *kv, uint64_t i, char *buffer, size_t size)
{
    int64_t integer;
    double number;
    if (integer_at(kv, i, &integer)) {
        snprintf(buffer, size, "%lld", (long long)integer);
    } else if (kv->type == GGUF_U64) {
        struct span s = span_make(kv->data + i * sizeof(uint64_t), sizeof(uint64_t));
        snprintf(buffer, size, "%llu", (unsigned long long)span_u64(&s));
    } else if (float_at(kv, i, &number)) {
        snprintf(buffer, size, kv->type == GGUF_F32 ? "%.9g" : "%.17g", number);
    } else if (kv->type == GGUF_BOOL) {
        snprintf(buffer, size, "%s", kv->data[i] != 0 ? "true" : "false");
    } else {
        struct gguf_string text = string_at(kv, i);
        size_t n = text.length < size - 1 ? text.length : size - 1;
        while (n < text.length && n > 0 && ((unsigned char)text.data[n] & 0xC0) == 0x80)
            n--; /* not inside a UTF-8 sequence */
        for (size_t c = 0; c < n; c++) {
            unsigned char byte = (unsigned char)text.data[c];
            buffer[c] = byte < 0x20 || byte == 0x7F ? '?' : text.data[c];
        }
        buffer[n] = '\0';
    }
}

const char *gguf_kv_text(const struct gguf *g, size_t kv, uint64_t i, char *buffer, size_t size)
{
    ASSERT(kv < g->shards[0].n_kvs && i < g->shards[0].kvs[kv].n && size > 0);
    kv_text(&g->shards[0].kvs[kv], i, buffer, size);
    return buffer;
}

size_t gguf_kv_count(const struct gguf *g)
{
    return g->shards[0].n_kvs;
}

const char *gguf_kv_key(const struct gguf *g, size_t i)
{
    ASSERT(i < g->shards[0].n_kvs);
    return g->shards[0].kvs[i].key;
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return find(g, key) != NULL;
}

bool gguf_kv_type(const struct gguf *g, const char *key, enum gguf_type *type, bool *is_array,
                  uint64_t *n)
{
    const struct gguf_kv *kv = find(g, key);
    if (kv == NULL)
        return false;
    *type = kv->type;
    *is_array = kv->is_array;
    *n = kv->n;
    return true;
}

/* The scalar of a key; NULL after setting *status when it is absent or an array. */
static const struct gguf_kv *find_scalar(const struct gguf_shard *shard, const char *key,
                                         const char *wanted, enum status *status, struct err *e)
{
    const struct gguf_kv *kv = gguf__find_kv(shard, key);
    if (kv == NULL) {
        *status = err_set(e, ST_NOT_FOUND, "key %.80s is missing", key);
        return NULL;
    }
    if (kv->is_array) {
        *status = err_set(e, ST_FORMAT, "key %.80s: array of %llu %s, expected %s", key,
                          (unsigned long long)kv->n, gguf_type_name(kv->type), wanted);
        return NULL;
    }
    return kv;
}

static enum status wrong_type(const struct gguf_kv *kv, const char *wanted, struct err *e)
{
    char value[48];
    kv_text(kv, 0, value, sizeof value);
    return err_set(e, ST_FORMAT, "key %.80s: %s %s, expected %s", kv->key, gguf_type_name(kv->type),
                   value, wanted);
}

enum status gguf__get_integer(const struct gguf_shard *shard, const char *key, int64_t min,
                              int64_t max, int64_t *out, struct err *e)
{
    enum status status = ST_OK;
    const struct gguf_kv *kv = find_scalar(shard, key, "an integer", &status, e);
    if (kv == NULL)
        return status;
    if (!is_integer(kv->type))
        return wrong_type(kv, "an integer", e);
    int64_t value;
    if (!integer_at(kv, 0, &value) || value < min || value > max) {
        char text[48];
        kv_text(kv, 0, text, sizeof text);
        return err_set(e, ST_FORMAT, "key %.80s: %s is not in %lld .. %lld", key, text,
                       (long long)min, (long long)max);
    }
    *out = value;
    return ST_OK;
}

enum status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct err *e)
{
    int64_t value = 0;
    enum status status = gguf__get_integer(&g->shards[0], key, 0, UINT32_MAX, &value, e);
    if (status == ST_OK)
        *out = (uint32_t)value;
    return status;
}

enum status gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct err *e)
{
    return gguf__get_integer(&g->shards[0], key, INT64_MIN, INT64_MAX, out, e);
}

enum status gguf_get_f32(const struct gguf *g, const char *key, float *out, struct err *e)
{
    enum status status = ST_OK;
    const struct gguf_kv *kv = find_scalar(&g->shards[0], key, "a number", &status, e);
    if (kv == NULL)
        return status;
    double value;
    if (!float_at(kv, 0, &value))
        return wrong_type(kv, "a floating-point number", e);
    if (isfinite(value) && fabs(value) > (double)3.402823466e38f)
        return wrong_type(kv, "a number within float's range", e);
    *out = (float)value;
    return ST_OK;
}

enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err *e)
{
    enum status status = ST_OK;
    const struct gguf_kv *kv = find_scalar(&g->shards[0], key, "a bool", &status, e);
    if (kv == NULL)
        return status;
    if (kv->type != GGUF_BOOL)
        return wrong_type(kv, "a bool", e);
    *out = kv->data[0] != 0;
    return ST_OK;
}

enum status gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *out,
                            struct err *e)
{
    enum status status = ST_OK;
    const struct gguf_kv *kv = find_scalar(&g->shards[0], key, "a string", &status, e);
    if (kv == NULL)
        return status;
    if (kv->type != GGUF_STRING)
        return wrong_type(kv, "a string", e);
    *out = string_at(kv, 0);
    return ST_OK;
}

enum status gguf_array(const struct gguf *g, const char *key, enum gguf_type want, uint64_t *n,
                       struct err *e)
{
    const struct gguf_kv *kv = find(g, key);
    if (kv == NULL)
        return err_set(e, ST_NOT_FOUND, "key %.80s is missing", key);
    bool fits = want == GGUF_STRING ? kv->type == GGUF_STRING
                : want == GGUF_F32  ? kv->type == GGUF_F32 || kv->type == GGUF_F64
                                    : is_integer(kv->type);
    if (!kv->is_array || !fits)
        return err_set(e, ST_FORMAT, "key %.80s: %s%s, expected an array of %s", key,
                       kv->is_array ? "array of " : "", gguf_type_name(kv->type),
                       want == GGUF_STRING ? "strings"
                       : want == GGUF_F32  ? "numbers"
                                           : "integers");
    *n = kv->n;
    return ST_OK;
}

/* Element i's array; an absent key or an index out of range is a bug of the caller. */
static const struct gguf_kv *element_of(const struct gguf *g, const char *key, uint64_t i)
{
    const struct gguf_kv *kv = find(g, key);
    ASSERT(kv != NULL && kv->is_array && i < kv->n);
    return kv;
}

struct gguf_string gguf_array_string(const struct gguf *g, const char *key, uint64_t i)
{
    const struct gguf_kv *kv = element_of(g, key, i);
    ASSERT(kv->type == GGUF_STRING);
    return string_at(kv, i);
}

float gguf_array_f32(const struct gguf *g, const char *key, uint64_t i)
{
    double value = 0;
    bool ok = float_at(element_of(g, key, i), i, &value);
    ASSERT(ok);
    return (float)value;
}

int64_t gguf_array_int(const struct gguf *g, const char *key, uint64_t i)
{
    const struct gguf_kv *kv = element_of(g, key, i);
    ASSERT(is_integer(kv->type));
    int64_t value;
    return integer_at(kv, i, &value) ? value : INT64_MAX; /* a u64 beyond it saturates */
}
