#!/usr/bin/env python3
"""Writes gp.txt: likelihoods, predictions and expected improvements of Gaussian processes, computed with numpy.

    tests/golden/make_gp.py > tests/golden/gp.txt

The formulas are those of Rasmussen and Williams (2006): covariance eq. 4.17 (nu = 5/2, a length scale per dimension),
prediction eq. 2.25 and 2.26, marginal likelihood eq. 2.30 with the scale of the covariance at its maximum; expected
improvement as in Jones et al. (1998), eq. 15. Nothing here knows the engine's code: matrices are inverted, not factored.
"""
import math

import numpy as np

SEED = 5


def matern52(a, b, lengths):
    r = np.sqrt((((a[:, None, :] - b[None, :, :]) / lengths) ** 2).sum(-1))
    return (1 + math.sqrt(5) * r + 5 / 3 * r * r) * np.exp(-math.sqrt(5) * r)


def improvement(mean, deviation, best):
    z = (best - mean) / deviation
    return (best - mean) * 0.5 * (1 + math.erf(z / math.sqrt(2))) + deviation * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def numbers(values):
    return " ".join(f"{v:.17g}" for v in np.ravel(values))


def main():
    rng = np.random.default_rng(SEED)
    print("# made by tests/golden/make_gp.py: case DIMS POINTS NOISE, lengths, x, y, likelihood, then query x mean deviation ei")
    for dims, n, noise in ((1, 4, 1e-4), (2, 9, 3e-3), (4, 20, 3e-2), (5, 40, 1e-4)):
        lengths = rng.uniform(0.3, 2, dims)
        x = rng.uniform(0, 1, (n, dims))
        y = np.sin(3 * x).sum(1) + rng.normal(0, 0.05, n) + 10
        k = matern52(x, x, lengths) + noise * np.eye(n)
        inverse, mean = np.linalg.inv(k), y.mean()
        variance = (y - mean) @ inverse @ (y - mean) / n
        likelihood = -0.5 * (n * math.log(2 * math.pi * variance) + np.linalg.slogdet(k)[1] + n)
        print(f"case {dims} {n} {noise:g}")
        print("lengths", numbers(lengths))
        print("x", numbers(x))
        print("y", numbers(y))
        print("likelihood", numbers(likelihood))
        for query in rng.uniform(0, 1, (3, dims)):
            cross = matern52(query[None, :], x, lengths)[0]
            m = mean + cross @ inverse @ (y - mean)
            deviation = math.sqrt(variance * (1 - cross @ inverse @ cross))
            print("query", numbers(query), numbers([m, deviation, improvement(m, deviation, y.min())]))


if __name__ == "__main__":
    main()
