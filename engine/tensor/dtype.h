/* Data types of tensors: the GGUF type numbers, block sizes and names, in one table.
 *
 * Pure data; thread-safe. Source of ids and block sizes: the GGUF specification.
 */
#ifndef OINFER_TENSOR_DTYPE_H
#define OINFER_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
#define X(id, number, name, block, bytes, compute) id = number,
#include "engine/tensor/dtype.def"
#undef X
    DT_COUNT = 40 /* ids are below this; there are holes */
};

/* Row of the table, or NULL for a hole or an id out of range. */
struct dtype_info {
    const char *name;     /* lower case, e.g. "q4_0" */
    uint32_t block;       /* elements per block: 1, 32 or 256 */
    uint32_t block_bytes; /* bytes per block */
    bool compute;         /* a weight of this type can be used (else it can only be inspected) */
};
const struct dtype_info *dtype_info(uint32_t id);
const char *dtype_name(uint32_t id); /* "unknown" for a hole */
/* Case-insensitive name ("Q4_0", "f16") -> id; false for an unknown one. */
bool dtype_parse(const char *name, enum dtype *out);
/* Bytes of a row of ne elements; false when ne is not a multiple of the block or it overflows. */
bool dtype_row_bytes(enum dtype dtype, uint64_t ne, uint64_t *bytes);

/* IEEE half and bfloat16 conversions, round to nearest even. */
float half_to_float(uint16_t h);
uint16_t float_to_half(float f);
float bf16_to_float(uint16_t h);
uint16_t float_to_bf16(float f);

#endif
