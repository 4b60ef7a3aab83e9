/* Fuzz target: .npy files. Whatever comes, parsing ends in an array that lies within the bytes, or
 * in an error with a text; and what was parsed is parsed alike after it was written again. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/ops/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t element_bytes(enum dtype dtype)
{
    return dtype == DT_F16 ? 2 : 4;
}

static void write_again(const struct npy *a)
{
    struct strbuf out;
    struct npy b;
    strbuf_init(&out, (size_t)1 << 26);
    if (!npy_write_header(&out, a->dtype, a->n_dims, a->dims) ||
        !strbuf_append(&out, a->data, (size_t)a->count * element_bytes(a->dtype)) ||
        npy_parse(strbuf_text(&out), out.length, &b, NULL) != ST_OK || b.dtype != a->dtype ||
        b.n_dims != a->n_dims || memcmp(a->dims, b.dims, sizeof a->dims) != 0 ||
        memcmp(a->data, b.data, (size_t)a->count * element_bytes(a->dtype)) != 0)
        abort();
    strbuf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy a;
    struct err e = {0};
    const enum status status = npy_parse((const char *)data, size, &a, &e);
    if (status != ST_OK) {
        if (e.text[0] == '\0' || (status != ST_FORMAT && status != ST_UNSUPPORTED))
            abort();
        return 0;
    }
    uint64_t count = 1;
    for (uint32_t i = 0; i < a.n_dims; i++)
        count *= a.dims[i];
    const char *end = (const char *)data + size;
    if (a.n_dims > NPY_MAX_DIMS || count != a.count || a.data < (const char *)data ||
        a.data + a.count * element_bytes(a.dtype) != end)
        abort();
    write_again(&a);
    return 0;
}
