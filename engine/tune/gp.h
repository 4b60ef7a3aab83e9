/* Gaussian processes over a few points, in about [0, 1]^n: Matern 5/2, a length scale per
 * dimension.
 *
 * y = m + f(x) + noise, with f of covariance s^2 k(x, x') and noise of variance s^2 g; m is the
 * mean of y, s^2 its most likely value, the length scales and g are the most probable of a small
 * set, with a log-normal prior of the length scales.
 * k(x, x') = (1 + sqrt(5) r + 5/3 r^2) exp(-sqrt(5) r), r^2 = sum ((x_i - x'_i) / l_i)^2
 * Source: Rasmussen and Williams 2006, eq. 4.17 and algorithm 2.1; expected improvement: Jones et
 * al. 1998, eq. 15. One thread at a time.
 */
#ifndef OINFER_TUNE_GP_H
#define OINFER_TUNE_GP_H

#include <stdint.h>

#include "engine/base/err.h"

#define GP_MAX_DIMS   9
#define GP_MAX_POINTS 256

struct gp;
/* For n_dims dimensions and up to max_points (at most GP_MAX_POINTS) observations. */
enum status gp_open(uint32_t n_dims, uint32_t max_points, struct gp **out, struct err *e);
void gp_close(struct gp *g); /* accepts NULL */
void gp_clear(struct gp *g); /* forgets the observations */
/* Adds an observation; one more than max_points is left out. x [n_dims]. */
void gp_add(struct gp *g, const double *x, double y);
/* Fits with these length scales [n_dims] and noise; returns the logarithm of the marginal
 * likelihood, -INFINITY where the matrix is not positive definite. At least one observation. */
double gp_fit(struct gp *g, const double *lengths, double noise);
/* Fits with the most probable of the set, found one dimension after another; returns the logarithm
 * of the marginal likelihood. */
double gp_learn(struct gp *g);
/* Mean and standard deviation of f at x [n_dims], in units of y. After a fit. */
void gp_predict(const struct gp *g, const double *x, double *mean, double *deviation);
/* Of finding less than `best`. */
double gp_expected_improvement(double mean, double deviation, double best);

#endif
