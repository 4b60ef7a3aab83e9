/* GGUF bytes to tables: header, key-values, tensor table of one file, every field checked.
 *
 * All reads go through a span, all counts are compared with the bytes left before anything is
 * allocated from them, and so a file of n bytes costs O(n) memory and O(n log n) time at worst.
 * Nothing here touches tensor data. No state; one call per file, from the opening thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/span.h"
#include "engine/model/gguf_internal.h"

#define VERSION_MIN       2u
#define VERSION_MAX       3u
#define KEY_BYTES_MAX     65535u
#define NAME_BYTES_MAX    63u
#define KV_MAX            65536u
#define TENSORS_MAX       ((uint64_t)1 << 20)
#define DIMS_MAX          4u
#define ALIGNMENT_DEFAULT 32
#define ALIGNMENT_MAX     ((int64_t)1 << 20)
#define KV_BYTES_MIN      (8u + 1u + 4u + 1u)           /* key length, key, type, value */
#define TENSOR_BYTES_MIN  (8u + 1u + 4u + 8u + 4u + 8u) /* name, n_dims, one dim, type, offset */

/* Reads a length and that many bytes. `what` and `where` name the string in the error. */
static enum status take_string(struct span *s, const char *what, const char *where,
                               struct gguf_string *out, struct err *e)
{
    uint64_t length = span_u64(s);
    if (s->failed)
        return err_set(e, ST_FORMAT, "%s %.80s: the file ends inside its length (%zu bytes)", what,
                       where, (size_t)(s->end - s->start));
    size_t left = span_left(s);
    out->data = span_take(s, length);
    out->length = (size_t)length;
    if (out->data == NULL)
        return err_set(e, ST_FORMAT, "%s %.80s: length %llu, but only %zu bytes are left", what,
                       where, (unsigned long long)length, left);
    return ST_OK;
}

/* Copies a name of 1..max bytes without control bytes into the shard's arena. `what` and `i` name
 * it. */
static enum status take_name(struct gguf_shard *shard, struct span *s, const char *what, size_t i,
                             size_t max, const char **out, struct err *e)
{
    char number[32];
    snprintf(number, sizeof number, "%zu", i);
    struct gguf_string name = {0};
    enum status status = take_string(s, what, number, &name, e);
    if (status != ST_OK)
        return status;
    if (name.length == 0 || name.length > max)
        return err_set(e, ST_FORMAT, "%s %zu: name of %zu bytes, expected 1 to %zu", what, i,
                       name.length, max);
    for (size_t c = 0; c < name.length; c++) {
        unsigned char byte = (unsigned char)name.data[c];
        if (byte < 0x20 || byte == 0x7F) /* would end the string, or play with a terminal */
            return err_set(e, ST_FORMAT, "%s %zu: name holds control byte 0x%02x", what, i, byte);
    }
    *out = arena_strndup(shard->names, name.data, name.length);
    if (*out == NULL)
        return err_set(e, ST_NO_MEMORY, "%s %zu: no memory for its name", what, i);
    return ST_OK;
}

/* Walks the n strings of a value, keeping where each begins. */
static enum status take_strings(struct span *s, struct gguf_kv *kv, struct err *e)
{
    if (kv->n > span_left(s) / 8)
        return err_set(e, ST_FORMAT,
                       "key %.80s: array of %llu strings, but only %zu bytes are left", kv->key,
                       (unsigned long long)kv->n, span_left(s));
    if (kv->is_array) {
        kv->positions = mem_array((size_t)kv->n, sizeof *kv->positions);
        if (kv->positions == NULL)
            return err_set(e, ST_NO_MEMORY, "key %.80s: no memory for %llu strings", kv->key,
                           (unsigned long long)kv->n);
    }
    for (uint64_t i = 0; i < kv->n; i++) {
        const unsigned char *position = s->at;
        struct gguf_string text;
        enum status status = take_string(s, "string of key", kv->key, &text, e);
        if (status != ST_OK)
            return status;
        if (kv->is_array)
            kv->positions[i] = position;
        else
            kv->position = position;
    }
    return ST_OK;
}

