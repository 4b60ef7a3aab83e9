/* What the references share: activation formats, the dot product. */
#include "engine/ops/ref/ref.h"

#include <math.h>
#include <string.h>

#include "engine/ops/act.h"
#include "kernels/cpu/q8t.h"

#define HALF_MAX 65504.0f /* ACT_F16 saturates there, as the kernels do (kernels/act.h) */

/* Record of block 0 of a row of ACT_Q8T, at the row's column; the next block's is Q8T_RECORD on. */
static int32_t *q8t_row(void *rows, uint64_t row, uint32_t k)
{
    return (int32_t *)rows + row / ACT_TILE * Q8T_TILE((uint64_t)k) + row % ACT_TILE;
}

static void load_q8t(const void *rows, uint64_t row, uint32_t k, float *out)
{
    const int32_t *record = q8t_row((void *)(uintptr_t)rows, row, k);
    for (uint32_t b = 0; b < k / 32; b++, record += Q8T_RECORD) {
        float d;
        int8_t q[32];
        memcpy(&d, record + Q8T_D, sizeof d);
        for (uint32_t i = 0; i < 8; i++)
            memcpy(q + 4 * i, record + i * ACT_TILE, 4);
        for (uint32_t i = 0; i < 32; i++)
            out[b * 32 + i] = (float)q[i] * d;
    }
}

void ref_act_load(uint32_t act, const void *rows, uint64_t row, uint32_t k, float *out)
{
    const char *at = (const char *)rows + row * act_row_bytes(act, k);
    if (act == ACT_F32) {
        memcpy(out, at, k * sizeof *out);
    } else if (act == ACT_F16) {
        const uint16_t *h = (const uint16_t *)(const void *)at;
        for (uint32_t i = 0; i < k; i++)
            out[i] = half_to_float(h[i]);
    } else if (act == ACT_Q8T) {
        load_q8t(rows, row, k, out);
    } else { /* ACT_Q8 */
        const int8_t *q = (const int8_t *)at;
        const float *d = (const float *)(const void *)(at + k);
        for (uint32_t i = 0; i < k; i++)
            out[i] = (float)q[i] * d[i / 32];
    }
}

/* 32 values to q = x / d, d = absmax / 127; gives d. */
static float quantize_32(const float *in, int8_t *q)
{
    float largest = 0;
    for (uint32_t i = 0; i < 32; i++)
        largest = fmaxf(largest, fabsf(in[i]));
    const float d = largest / 127.0f, inverse = d > 0 ? 1.0f / d : 0.0f;
    for (uint32_t i = 0; i < 32; i++)
        q[i] = (int8_t)roundf(in[i] * inverse);
    return d;
}

static int32_t sum_of(const int8_t *q, uint32_t n)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += q[i];
    return sum;
}

/* One row of ACT_Q8: q[k], d[k / 32], s[k / 32]. */
static void store_q8(char *at, uint32_t k, const float *in)
{
    int8_t *q = (int8_t *)at;
    float *d = (float *)(void *)(at + k);
    int32_t *s = (int32_t *)(void *)(at + k + k / 32 * 4);
    for (uint32_t b = 0; b < k / 32; b++) {
        d[b] = quantize_32(in + b * 32, q + b * 32);
        s[b] = sum_of(q + b * 32, 32);
    }
}

static void store_q8t(void *rows, uint64_t row, uint32_t k, const float *in)
{
    int32_t *record = q8t_row(rows, row, k);
    for (uint32_t b = 0; b < k / 32; b++, record += Q8T_RECORD) {
        int8_t q[32];
        const float d = quantize_32(in + b * 32, q);
        const float d_sum = d * (float)sum_of(q, 32);
        for (uint32_t i = 0; i < 8; i++)
            memcpy(record + i * ACT_TILE, q + 4 * i, 4);
        memcpy(record + Q8T_D, &d, sizeof d);
        record[Q8T_SUM] = sum_of(q, 32);
        record[Q8T_SUM_16] = sum_of(q, 16);
        memcpy(record + Q8T_D_SUM, &d_sum, sizeof d_sum);
    }
}

void ref_act_store(uint32_t act, void *rows, uint64_t row, uint32_t k, const float *in)
{
    char *at = (char *)rows + row * act_row_bytes(act, k);
    if (act == ACT_F32) {
        memcpy(at, in, k * sizeof *in);
    } else if (act == ACT_F16) {
        uint16_t *h = (uint16_t *)(void *)at;
        for (uint32_t i = 0; i < k; i++)
            h[i] = float_to_half(in[i] > HALF_MAX    ? HALF_MAX
                                 : in[i] < -HALF_MAX ? -HALF_MAX
                                                     : in[i]);
    } else if (act == ACT_Q8T) {
        store_q8t(rows, row, k, in);
    } else { /* ACT_Q8 */
        store_q8(at, k, in);
    }
}

double ref_dot(const float *a, const float *b, uint32_t n)
{
    double lanes[8] = {0};
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t j = 0; j < 8; j++)
            lanes[j] += (double)a[i + j] * (double)b[i + j];
    double sum = 0;
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    for (uint32_t j = 0; j < 8; j++)
        sum += lanes[j];
    return sum;
}

float ref_load(enum dtype dtype, const void *x, uint64_t i)
{
    if (dtype == DT_F16)
        return half_to_float(((const uint16_t *)x)[i]);
    return dtype == DT_BF16 ? bf16_to_float(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

void ref_store(enum dtype dtype, void *x, uint64_t i, float v)
{
    if (dtype == DT_F16)
        ((uint16_t *)x)[i] = float_to_half(v);
    else if (dtype == DT_BF16)
        ((uint16_t *)x)[i] = float_to_bf16(v);
    else
        ((float *)x)[i] = v;
}

double ref_nmse(const float *got, const float *want, uint64_t n)
{
    double error = 0, size = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (isinf(want[i]) || isnan(want[i])) {
            const bool same = isnan(want[i]) ? isnan(got[i]) : got[i] == want[i];
            error += same ? 0 : INFINITY;
            continue;
        }
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    return size > 0 ? error / size : error;
}
