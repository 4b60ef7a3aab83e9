/* multipart/form-data in memory: parts by name. Untrusted bytes; nothing is copied but names. Any
 * thread. Source: RFC 7578, RFC 2046. */
#ifndef OINFER_SERVER_OPS_MULTIPART_H
#define OINFER_SERVER_OPS_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define MULTIPART_MAX_PARTS 8

struct multipart_part {
    char name[64];
    const char *bytes; /* borrowed from the body */
    size_t n;
};

struct multipart {
    struct multipart_part parts[MULTIPART_MAX_PARTS];
    uint32_t count;
};

/* Is this Content-Type multipart/form-data? */
bool multipart_is(const char *content_type);
/* ST_FORMAT says what is wrong. */
enum status multipart_parse(const char *content_type, const char *body, size_t n,
                            struct multipart *out, struct err *e);

#endif
