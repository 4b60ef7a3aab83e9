/* The disk cache: small files with a checked header, keyed by a hash. Any fault reads as "absent".
 *
 * Layout: DIR/FOLDER/KEY.bin = struct header (magic, format, kind, key, length, xxhash of payload)
 * and the payload. Written as a temporary file and renamed, so readers and other processes see all
 * or nothing. Folders are made with mode 0700; one that others may write to, or that is not ours,
 * is not used, because its content would run on our device. Stateless; any thread.
 */
#ifndef OINFER_CL_CACHE_H
#define OINFER_CL_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cache_key {
    uint64_t high, low;
};

enum cache_kind {
    CACHE_PROGRAM = 1,
    CACHE_FAILURE = 2,
    CACHE_CAPS = 3,
    CACHE_PEAKS = 4,
    CACHE_SELFTEST = 5,
    CACHE_REHEARSAL = 6,
    CACHE_TRIED = 7 /* a program that builds, without its binary */
};

#define CACHE_MAX_BYTES ((size_t)256 << 20) /* of one payload */
#define CACHE_MAX_FILES 4096                /* of one folder: beyond, the oldest go */

#define CACHE_PATH_BYTES 1024 /* of a path below the cache directory */

/* Makes every missing folder of the path, mode 0700. False when that fails. */
bool cache_make_folder(const char *path);
/* Key of n byte strings; different splits of the same bytes give different keys. */
struct cache_key cache_hash(const char *const *parts, const size_t *lengths, size_t n);

/* True with a block to be freed by mem_free, when a valid file of that kind and key is there. */
bool cache_load(const char *dir, const char *folder, struct cache_key key, enum cache_kind kind,
                void **data, size_t *length);
/* Stores, replacing what is there; failures are logged at debug and otherwise ignored: a cache may
 * always be empty. dir may be NULL. */
void cache_store(const char *dir, const char *folder, struct cache_key key, enum cache_kind kind,
                 const void *data, size_t length);

#endif
