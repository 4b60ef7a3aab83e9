/* The GGUF stream writer. State: the head under construction, then the position in the data. */
#include "engine/model/gguf_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/model/gguf.h"

#define VERSION       3u
#define ALIGNMENT     32u
#define HEAD_MAX      ((size_t)1 << 30)
#define TEMP_PATH_MAX 4096

struct gguf_writer {
    char *path;
    char temporary[TEMP_PATH_MAX]; /* "" once renamed or never made */
    int fd;
    struct strbuf values;  /* the key-values, encoded */
    struct strbuf infos;   /* the tensor table, encoded */
    struct strbuf n_bytes; /* uint64_t of each tensor */
    uint64_t n_values, n_tensors;
    uint64_t data_bytes;    /* of all tensors declared, padded */
    uint64_t written_bytes; /* of the file */
    uint64_t current;       /* tensor being written */
    uint64_t current_left;  /* its bytes still to come */
    bool bad_tensor;
};

static void put_u32(struct strbuf *s, uint32_t value)
{
    unsigned char bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    strbuf_append(s, bytes, sizeof bytes);
}

static void put_u64(struct strbuf *s, uint64_t value)
{
    put_u32(s, (uint32_t)value);
    put_u32(s, (uint32_t)(value >> 32));
}

static void put_f32(struct strbuf *s, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_u32(s, bits);
}

static void put_string(struct strbuf *s, const char *text, size_t length)
{
    put_u64(s, length);
    strbuf_append(s, text, length);
}

static void put_key(struct gguf_writer *w, const char *key, enum gguf_type type)
{
    put_string(&w->values, key, strlen(key));
    put_u32(&w->values, (uint32_t)type);
    w->n_values++;
}

static void put_array(struct gguf_writer *w, const char *key, enum gguf_type type, uint64_t n)
{
    put_key(w, key, GGUF_ARRAY);
    put_u32(&w->values, (uint32_t)type);
    put_u64(&w->values, n);
}

enum status gguf_writer_open(const char *path, struct gguf_writer **out, struct err *e)
{
    struct gguf_writer *w = mem_zalloc(sizeof *w);
    if (w == NULL)
        return err_set(e, ST_NO_MEMORY, "%s: no memory to write it", path);
    enum status status = ST_OK;
    w->fd = -1;
    strbuf_init(&w->values, HEAD_MAX);
    strbuf_init(&w->infos, HEAD_MAX);
    strbuf_init(&w->n_bytes, HEAD_MAX);
    w->path = mem_strdup(path);
    if (w->path == NULL) {
        status = err_set(e, ST_NO_MEMORY, "%s: no memory to write it", path);
        goto fail;
    }
    char temporary[TEMP_PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary) {
        status = err_set(e, ST_IO, "%.100s...: the path is longer than %d bytes", path,
                         TEMP_PATH_MAX - 1);
        goto fail;
    }
    w->fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        status = err_set(e, ST_IO, "cannot create %s: %s", temporary, strerror(errno));
        goto fail;
    }
    memcpy(w->temporary, temporary, (size_t)length + 1);
    *out = w;
    return ST_OK;
fail:
    gguf_writer_close(w);
    return status;
}

void gguf_writer_close(struct gguf_writer *w)
{
    if (w == NULL)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->temporary[0] != '\0')
        unlink(w->temporary);
    strbuf_free(&w->values);
    strbuf_free(&w->infos);
    strbuf_free(&w->n_bytes);
    mem_free(w->path);
    mem_free(w);
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    put_key(w, key, GGUF_U32);
    put_u32(&w->values, value);
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float value)
{
    put_key(w, key, GGUF_F32);
    put_f32(&w->values, value);
}

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value)
{
    put_key(w, key, GGUF_BOOL);
    strbuf_putc(&w->values, value ? 1 : 0);
}

void gguf_writer_string(struct gguf_writer *w, const char *key, const char *value)
{
    put_key(w, key, GGUF_STRING);
    put_string(&w->values, value, strlen(value));
}

void gguf_writer_strings(struct gguf_writer *w, const char *key, uint64_t n)
{
    put_array(w, key, GGUF_STRING, n);
}

void gguf_writer_add_string(struct gguf_writer *w, const char *text, size_t length)
{
    put_string(&w->values, text, length);
}

void gguf_writer_f32s(struct gguf_writer *w, const char *key, const float *values, uint64_t n)
{
    put_array(w, key, GGUF_F32, n);
    for (uint64_t i = 0; i < n; i++)
        put_f32(&w->values, values[i]);
}

void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *values, uint64_t n)
{
    put_array(w, key, GGUF_I32, n);
    for (uint64_t i = 0; i < n; i++)
        put_u32(&w->values, (uint32_t)values[i]);
}

