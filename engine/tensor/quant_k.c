/* Host conversions of the K super-blocks: 256 values in groups that have their own small scale.
 *
 * Quantising fits a real scale (and min) to each group by least squares over several candidate
 * roundings, rounds those to the super-block's integers, and then rounds the values again with what
 * was really stored. All values count alike. Pure functions; any thread.
 */
#include <math.h>
#include <string.h>

#include "engine/tensor/dtype.h"
#include "engine/tensor/quant_internal.h"
#include "kernels/quant.h"

#define K4_GROUPS     8 /* groups of q4_k and q5_k */
#define K4_GROUP_SIZE 32
#define K6_GROUPS     16
#define K6_GROUP_SIZE 16
#define CANDIDATES    21 /* roundings tried per group: scales of -1.0 .. +1.0 levels around */

/* Fits x[i] ~ scale * q[i] - min with q in 0..top, scale >= 0 and min >= 0. */
static void fit_scale_and_min(const float *x, int top, float *scale, float *min)
{
    float low = 0.0f, high = x[0], sum_x = 0.0f, sum_xx = 0.0f;
    for (int i = 0; i < K4_GROUP_SIZE; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
        sum_x += x[i];
        sum_xx += x[i] * x[i];
    }
    *scale = (high - low) / (float)top;
    *min = -low;
    if (!(high > low)) {
        *scale = 0.0f;
        return;
    }
    const float n = K4_GROUP_SIZE;
    float best = INFINITY;
    for (int c = 0; c < CANDIDATES; c++) {
        float inverse = ((float)top - 1.0f + 0.1f * (float)c) / (high - low);
        float sum_q = 0.0f, sum_qq = 0.0f, sum_xq = 0.0f;
        for (int i = 0; i < K4_GROUP_SIZE; i++) {
            float q = (float)quant__round((x[i] - low) * inverse, 0, top);
            sum_q += q;
            sum_qq += q * q;
            sum_xq += x[i] * q;
        }
        float determinant = n * sum_qq - sum_q * sum_q;
        if (!(determinant > 0.0f))
            continue;
        float s = (n * sum_xq - sum_x * sum_q) / determinant;
        float m = (sum_q * sum_xq - sum_qq * sum_x) / determinant;
        if (m < 0.0f) {
            m = 0.0f;
            s = sum_xq / sum_qq;
        }
        /* sum of (s q - m - x)^2, expanded */
        float error = s * s * sum_qq + n * m * m + sum_xx - 2.0f * s * m * sum_q -
                      2.0f * s * sum_xq + 2.0f * m * sum_x;
        if (s > 0.0f && error < best) {
            best = error;
            *scale = s;
            *min = m;
        }
    }
}

/* Fits x[i] ~ scale * q[i] with q in -32..31; the scale's sign is that of -(extreme value). */
static float fit_scale(const float *x)
{
    float extreme = x[0];
    for (int i = 1; i < K6_GROUP_SIZE; i++)
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    if (extreme == 0.0f)
        return 0.0f;
    float scale = extreme / -32.0f, best = -INFINITY;
    for (int c = 0; c < CANDIDATES; c++) {
        float inverse = -(31.0f + 0.1f * (float)c) / extreme;
        float sum_qq = 0.0f, sum_xq = 0.0f;
        for (int i = 0; i < K6_GROUP_SIZE; i++) {
            float q = (float)quant__round(x[i] * inverse, -32, 31);
            sum_qq += q * q;
            sum_xq += x[i] * q;
        }
        /* With the best scale for these q the squared error is sum_xx - sum_xq^2 / sum_qq. */
        float gain = sum_xq * sum_xq / sum_qq;
        if (gain > best) {
            best = gain;
            scale = sum_xq / sum_qq;
        }
    }
    return scale;
}

/* Packs 8 six-bit scales and mins into 12 bytes: the inverse of QUANT_K4_SCALE and _MIN. */
static void pack_scales(const uint8_t *scale, const uint8_t *min, uint8_t *packed)
{
    for (int g = 0; g < 4; g++) {
        packed[g] = (uint8_t)(scale[g] | (scale[g + 4] >> 4) << 6);
        packed[g + 4] = (uint8_t)(min[g] | (min[g + 4] >> 4) << 6);
        packed[g + 8] = (uint8_t)((scale[g + 4] & 15) | (min[g + 4] & 15) << 4);
    }
}

/* Quantises 256 values to q in 0..top with the scales of q4_k and q5_k. */
static void fit_k4(const float *x, int top, uint8_t *q, uint16_t *d_bits, uint16_t *dmin_bits,
                   uint8_t *packed)
{
    float scale[K4_GROUPS], min[K4_GROUPS], max_scale = 0.0f, max_min = 0.0f;
    for (int g = 0; g < K4_GROUPS; g++) {
        fit_scale_and_min(x + g * K4_GROUP_SIZE, top, &scale[g], &min[g]);
        max_scale = fmaxf(max_scale, scale[g]);
        max_min = fmaxf(max_min, min[g]);
    }
    *d_bits = float_to_half(max_scale / 63.0f);
    *dmin_bits = float_to_half(max_min / 63.0f);
    float d = half_to_float(*d_bits), dmin = half_to_float(*dmin_bits);
    uint8_t scales[K4_GROUPS], mins[K4_GROUPS];
    for (int g = 0; g < K4_GROUPS; g++) {
        scales[g] = (uint8_t)quant__round(scale[g] * quant__inverse(d), 0, 63);
        mins[g] = (uint8_t)quant__round(min[g] * quant__inverse(dmin), 0, 63);
        float inverse = quant__inverse(d * (float)scales[g]);
        float offset = dmin * (float)mins[g];
        for (int i = g * K4_GROUP_SIZE; i < (g + 1) * K4_GROUP_SIZE; i++)
            q[i] = (uint8_t)quant__round((x[i] + offset) * inverse, 0, top);
    }
    pack_scales(scales, mins, packed);
}

