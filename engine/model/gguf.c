/* GGUF files: mapping, shards, the joined tensor table and its index.
 *
 * Each shard is mapped read-only, parsed and checked (gguf_parse.c) before the next is opened;
 * gguf_close undoes everything. One thread opens; afterwards nothing is written, any may read.
 */
#include "engine/model/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/model/gguf_internal.h"

#define SHARDS_MAX        1024
#define SHARD_SUFFIX_FORM "-%05u-of-%05u.gguf"
#define SAMPLES           16
#define SAMPLE_BYTES      4096
#define SHARD_SUFFIX_LEN  ((size_t)20) /* "-00001-of-00003.gguf" */

/* Maps PATH read-only. An empty file stays unmapped, with no bytes. */
static enum status map_shard(const char *path, struct gguf_shard *shard, struct err *e)
{
    enum status status = ST_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not make us wait */
    if (fd < 0)
        return err_set(e, ST_IO, "cannot open: %s", strerror(errno));
    struct stat info;
    if (fstat(fd, &info) != 0) {
        status = err_set(e, ST_IO, "cannot stat: %s", strerror(errno));
        goto out;
    }
    if (!S_ISREG(info.st_mode)) {
        status = err_set(e, ST_IO, "not a regular file");
        goto out;
    }
    if ((uint64_t)info.st_size > SIZE_MAX) {
        status = err_set(e, ST_NO_MEMORY, "%lld bytes do not fit the address space",
                         (long long)info.st_size);
        goto out;
    }
    shard->n_bytes = (size_t)info.st_size;
    if (shard->n_bytes == 0)
        goto out;
    status = mapping_open(fd, shard->n_bytes, &shard->mapping, e);
    if (status == ST_OK)
        shard->bytes = mapping_bytes(shard->mapping);
out:
    close(fd);
    return status;
}

static void close_shard(struct gguf_shard *shard)
{
    gguf__free_tables(shard);
    mapping_close(shard->mapping);
}

/* How many files the model says it has; 1 if it says nothing. */
static enum status read_shard_count(const struct gguf_shard *first, size_t *count, struct err *e)
{
    int64_t n = 1, number = 0;
    enum status status = gguf__get_integer(first, "split.count", 0, SHARDS_MAX, &n, e);
    if (status != ST_OK && status != ST_NOT_FOUND)
        return status;
    *count = n > 1 ? (size_t)n : 1;
    if (*count == 1)
        return ST_OK;
    status = gguf__get_integer(first, "split.no", 0, n - 1, &number, e);
    if (status != ST_OK)
        return status;
    if (number != 0)
        return err_set(e, ST_FORMAT, "this is shard %lld of %lld: open the first one",
                       (long long)number + 1, (long long)n);
    return ST_OK;
}

