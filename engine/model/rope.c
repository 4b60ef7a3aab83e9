/* The rotation table. One frequency per pair, then angles by multiplication with the position. */
#include "engine/model/rope.h"

#include <math.h>

#define PI 3.14159265358979323846

/* The pair whose wave turns `turns` times in the original context (YaRN, equation 17 solved for
 * the dimension). */
static double pair_of_turns(const struct hparams *h, double turns)
{
    return h->n_rot * log(h->rope_ctx_orig / (turns * 2.0 * PI)) / (2.0 * log(h->rope_base));
}

/* Share of interpolation (1) against extrapolation (0) of pair i. */
static double interpolation_share(const struct hparams *h, uint32_t i)
{
    if (h->rope_scaling != ROPE_SCALING_YARN)
        return 1.0;
    double low = fmax(0.0, floor(pair_of_turns(h, h->yarn_beta_fast)));
    double high = fmin(h->n_rot - 1.0, ceil(pair_of_turns(h, h->yarn_beta_slow)));
    double ramp = (i - low) / fmax(0.001, high - low);
    double extrapolation = 1.0 - fmin(1.0, fmax(0.0, ramp));
    return 1.0 - extrapolation * h->yarn_ext_factor;
}

void rope_table(const struct hparams *h, const float *factors, uint32_t n_positions, float *table)
{
    uint32_t n_pairs = h->n_rot / 2;
    double scale = h->rope_scaling == ROPE_SCALING_NONE ? 1.0 : 1.0 / h->rope_factor;
    double magnitude = (double)h->rope_attn_factor * h->yarn_attn_factor;
    if (h->rope_scaling == ROPE_SCALING_YARN && h->yarn_ext_factor != 0.0f)
        magnitude *= 1.0 + 0.1 * log(1.0 / scale);
    for (uint32_t i = 0; i < n_pairs; i++) {
        double frequency = pow(h->rope_base, -2.0 * i / h->n_rot);
        if (factors)
            frequency /= factors[i];
        double share = interpolation_share(h, i);
        frequency *= share * scale + (1.0 - share);
        for (uint32_t p = 0; p < n_positions; p++) {
            float *pair = table + ((uint64_t)p * n_pairs + i) * 2;
            pair[0] = (float)(cos(p * frequency) * magnitude);
            pair[1] = (float)(sin(p * frequency) * magnitude);
        }
    }
}
