/* Inputs that clients give: nested arrays of JSON, and .npy files. Both become plain arrays of
 * float, or int32_t, in the request's arena. */
#include <cjson/cJSON.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "server/ops/npy.h"
#include "server/ops/request.h"

#define SHAPE_BYTES 96

/* The reading of one input. */
struct sink {
    const struct op_array *x;
    struct fault *fault;
    float *floats;
    int32_t *ints;
    uint64_t n;
};

static enum status refuse(const struct op_array *x, struct fault *f, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static enum status refuse(const struct op_array *x, struct fault *f, const char *format, ...)
{
    char param[FAULT_PARAM_BYTES], text[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(param, sizeof param, "inputs.%s", x->name);
    return fault_set(f, FAULT_BAD_REQUEST, param, "%s: %s", param, text);
}

/* Memory for the elements of x; *out is what bench.data gets. */
static enum status open_sink(struct op_request *r, const struct op_array *x, struct sink *s,
                             struct fault *f)
{
    const uint64_t count = op_array_count(x);
    *s = (struct sink){.x = x, .fault = f};
    void *memory = arena_array(r->arena, (size_t)(count > 0 ? count : 1), sizeof(float));
    if (memory == NULL) { /* the arena is a multiple of what came: so many cannot be there */
        char shape[SHAPE_BYTES];
        return refuse(x, f, "fewer numbers than the shape %s has",
                      op__shape_text(x, shape, sizeof shape));
    }
    if (x->is_int)
        s->ints = memory;
    else
        s->floats = memory;
    r->bench.data.inputs[x->tensor] = memory;
    return ST_OK;
}

static enum status put_number(struct sink *s, double v)
{
    if (s->ints != NULL) {
        if (!(v >= INT32_MIN && v <= INT32_MAX) || v != floor(v))
            return refuse(s->x, s->fault,
                          "element %" PRIu64 " is %.17g, expected a whole number of 32 bits", s->n,
                          v);
        s->ints[s->n++] = (int32_t)v;
        return ST_OK;
    }
    if (!(fabs(v) <= (double)FLT_MAX))
        return refuse(s->x, s->fault, "element %" PRIu64 " is %.17g, out of the range of f32", s->n,
                      v);
    s->floats[s->n++] = (float)v;
    return ST_OK;
}

/* One level of nesting: an array of dims[level] things. */
static enum status read_level(struct sink *s, const cJSON *value, uint32_t level)
{
    char shape[SHAPE_BYTES];
    if (level == s->x->n_dims) {
        if (!cJSON_IsNumber(value))
            return refuse(s->x, s->fault, "element %" PRIu64 " is no number (shape %s)", s->n,
                          op__shape_text(s->x, shape, sizeof shape));
        return put_number(s, value->valuedouble);
    }
    uint64_t count = 0;
    if (!cJSON_IsArray(value))
        return refuse(s->x, s->fault, "expected nested arrays of shape %s",
                      op__shape_text(s->x, shape, sizeof shape));
    for (const cJSON *item = value->child; item != NULL; item = item->next)
        count++;
    if (count != s->x->dims[level])
        return refuse(s->x, s->fault,
                      "%" PRIu64 " items at depth %" PRIu32 ", expected %" PRIu64 " (shape %s)",
                      count, level + 1, s->x->dims[level],
                      op__shape_text(s->x, shape, sizeof shape));
    for (const cJSON *item = value->child; item != NULL; item = item->next) {
        const enum status status = read_level(s, item, level + 1);
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

static uint32_t depth_of(const cJSON *value)
{
    uint32_t depth = 0;
    for (; cJSON_IsArray(value); value = value->child)
        depth++;
    return depth;
}

/* The length of what is as long as the client says; the values decide, the indices must agree. */
static enum status settle(struct op_request *r, struct op_array *x, uint64_t count, struct fault *f)
{
    struct sparse_gemv_params *p = &r->bench.params.sparse_gemv;
    if (x->dims[0] != 0)
        return ST_OK;
    if (p->nnz == 0 && count > 0 && count <= UINT32_MAX)
        p->nnz = (uint32_t)count;
    if (count == 0 || count != p->nnz)
        return refuse(x, f,
                      "%" PRIu64 " items, expected %s, as many as values and col_indices have",
                      count, count == 0 ? "at least 1" : "the same");
    x->dims[0] = count;
    return ST_OK;
}

enum status op__read_nested(struct op_request *r, struct op_array *x, const void *value,
                            struct fault *f)
{
    const cJSON *tree = value;
    struct sink s;
    uint64_t count = 0;
    for (const cJSON *item = cJSON_IsArray(tree) ? tree->child : NULL; item != NULL;
         item = item->next)
        count++;
    enum status status = settle(r, x, count, f);
    if (status == ST_OK)
        status = open_sink(r, x, &s, f);
    if (status != ST_OK)
        return status;
    const bool leaves_out = x->n_dims > 1 && x->dims[0] == 1 && depth_of(tree) == x->n_dims - 1;
    return read_level(&s, tree, leaves_out ? 1 : 0);
}

/* ---- .npy ---- */

static bool same_shape(const struct npy *a, const struct op_array *x)
{
    const uint32_t skip = x->n_dims > 1 && x->dims[0] == 1 && a->n_dims == x->n_dims - 1;
    if (a->n_dims != x->n_dims - skip)
        return false;
    for (uint32_t i = 0; i < a->n_dims; i++)
        if (a->dims[i] != x->dims[i + skip])
            return false;
    return true;
}

enum status op__read_npy(struct op_request *r, struct op_array *x, const struct op_part *part,
                         struct fault *f)
{
    char have[SHAPE_BYTES], want[SHAPE_BYTES];
    struct npy a;
    struct sink s;
    struct err e;
    enum status status = npy_parse(part->bytes, part->n, &a, &e);
    if (status != ST_OK)
        return refuse(x, f, "%s", e.text);
    if ((a.dtype == DT_I32) != x->is_int)
        return refuse(x, f, "npy: dtype is %s, expected %s", dtype_name(a.dtype),
                      x->is_int ? "i32" : "f32 or f16");
    status = settle(r, x, a.count, f);
    if (status != ST_OK)
        return status;
    if (!same_shape(&a, x))
        return refuse(x, f, "npy: shape is %s, expected %s",
                      op__dims_text(a.n_dims, a.dims, have, sizeof have),
                      op__shape_text(x, want, sizeof want));
    status = open_sink(r, x, &s, f);
    if (status != ST_OK)
        return status;
    for (uint64_t i = 0; i < a.count; i++) {
        uint16_t half;
        if (a.dtype == DT_F16) {
            memcpy(&half, a.data + 2 * i, 2);
            s.floats[i] = half_to_float(half);
        } else {
            memcpy((char *)(x->is_int ? (void *)s.ints : (void *)s.floats) + 4 * i, a.data + 4 * i,
                   4);
        }
        if (!x->is_int && isnan(s.floats[i]))
            return refuse(x, f, "npy: element %" PRIu64 " is NaN", i);
    }
    return ST_OK;
}
