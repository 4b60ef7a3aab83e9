/* Files of the disk cache: header, checks, temporary + rename, pruning. */
#define _GNU_SOURCE /* mkostemp */
#include "engine/cl/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"

#define CACHE_MAGIC  "OInfer\x1a\n"
#define CACHE_FORMAT 1

struct header {
    char magic[8];
    uint32_t format, kind;
    uint64_t key_high, key_low, length, hash;
};

struct cache_key cache_hash(const char *const *parts, const size_t *lengths, size_t n)
{
    struct cache_key key = {0, 0};
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL)
        return key;
    XXH3_128bits_reset(state);
    for (size_t i = 0; i < n; i++) {
        uint64_t length = lengths[i];
        XXH3_128bits_update(state, &length, sizeof length);
        XXH3_128bits_update(state, parts[i], lengths[i]);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    key.high = hash.high64;
    key.low = hash.low64;
    return key;
}

/* Whether the folder is ours alone. */
static bool is_private(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid() &&
           (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool cache_make_folder(const char *path)
{
    char part[CACHE_PATH_BYTES];
    int n = snprintf(part, sizeof part, "%s", path);
    if (n < 0 || (size_t)n >= sizeof part)
        return false;
    for (char *p = part + 1; *p != '\0'; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return false;
        *p = '/';
    }
    return mkdir(part, 0700) == 0 || errno == EEXIST;
}

/* The path of a file; false when it is too long or there is no cache. */
static bool file_path(const char *dir, const char *folder, struct cache_key key, char *path)
{
    if (dir == NULL || dir[0] == '\0')
        return false;
    int n = snprintf(path, CACHE_PATH_BYTES, "%s/%s/%016llx%016llx.bin", dir, folder,
                     (unsigned long long)key.high, (unsigned long long)key.low);
    return n > 0 && n < CACHE_PATH_BYTES;
}

static bool folder_path(const char *dir, const char *folder, char *path)
{
    int n = snprintf(path, CACHE_PATH_BYTES, "%s/%s", dir, folder);
    return n > 0 && n < CACHE_PATH_BYTES;
}

static bool read_all(int fd, void *data, size_t n)
{
    char *at = data;
    while (n > 0) {
        ssize_t got = read(fd, at, n);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        if (got > 0) {
            at += got;
            n -= (size_t)got;
        }
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t n)
{
    const char *at = data;
    while (n > 0) {
        ssize_t put = write(fd, at, n);
        if (put <= 0 && !(put < 0 && errno == EINTR))
            return false;
        if (put > 0) {
            at += put;
            n -= (size_t)put;
        }
    }
    return true;
}

static bool valid_header(const struct header *h, struct cache_key key, enum cache_kind kind)
{
    return memcmp(h->magic, CACHE_MAGIC, sizeof h->magic) == 0 && h->format == CACHE_FORMAT &&
           h->kind == (uint32_t)kind && h->key_high == key.high && h->key_low == key.low &&
           h->length <= CACHE_MAX_BYTES;
}

/* Reads the payload of an open file into a new block; NULL unless everything about it is right. */
static void *read_payload(int fd, struct cache_key key, enum cache_kind kind, size_t *length)
{
    struct header h;
    struct stat s;
    if (!read_all(fd, &h, sizeof h) || !valid_header(&h, key, kind))
        return NULL;
    if (fstat(fd, &s) != 0 || (uint64_t)s.st_size != sizeof h + h.length)
        return NULL;
    char *data = mem_alloc((size_t)h.length + 1);
    if (data == NULL)
        return NULL;
    if (!read_all(fd, data, (size_t)h.length) || XXH3_64bits(data, (size_t)h.length) != h.hash) {
        mem_free(data);
        return NULL;
    }
    data[h.length] = '\0';
    *length = (size_t)h.length;
    return data;
}

bool cache_load(const char *dir, const char *folder, struct cache_key key, enum cache_kind kind,
                void **data, size_t *length)
{
    char path[CACHE_PATH_BYTES], parent[CACHE_PATH_BYTES];
    *data = NULL;
    *length = 0;
    if (!file_path(dir, folder, key, path) || !folder_path(dir, folder, parent) ||
        !is_private(parent))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    *data = read_payload(fd, key, kind, length);
    close(fd);
    return *data != NULL;
}

/* Removes the oldest file of a folder that holds more than CACHE_MAX_FILES. */
static void prune(const char *parent)
{
    DIR *d = opendir(parent);
    if (d == NULL)
        return;
    char oldest[NAME_MAX + 1] = "";
    time_t oldest_time = 0;
    size_t n = 0;
    for (struct dirent *file = readdir(d); file != NULL; file = readdir(d)) {
        struct stat s;
        if (file->d_name[0] == '.' || fstatat(dirfd(d), file->d_name, &s, 0) != 0)
            continue;
        n++;
        if (oldest[0] == '\0' || s.st_mtime < oldest_time) {
            snprintf(oldest, sizeof oldest, "%s", file->d_name);
            oldest_time = s.st_mtime;
        }
    }
    if (n > CACHE_MAX_FILES)
        unlinkat(dirfd(d), oldest, 0);
    closedir(d);
}

void cache_store(const char *dir, const char *folder, struct cache_key key, enum cache_kind kind,
                 const void *data, size_t length)
{
    char path[CACHE_PATH_BYTES], parent[CACHE_PATH_BYTES], temporary[CACHE_PATH_BYTES + 8];
    if (!file_path(dir, folder, key, path) || !folder_path(dir, folder, parent) ||
        length > CACHE_MAX_BYTES)
        return;
    if (!cache_make_folder(parent) || !is_private(parent)) {
        log_debug("cache folder not usable path=%s", parent);
        return;
    }
    struct header h = {.format = CACHE_FORMAT,
                       .kind = (uint32_t)kind,
                       .key_high = key.high,
                       .key_low = key.low,
                       .length = length,
                       .hash = XXH3_64bits(data, length)};
    memcpy(h.magic, CACHE_MAGIC, sizeof h.magic);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        log_debug("cache file not written path=%s error=%d", path, errno);
        return;
    }
    bool written = write_all(fd, &h, sizeof h) && write_all(fd, data, length);
    if (close(fd) != 0 || !written || rename(temporary, path) != 0) {
        log_debug("cache file not written path=%s error=%d", path, errno);
        unlink(temporary);
        return;
    }
    prune(parent);
}
