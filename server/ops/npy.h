/* .npy files in memory: format versions 1.0 and 2.0, C order, little-endian f4, f2 and i4.
 *
 * Untrusted bytes: everything is bounded, nothing is copied. Any thread. Source of the format: the
 * documentation of numpy.lib.format.
 */
#ifndef OINFER_SERVER_OPS_NPY_H
#define OINFER_SERVER_OPS_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/strbuf.h"
#include "engine/tensor/dtype.h"

#define NPY_MAX_DIMS         8
#define NPY_MAX_HEADER_BYTES 4096

struct npy {
    enum dtype dtype; /* DT_F32, DT_F16 or DT_I32 */
    uint32_t n_dims;
    uint64_t dims[NPY_MAX_DIMS], count;
    const char *data; /* count elements, not aligned; borrowed from the bytes */
};

/* ST_FORMAT, ST_UNSUPPORTED: what is wrong or not read, with the value and what is. */
enum status npy_parse(const char *bytes, size_t n, struct npy *out, struct err *e);
/* Appends the header (1.0) of an array; its elements come after it. */
bool npy_write_header(struct strbuf *out, enum dtype dtype, uint32_t n_dims, const uint64_t *dims);

#endif
