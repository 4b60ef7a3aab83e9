/* The rotation table: cos and sin of every position and pair, with scaling and factors included.
 *
 * Computed once on the host in double, so that every device rotates by the same numbers. Pure
 * functions; any thread. Sources: Su et al. 2021 (RoFormer); Chen et al. 2023 (linear
 * interpolation); Peng et al. 2023 (YaRN, section 3.4: ramp between interpolation and
 * extrapolation, temperature of the attention).
 */
#ifndef OINFER_MODEL_ROPE_H
#define OINFER_MODEL_ROPE_H

#include "engine/model/hparams.h"

/* Writes table[n_positions][n_rot / 2][2] = {cos, sin} for positions from 0 on. factors
 * [n_rot / 2] divide the frequencies (rope_freqs.weight), or NULL. */
void rope_table(const struct hparams *h, const float *factors, uint32_t n_positions, float *table);

#endif
