/* Rules of the ops over rows and elements: softmax, top_k, elementwise. */
#include <math.h>

#include "engine/ops/check_dims.h"
#include "engine/ops/ref/ref.h"
#include "engine/ops/rules.h"

#define LONG_ROW 8192u  /* of SHAPES_LONG and _KEPT: what is longer */
#define KEPT_ROW 32768u /* of SHAPES_KEPT: the longest */

static uint64_t element_bytes(const struct op_call *call, uint32_t i)
{
    return call->tensors[i].dtype == DT_F16 ? 2 : 4;
}

static void softmax_extent(const union op_params *params, uint64_t *rows, uint64_t *tokens)
{
    *rows = params->softmax.len;
    *tokens = params->softmax.rows;
}

static uint64_t softmax_bytes(const struct op_call *call, uint32_t i)
{
    const struct softmax_params *p = &call->params.softmax;
    return i == 1 && !p->has_mask ? 0 : element_bytes(call, i) * p->rows * p->len;
}

static uint64_t softmax_flops(const union op_params *params)
{
    return 5ull * params->softmax.rows *
           params->softmax.len; /* scale, max, subtract, exp, divide */
}

static enum status softmax_check(const struct variant *v, const struct op_call *call, struct err *e)
{
    (void)v;
    const char *op = "softmax";
    const struct softmax_params *p = &call->params.softmax;
    CHECK_DIMS({"rows", p->rows}, {"len", p->len});
    CHECK(check_at_most(op, "rows x len", (uint64_t)p->rows * p->len, ELEMENTS_MAX, e));
    return check_at_most(op, "log", p->log, 1, e);
}

static const char *softmax_refuses(const struct variant *v, const struct op_call *call)
{
    const uint32_t len = call->params.softmax.len;
    if (v->only == SHAPES_LONG && len <= LONG_ROW)
        return "needs rows of over 8192";
    if (v->only == SHAPES_KEPT && (len <= LONG_ROW || len > KEPT_ROW))
        return "needs rows of over 8192 and at most 32768";
    return NULL;
}

/* Every third row of the mask hides all of its row, every other one some elements. */
static void softmax_fill(const struct op_call *call, void *const *host)
{
    const struct softmax_params *p = &call->params.softmax;
    for (uint64_t i = 0; p->has_mask && i < (uint64_t)p->rows * p->len; i++) {
        const uint64_t row = i / p->len;
        const bool hidden = row % 3 == 2 || (row % 3 == 1 && i * 7919 % 5 < 2);
        if (hidden)
            ref_store(call->tensors[1].dtype, host[1], i, -INFINITY);
    }
}

const struct op_rules softmax_rules = {.extent = softmax_extent,
                                       .tensor_bytes = softmax_bytes,
                                       .flops = softmax_flops,
                                       .check = softmax_check,
                                       .refuses = softmax_refuses,
                                       .fill = softmax_fill};

static void top_k_extent(const union op_params *params, uint64_t *rows, uint64_t *tokens)
{
    *rows = params->top_k.len;
    *tokens = params->top_k.rows;
}

static uint64_t top_k_bytes(const struct op_call *call, uint32_t i)
{
    const struct top_k_params *p = &call->params.top_k;
    return 4ull * p->rows * (i == 0 ? p->len : p->k);
}

static uint64_t no_flops(const union op_params *params)
{
    (void)params;
    return 0;
}

static enum status top_k_check(const struct variant *v, const struct op_call *call, struct err *e)
{
    (void)v;
    const char *op = "top_k";
    const struct top_k_params *p = &call->params.top_k;
    CHECK_DIMS({"rows", p->rows}, {"len", p->len}, {"k", p->k});
    CHECK(check_at_most(op, "k", p->k, TOP_K_MAX, e));
    CHECK(check_at_most(op, "rows x len", (uint64_t)p->rows * p->len, ELEMENTS_MAX, e));
    return check_at_most(op, "k", p->k, p->len, e);
}

/* Rows in turn: random, all equal, all NaN, all -inf, ties with a NaN. */
static void top_k_fill(const struct op_call *call, void *const *host)
{
    const struct top_k_params *p = &call->params.top_k;
    for (uint64_t r = 0; r < p->rows; r++) {
        float *row = (float *)host[0] + r * p->len;
        for (uint32_t i = 0; i < p->len; i++) {
            const float special[] = {row[i], 0.5f, NAN, -INFINITY,
                                     i % 7 == 3 ? NAN : (float)(i % 5)};
            row[i] = special[r % 5];
        }
    }
}

const struct op_rules top_k_rules = {.extent = top_k_extent,
                                     .tensor_bytes = top_k_bytes,
                                     .flops = no_flops,
                                     .check = top_k_check,
                                     .fill = top_k_fill};

static void elementwise_extent(const union op_params *params, uint64_t *rows, uint64_t *tokens)
{
    *rows = params->elementwise.n;
    *tokens = 1;
}

static bool reads_two(uint32_t fn)
{
    return fn == ELEMENTWISE_ADD || fn == ELEMENTWISE_MUL || fn == ELEMENTWISE_SWIGLU;
}

static uint64_t elementwise_bytes(const struct op_call *call, uint32_t i)
{
    const struct elementwise_params *p = &call->params.elementwise;
    return i == 1 && !reads_two(p->fn) ? 0 : element_bytes(call, i) * p->n;
}

static uint64_t elementwise_flops(const union op_params *params)
{
    static const uint8_t each[] = {1, 1, 4, 9, 1, 5, 1};
    return (uint64_t)each[params->elementwise.fn] * params->elementwise.n;
}

static enum status elementwise_check(const struct variant *v, const struct op_call *call,
                                     struct err *e)
{
    (void)v;
    const char *op = "elementwise";
    const struct elementwise_params *p = &call->params.elementwise;
    CHECK(check_at_least(op, "n", p->n, 1, e));
    return check_at_most(op, "fn", p->fn, ELEMENTWISE_SCALE, e);
}

const struct op_rules elementwise_rules = {.extent = elementwise_extent,
                                           .tensor_bytes = elementwise_bytes,
                                           .flops = elementwise_flops,
                                           .check = elementwise_check};