/* Nibbles of q4_k and q5_k: chunk c of 64 elements in 32 bytes. */
static void store_k4_nibbles(const uint8_t *q, uint8_t *qs)
{
    for (int c = 0; c < 4; c++)
        for (int l = 0; l < 32; l++)
            qs[32 * c + l] = (uint8_t)((q[64 * c + l] & 15) | (q[64 * c + 32 + l] & 15) << 4);
}

/* The values of one q4_k or q5_k super-block; qh is NULL for q4_k. */
static void k4_to_f32(uint16_t d_bits, uint16_t dmin_bits, const uint8_t *scales, const uint8_t *qs,
                      const uint8_t *qh, float *dst)
{
    float d = half_to_float(d_bits), dmin = half_to_float(dmin_bits);
    for (int g = 0; g < K4_GROUPS; g++) {
        float scale = d * (float)QUANT_K4_SCALE(scales, g);
        float min = dmin * (float)QUANT_K4_MIN(scales, g);
        for (int l = 0; l < K4_GROUP_SIZE; l++) {
            int q = qs[32 * (g / 2) + l] >> (4 * (g & 1)) & 15;
            if (qh != NULL)
                q |= (qh[l] >> g & 1) << 4;
            dst[g * K4_GROUP_SIZE + l] = scale * (float)q - min;
        }
    }
}

void quant__q4_k_to_f32(const void *src, float *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++) {
        struct block_q4_k block;
        memcpy(&block, (const unsigned char *)src + b * sizeof block, sizeof block);
        k4_to_f32(block.d, block.dmin, block.scales, block.qs, NULL, dst + b * QUANT_SUPER);
    }
}

void quant__q4_k_from_f32(const float *src, void *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++) {
        struct block_q4_k block;
        uint8_t q[QUANT_SUPER];
        fit_k4(src + b * QUANT_SUPER, 15, q, &block.d, &block.dmin, block.scales);
        store_k4_nibbles(q, block.qs);
        memcpy((unsigned char *)dst + b * sizeof block, &block, sizeof block);
    }
}

void quant__q5_k_to_f32(const void *src, float *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++) {
        struct block_q5_k block;
        memcpy(&block, (const unsigned char *)src + b * sizeof block, sizeof block);
        k4_to_f32(block.d, block.dmin, block.scales, block.qs, block.qh, dst + b * QUANT_SUPER);
    }
}

void quant__q5_k_from_f32(const float *src, void *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++) {
        struct block_q5_k block;
        uint8_t q[QUANT_SUPER];
        fit_k4(src + b * QUANT_SUPER, 31, q, &block.d, &block.dmin, block.scales);
        store_k4_nibbles(q, block.qs);
        memset(block.qh, 0, sizeof block.qh);
        for (int i = 0; i < QUANT_SUPER; i++)
            block.qh[i % 32] = (uint8_t)(block.qh[i % 32] | (q[i] >> 4) << (i / 32));
        memcpy((unsigned char *)dst + b * sizeof block, &block, sizeof block);
    }
}

void quant__q6_k_to_f32(const void *src, float *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++, dst += QUANT_SUPER) {
        struct block_q6_k block;
        memcpy(&block, (const unsigned char *)src + b * sizeof block, sizeof block);
        float d = half_to_float(block.d);
        for (int i = 0; i < QUANT_SUPER; i++) {
            int half = i / 128, chunk = i / 32 % 4, l = i % 32;
            int low = block.ql[64 * half + 32 * (chunk & 1) + l] >> (chunk < 2 ? 0 : 4) & 15;
            int high = block.qh[32 * half + l] >> (2 * chunk) & 3;
            float scale = d * (float)block.scales[i / K6_GROUP_SIZE];
            dst[i] = scale * (float)((low | high << 4) - 32);
        }
    }
}

void quant__q6_k_from_f32(const float *src, void *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++, src += QUANT_SUPER) {
        struct block_q6_k block;
        memset(&block, 0, sizeof block);
        float scale[K6_GROUPS], extreme = 0.0f;
        for (int g = 0; g < K6_GROUPS; g++) {
            scale[g] = fit_scale(src + g * K6_GROUP_SIZE);
            if (fabsf(scale[g]) > fabsf(extreme))
                extreme = scale[g];
        }
        block.d = float_to_half(extreme / -128.0f);
        float d = half_to_float(block.d);
        for (int g = 0; g < K6_GROUPS; g++)
            block.scales[g] = (int8_t)quant__round(scale[g] * quant__inverse(d), -128, 127);
        for (int i = 0; i < QUANT_SUPER; i++) {
            int half = i / 128, chunk = i / 32 % 4, l = i % 32;
            float inverse = quant__inverse(d * (float)block.scales[i / K6_GROUP_SIZE]);
            int q = quant__round(src[i] * inverse, -32, 31) + 32;
            uint8_t *low = &block.ql[64 * half + 32 * (chunk & 1) + l];
            uint8_t *high = &block.qh[32 * half + l];
            *low = (uint8_t)(*low | (q & 15) << (chunk < 2 ? 0 : 4));
            *high = (uint8_t)(*high | (q >> 4) << (2 * chunk));
        }
        memcpy((unsigned char *)dst + b * sizeof block, &block, sizeof block);
    }
}
