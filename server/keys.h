/* API keys: read from a file, compared in constant time. Immutable afterwards: any thread.
 *
 * A key's number stands for it wherever what belongs to different keys must stay apart. */
#ifndef OINFER_SERVER_KEYS_H
#define OINFER_SERVER_KEYS_H

#include <stdint.h>
#include <stdio.h>

#include "engine/base/err.h"

#define KEYS_MAX      1024
#define KEY_MAX_BYTES 255

struct keys;
/* ST_INVALID when others may read the file or the group may write it. */
enum status keys_check_mode(FILE *file, const char *path, struct err *e);
/* Reads one key a line; empty lines and lines that begin with # do not count. The file must not be
 * readable by others nor writable by the group. ST_INVALID names file and line. */
enum status keys_open(const char *path, struct keys **out, struct err *e);
/* The same, for a file that takes the place of `old` (NULL: none): a key that was there keeps its
 * number, one that was not gets a number that no other key ever had. */
enum status keys_reopen(const char *path, const struct keys *old, struct keys **out, struct err *e);
void keys_close(struct keys *k); /* accepts NULL */
uint32_t keys_count(const struct keys *k);
/* The key's number (from 1: 0 stands for no key), or -1. The time does not depend on how much of a
 * key is right, nor on which. */
int keys_find(const struct keys *k, const char *given);

#endif