/* The name of shard i of `count`, made from the first one's; mem_free it. */
static enum status name_shard(const char *first, size_t i, size_t count, char **out, struct err *e)
{
    char suffix[48];
    snprintf(suffix, sizeof suffix, SHARD_SUFFIX_FORM, 1u, (unsigned)count);
    size_t length = strlen(first);
    if (length < SHARD_SUFFIX_LEN || strcmp(first + length - SHARD_SUFFIX_LEN, suffix) != 0)
        return err_set(e, ST_FORMAT, "the first of %zu shards must have a name that ends in %s",
                       count, suffix);
    char *path = mem_strdup(first);
    if (path == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory for a shard's name");
    snprintf(suffix, sizeof suffix, SHARD_SUFFIX_FORM, (unsigned)i + 1, (unsigned)count);
    memcpy(path + length - SHARD_SUFFIX_LEN, suffix, SHARD_SUFFIX_LEN);
    *out = path;
    return ST_OK;
}

/* Maps and parses shard i > 0 and checks that it says to be that one. */
static enum status open_next_shard(struct gguf *g, size_t i, size_t count, struct err *e)
{
    char *path = NULL;
    enum status status = name_shard(g->path, i, count, &path, e);
    if (status != ST_OK)
        return status;
    struct gguf_shard *shard = &g->shards[i];
    g->n_shards = i + 1; /* gguf_close now frees it */
    status = map_shard(path, shard, e);
    if (status == ST_OK)
        status = gguf__parse_shard(shard, (uint32_t)i, e);
    int64_t said = 0;
    if (status == ST_OK)
        status = gguf__get_integer(shard, "split.count", (int64_t)count, (int64_t)count, &said, e);
    if (status == ST_OK)
        status = gguf__get_integer(shard, "split.no", (int64_t)i, (int64_t)i, &said, e);
    if (status != ST_OK && e != NULL)
        err_prefix(e, "shard %zu of %zu, %s: ", i + 1, count, path);
    mem_free(path);
    return status;
}

static int compare_tensors(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Joins the tensor tables of all shards and refuses a name that comes twice. */
static enum status index_tensors(struct gguf *g, struct err *e)
{
    for (size_t i = 0; i < g->n_shards; i++)
        g->n_tensors += g->shards[i].n_tensors;
    g->tensors = mem_array(g->n_tensors, sizeof *g->tensors);
    g->by_name = mem_array(g->n_tensors, sizeof *g->by_name);
    if (g->tensors == NULL || g->by_name == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory for the index of %zu tensors", g->n_tensors);
    size_t n = 0;
    for (size_t i = 0; i < g->n_shards; i++)
        for (size_t t = 0; t < g->shards[i].n_tensors; t++)
            g->tensors[n++] = &g->shards[i].tensors[t];
    memcpy(g->by_name, g->tensors, n * sizeof *g->tensors);
    qsort(g->by_name, n, sizeof *g->by_name, compare_tensors);
    for (size_t i = 1; i < n; i++)
        if (strcmp(g->by_name[i - 1]->name, g->by_name[i]->name) == 0)
            return err_set(e, ST_FORMAT, "tensor %s is there more than once", g->by_name[i]->name);
    if (g->n_shards > 1) {
        int64_t said = 0;
        enum status status = gguf__get_integer(&g->shards[0], "split.tensors.count", (int64_t)n,
                                               (int64_t)n, &said, e);
        if (status != ST_OK && status != ST_NOT_FOUND)
            return status;
    }
    return ST_OK;
}

/* Hash of pieces of the tensor data, evenly spread: all of it would have to be read. */
static uint64_t sample_data(const unsigned char *data, size_t n)
{
    uint64_t hashes[SAMPLES];
    for (size_t i = 0; i < SAMPLES; i++) {
        const size_t at = n / SAMPLES * i;
        hashes[i] = XXH3_64bits(data + at, n - at < SAMPLE_BYTES ? n - at : SAMPLE_BYTES);
    }
    return XXH3_64bits(hashes, sizeof hashes);
}

/* Size and identity: sizes, headers, samples of the data. */
static void sum_up(struct gguf *g)
{
    for (size_t i = 0; i < g->n_shards; i++) {
        const struct gguf_shard *shard = &g->shards[i];
        size_t head =
            shard->data_start < shard->n_bytes ? (size_t)shard->data_start : shard->n_bytes;
        uint64_t facts[4] = {g->identity, shard->n_bytes, XXH3_64bits(shard->bytes, head),
                             sample_data(shard->bytes + head, shard->n_bytes - head)};
        g->identity = XXH3_64bits(facts, sizeof facts);
        g->file_bytes += shard->n_bytes;
    }
}

/* The common part of both ways to open: g->shards[0] has its bytes. */
static enum status open_shards(struct gguf *g, struct err *e)
{
    enum status status = gguf__parse_shard(&g->shards[0], 0, e);
    if (status != ST_OK)
        return status;
    size_t count;
    status = read_shard_count(&g->shards[0], &count, e);
    if (status != ST_OK)
        return status;
    if (count > 1) {
        if (g->path[0] == '\0')
            return err_set(e, ST_UNSUPPORTED, "one of %zu shards cannot be opened from memory",
                           count);
        struct gguf_shard *shards = mem_array(count, sizeof *shards);
        if (shards == NULL)
            return err_set(e, ST_NO_MEMORY, "no memory for %zu shards", count);
        shards[0] = g->shards[0];
        mem_free(g->shards);
        g->shards = shards;
        for (size_t i = 1; i < count && status == ST_OK; i++)
            status = open_next_shard(g, i, count, e);
        if (status != ST_OK)
            return status;
    }
    status = index_tensors(g, e);
    if (status == ST_OK)
        sum_up(g);
    return status;
}

/* A struct with its path and one empty shard; NULL when out of memory. */
static struct gguf *create(const char *path)
{
    struct gguf *g = mem_zalloc(sizeof *g);
    if (g == NULL)
        return NULL;
    g->path = mem_strdup(path);
    g->shards = mem_array(1, sizeof *g->shards);
    g->n_shards = g->shards != NULL ? 1 : 0;
    if (g->path == NULL || g->shards == NULL) {
        gguf_close(g);
        return NULL;
    }
    return g;
}

enum status gguf_open(const char *path, struct gguf **out, struct err *e)
{
    struct gguf *g = create(path);
    if (g == NULL)
        return err_set(e, ST_NO_MEMORY, "%s: no memory to open it", path);
    enum status status = map_shard(path, &g->shards[0], e);
    if (status == ST_OK)
        status = open_shards(g, e);
    if (status != ST_OK) {
        if (e != NULL)
            err_prefix(e, "%s: ", path);
        gguf_close(g);
        return status;
    }
    *out = g;
    return ST_OK;
}

enum status gguf_open_bytes(const void *bytes, size_t n, struct gguf **out, struct err *e)
{
    struct gguf *g = create("");
    if (g == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory to open %zu bytes", n);
    g->shards[0].bytes = bytes;
    g->shards[0].n_bytes = n;
    enum status status = open_shards(g, e);
    if (status != ST_OK) {
        gguf_close(g);
        return status;
    }
    *out = g;
    return ST_OK;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL)
        return;
    for (size_t i = 0; i < g->n_shards; i++)
        close_shard(&g->shards[i]);
    mem_free(g->shards);
    mem_free(g->tensors);
    mem_free(g->by_name);
    mem_free(g->path);
    mem_free(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->shards[0].version;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    return g->file_bytes;
}

uint64_t gguf_identity(const struct gguf *g)
{
    return g->identity;
}

bool gguf_locate(const struct gguf *g, const struct gguf_tensor *t, const void *data, int *fd,
                 uint64_t *offset)
{
    const struct gguf_shard *shard = &g->shards[t->shard];
    if (shard->mapping == NULL)
        return false;
    *fd = mapping_fd(shard->mapping);
    *offset = (uint64_t)((const unsigned char *)data - shard->bytes);
    return true;
}

void gguf_will_need(const struct gguf *g, const struct gguf_tensor *t)
{
    if (g->shards[t->shard].mapping == NULL)
        return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)t->data & ~(page - 1);
    uintptr_t end = (uintptr_t)t->data + t->n_bytes;
    /* Advice only: a failure changes nothing but speed. */
    (void)madvise((void *)begin, end - begin, MADV_WILLNEED);
}

void gguf_drop_pages(const struct gguf *g, const struct gguf_tensor *t)
{
    if (g->shards[t->shard].mapping == NULL)
        return;
    /* Only whole pages: the first and the last may hold parts of neighbours. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)t->data + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)t->data + t->n_bytes) & ~(page - 1);
    if (end > begin)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

size_t gguf_tensor_count(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    ASSERT(i < g->n_tensors);
    return g->tensors[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    size_t low = 0, high = g->n_tensors;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, g->by_name[middle]->name);
        if (order == 0)
            return g->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

enum status gguf_check(const struct gguf *g, struct err *e)
{
    for (size_t i = 0; i < g->n_shards; i++) {
        const struct mapping *m = g->shards[i].mapping;
        if (m != NULL && mapping_check(m, e) != ST_OK)
            return err_prefix(e, "%s, file %zu of %zu: ", g->path, i + 1, g->n_shards);
    }
    return ST_OK;
}