static enum status take_value(struct span *s, struct gguf_kv *kv, struct err *e)
{
    uint32_t type = span_u32(s);
    kv->n = 1;
    if (type == GGUF_ARRAY) {
        kv->is_array = true;
        type = span_u32(s);
        kv->n = span_u64(s);
        if (!s->failed && type == GGUF_ARRAY)
            return err_set(e, ST_UNSUPPORTED, "key %.80s: arrays of arrays are not supported",
                           kv->key);
    }
    if (s->failed)
        return err_set(e, ST_FORMAT, "key %.80s: the file ends inside its type", kv->key);
    if (type > GGUF_F64)
        return err_set(e, ST_FORMAT, "key %.80s: value type %u, the known ones are 0 to %d",
                       kv->key, type, (int)GGUF_F64);
    kv->type = (enum gguf_type)type;
    kv->data = s->at;
    if (type == GGUF_STRING)
        return take_strings(s, kv, e);
    size_t size = gguf__type_bytes(type);
    if (kv->n > span_left(s) / size)
        return err_set(e, ST_FORMAT,
                       "key %.80s: %llu values of %zu bytes, but only %zu bytes are left", kv->key,
                       (unsigned long long)kv->n, size, span_left(s));
    span_take(s, kv->n * size);
    return ST_OK;
}