static uint64_t pad_up(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

bool gguf_writer_tensor(struct gguf_writer *w, const char *name, enum dtype dtype,
                        const uint64_t ne[2])
{
    uint64_t row_bytes, n_bytes;
    if (!dtype_row_bytes(dtype, ne[0], &row_bytes) ||
        __builtin_mul_overflow(row_bytes, ne[1], &n_bytes) || n_bytes > UINT64_MAX / 4) {
        w->bad_tensor = true;
        return false;
    }
    uint32_t n_dims = ne[1] > 1 ? 2 : 1;
    put_string(&w->infos, name, strlen(name));
    put_u32(&w->infos, n_dims);
    for (uint32_t d = 0; d < n_dims; d++)
        put_u64(&w->infos, ne[d]);
    put_u32(&w->infos, (uint32_t)dtype);
    put_u64(&w->infos, w->data_bytes);
    strbuf_append(&w->n_bytes, &n_bytes, sizeof n_bytes);
    w->data_bytes += pad_up(n_bytes);
    w->n_tensors++;
    return true;
}

/* write(2) until all is out. */
static enum status put_bytes(struct gguf_writer *w, const void *bytes, size_t n, struct err *e)
{
    const char *at = bytes;
    while (n > 0) {
        ssize_t written = write(w->fd, at, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return err_set(e, ST_IO, "cannot write %s: %s after %llu bytes", w->path,
                           strerror(errno), (unsigned long long)w->written_bytes);
        at += written;
        n -= (size_t)written;
        w->written_bytes += (uint64_t)written;
    }
    return ST_OK;
}

static enum status put_padding(struct gguf_writer *w, struct err *e)
{
    static const unsigned char zeros[ALIGNMENT];
    return put_bytes(w, zeros, (size_t)(pad_up(w->written_bytes) - w->written_bytes), e);
}

static uint64_t tensor_bytes(const struct gguf_writer *w, uint64_t i)
{
    uint64_t n_bytes;
    memcpy(&n_bytes, strbuf_text(&w->n_bytes) + i * sizeof n_bytes, sizeof n_bytes);
    return n_bytes;
}

enum status gguf_writer_begin_data(struct gguf_writer *w, struct err *e)
{
    struct strbuf head;
    strbuf_init(&head, HEAD_MAX);
    strbuf_puts(&head, "GGUF");
    put_u32(&head, VERSION);
    put_u64(&head, w->n_tensors);
    put_u64(&head, w->n_values);
    enum status status = ST_OK;
    if (w->bad_tensor)
        status = err_set(e, ST_INVALID, "%s: a tensor's rows do not fit its dtype", w->path);
    else if (head.failed || w->values.failed || w->infos.failed || w->n_bytes.failed)
        status = err_set(e, ST_NO_MEMORY, "%s: no memory for the head of %llu key-values", w->path,
                         (unsigned long long)w->n_values);
    if (status == ST_OK)
        status = put_bytes(w, strbuf_text(&head), head.length, e);
    if (status == ST_OK)
        status = put_bytes(w, strbuf_text(&w->values), w->values.length, e);
    if (status == ST_OK)
        status = put_bytes(w, strbuf_text(&w->infos), w->infos.length, e);
    if (status == ST_OK)
        status = put_padding(w, e);
    if (status == ST_OK && w->n_tensors > 0)
        w->current_left = tensor_bytes(w, 0);
    strbuf_free(&head);
    return status;
}

enum status gguf_writer_data(struct gguf_writer *w, const void *bytes, size_t n, struct err *e)
{
    if (n > w->current_left)
        return err_set(e, ST_INVALID, "%s: %zu bytes for tensor %llu, which takes %llu more",
                       w->path, n, (unsigned long long)w->current,
                       (unsigned long long)w->current_left);
    enum status status = put_bytes(w, bytes, n, e);
    if (status != ST_OK)
        return status;
    w->current_left -= n;
    if (w->current_left > 0)
        return ST_OK;
    w->current++;
    w->current_left = w->current < w->n_tensors ? tensor_bytes(w, w->current) : 0;
    return put_padding(w, e);
}

enum status gguf_writer_commit(struct gguf_writer *w, struct err *e)
{
    if (w->current < w->n_tensors)
        return err_set(e, ST_INVALID, "%s: only %llu of %llu tensors are complete", w->path,
                       (unsigned long long)w->current, (unsigned long long)w->n_tensors);
    int fd = w->fd;
    w->fd = -1;
    bool synced = fsync(fd) == 0;
    int reason = errno;
    if (close(fd) != 0 && synced) {
        synced = false;
        reason = errno;
    }
    if (!synced)
        return err_set(e, ST_IO, "cannot write %s: %s", w->path, strerror(reason));
    if (rename(w->temporary, w->path) != 0)
        return err_set(e, ST_IO, "cannot rename %s to %s: %s", w->temporary, w->path,
                       strerror(errno));
    w->temporary[0] = '\0';
    return ST_OK;
}
