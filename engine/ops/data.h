/* Inputs of single operators: generated, the same on every machine, or given by a client.
 *
 * Element i of input t with seed s is (fmix32(s * 0x9E3779B9 + t * 0x85EBCA6B + i) >> 8) * 2^-23 -
 * 1, all in 32-bit unsigned arithmetic; fmix32 is the finaliser of MurmurHash3 (A. Appleby). Inputs
 * are numbered as the API's table of ops lists them. Pure functions of their arguments; any thread.
 */
#ifndef OINFER_OPS_DATA_H
#define OINFER_OPS_DATA_H

#include "engine/ops/op.h"

struct op_data {
    uint32_t seed;
    double density;   /* sparse_gemv in CSR: share of the elements kept, 0 < density <= 1 */
    double rope_base; /* of rope_kv's angles */
    /* rope_kv: [n_tokens] < n_ctx, no two the same; NULL: the last ones, in order. Borrowed. */
    const int32_t *positions;
    bool see_all; /* attention: every query sees every cell, instead of those up to its own */
    /* For each tensor of the op, NULL (generated) or numbers in the order of the API: float, or
     * int32_t for indices; attention: k and v as [n_kv][n_head_kv][head_dim]; rope_kv: x as
     * [n_tokens][n_head][head_dim], keys and values being zero then. Borrowed. */
    const void *inputs[OP_MAX_TENSORS];
};

/* In [-1, 1). */
float data_value(uint32_t seed, uint32_t input, uint32_t i);
/* Is element i of a sparse matrix kept? */
bool data_kept(uint32_t seed, uint32_t i, double density);
/* How many elements of [m][k] are kept; at least 1 is reported. */
uint64_t data_count_kept(uint32_t seed, uint64_t m, uint64_t k, double density);
/* Fills host memory of a call's inputs (bytes and dtypes: the call's tensors, in the format of the
 * references). ST_INVALID: a given number is NaN, or an index is out of range. */
enum status data_make(const struct op_call *call, const struct op_data *data, void *const *host,
                      struct err *e);

#endif
