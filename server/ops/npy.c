/* The header of .npy is a Python dictionary; only the three keys that it has are read, in any
 * order.
 */
#include "server/ops/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC       "\x93NUMPY"
#define MAGIC_BYTES 6u
#define ALIGN       64u /* of the data in the file, which numpy also pads to */

static const struct {
    const char *descr;
    enum dtype dtype;
    uint32_t bytes;
} types[] = {{"<f4", DT_F32, 4}, {"<f2", DT_F16, 2}, {"<i4", DT_I32, 4}};
#define TYPE_COUNT (sizeof types / sizeof types[0])

/* The header's text that has not been read yet. */
struct cursor {
    const char *at, *end;
};

static void skip_space(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t'))
        c->at++;
}

static bool take(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static bool take_word(struct cursor *c, const char *word)
{
    const size_t n = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* A string in quotes, without escapes, cut at size - 1 bytes. */
static bool take_text(struct cursor *c, char *out, size_t size)
{
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return false;
    const char quote = *c->at++;
    size_t n = 0;
    while (c->at < c->end && *c->at != quote) {
        if (n + 1 < size)
            out[n++] = *c->at >= ' ' && *c->at < 0x7F ? *c->at : '?';
        c->at++;
    }
    out[n] = '\0';
    return take(c, quote);
}

static enum status bad_header(struct err *e, const char *what)
{
    return err_set(e, ST_FORMAT, "npy: the header's %s cannot be read", what);
}

static enum status read_shape(struct cursor *c, struct npy *out, struct err *e)
{
    if (!take(c, '('))
        return bad_header(e, "shape");
    out->count = 1;
    while (!take(c, ')')) {
        uint64_t dim = 0;
        skip_space(c);
        if (c->at == c->end || *c->at < '0' || *c->at > '9')
            return bad_header(e, "shape");
        for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
            if (dim > UINT64_MAX / 16)
                return bad_header(e, "shape");
            dim = dim * 10 + (uint64_t)(*c->at - '0');
        }
        (void)take(c, 'L');
        if (out->n_dims == NPY_MAX_DIMS)
            return err_set(e, ST_UNSUPPORTED, "npy: more than %d dimensions", NPY_MAX_DIMS);
        if (dim > 0 && out->count > UINT64_MAX / 8 / dim)
            return err_set(e, ST_FORMAT, "npy: the shape has over 2^61 elements");
        out->dims[out->n_dims++] = dim;
        out->count *= dim;
        if (!take(c, ',')) {
            if (!take(c, ')'))
                return bad_header(e, "shape");
            break;
        }
    }
    return ST_OK;
}

static enum status read_descr(struct cursor *c, struct npy *out, uint32_t *bytes, struct err *e)
{
    char descr[32];
    if (!take_text(c, descr, sizeof descr))
        return err_set(e, ST_UNSUPPORTED, "npy: dtype is structured, expected <f4, <f2 or <i4");
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (strcmp(types[i].descr, descr) == 0) {
            out->dtype = types[i].dtype;
            *bytes = types[i].bytes;
            return ST_OK;
        }
    return err_set(e, ST_UNSUPPORTED, "npy: dtype is %s, expected <f4, <f2 or <i4", descr);
}

/* The dictionary; each key once. */
static enum status read_header(struct cursor c, struct npy *out, uint32_t *bytes, struct err *e)
{
    bool has_descr = false, has_order = false, has_shape = false;
    if (!take(&c, '{'))
        return bad_header(e, "dictionary");
    while (!take(&c, '}')) {
        char key[32];
        enum status status = ST_OK;
        if (!take_text(&c, key, sizeof key) || !take(&c, ':'))
            return bad_header(e, "dictionary");
        if (strcmp(key, "descr") == 0 && !has_descr) {
            has_descr = true;
            status = read_descr(&c, out, bytes, e);
        } else if (strcmp(key, "fortran_order") == 0 && !has_order) {
            has_order = true;
            if (take_word(&c, "True"))
                return err_set(e, ST_UNSUPPORTED,
                               "npy: fortran_order is True, expected False (C order)");
            status = take_word(&c, "False") ? ST_OK : bad_header(e, "fortran_order");
        } else if (strcmp(key, "shape") == 0 && !has_shape) {
            has_shape = true;
            status = read_shape(&c, out, e);
        } else {
            return err_set(e, ST_FORMAT, "npy: the header has the key \"%s\" twice or unexpectedly",
                           key);
        }
        if (status != ST_OK)
            return status;
        if (!take(&c, ',') && (c.at == c.end || *c.at != '}'))
            return bad_header(e, "dictionary");
    }
    skip_space(&c);
    if (c.at != c.end || !has_descr || !has_order || !has_shape)
        return bad_header(e, "dictionary");
    return ST_OK;
}

enum status npy_parse(const char *bytes, size_t n, struct npy *out, struct err *e)
{
    const unsigned char *u = (const unsigned char *)bytes;
    *out = (struct npy){0};
    if (n < MAGIC_BYTES + 4 || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0)
        return err_set(e, ST_FORMAT, "npy: %zu bytes that do not begin as an .npy file", n);
    if ((u[6] != 1 && u[6] != 2) || u[7] != 0)
        return err_set(e, ST_UNSUPPORTED, "npy: version is %u.%u, expected 1.0 or 2.0", u[6], u[7]);
    const size_t start = u[6] == 1 ? 10 : 12;
    if (n < start)
        return err_set(e, ST_FORMAT, "npy: %zu bytes, cut short in the header", n);
    uint32_t header = (uint32_t)u[8] | (uint32_t)u[9] << 8;
    if (u[6] == 2)
        header |= (uint32_t)u[10] << 16 | (uint32_t)u[11] << 24;
    if (header > NPY_MAX_HEADER_BYTES)
        return err_set(e, ST_FORMAT, "npy: header of %" PRIu32 " bytes, the most is %d", header,
                       NPY_MAX_HEADER_BYTES);
    if (header > n - start)
        return err_set(e, ST_FORMAT, "npy: header of %" PRIu32 " bytes, cut short after %zu",
                       header, n - start);
    uint32_t size = 0;
    const struct cursor c = {bytes + start, bytes + start + header};
    enum status status = read_header(c, out, &size, e);
    if (status != ST_OK)
        return status;
    const uint64_t have = n - start - header, need = out->count * size;
    if (have != need)
        return err_set(e, ST_FORMAT, "npy: %" PRIu64 " bytes of data, expected %" PRIu64 "%s", have,
                       need, have < need ? " (cut short)" : "");
    out->data = bytes + start + header;
    return ST_OK;
}

bool npy_write_header(struct strbuf *out, enum dtype dtype, uint32_t n_dims, const uint64_t *dims)
{
    char text[256];
    size_t i = 0;
    while (i < TYPE_COUNT - 1 && types[i].dtype != dtype)
        i++;
    size_t n = (size_t)snprintf(
        text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (", types[i].descr);
    for (uint32_t k = 0; k < n_dims; k++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%" PRIu64 "%s", dims[k],
                              n_dims == 1      ? ","
                              : k + 1 < n_dims ? ", "
                                               : "");
    n += (size_t)snprintf(text + n, sizeof text - n, "), }");
    const size_t start = MAGIC_BYTES + 4;
    const size_t padded = (start + n + 1 + ALIGN - 1) / ALIGN * ALIGN - start;
    strbuf_append(out, MAGIC "\x01", MAGIC_BYTES + 1);
    strbuf_putc(out, '\0');
    strbuf_putc(out, (char)(padded & 0xFF));
    strbuf_putc(out, (char)(padded >> 8));
    strbuf_append(out, text, n);
    for (size_t k = n; k + 1 < padded; k++)
        strbuf_putc(out, ' ');
    return strbuf_putc(out, '\n') && !out->failed;
}
