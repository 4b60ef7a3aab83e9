/* Gaussian processes: the covariance matrix, its Cholesky factor, the marginal likelihood. */
#include "engine/tune/gp.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "engine/base/mem.h"

#define SQRT_5        2.23606797749978969641
#define PI            3.14159265358979323846
#define SWEEPS        2
#define DEVIATION_MIN 1e-9 /* of y, where all observations are the same */

#define LENGTH_MEDIAN 0.7 /* of the length scales' log-normal prior, */
#define LENGTH_SPREAD 0.5 /* and the deviation of their logarithm */

static const double length_set[] = {0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8};
static const double noise_set[] = {1e-4, 3e-3, 3e-2};

struct gp {
    uint32_t n_dims, n, capacity;
    double mean, variance, noise, lengths[GP_MAX_DIMS];
    double *x;      /* [capacity][n_dims] */
    double *y;      /* [capacity] */
    double *factor; /* [n][n] lower triangle: K + g I = factor factor^T */
    double *alpha;  /* [n] (K + g I)^-1 (y - mean) */
    double *row;    /* [capacity] scratch of predict */
};

enum status gp_open(uint32_t n_dims, uint32_t max_points, struct gp **out, struct err *e)
{
    *out = NULL;
    if (n_dims > GP_MAX_DIMS || max_points < 1 || max_points > GP_MAX_POINTS)
        return err_set(e, ST_INVALID, "a process of %u dimensions and %u points, at most %d and %d",
                       n_dims, max_points, GP_MAX_DIMS, GP_MAX_POINTS);
    struct gp *g = mem_zalloc(sizeof *g);
    if (g) {
        g->n_dims = n_dims;
        g->capacity = max_points;
        g->x = mem_array((size_t)max_points * (n_dims + 1), sizeof *g->x);
        g->y = mem_array(max_points, sizeof *g->y);
        g->factor = mem_array((size_t)max_points * max_points, sizeof *g->factor);
        g->alpha = mem_array(max_points, sizeof *g->alpha);
        g->row = mem_array(max_points, sizeof *g->row);
    }
    if (!g || !g->x || !g->y || !g->factor || !g->alpha || !g->row) {
        gp_close(g);
        return err_set(e, ST_NO_MEMORY, "a process of %u points", max_points);
    }
    *out = g;
    return ST_OK;
}

void gp_close(struct gp *g)
{
    if (!g)
        return;
    mem_free(g->x);
    mem_free(g->y);
    mem_free(g->factor);
    mem_free(g->alpha);
    mem_free(g->row);
    mem_free(g);
}

void gp_clear(struct gp *g)
{
    g->n = 0;
}

void gp_add(struct gp *g, const double *x, double y)
{
    if (g->n == g->capacity)
        return;
    memcpy(g->x + (size_t)g->n * g->n_dims, x, g->n_dims * sizeof *x);
    g->y[g->n++] = y;
}

static double covariance(const struct gp *g, const double *a, const double *b)
{
    double square = 0;
    for (uint32_t i = 0; i < g->n_dims; i++) {
        const double step = (a[i] - b[i]) / g->lengths[i];
        square += step * step;
    }
    const double r = SQRT_5 * sqrt(square);
    return (1 + r + r * r / 3) * exp(-r);
}

/* Fills the factor; false where the matrix is not positive definite. */
static bool factorise(struct gp *g)
{
    double *l = g->factor;
    const uint32_t n = g->n;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j <= i; j++) {
            double sum = covariance(g, g->x + (size_t)i * g->n_dims, g->x + (size_t)j * g->n_dims);
            if (i == j)
                sum += g->noise;
            for (uint32_t k = 0; k < j; k++)
                sum -= l[i * n + k] * l[j * n + k];
            if (i == j && !(sum > 0))
                return false;
            l[i * n + j] = i == j ? sqrt(sum) : sum / l[j * n + j];
        }
    return true;
}

