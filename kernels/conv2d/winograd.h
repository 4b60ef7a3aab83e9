/* Winograd's minimal filtering F(EDGE x EDGE, 3 x 3): the private memory and the transforms of one line.
 * EDGE is TOKENS: 2 or 4.
 *
 *   scratch: u [places][c][o16]  v [places][c][tiles16]  m [places][o][tiles16],  places = (EDGE + 2)^2
 *   u = G g G^T    v = B^T d B    m[o] = sum over c of u[c][o] v[c]    y = A^T m A
 *
 * Source: Lavin and Gray 2016.
 */
#ifndef WINOGRAD_H
#define WINOGRAD_H

#include "conv2d/conv2d.h"

#ifndef TOKENS
#define TOKENS 2
#endif
#ifndef LANES
#define LANES 1
#endif
#define EDGE   TOKENS
#define WIDE   (EDGE + 2)
#define PLACES (WIDE * WIDE)

#if LANES == 16
typedef float16 lanes;
#define LANES_LOAD(at)     vload16(0, at)
#define LANES_STORE(v, at) vstore16(v, 0, at)
#else
typedef float lanes;
#define LANES_LOAD(at)     (*(at))
#define LANES_STORE(v, at) (*(at) = (v))
#endif

/* Sizes of the private memory, and its parts. */
struct winograd {
    uint c, o, o16, rows, cols, tiles, tiles16;
    __global float *u, *v, *m;
};

static struct winograd winograd_of(struct conv2d_params p, __global float *scratch)
{
    struct winograd g;
    g.c = p.c;
    g.o = p.o;
    g.o16 = div_up(p.o, 16) * 16;
    g.rows = div_up(p.ho, EDGE);
    g.cols = div_up(p.wo, EDGE);
    g.tiles = p.n * g.rows * g.cols;
    g.tiles16 = div_up(g.tiles, 16) * 16;
    g.u = scratch;
    g.v = g.u + (ulong)PLACES * g.c * g.o16;
    g.m = g.v + (ulong)PLACES * g.c * g.tiles16;
    return g;
}

/* G of one line of 3 weights. */
static void transform_weights(float a, float b, float c, float *out)
{
#if EDGE == 2
    out[0] = a;
    out[1] = 0.5f * (a + b + c);
    out[2] = 0.5f * (a - b + c);
    out[3] = c;
#else
    out[0] = 0.25f * a;
    out[1] = -(a + b + c) / 6.0f;
    out[2] = (b - a - c) / 6.0f;
    out[3] = a / 24.0f + b / 12.0f + c / 6.0f;
    out[4] = a / 24.0f - b / 12.0f + c / 6.0f;
    out[5] = c;
#endif
}

/* B^T of one line of WIDE inputs, `step` apart. */
static void transform_input(lanes *d, uint step)
{
#if EDGE == 2
    const lanes a = d[0], b = d[step], c = d[2 * step], e = d[3 * step];
    d[0] = a - c;
    d[step] = b + c;
    d[2 * step] = c - b;
    d[3 * step] = b - e;
#else
    const lanes a = d[0], b = d[step], c = d[2 * step], e = d[3 * step], f = d[4 * step];
    const lanes g = d[5 * step];
    d[0] = 4.0f * a - 5.0f * c + f;
    d[step] = f + e - 4.0f * (b + c);
    d[2 * step] = f - e + 4.0f * (b - c);
    d[3 * step] = f - c + 2.0f * (e - b);
    d[4 * step] = f - c - 2.0f * (e - b);
    d[5 * step] = 4.0f * b - 5.0f * e + g;
#endif
}

/* A^T of one line of WIDE products, `step` apart: the first EDGE are the result. */
static void transform_output(lanes *m, uint step)
{
#if EDGE == 2
    const lanes a = m[0], b = m[step], c = m[2 * step], e = m[3 * step];
    m[0] = a + b + c;
    m[step] = b - c - e;
#else
    const lanes a = m[0], b = m[step], c = m[2 * step], e = m[3 * step], f = m[4 * step];
    const lanes g = m[5 * step];
    m[0] = a + (b + c) + (e + f);
    m[step] = (b - c) + 2.0f * (e - f);
    m[2 * step] = (b + c) + 4.0f * (e + f);
    m[3 * step] = (b - c) + 8.0f * (e - f) + g;
#endif
}

#define WINOGRAD winograd_of(p, (__global float *)(scratch + scratch_offset))

#endif
