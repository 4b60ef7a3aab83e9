/* Range reduction to a power of two and a short series. */
#include "engine/text/sample_math.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LN2_HIGH   0x1.62e42fee00000p-1 /* 32 bits of ln 2, so that k * LN2_HIGH is exact */
#define LN2_LOW    0x1.a39ef35793c76p-33
#define LN2_HIGH_F 0x1.62e4p-1f /* 16 bits, likewise */
#define LN2_LOW_F  0x1.7f7d1cp-20f
#define LOG2_E     0x1.71547652b82fep+0
#define SQRT2      0x1.6a09e667f3bcdp+0

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Without branches, so that several are computed at once. Out of range, k is any number: what comes
 * of it is masked. */
static inline double exp_of(double x)
{
    const double shift = 0x1.8p52; /* rounds to an integer */
    const double shifted = x * LOG2_E + shift, k = shifted - shift;
    const double r = x - k * LN2_HIGH - k * LN2_LOW;
    const uint64_t in_range = 0 - (uint64_t)(x >= -700.0);
    double sum = 1.0 / 6227020800.0; /* 1 / n! for n = 13 .. 0 */
    sum = sum * r + 1.0 / 479001600.0;
    sum = sum * r + 1.0 / 39916800.0;
    sum = sum * r + 1.0 / 3628800.0;
    sum = sum * r + 1.0 / 362880.0;
    sum = sum * r + 1.0 / 40320.0;
    sum = sum * r + 1.0 / 5040.0;
    sum = sum * r + 1.0 / 720.0;
    sum = sum * r + 1.0 / 120.0;
    sum = sum * r + 1.0 / 24.0;
    sum = sum * r + 1.0 / 6.0;
    sum = sum * r + 1.0 / 2.0;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    const double power = from_bits((bits_of(shifted) + 1023) << 52); /* k is in the lowest bits */
    return from_bits(bits_of(sum * power) & in_range);
}

double sample_exp(double x)
{
    return exp_of(x);
}

/* As exp_of, to 3e-7 and for x from -87 to 88. */
static inline float expf_of(float x)
{
    const float shift = 0x1.8p23f;
    const float shifted = x * (float)LOG2_E + shift, k = shifted - shift;
    const float r = x - k * LN2_HIGH_F - k * LN2_LOW_F;
    const uint32_t in_range = 0 - (uint32_t)(x >= -87.0f);
    float sum = 1.0f / 720.0f;
    sum = sum * r + 1.0f / 120.0f;
    sum = sum * r + 1.0f / 24.0f;
    sum = sum * r + 1.0f / 6.0f;
    sum = sum * r + 1.0f / 2.0f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    power *= sum;
    memcpy(&bits, &power, sizeof bits);
    bits &= in_range;
    memcpy(&power, &bits, sizeof power);
    return power;
}

#define EACH(x, function)                           \
    for (uint32_t i = 0; i < SAMPLE_EXP_BLOCK; i++) \
        (x)[i] = function((x)[i]);

#if defined(__x86_64__)
/* The same operations, more at once: without multiply-add, so the same bits. */
__attribute__((target("avx2"))) static void exp_block_avx2(double x[SAMPLE_EXP_BLOCK])
{
    EACH(x, exp_of)
}

__attribute__((target("avx2"))) static void expf_block_avx2(float x[SAMPLE_EXP_BLOCK])
{
    EACH(x, expf_of)
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define exp_block_avx2  sample_exp_block
#define expf_block_avx2 sample_expf_block

static bool has_avx2(void)
{
    return false;
}
#endif

void sample_exp_block(double x[SAMPLE_EXP_BLOCK])
{
    if (has_avx2())
        exp_block_avx2(x);
    else
        EACH(x, exp_of)
}

void sample_expf_block(float x[SAMPLE_EXP_BLOCK])
{
    if (has_avx2())
        expf_block_avx2(x);
    else
        EACH(x, expf_of)
}

double sample_sum_block(const double x[SAMPLE_EXP_BLOCK])
{
    double sums[8] = {0};
    for (uint32_t i = 0; i < SAMPLE_EXP_BLOCK; i += 8)
        for (uint32_t j = 0; j < 8; j++)
            sums[j] += x[i + j];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double sample_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t k = (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0xFFFFFFFFFFFFFu) | (uint64_t)1023 << 52;
    double m; /* 1 <= m < 2, then between sqrt(1/2) and sqrt(2) */
    memcpy(&m, &bits, sizeof m);
    if (m > SQRT2) {
        m *= 0.5;
        k++;
    }
    double s = (m - 1.0) / (m + 1.0), square = s * s, sum = 0.0;
    for (int n = 21; n >= 1; n -= 2) /* log m = 2 artanh s */
        sum = sum * square + 1.0 / n;
    return (double)k * LN2_HIGH + (2.0 * s * sum + (double)k * LN2_LOW);
}

double sample_sumf_block(const float x[SAMPLE_EXP_BLOCK])
{
    double sums[8] = {0};
    for (uint32_t i = 0; i < SAMPLE_EXP_BLOCK; i += 8)
        for (uint32_t j = 0; j < 8; j++)
            sums[j] += (double)x[i + j];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}