/* x = factor^-1 x, and with `back` then factor^-T of that. */
static void solve(const struct gp *g, double *x, bool back)
{
    const double *l = g->factor;
    const uint32_t n = g->n;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < i; k++)
            x[i] -= l[i * n + k] * x[k];
        x[i] /= l[i * n + i];
    }
    for (uint32_t i = n; back && i-- > 0;) {
        for (uint32_t k = i + 1; k < n; k++)
            x[i] -= l[k * n + i] * x[k];
        x[i] /= l[i * n + i];
    }
}

double gp_fit(struct gp *g, const double *lengths, double noise)
{
    const uint32_t n = g->n;
    memcpy(g->lengths, lengths, g->n_dims * sizeof *lengths);
    g->noise = noise;
    g->mean = 0;
    for (uint32_t i = 0; i < n; i++)
        g->mean += g->y[i] / n;
    if (!factorise(g))
        return -INFINITY;
    double square = 0, log_det = 0;
    for (uint32_t i = 0; i < n; i++)
        g->alpha[i] = g->y[i] - g->mean;
    solve(g, g->alpha, true);
    for (uint32_t i = 0; i < n; i++) {
        square += (g->y[i] - g->mean) * g->alpha[i];
        log_det += 2 * log(g->factor[i * n + i]);
    }
    g->variance = fmax(square / n, DEVIATION_MIN * DEVIATION_MIN);
    return -0.5 * (n * log(2 * PI * g->variance) + log_det + square / g->variance);
}

/* Logarithm of the prior density of length scales, up to a constant. From a few points alone a
 * dimension easily seems to have no influence, or every one a sudden one. */
static double log_prior(const struct gp *g, const double *lengths)
{
    double sum = 0;
    for (uint32_t i = 0; i < g->n_dims; i++) {
        const double z = log(lengths[i] / LENGTH_MEDIAN) / LENGTH_SPREAD;
        sum -= 0.5 * z * z;
    }
    return sum;
}

double gp_learn(struct gp *g)
{
    double lengths[GP_MAX_DIMS], noise = noise_set[0], best;
    for (uint32_t i = 0; i < g->n_dims; i++)
        lengths[i] = LENGTH_MEDIAN;
    best = gp_fit(g, lengths, noise); /* where the prior is 0 */
    for (uint32_t sweep = 0; sweep < SWEEPS; sweep++) {
        for (uint32_t i = 0; i < g->n_dims; i++) {
            double chosen = lengths[i];
            for (size_t j = 0; j < sizeof length_set / sizeof *length_set; j++) {
                lengths[i] = length_set[j];
                const double probability = gp_fit(g, lengths, noise) + log_prior(g, lengths);
                if (probability > best) {
                    best = probability;
                    chosen = lengths[i];
                }
            }
            lengths[i] = chosen;
        }
        for (size_t j = 0; j < sizeof noise_set / sizeof *noise_set; j++) {
            const double probability = gp_fit(g, lengths, noise_set[j]) + log_prior(g, lengths);
            if (probability > best) {
                best = probability;
                noise = noise_set[j];
            }
        }
    }
    return gp_fit(g, lengths, noise);
}

void gp_predict(const struct gp *g, const double *x, double *mean, double *deviation)
{
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        g->row[i] = covariance(g, x, g->x + (size_t)i * g->n_dims);
        sum += g->row[i] * g->alpha[i];
    }
    solve(g, g->row, false);
    for (uint32_t i = 0; i < g->n; i++)
        square += g->row[i] * g->row[i];
    *mean = g->mean + sum;
    *deviation = sqrt(g->variance * fmax(1 - square, 0));
}

double gp_expected_improvement(double mean, double deviation, double best)
{
    const double gain = best - mean;
    if (!(deviation > 0))
        return fmax(gain, 0);
    const double z = gain / deviation;
    const double density = exp(-0.5 * z * z) / sqrt(2 * PI);
    const double below = 0.5 * erfc(-z / sqrt(2.0));
    return gain * below + deviation * density;
}
