/* What the parts of the GGUF reader share: gguf.c (files and shards), gguf_parse.c (bytes to
 * tables), gguf_value.c (typed access), gguf_embed.c (copies). Included by these only.
 *
 * A shard is one file: its bytes, its key-values and its tensors. A struct gguf is one or more
 * shards; key-values are those of the first. Written during open, read-only afterwards.
 */
#ifndef OINFER_MODEL_GGUF_INTERNAL_H
#define OINFER_MODEL_GGUF_INTERNAL_H

#include "engine/base/mapping.h"
#include "engine/base/mem.h"
#include "engine/model/gguf.h"

struct gguf_kv {
    const char *key;     /* NUL-terminated, in the shard's arena */
    enum gguf_type type; /* of the value, or of the elements if is_array; never GGUF_ARRAY */
    bool is_array;
    uint64_t n;                      /* elements; 1 for a scalar */
    const unsigned char *data;       /* first element, in the shard's bytes */
    const unsigned char **positions; /* strings only: where each begins (at its u64 length) */
    const unsigned char *position;   /* the one position of a scalar string */
};

struct gguf_shard {
    const unsigned char *bytes;
    size_t n_bytes;
    struct mapping *mapping; /* that bytes lie in; NULL: bytes in memory */
    uint32_t version;
    uint64_t alignment;
    uint64_t data_start; /* offset of the tensor data; may lie beyond the end without tensors */
    struct arena *names; /* keys and tensor names */
    struct gguf_kv *kvs;
    size_t n_kvs;
    const struct gguf_kv **by_key; /* kvs in strcmp order */
    struct gguf_tensor *tensors;
    size_t n_tensors;
};

struct gguf {
    char *path; /* "" for bytes in memory */
    struct gguf_shard *shards;
    size_t n_shards;
    const struct gguf_tensor **tensors; /* of all shards, in file order */
    const struct gguf_tensor **by_name; /* the same in strcmp order */
    size_t n_tensors;
    uint64_t file_bytes;
    uint64_t identity;
};

/* Checks shard->bytes and fills the rest of *shard. On failure what was allocated stays in *shard
 * for gguf__free_tables. `number` is stored in its tensors. */
enum status gguf__parse_shard(struct gguf_shard *shard, uint32_t number, struct err *e);
/* Frees what parsing allocated; the bytes stay the caller's. */
void gguf__free_tables(struct gguf_shard *shard);

/* NULL when absent. */
const struct gguf_kv *gguf__find_kv(const struct gguf_shard *shard, const char *key);
/* Integer scalar in [min, max]; ST_NOT_FOUND leaves *out alone, ST_FORMAT names key and value. */
enum status gguf__get_integer(const struct gguf_shard *shard, const char *key, int64_t min,
                              int64_t max, int64_t *out, struct err *e);

/* Bytes of one element; 0 for GGUF_STRING, GGUF_ARRAY and numbers out of range. */
size_t gguf__type_bytes(uint32_t type);

#endif
