/* Rules of matmul. */
#include <float.h>
#include <math.h>

#include "engine/base/mem.h"
#include "engine/ops/check_dims.h"
#include "engine/ops/ref/ref.h"
#include "engine/ops/rules.h"

#define SMALL_LIMIT 128u /* m or n below it: SHAPES_SMALL */
#define LINE_LIMIT  (1u << 27)
#define DEEP_K      2048u       /* k from it on: SHAPES_DEEP */
#define PANEL_K     16u         /* k is rounded up to this in rows, and panels are padded */
#define HALF_EPS    9.765625e-4 /* 2^-10 */
#define BF16_EPS    7.8125e-3   /* 2^-7 */

static void matmul_extent(const union op_params *params, uint64_t *rows, uint64_t *tokens)
{
    const struct matmul_params *p = &params->matmul;
    *rows = p->m;
    *tokens = (uint64_t)p->n * p->batch;
}

static uint64_t matmul_bytes(const struct op_call *call, uint32_t i)
{
    const struct matmul_params *p = &call->params.matmul;
    const uint64_t size = call->tensors[i].dtype == DT_F32 ? 4 : 2;
    const uint64_t c = size * p->batch * p->m * p->n;
    const uint64_t bytes[] = {size * p->batch * p->m * p->k, size * p->batch * p->k * p->n,
                              p->beta != 0 ? c : 0, c};
    return bytes[i];
}

static uint64_t matmul_flops(const union op_params *params)
{
    const struct matmul_params *p = &params->matmul;
    return 2ull * p->batch * p->m * p->n * p->k;
}

static enum status matmul_check(const struct variant *v, const struct op_call *call, struct err *e)
{
    (void)v;
    const char *op = "matmul";
    const struct matmul_params *p = &call->params.matmul;
    CHECK_DIMS({"m", p->m}, {"n", p->n}, {"k", p->k}, {"batch", p->batch});
    CHECK(check_at_most(op, "m x n", (uint64_t)p->m * p->n, ELEMENTS_MAX / p->batch, e));
    CHECK(check_at_most(op, "m x k", (uint64_t)p->m * p->k, ELEMENTS_MAX / p->batch, e));
    CHECK(check_at_most(op, "k x n", (uint64_t)p->k * p->n, ELEMENTS_MAX / p->batch, e));
    CHECK(check_at_most(op, "trans_a", p->trans_a, 1, e));
    return check_at_most(op, "trans_b", p->trans_b, 1, e);
}

static const char *matmul_refuses(const struct variant *v, const struct op_call *call)
{
    const struct matmul_params *p = &call->params.matmul;
    if (v->only == SHAPES_SMALL && p->m >= SMALL_LIMIT && p->n >= SMALL_LIMIT)
        return "needs m or n under 128";
    if (v->only == SHAPES_LINES && (p->m | p->n | p->k) >= LINE_LIMIT)
        return "needs m, n and k under 2^27";
    if (v->only == SHAPES_DEEP && p->k < DEEP_K)
        return "needs k of at least 2048";
    return NULL;
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Both operands as f32: rows of k rounded up, or panels of a tile's rows and columns. */
static uint64_t matmul_scratch(const struct variant *v, const struct op_call *call)
{
    const struct matmul_params *p = &call->params.matmul;
    const bool panels = v->scratch == SCRATCH_PANELS;
    const uint64_t m = panels ? round_up(p->m, variant_rows_of(v)) : p->m;
    const uint64_t n = panels ? round_up(p->n, variant_tokens_of(v)) : p->n;
    return sizeof(float) * p->batch * round_up(p->k, PANEL_K) * (m + n);
}

/* |a| of row r and |b| of column c bound the error of a sum of k products. */
static double norm_of(enum dtype dtype, const void *x, uint64_t first, uint64_t step, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double value = (double)ref_load(dtype, x, first + i * step);
        sum += value * value;
    }
    return sqrt(sum);
}

/* |err| <= 4 sqrt(k) eps (|alpha| |a||b| + |beta c|), and a unit of the result's last place where
 * that is not f32. */
static enum status matmul_error(const struct variant *v, const struct op_call *call,
                                void *const *inputs, const float *got, const float *want,
                                double *out, struct err *e)
{
    const struct matmul_params *p = &call->params.matmul;
    const enum dtype dtype = call->tensors[0].dtype;
    const double eps = v->act == ACT_F16 ? HALF_EPS : (double)FLT_EPSILON;
    const double rounding = dtype == DT_F16    ? HALF_EPS /* of the result */
                            : dtype == DT_BF16 ? BF16_EPS
                                               : 0;
    double *columns = mem_array(p->n, sizeof *columns);
    if (!columns)
        return err_set(e, ST_NO_MEMORY, "matmul: no memory for %u norms", p->n);
    *out = 0;
    for (uint64_t batch = 0; batch < p->batch; batch++) {
        const uint64_t a0 = batch * p->m * p->k, b0 = batch * p->n * p->k;
        for (uint64_t c = 0; c < p->n; c++)
            columns[c] = norm_of(dtype, inputs[1], b0 + (p->trans_b ? c * p->k : c),
                                 p->trans_b ? 1 : p->n, p->k);
        for (uint64_t r = 0; r < p->m; r++) {
            const double row = norm_of(dtype, inputs[0], a0 + (p->trans_a ? r : r * p->k),
                                       p->trans_a ? p->m : 1, p->k);
            for (uint64_t c = 0; c < p->n; c++) {
                const uint64_t i = (batch * p->m + r) * p->n + c;
                const double added =
                    p->beta != 0 ? (double)p->beta * (double)ref_load(dtype, inputs[2], i) : 0;
                const double size = fabs((double)p->alpha) * row * columns[c] + fabs(added);
                const double bound =
                    4 * sqrt((double)p->k) * eps * size + rounding * fabs((double)want[i]);
                const double error = fabs((double)got[i] - (double)want[i]);
                *out = error <= bound ? fmax(*out, bound > 0 ? error / bound : 0) : fmax(2, *out);
            }
        }
    }
    mem_free(columns);
    return ST_OK;
}

const struct op_rules matmul_rules = {.extent = matmul_extent,
                                      .tensor_bytes = matmul_bytes,
                                      .flops = matmul_flops,
                                      .check = matmul_check,
                                      .refuses = matmul_refuses,
                                      .scratch = matmul_scratch,
                                      .error = matmul_error};
