/* Host conversions of weights: the codec table, the plain types and the blocks of 32.
 *
 * Dequantising multiplies and adds in float, in the order kernels/quant.h gives, so that values are
 * equal bit for bit to the reference dequantiser's. Pure functions; any thread.
 */
#include "engine/tensor/quant.h"

#include <math.h>
#include <string.h>

#include "engine/tensor/quant_internal.h"
#include "kernels/quant.h"

static void f32_to_f32(const void *src, float *dst, uint64_t n)
{
    memcpy(dst, src, n * sizeof *dst);
}

static void f32_from_f32(const float *src, void *dst, uint64_t n)
{
    memcpy(dst, src, n * sizeof *src);
}

static uint16_t load_u16(const void *src, uint64_t i)
{
    uint16_t word;
    memcpy(&word, (const unsigned char *)src + i * sizeof word, sizeof word);
    return word;
}

static void store_u16(void *dst, uint64_t i, uint16_t word)
{
    memcpy((unsigned char *)dst + i * sizeof word, &word, sizeof word);
}

static void f16_to_f32(const void *src, float *dst, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        dst[i] = half_to_float(load_u16(src, i));
}

static void f16_from_f32(const float *src, void *dst, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        store_u16(dst, i, float_to_half(src[i]));
}

static void bf16_to_f32(const void *src, float *dst, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        dst[i] = bf16_to_float(load_u16(src, i));
}

static void bf16_from_f32(const float *src, void *dst, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        store_u16(dst, i, float_to_bf16(src[i]));
}

/* The stored number of element i of a block of 32 with nibbles qs and, if not NULL, fifth bits. */
static int stored_number(const uint8_t *qs, const uint8_t *qh, int i)
{
    int low = i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
    return qh == NULL ? low : low | (qh[i / 8] >> (i % 8) & 1) << 4;
}

static void store_numbers(const uint8_t *q, uint8_t *qs, uint8_t *qh)
{
    for (int i = 0; i < 16; i++)
        qs[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
    if (qh == NULL)
        return;
    memset(qh, 0, 4);
    for (int i = 0; i < QUANT_BLOCK; i++)
        qh[i / 8] = (uint8_t)(qh[i / 8] | (q[i] >> 4) << (i % 8));
}

/* The value of largest magnitude, with its sign; the first of equals. */
static float find_extreme(const float *x, int n)
{
    float extreme = x[0];
    for (int i = 1; i < n; i++)
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    return extreme;
}

/* q in 0 .. 2 * centre - 1 with x ~ d * (q - centre): the extreme value gets q = 0. */
static uint16_t fit_centred(const float *x, int centre, uint8_t *q)
{
    float d = find_extreme(x, QUANT_BLOCK) / (float)-centre;
    float inverse = quant__inverse(d);
    for (int i = 0; i < QUANT_BLOCK; i++)
        q[i] = (uint8_t)quant__round(x[i] * inverse + (float)centre, 0, 2 * centre - 1);
    return float_to_half(d);
}

/* q in 0 .. top with x ~ d * q + m: the smallest value gets 0 and the largest gets top. */
static void fit_between(const float *x, int top, uint8_t *q, uint16_t *d_bits, uint16_t *m_bits)
{
    float min = x[0], max = x[0];
    for (int i = 1; i < QUANT_BLOCK; i++) {
        min = fminf(min, x[i]);
        max = fmaxf(max, x[i]);
    }
    float d = (max - min) / (float)top;
    float inverse = quant__inverse(d);
    for (int i = 0; i < QUANT_BLOCK; i++)
        q[i] = (uint8_t)quant__round((x[i] - min) * inverse, 0, top);
    *d_bits = float_to_half(d);
    *m_bits = float_to_half(min);
}

static void q4_0_to_f32(const void *src, float *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++, dst += QUANT_BLOCK) {
        struct block_q4_0 block;
        memcpy(&block, (const unsigned char *)src + b * sizeof block, sizeof block);
        float d = half_to_float(block.d);
        for (int i = 0; i < QUANT_BLOCK; i++)
            dst[i] = d * (float)(stored_number(block.qs, NULL, i) - 8);
    }
}

static void q4_0_from_f32(const float *src, void *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++) {
        struct block_q4_0 block;
        uint8_t q[QUANT_BLOCK];
        block.d = fit_centred(src + b * QUANT_BLOCK, 8, q);
        store_numbers(q, block.qs, NULL);
        memcpy((unsigned char *)dst + b * sizeof block, &block, sizeof block);
    }
}

static void q4_1_to_f32(const void *src, float *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++, dst += QUANT_BLOCK) {
        struct block_q4_1 block;
        memcpy(&block, (const unsigned char *)src + b * sizeof block, sizeof block);
        float d = half_to_float(block.d), m = half_to_float(block.m);
        for (int i = 0; i < QUANT_BLOCK; i++)
            dst[i] = d * (float)stored_number(block.qs, NULL, i) + m;
    }
}

static void q4_1_from_f32(const float *src, void *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++) {
        struct block_q4_1 block;
        uint8_t q[QUANT_BLOCK];
        fit_between(src + b * QUANT_BLOCK, 15, q, &block.d, &block.m);
        store_numbers(q, block.qs, NULL);
        memcpy((unsigned char *)dst + b * sizeof block, &block, sizeof block);
    }
}

