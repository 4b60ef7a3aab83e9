/* Copying with one key-value changed. The bytes were checked when the file was opened, so walking
 * over them again needs no checks of its own but the one that it ends where it should. */
#include "engine/model/gguf_embed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/strbuf.h"
#include "engine/model/gguf_internal.h"

#define HEAD_BYTES     24 /* magic, version, tensors, key-values */
#define NEW_MAX_BYTES  ((size_t)64 << 20)
#define PATH_MAX_BYTES 4096

static uint64_t get(const unsigned char *at, size_t n)
{
    uint64_t value = 0;
    for (size_t i = n; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

static void put(struct strbuf *s, uint64_t value, size_t n)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    strbuf_append(s, bytes, n);
}

static void put_string(struct strbuf *s, const char *text)
{
    put(s, strlen(text), 8);
    strbuf_puts(s, text);
}

static const unsigned char *skip_string(const unsigned char *at)
{
    return at + 8 + get(at, 8);
}

static const unsigned char *skip_values(const unsigned char *at, uint32_t type, uint64_t n)
{
    if (type == GGUF_ARRAY) {
        for (; n > 0; n--)
            at = skip_values(at + 12, (uint32_t)get(at, 4), get(at + 4, 8));
        return at;
    }
    if (type != GGUF_STRING)
        return at + n * gguf__type_bytes(type);
    for (; n > 0; n--)
        at = skip_string(at);
    return at;
}

static const unsigned char *skip_tensor(const unsigned char *at)
{
    at = skip_string(at);
    return at + 4 + 8 * get(at, 4) + 4 + 8;
}

/* Head, key-values and tensor table of the copy. */
static enum status make_head(const struct gguf_shard *shard, const char *key,
                             const char *const *values, uint32_t n, struct strbuf *out,
                             struct err *e)
{
    const unsigned char *at = shard->bytes + HEAD_BYTES;
    uint64_t n_kvs = shard->n_kvs + 1;
    if (gguf__find_kv(shard, key))
        n_kvs--;
    strbuf_append(out, shard->bytes, HEAD_BYTES - 8);
    put(out, n_kvs, 8);
    for (size_t i = 0; i < shard->n_kvs; i++) {
        const unsigned char *type = skip_string(at);
        const unsigned char *end = skip_values(type + 4, (uint32_t)get(type, 4), 1);
        const uint64_t length = get(at, 8);
        if (length != strlen(key) || memcmp(at + 8, key, length) != 0)
            strbuf_append(out, at, (size_t)(end - at));
        at = end;
    }
    put_string(out, key);
    put(out, GGUF_ARRAY, 4);
    put(out, GGUF_STRING, 4);
    put(out, n, 8);
    for (uint32_t i = 0; i < n; i++)
        put_string(out, values[i]);
    const unsigned char *table = at;
    for (size_t i = 0; i < shard->n_tensors; i++)
        at = skip_tensor(at);
    ASSERT((uint64_t)(at - shard->bytes) <= shard->data_start);
    strbuf_append(out, table, (size_t)(at - table));
    while (shard->n_tensors > 0 && out->length % shard->alignment != 0 && !out->failed)
        strbuf_putc(out, '\0');
    return out->failed ? err_set(e, ST_NO_MEMORY, "metadata: %zu bytes", out->length) : ST_OK;
}

static bool write_all(int file, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(file, bytes, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return false;
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

static enum status write_copy(const struct gguf_shard *shard, const struct strbuf *head,
                              const char *source, const char *out, struct err *e)
{
    char temporary[PATH_MAX_BYTES];
    struct stat info;
    const int length = snprintf(temporary, sizeof temporary, "%s.XXXXXX", out);
    if (length < 0 || (size_t)length >= sizeof temporary)
        return err_set(e, ST_IO, "%.200s: the path is too long", out);
    const int file = mkstemp(temporary);
    if (file < 0)
        return err_set(e, ST_IO, "%.200s: %s", temporary, strerror(errno));
    const size_t data_bytes =
        shard->data_start < shard->n_bytes ? shard->n_bytes - (size_t)shard->data_start : 0;
    bool ok = (stat(source, &info) != 0 || fchmod(file, info.st_mode & 0777) == 0) &&
              write_all(file, (const unsigned char *)head->data, head->length) &&
              write_all(file, shard->bytes + shard->data_start, data_bytes) && fsync(file) == 0;
    int reason = ok ? 0 : errno;
    if (close(file) != 0 && ok) {
        reason = errno;
        ok = false;
    }
    if (ok && rename(temporary, out) != 0) {
        reason = errno;
        ok = false;
    }
    if (ok)
        return ST_OK;
    unlink(temporary);
    return err_set(e, ST_IO, "%.200s: %s", out, strerror(reason));
}

enum status gguf_embed(const struct gguf *g, const char *out, const char *key,
                       const char *const *values, uint32_t n, struct err *e)
{
    if (g->n_shards != 1)
        return err_set(e, ST_UNSUPPORTED, "%s: %zu files; only a model of one file can be written",
                       gguf_path(g), g->n_shards);
    struct strbuf head;
    strbuf_init(&head, (size_t)g->shards[0].data_start + NEW_MAX_BYTES);
    enum status status = make_head(&g->shards[0], key, values, n, &head, e);
    if (status == ST_OK)
        status = write_copy(&g->shards[0], &head, gguf_path(g), out, e);
    strbuf_free(&head);
    return status;
}