static int compare_kvs(const void *a, const void *b)
{
    const struct gguf_kv *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

/* Sorts the key-values by key, for searching, and refuses a key that comes twice. */
static enum status index_kvs(struct gguf_shard *shard, struct err *e)
{
    shard->by_key = mem_array(shard->n_kvs, sizeof *shard->by_key);
    if (shard->by_key == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory for the index of %zu keys", shard->n_kvs);
    for (size_t i = 0; i < shard->n_kvs; i++)
        shard->by_key[i] = &shard->kvs[i];
    qsort(shard->by_key, shard->n_kvs, sizeof *shard->by_key, compare_kvs);
    for (size_t i = 1; i < shard->n_kvs; i++)
        if (strcmp(shard->by_key[i - 1]->key, shard->by_key[i]->key) == 0)
            return err_set(e, ST_FORMAT, "key %.80s is there more than once",
                           shard->by_key[i]->key);
    return ST_OK;
}

static enum status parse_kvs(struct gguf_shard *shard, struct span *s, uint64_t n, struct err *e)
{
    if (n > KV_MAX || n > span_left(s) / KV_BYTES_MIN)
        return err_set(e, ST_FORMAT, "%llu key-values, the most is %u and %zu bytes are left",
                       (unsigned long long)n, KV_MAX, span_left(s));
    shard->kvs = mem_array((size_t)n, sizeof *shard->kvs);
    if (shard->kvs == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory for %llu key-values", (unsigned long long)n);
    while (shard->n_kvs < n) {
        struct gguf_kv *kv = &shard->kvs[shard->n_kvs];
        enum status status =
            take_name(shard, s, "key-value", shard->n_kvs, KEY_BYTES_MAX, &kv->key, e);
        if (status != ST_OK)
            return status;
        shard->n_kvs++; /* now its positions are freed with the rest */
        status = take_value(s, kv, e);
        if (status != ST_OK)
            return status;
    }
    return index_kvs(shard, e);
}

/* Dimensions, type and size of one tensor; its offset is still relative to data_start. */
static enum status take_tensor(struct gguf_shard *shard, struct span *s, size_t i,
                               struct gguf_tensor *t, struct err *e)
{
    enum status status = take_name(shard, s, "tensor", i, NAME_BYTES_MAX, &t->name, e);
    if (status != ST_OK)
        return status;
    t->n_dims = span_u32(s);
    if (!s->failed && (t->n_dims < 1 || t->n_dims > DIMS_MAX))
        return err_set(e, ST_FORMAT, "tensor %s: %u dimensions, expected 1 to %u", t->name,
                       t->n_dims, DIMS_MAX);
    uint64_t rows = 1;
    for (uint32_t d = 0; d < DIMS_MAX; d++) {
        t->ne[d] = d < t->n_dims && !s->failed ? span_u64(s) : 1;
        if (!s->failed && t->ne[d] == 0)
            return err_set(e, ST_FORMAT, "tensor %s: dimension %u is 0", t->name, d);
        if (d > 0 && __builtin_mul_overflow(rows, t->ne[d], &rows))
            return err_set(e, ST_FORMAT, "tensor %s: dimension %u of %llu overflows 64 bits",
                           t->name, d, (unsigned long long)t->ne[d]);
    }
    uint32_t type = span_u32(s);
    t->file_offset = span_u64(s);
    if (s->failed)
        return err_set(e, ST_FORMAT, "tensor %s: the file ends inside its description", t->name);
    const struct dtype_info *info = dtype_info(type);
    if (info == NULL)
        return err_set(e, ST_UNSUPPORTED, "tensor %s: unknown type %u", t->name, type);
    t->dtype = (enum dtype)type;
    if (t->ne[0] % info->block != 0)
        return err_set(e, ST_FORMAT, "tensor %s: rows of %llu %s values, not a multiple of %u",
                       t->name, (unsigned long long)t->ne[0], info->name, info->block);
    uint64_t row_bytes, n_elements;
    if (!dtype_row_bytes(t->dtype, t->ne[0], &row_bytes) ||
        __builtin_mul_overflow(row_bytes, rows, &t->n_bytes) ||
        __builtin_mul_overflow(t->ne[0], rows, &n_elements))
        return err_set(e, ST_FORMAT, "tensor %s: %llu x %llu %s values overflow 64 bits", t->name,
                       (unsigned long long)t->ne[0], (unsigned long long)rows, info->name);
    if (t->file_offset % shard->alignment != 0)
        return err_set(e, ST_FORMAT, "tensor %s: offset %llu is not a multiple of %llu", t->name,
                       (unsigned long long)t->file_offset, (unsigned long long)shard->alignment);
    return ST_OK;
}

/* Turns the offset into one of the file, and refuses a tensor that the file does not hold. */
static enum status place_tensor(const struct gguf_shard *shard, struct gguf_tensor *t,
                                struct err *e)
{
    uint64_t available =
        shard->n_bytes > shard->data_start ? shard->n_bytes - shard->data_start : 0;
    if (t->file_offset > available || t->n_bytes > available - t->file_offset)
        return err_set(
            e, ST_FORMAT,
            "tensor %s: %llu bytes at offset %llu of the data, which begins at %llu, but "
            "the file has only %zu bytes: it is cut short",
            t->name, (unsigned long long)t->n_bytes, (unsigned long long)t->file_offset,
            (unsigned long long)shard->data_start, shard->n_bytes);
    t->file_offset += shard->data_start;
    t->data = shard->bytes + t->file_offset;
    return ST_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    return ((*x)->file_offset > (*y)->file_offset) - ((*x)->file_offset < (*y)->file_offset);
}

/* Refuses tensors that share bytes: one of the two is not what its name says. */
static enum status check_overlaps(const struct gguf_shard *shard, struct err *e)
{
    enum status status = ST_OK;
    const struct gguf_tensor **order = mem_array(shard->n_tensors, sizeof *order);
    if (order == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory for %zu tensors", shard->n_tensors);
    for (size_t i = 0; i < shard->n_tensors; i++)
        order[i] = &shard->tensors[i];
    qsort(order, shard->n_tensors, sizeof *order, compare_places);
    for (size_t i = 1; i < shard->n_tensors && status == ST_OK; i++) {
        const struct gguf_tensor *a = order[i - 1], *b = order[i];
        if (b->file_offset < a->file_offset + a->n_bytes)
            status = err_set(e, ST_FORMAT,
                             "tensor %s begins at byte %llu, inside tensor %s, which ends at %llu",
                             b->name, (unsigned long long)b->file_offset, a->name,
                             (unsigned long long)(a->file_offset + a->n_bytes));
    }
    mem_free(order);
    return status;
}

static enum status parse_tensors(struct gguf_shard *shard, struct span *s, uint64_t n,
                                 uint32_t number, struct err *e)
{
    if (n > TENSORS_MAX || n > span_left(s) / TENSOR_BYTES_MIN)
        return err_set(e, ST_FORMAT, "%llu tensors, the most is %llu and %zu bytes are left",
                       (unsigned long long)n, (unsigned long long)TENSORS_MAX, span_left(s));
    shard->tensors = mem_array((size_t)n, sizeof *shard->tensors);
    if (shard->tensors == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory for %llu tensors", (unsigned long long)n);
    shard->n_tensors = (size_t)n;
    for (size_t i = 0; i < shard->n_tensors; i++) {
        enum status status = take_tensor(shard, s, i, &shard->tensors[i], e);
        if (status != ST_OK)
            return status;
        shard->tensors[i].shard = number;
    }
    uint64_t misfit = span_offset(s) % shard->alignment;
    shard->data_start = span_offset(s) + (misfit != 0 ? shard->alignment - misfit : 0);
    for (size_t i = 0; i < shard->n_tensors; i++) {
        enum status status = place_tensor(shard, &shard->tensors[i], e);
        if (status != ST_OK)
            return status;
    }
    return check_overlaps(shard, e);
}

/* Magic and version. */
static enum status parse_head(struct gguf_shard *shard, struct span *s, struct err *e)
{
    const unsigned char *magic = span_take(s, 4);
    if (magic == NULL)
        return err_set(e, ST_FORMAT, "%zu bytes are too few for a GGUF file", shard->n_bytes);
    if (memcmp(magic, "GGUF", 4) != 0)
        return err_set(e, ST_FORMAT,
                       "not a GGUF file: it begins with bytes %02x %02x %02x %02x, not \"GGUF\"",
                       magic[0], magic[1], magic[2], magic[3]);
    shard->version = span_u32(s);
    if (s->failed)
        return err_set(e, ST_FORMAT, "the file ends inside the header (%zu bytes)", shard->n_bytes);
    if (shard->version != 0 && (shard->version & 0xFFFF) == 0)
        return err_set(e, ST_UNSUPPORTED,
                       "the file is big-endian; only little-endian is supported");
    if (shard->version < VERSION_MIN || shard->version > VERSION_MAX)
        return err_set(e, ST_UNSUPPORTED, "GGUF version %u, supported are %u to %u", shard->version,
                       VERSION_MIN, VERSION_MAX);
    return ST_OK;
}

static enum status parse_alignment(struct gguf_shard *shard, struct err *e)
{
    int64_t alignment = ALIGNMENT_DEFAULT;
    enum status status =
        gguf__get_integer(shard, "general.alignment", 1, ALIGNMENT_MAX, &alignment, e);
    if (status != ST_OK && status != ST_NOT_FOUND)
        return status;
    if ((alignment & (alignment - 1)) != 0)
        return err_set(e, ST_FORMAT, "key general.alignment: %lld is not a power of two",
                       (long long)alignment);
    shard->alignment = (uint64_t)alignment;
    return ST_OK;
}

enum status gguf__parse_shard(struct gguf_shard *shard, uint32_t number, struct err *e)
{
    struct span s = span_make(shard->bytes, shard->n_bytes);
    enum status status = parse_head(shard, &s, e);
    if (status != ST_OK)
        return status;
    uint64_t n_tensors = span_u64(&s);
    uint64_t n_kvs = span_u64(&s);
    if (s.failed)
        return err_set(e, ST_FORMAT, "the file ends inside the header (%zu bytes)", shard->n_bytes);
    shard->names = arena_open(SIZE_MAX / 2); /* bounded by the file, whose bytes it copies */
    if (shard->names == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory for the key-values");
    status = parse_kvs(shard, &s, n_kvs, e);
    if (status != ST_OK)
        return status;
    status = parse_alignment(shard, e);
    if (status != ST_OK)
        return status;
    return parse_tensors(shard, &s, n_tensors, number, e);
}

void gguf__free_tables(struct gguf_shard *shard)
{
    for (size_t i = 0; i < shard->n_kvs; i++)
        mem_free(shard->kvs[i].positions);
    mem_free(shard->kvs);
    mem_free(shard->by_key);
    mem_free(shard->tensors);
    arena_close(shard->names);
}
