/* Rules of sparse_gemv. */
#include <float.h>
#include <math.h>

#include "engine/ops/check_dims.h"
#include "engine/ops/rules.h"

static void sparse_extent(const union op_params *params, uint64_t *rows, uint64_t *tokens)
{
    *rows = params->sparse_gemv.m;
    *tokens = 1;
}

static uint64_t sparse_bytes(const struct op_call *call, uint32_t i)
{
    const struct sparse_gemv_params *p = &call->params.sparse_gemv;
    const bool csr = p->format == SPARSE_CSR;
    const uint64_t bytes[] = {
        csr ? 4ull * p->nnz : 2ull * p->m * p->k,
        csr ? 4ull * p->nnz : 4ull * p->m * ((p->k + 31u) / 32u),
        csr ? 4ull * p->m + 4 : 0,
        4ull * p->k,
        4ull * p->m,
    };
    return bytes[i];
}

static uint64_t sparse_flops(const union op_params *params)
{
    const struct sparse_gemv_params *p = &params->sparse_gemv;
    return p->format == SPARSE_CSR ? 2ull * p->nnz : (uint64_t)p->m * p->k;
}

static enum status sparse_check(const struct variant *v, const struct op_call *call, struct err *e)
{
    (void)v;
    const char *op = "sparse_gemv";
    const struct sparse_gemv_params *p = &call->params.sparse_gemv;
    CHECK_DIMS({"m", p->m}, {"k", p->k});
    CHECK(check_at_most(op, "format", p->format, SPARSE_2_4, e));
    CHECK(check_at_most(op, "m x k", (uint64_t)p->m * p->k, ELEMENTS_MAX, e));
    if (p->format == SPARSE_2_4)
        return check_multiple(op, "k", p->k, 4, e);
    CHECK(check_at_least(op, "nnz", p->nnz, 1, e));
    return check_at_most(op, "nnz", p->nnz, (uint64_t)p->m * p->k, e);
}

static const char *sparse_refuses(const struct variant *v, const struct op_call *call)
{
    if (v->layout == call->params.sparse_gemv.format)
        return NULL;
    return v->layout == SPARSE_CSR ? "reads CSR only" : "reads 2:4 only";
}

/* CSR: nnz columns spread over the rows, some of them empty; 2:4: two positions of each four. */
static void sparse_fill(const struct op_call *call, void *const *host)
{
    const struct sparse_gemv_params *p = &call->params.sparse_gemv;
    int32_t *columns = host[1], *row_ptr = host[2];
    const uint64_t words = (p->k + 31u) / 32u;
    for (uint64_t i = 0; p->format == SPARSE_2_4 && i < p->m * words; i++) {
        static const uint32_t pairs[] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe}; /* 01 02 03 12 13 23 */
        uint32_t word = 0;
        for (uint32_t g = 0; g < 8; g++)
            word |= pairs[(i * 31 + g * 7) % 6] << 4 * g;
        columns[i] = (int32_t)word;
    }
    if (p->format != SPARSE_CSR)
        return;
    for (uint64_t r = 0; r <= p->m; r++) /* every odd row is empty but for the last */
        row_ptr[r] =
            (int32_t)(r == p->m ? p->nnz : (r + 1) / 2 * 2 * (uint64_t)p->nnz / (p->m + 1));
    for (uint64_t i = 0; i < p->nnz; i++)
        columns[i] = (int32_t)(i * 7919 % p->k);
}

/* Column of stored value i of row r. */
static uint64_t column_of(const struct sparse_gemv_params *p, const int32_t *columns, uint64_t r,
                          uint64_t i)
{
    if (p->format == SPARSE_CSR)
        return (uint64_t)columns[i];
    const uint64_t at = i - r * (p->k / 2), g = at / 2; /* the group of four */
    const uint32_t word = (uint32_t)columns[r * ((p->k + 31u) / 32u) + g / 8];
    return 4 * g + (word >> (4 * (g % 8) + 2 * (at % 2)) & 3);
}

/* |err| <= 4 sqrt(n) eps |a||x| of each row, of its n values and the numbers of x they meet. */
static enum status sparse_error(const struct variant *v, const struct op_call *call,
                                void *const *inputs, const float *got, const float *want,
                                double *out, struct err *e)
{
    (void)v;
    (void)e;
    const struct sparse_gemv_params *p = &call->params.sparse_gemv;
    const float *values = inputs[0], *x = inputs[3];
    const int32_t *row_ptr = inputs[2];
    *out = 0;
    for (uint64_t r = 0; r < p->m; r++) {
        const uint64_t begin = p->format == SPARSE_CSR ? (uint64_t)row_ptr[r] : r * (p->k / 2);
        const uint64_t end = p->format == SPARSE_CSR ? (uint64_t)row_ptr[r + 1] : begin + p->k / 2;
        double a_square = 0, x_square = 0;
        for (uint64_t i = begin; i < end; i++) {
            const double other = (double)x[column_of(p, inputs[1], r, i)];
            a_square += (double)values[i] * (double)values[i];
            x_square += other * other;
        }
        const double bound =
            4 * (double)FLT_EPSILON * sqrt((double)(end - begin)) * sqrt(a_square) * sqrt(x_square);
        const double error = fabs((double)got[r] - (double)want[r]);
        *out = error <= bound ? fmax(*out, bound > 0 ? error / bound : 0) : fmax(2, *out);
    }
    return ST_OK;
}

const struct op_rules sparse_gemv_rules = {.extent = sparse_extent,
                                           .tensor_bytes = sparse_bytes,
                                           .flops = sparse_flops,
                                           .check = sparse_check,
                                           .refuses = sparse_refuses,
                                           .fill = sparse_fill,
                                           .error = sparse_error};
