/* The GGUF file: key-values and tensor table over a read-only mapping.
 *
 * Nothing in the file is trusted: every length, count, type, offset and name is checked at open,
 * before any tensor byte is read; each refusal names the thing, the value and the limit. All
 * pointers returned are borrowed until gguf_close. Immutable after open: any thread may read.
 * Split files (NAME-00001-of-00003.gguf) are opened from the first shard and appear as one.
 * Source of the layout: the GGUF specification, versions 2 and 3.
 */
#ifndef OINFER_MODEL_GGUF_H
#define OINFER_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/tensor/dtype.h"

struct gguf;

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};
const char *gguf_type_name(enum gguf_type type); /* "u8", "string", ...; "unknown" out of range */

struct gguf_string {
    const char *data; /* not NUL-terminated */
    size_t length;
};

struct gguf_tensor {
    const char *name; /* NUL-terminated, unique */
    enum dtype dtype; /* always a known type */
    uint32_t n_dims;  /* 1..4 */
    uint64_t ne[4];   /* elements per dimension, ne[0] contiguous; unused ones are 1 */
    const void *data; /* in the mapping, n_bytes long */
    uint64_t n_bytes;
    uint64_t file_offset; /* of data, in its shard */
    uint32_t shard;
};

/* Opens and checks FILE (and its shards). ST_IO, ST_FORMAT, ST_UNSUPPORTED, ST_NO_MEMORY. */
enum status gguf_open(const char *path, struct gguf **out, struct err *e);
/* The same over bytes in memory (borrowed until close): for tests and fuzzing. */
enum status gguf_open_bytes(const void *bytes, size_t n, struct gguf **out, struct err *e);
void gguf_close(struct gguf *g); /* accepts NULL */

const char *gguf_path(const struct gguf *g); /* "" for bytes in memory */
uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g); /* all shards */
/* Identity of the content, for caches: hash of size, header, tensor table and samples of the data.
 */
uint64_t gguf_identity(const struct gguf *g);
/* Whether what is read from the mapping still is the file: ST_IO, with its path, when it was cut or
 * a part of it could not be read. Any thread. */
enum status gguf_check(const struct gguf *g, struct err *e);

/* Where byte `data` of a tensor lies: a descriptor of its file, which stays g's, and the offset
 * there. False when g is no file (gguf_open_bytes). */
bool gguf_locate(const struct gguf *g, const struct gguf_tensor *t, const void *data, int *fd,
                 uint64_t *offset);

/* Tells the kernel that a tensor's pages will be / are no longer needed (madvise). */
void gguf_will_need(const struct gguf *g, const struct gguf_tensor *t);
void gguf_drop_pages(const struct gguf *g, const struct gguf_tensor *t);

size_t gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name); /* NULL */

size_t gguf_kv_count(const struct gguf *g);
const char *gguf_kv_key(const struct gguf *g, size_t i);
bool gguf_has(const struct gguf *g, const char *key);
/* Type of a value, or of an array's elements (*n = its length, 1 for a scalar); false if absent. */
bool gguf_kv_type(const struct gguf *g, const char *key, enum gguf_type *type, bool *is_array,
                  uint64_t *n);

/* Writes element i (0 for a scalar) of key-value number kv as text, for people: a number, true or
 * false, or a string with control characters shown as '?'; cut at a character within size - 1
 * bytes. i is below the value's length. Returns buffer. */
const char *gguf_kv_text(const struct gguf *g, size_t kv, uint64_t i, char *buffer, size_t size);

/* Scalars. Absent key: ST_NOT_FOUND, *out unchanged (so a default set before stays), and e is left
 * alone if `e` is NULL. Wrong type or range: ST_FORMAT naming key, type and value. Integers accept
 * every integer type that holds the value. */
enum status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct err *e);
enum status gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct err *e);
enum status gguf_get_f32(const struct gguf *g, const char *key, float *out, struct err *e);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err *e);
enum status gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *out,
                            struct err *e);
/* Arrays: element count and random access. Index is checked by the caller (< *n). */
enum status gguf_array(const struct gguf *g, const char *key, enum gguf_type want, uint64_t *n,
                       struct err *e); /* want: GGUF_STRING, GGUF_F32, GGUF_I32 (any integer) */
struct gguf_string gguf_array_string(const struct gguf *g, const char *key, uint64_t i);
float gguf_array_f32(const struct gguf *g, const char *key, uint64_t i);
int64_t gguf_array_int(const struct gguf *g, const char *key, uint64_t i);

#endif
