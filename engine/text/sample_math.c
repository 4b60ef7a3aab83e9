/* Range reduction to a power of two and a short series. */
#include "engine/text/sample_math.h"

#include <stdint.h>
#include <string.h>

#define LN2_HIGH 0x1.62e42fee00000p-1 /* 32 bits of ln 2, so that k * LN2_HIGH is exact */
#define LN2_LOW  0x1.a39ef35793c76p-33
#define LOG2_E   0x1.71547652b82fep+0
#define SQRT2    0x1.6a09e667f3bcdp+0

double sample_exp(double x)
{
    static const double coefficients[] = {/* 1 / n! for n = 13 .. 0 */
                                          1.0 / 6227020800.0,
                                          1.0 / 479001600.0,
                                          1.0 / 39916800.0,
                                          1.0 / 3628800.0,
                                          1.0 / 362880.0,
                                          1.0 / 40320.0,
                                          1.0 / 5040.0,
                                          1.0 / 720.0,
                                          1.0 / 120.0,
                                          1.0 / 24.0,
                                          1.0 / 6.0,
                                          1.0 / 2.0,
                                          1.0,
                                          1.0};
    if (x < -700.0)
        return 0.0;
    int64_t k = (int64_t)(x * LOG2_E + (x < 0 ? -0.5 : 0.5));
    double r = x - (double)k * LN2_HIGH - (double)k * LN2_LOW;
    double sum = 0.0;
    for (int i = 0; i < (int)(sizeof coefficients / sizeof coefficients[0]); i++)
        sum = sum * r + coefficients[i];
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
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