static void q5_0_to_f32(const void *src, float *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++, dst += QUANT_BLOCK) {
        struct block_q5_0 block;
        memcpy(&block, (const unsigned char *)src + b * sizeof block, sizeof block);
        float d = half_to_float(block.d);
        for (int i = 0; i < QUANT_BLOCK; i++)
            dst[i] = d * (float)(stored_number(block.qs, block.qh, i) - 16);
    }
}

static void q5_0_from_f32(const float *src, void *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++) {
        struct block_q5_0 block;
        uint8_t q[QUANT_BLOCK];
        block.d = fit_centred(src + b * QUANT_BLOCK, 16, q);
        store_numbers(q, block.qs, block.qh);
        memcpy((unsigned char *)dst + b * sizeof block, &block, sizeof block);
    }
}

static void q5_1_to_f32(const void *src, float *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++, dst += QUANT_BLOCK) {
        struct block_q5_1 block;
        memcpy(&block, (const unsigned char *)src + b * sizeof block, sizeof block);
        float d = half_to_float(block.d), m = half_to_float(block.m);
        for (int i = 0; i < QUANT_BLOCK; i++)
            dst[i] = d * (float)stored_number(block.qs, block.qh, i) + m;
    }
}

static void q5_1_from_f32(const float *src, void *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++) {
        struct block_q5_1 block;
        uint8_t q[QUANT_BLOCK];
        fit_between(src + b * QUANT_BLOCK, 31, q, &block.d, &block.m);
        store_numbers(q, block.qs, block.qh);
        memcpy((unsigned char *)dst + b * sizeof block, &block, sizeof block);
    }
}

static void q8_0_to_f32(const void *src, float *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++, dst += QUANT_BLOCK) {
        struct block_q8_0 block;
        memcpy(&block, (const unsigned char *)src + b * sizeof block, sizeof block);
        float d = half_to_float(block.d);
        for (int i = 0; i < QUANT_BLOCK; i++)
            dst[i] = d * (float)block.qs[i];
    }
}

static void q8_0_from_f32(const float *src, void *dst, uint64_t n_blocks)
{
    for (uint64_t b = 0; b < n_blocks; b++, src += QUANT_BLOCK) {
        struct block_q8_0 block;
        float d = fabsf(find_extreme(src, QUANT_BLOCK)) / 127.0f;
        float inverse = quant__inverse(d);
        for (int i = 0; i < QUANT_BLOCK; i++) {
            float scaled = src[i] * inverse; /* halves go away from zero */
            int q = quant__round(fabsf(scaled), 0, 127);
            block.qs[i] = (int8_t)(scaled < 0.0f ? -q : q);
        }
        block.d = float_to_half(d);
        memcpy((unsigned char *)dst + b * sizeof block, &block, sizeof block);
    }
}

static const struct codec {
    void (*to_f32)(const void *src, float *dst, uint64_t n_blocks);
    void (*from_f32)(const float *src, void *dst, uint64_t n_blocks);
} codecs[DT_COUNT] = {
    [DT_F32] = {f32_to_f32, f32_from_f32},
    [DT_F16] = {f16_to_f32, f16_from_f32},
    [DT_BF16] = {bf16_to_f32, bf16_from_f32},
    [DT_Q4_0] = {q4_0_to_f32, q4_0_from_f32},
    [DT_Q4_1] = {q4_1_to_f32, q4_1_from_f32},
    [DT_Q5_0] = {q5_0_to_f32, q5_0_from_f32},
    [DT_Q5_1] = {q5_1_to_f32, q5_1_from_f32},
    [DT_Q8_0] = {q8_0_to_f32, q8_0_from_f32},
    [DT_Q4_K] = {quant__q4_k_to_f32, quant__q4_k_from_f32},
    [DT_Q5_K] = {quant__q5_k_to_f32, quant__q5_k_from_f32},
    [DT_Q6_K] = {quant__q6_k_to_f32, quant__q6_k_from_f32},
};

/* The codec of a dtype and its block size, after checking n. */
static enum status find_codec(enum dtype dtype, uint64_t n, const struct codec **codec,
                              uint32_t *block, struct err *e)
{
    const struct dtype_info *info = dtype_info((uint32_t)dtype);
    if (info == NULL || codecs[dtype].to_f32 == NULL)
        return err_set(e, ST_UNSUPPORTED, "no conversion between f32 and %s",
                       dtype_name((uint32_t)dtype));
    if (n % info->block != 0)
        return err_set(e, ST_INVALID, "%llu values are not a multiple of %s's block of %u",
                       (unsigned long long)n, info->name, info->block);
    *codec = &codecs[dtype];
    *block = info->block;
    return ST_OK;
}

enum status quant_to_f32(enum dtype dtype, const void *src, float *dst, uint64_t n, struct err *e)
{
    const struct codec *codec = NULL;
    uint32_t block = 1;
    enum status status = find_codec(dtype, n, &codec, &block, e);
    if (status == ST_OK && n > 0)
        codec->to_f32(src, dst, n / block);
    return status;
}

enum status quant_from_f32(enum dtype dtype, const float *src, void *dst, uint64_t n, struct err *e)
{
    const struct codec *codec = NULL;
    uint32_t block = 1;
    enum status status = find_codec(dtype, n, &codec, &block, e);
    if (status == ST_OK && n > 0)
        codec->from_f32(src, dst, n / block);
    return status;
}
