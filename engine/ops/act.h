/* Activation formats: bytes and layout of a [n_tokens][k] activation matrix. Pure functions.
 *
 * ACT_F32: float [n_tokens][k].  ACT_F16: half [n_tokens][k], saturated at
 * +-65504 (NaN stays).
 * ACT_Q8 (k multiple of 32), per token, one row of act_row_bytes(): int8 q[k]; then float d[k/32]
 *   (scale: absmax / 127 of the block); then int s[k/32] (sum of the block's q). Row padded to 64
 *   bytes. x = q * d. Rounding: to nearest, ties away from zero.
 * ACT_Q8T (k multiple of 32): the numbers of ACT_Q8 in tiles of ACT_TILE tokens, drawn in
 *   kernels/cpu/q8t.h.
 */
#ifndef OINFER_OPS_ACT_H
#define OINFER_OPS_ACT_H

#include <stdint.h>

#include "kernels/params.h"

/* Bytes of the whole matrix; 0 for an unknown format or a k it does not allow. */
uint64_t act_bytes(uint32_t act, uint64_t n_tokens, uint64_t k);
/* Bytes of one token's row (ACT_F32, ACT_F16, ACT_Q8). */
uint64_t act_row_bytes(uint32_t act, uint64_t k);

#endif
