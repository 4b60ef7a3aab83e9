/* What the references share: activation formats, the dot product. */
#include "engine/ops/ref/ref.h"

#include <math.h>
#include <string.h>

#include "engine/ops/act.h"

void ref_act_load(uint32_t act, const void *rows, uint64_t row, uint32_t k, float *out)
{
    const char *at = (const char *)rows + row * act_row_bytes(act, k);
    if (act == ACT_F32) {
        memcpy(out, at, k * sizeof *out);
    } else if (act == ACT_F16) {
        const uint16_t *h = (const uint16_t *)(const void *)at;
        for (uint32_t i = 0; i < k; i++)
            out[i] = half_to_float(h[i]);
    } else { /* ACT_Q8 */
        const int8_t *q = (const int8_t *)at;
        const float *d = (const float *)(const void *)(at + k);
        for (uint32_t i = 0; i < k; i++)
            out[i] = (float)q[i] * d[i / 32];
    }
}

/* One row of ACT_Q8: q[k], d[k / 32], s[k / 32]. */
static void store_q8(char *at, uint32_t k, const float *in)
{
    int8_t *q = (int8_t *)at;
    float *d = (float *)(void *)(at + k);
    int32_t *s = (int32_t *)(void *)(at + k + k / 32 * 4);
    for (uint32_t b = 0; b < k / 32; b++) {
        float largest = 0;
        for (uint32_t i = 0; i < 32; i++)
            largest = fmaxf(largest, fabsf(in[b * 32 + i]));
        d[b] = largest / 127.0f;
        s[b] = 0;
        const float inverse = d[b] > 0 ? 1.0f / d[b] : 0.0f;
        for (uint32_t i = 0; i < 32; i++) {
            q[b * 32 + i] = (int8_t)roundf(in[b * 32 + i] * inverse);
            s[b] += q[b * 32 + i];
        }
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
            h[i] = float_to_half(in[i]);
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
