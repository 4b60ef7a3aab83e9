/* API keys: read once from a file, compared in constant time. Immutable afterwards: any thread. */
#ifndef OINFER_SERVER_KEYS_H
#define OINFER_SERVER_KEYS_H

#include <stdint.h>

#include "engine/base/err.h"

#define KEYS_MAX      1024
#define KEY_MAX_BYTES 255

struct keys;
/* Reads one key a line; empty lines and lines that begin with # do not count. The file must not be
 * readable by others nor writable by the group. ST_INVALID names file and line. */
enum status keys_open(const char *path, struct keys **out, struct err *e);
void keys_close(struct keys *k); /* accepts NULL */
uint32_t keys_count(const struct keys *k);
/* The key's number, or -1. The time does not depend on how much of a key is right, nor on which. */
int keys_find(const struct keys *k, const char *given);

#endif
