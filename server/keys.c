/* The list of keys, each padded to a fixed length so that comparing always looks at every byte. */
#include "server/keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/mem.h"

#define PADDED_BYTES (KEY_MAX_BYTES + 1)

struct keys {
    uint32_t count;
    uint32_t next; /* number of the next key that was never there */
    int numbers[KEYS_MAX];
    unsigned char padded[KEYS_MAX][PADDED_BYTES];
};

enum status keys_check_mode(FILE *file, const char *path, struct err *e)
{
    struct stat info;
    if (fstat(fileno(file), &info) != 0)
        return err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    if (info.st_mode & (S_IRWXO | S_IWGRP))
        return err_set(e, ST_INVALID,
                       "%s: mode %03o lets others at what it holds; at most 640 is allowed", path,
                       info.st_mode & 0777u);
    return ST_OK;
}

static enum status add_key(struct keys *k, const char *path, int line, char *text, struct err *e)
{
    size_t n = strcspn(text, "\r\n");
    if (text[n] == '\0' && n > KEY_MAX_BYTES)
        return err_set(e, ST_INVALID, "%s:%d: a key is longer than %d bytes", path, line,
                       KEY_MAX_BYTES);
    text[n] = '\0';
    if (n == 0 || text[0] == '#')
        return ST_OK;
    if (k->count == KEYS_MAX)
        return err_set(e, ST_INVALID, "%s:%d: more than %d keys", path, line, KEYS_MAX);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= ' ' || (unsigned char)text[i] >= 0x7F)
            return err_set(e, ST_INVALID, "%s:%d: a key may only have printable ASCII", path, line);
    memcpy(k->padded[k->count++], text, n);
    return ST_OK;
}

/* Numbers the keys that were just read: as in `old`, or with numbers of their own. */
static void number_keys(struct keys *k, const struct keys *old)
{
    k->next = old != NULL ? old->next : 1;
    for (uint32_t i = 0; i < k->count; i++) {
        int number = old != NULL ? keys_find(old, (const char *)k->padded[i]) : -1;
        k->numbers[i] = number >= 0 ? number : (int)k->next++;
    }
}

enum status keys_open(const char *path, struct keys **out, struct err *e)
{
    return keys_reopen(path, NULL, out, e);
}

enum status keys_reopen(const char *path, const struct keys *old, struct keys **out, struct err *e)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    struct keys *k = mem_zalloc(sizeof *k);
    enum status status = k != NULL ? keys_check_mode(file, path, e)
                                   : err_set(e, ST_NO_MEMORY, "keys: out of memory");
    char text[KEY_MAX_BYTES + 3];
    for (int line = 1; status == ST_OK && fgets(text, sizeof text, file) != NULL; line++)
        status = add_key(k, path, line, text, e);
    if (status == ST_OK && ferror(file))
        status = err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    if (status == ST_OK && k->count == 0)
        status = err_set(e, ST_INVALID, "%s: holds no key", path);
    fclose(file);
    if (status != ST_OK) {
        keys_close(k);
        return status;
    }
    number_keys(k, old);
    *out = k;
    return ST_OK;
}

void keys_close(struct keys *k)
{
    if (k != NULL)
        explicit_bzero(k, sizeof *k);
    mem_free(k);
}

uint32_t keys_count(const struct keys *k)
{
    return k->count;
}

int keys_find(const struct keys *k, const char *given)
{
    unsigned char padded[PADDED_BYTES] = {0};
    size_t n = strlen(given);
    unsigned too_long = n > KEY_MAX_BYTES;
    memcpy(padded, given, too_long ? KEY_MAX_BYTES : n);
    int found = -1;
    for (uint32_t i = 0; i < k->count; i++) {
        unsigned different = too_long | (n == 0);
        for (size_t b = 0; b < PADDED_BYTES; b++)
            different |= (unsigned)(k->padded[i][b] ^ padded[b]);
        found = different == 0 ? k->numbers[i] : found;
    }
    return found;
}
