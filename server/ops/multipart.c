/* Parts lie between "--boundary" at the start of a line; each has headers, an empty line, bytes. */
#include "server/ops/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_BOUNDARY_BYTES 70 /* RFC 2046 */

static const char type_name[] = "multipart/form-data";

bool multipart_is(const char *content_type)
{
    const size_t n = sizeof type_name - 1;
    return content_type != NULL && strncasecmp(content_type, type_name, n) == 0 &&
           strchr("; \t", content_type[n]) != NULL;
}

/* The value of `name=` among the parameters of a header's text up to `end`, quoted or not. */
static bool find_parameter(const char *text, const char *end, const char *name, char *out,
                           size_t size)
{
    const size_t length = strlen(name);
    for (const char *at = text; at < end; at++) {
        if (*at != ';')
            continue;
        at++;
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        if ((size_t)(end - at) <= length || strncasecmp(at, name, length) != 0 ||
            at[length] != '=') {
            at--;
            continue;
        }
        at += length + 1;
        const bool quoted = at < end && *at == '"';
        at += quoted;
        size_t n = 0;
        while (at < end && (quoted ? *at != '"' : *at != ';' && *at != ' ')) {
            if (n + 1 == size)
                return false;
            out[n++] = *at++;
        }
        out[n] = '\0';
        return n > 0;
    }
    return false;
}

static const char *find(const char *from, const char *end, const char *what, size_t n)
{
    for (const char *at = from; (size_t)(end - at) >= n; at++) {
        at = memchr(at, what[0], (size_t)(end - at) - n + 1);
        if (at == NULL)
            return NULL;
        if (memcmp(at, what, n) == 0)
            return at;
    }
    return NULL;
}

/* The headers of a part, at..end; fills the name. */
static enum status read_headers(const char *at, const char *end, struct multipart_part *part,
                                struct err *e)
{
    static const char disposition[] = "Content-Disposition:";
    while (at < end) {
        const char *line_end = find(at, end, "\r\n", 2);
        if (line_end == NULL)
            line_end = end;
        if ((size_t)(line_end - at) > sizeof disposition - 1 &&
            strncasecmp(at, disposition, sizeof disposition - 1) == 0 &&
            find_parameter(at, line_end, "name", part->name, sizeof part->name))
            return ST_OK;
        at = line_end + (line_end < end ? 2 : 0);
    }
    return err_set(e, ST_FORMAT,
                   "multipart: a part has no Content-Disposition with a name of 1 to %zu bytes",
                   sizeof part->name - 1);
}

enum status multipart_parse(const char *content_type, const char *body, size_t n,
                            struct multipart *out, struct err *e)
{
    char boundary[MAX_BOUNDARY_BYTES + 1], line[MAX_BOUNDARY_BYTES + 8];
    const char *end = body + n;
    *out = (struct multipart){.count = 0};
    if (!find_parameter(content_type, content_type + strlen(content_type), "boundary", boundary,
                        sizeof boundary))
        return err_set(e, ST_FORMAT, "multipart: Content-Type has no boundary of 1 to %d bytes",
                       MAX_BOUNDARY_BYTES);
    const size_t length = (size_t)snprintf(line, sizeof line, "\r\n--%s", boundary);
    const char *at = body;
    if (n >= length - 2 && memcmp(body, line + 2, length - 2) == 0)
        at = body + length - 2;
    else if ((at = find(body, end, line, length)) != NULL)
        at += length;
    while (at != NULL && !((size_t)(end - at) >= 2 && memcmp(at, "--", 2) == 0)) {
        const char *headers = find(at, end, "\r\n", 2);
        const char *bytes = headers != NULL ? find(headers, end, "\r\n\r\n", 4) : NULL;
        const char *stop = bytes != NULL ? find(bytes + 2, end, line, length) : NULL;
        if (stop == NULL)
            break;
        if (out->count == MULTIPART_MAX_PARTS)
            return err_set(e, ST_FORMAT, "multipart: more than %d parts", MULTIPART_MAX_PARTS);
        struct multipart_part *part = &out->parts[out->count++];
        const enum status status = read_headers(headers + 2, bytes + 2, part, e);
        if (status != ST_OK)
            return status;
        part->bytes = bytes + 4;
        part->n = stop > part->bytes ? (size_t)(stop - part->bytes) : 0;
        at = stop + length;
    }
    if (at == NULL || (size_t)(end - at) < 2 || memcmp(at, "--", 2) != 0)
        return err_set(e, ST_FORMAT, "multipart: the body does not end with the boundary");
    return ST_OK;
}
