/* Shapes: the table of dimensions, and the params that follow from them. */
#include "engine/tune/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ops/check_dims.h"
#include "engine/ops/data.h"

#define SPARSE_ELEMENTS_MAX (1u << 28) /* generated, and so looked at one by one */

struct shape_dim {
    enum op_id op;
    const char *name;
    size_t offset; /* of a uint32_t in union op_params */
    uint32_t standard, least;
    bool exact;
};

static const struct shape_dim table[] = {
#define X(op, name, member, field, standard, least, exact) \
    {op, name, offsetof(union op_params, member.field), standard, least, exact},
#include "engine/tune/shape.def"
#undef X
};

/* Dimension i of an op; NULL past the last. */
static const struct shape_dim *dim_at(enum op_id op, uint32_t i)
{
    for (size_t row = 0; row < sizeof table / sizeof *table; row++)
        if (table[row].op == op && i-- == 0)
            return &table[row];
    return NULL;
}

const char *shape_dim_name(enum op_id op, uint32_t i)
{
    const struct shape_dim *dim = dim_at(op, i);
    return dim ? dim->name : NULL;
}

bool shape_op(const char *name, enum op_id *out)
{
    if (strcmp(name, "gemv") == 0)
        name = op_name(OP_LINEAR);
    for (int i = 0; i < OP_COUNT; i++)
        if (strcmp(name, op_name((enum op_id)i)) == 0 && dim_at((enum op_id)i, 0)) {
            *out = (enum op_id)i;
            return true;
        }
    return false;
}

struct shape shape_of(enum op_id op, const union op_params *params)
{
    struct shape s = {.op = op};
    const struct shape_dim *dim;
    for (; (dim = dim_at(op, s.n_dims)) != NULL; s.n_dims++)
        memcpy(&s.dims[s.n_dims], (const char *)params + dim->offset, sizeof *s.dims);
    return s;
}

struct shape shape_standard(enum op_id op)
{
    struct shape s = {.op = op};
    const struct shape_dim *dim;
    for (; (dim = dim_at(op, s.n_dims)) != NULL; s.n_dims++)
        s.dims[s.n_dims] = dim->standard;
    return s;
}

const char *shape_text(const struct shape *s, char out[SHAPE_TEXT_BYTES])
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < s->n_dims && used < SHAPE_TEXT_BYTES; i++)
        used += (size_t)snprintf(out + used, SHAPE_TEXT_BYTES - used, "%s%s=%u", i ? "," : "",
                                 dim_at(s->op, i)->name, s->dims[i]);
    return out;
}

enum status shape_set(struct shape *s, const char *name, uint64_t value, struct err *e)
{
    const char *op = op_name(s->op);
    for (uint32_t i = 0; i < s->n_dims; i++) {
        const struct shape_dim *dim = dim_at(s->op, i);
        if (strcmp(dim->name, name) != 0)
            continue;
        if (value < dim->least || value > DIM_MAX)
            return err_set(e, ST_INVALID, "%s: %s is %" PRIu64 ", expected %u to %u", op, name,
                           value, dim->least, DIM_MAX);
        s->dims[i] = (uint32_t)value;
        return ST_OK;
    }
    char known[SHAPE_TEXT_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < s->n_dims && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, " %s", dim_at(s->op, i)->name);
    return err_set(e, ST_INVALID, "%s: no dimension \"%.32s\", it has%s", op, name, known);
}

enum status shape_check(const struct shape *s, struct err *e)
{
    for (uint32_t i = 0; i < s->n_dims; i++) {
        const struct shape_dim *dim = dim_at(s->op, i);
        if (s->dims[i] < dim->least)
            return err_set(e, ST_INVALID, "%s: %s is missing", op_name(s->op), dim->name);
    }
    if (s->op == OP_SPARSE_GEMV && (uint64_t)s->dims[0] * s->dims[1] > SPARSE_ELEMENTS_MAX)
        return err_set(e, ST_INVALID, "%s: m * k is %" PRIu64 ", expected at most %u",
                       op_name(s->op), (uint64_t)s->dims[0] * s->dims[1], SPARSE_ELEMENTS_MAX);
    return ST_OK;
}

enum status shape_parse(enum op_id op, const char *text, struct shape *out, struct err *e)
{
    *out = shape_standard(op);
    while (*text) {
        char name[32];
        const size_t length = strcspn(text, "=,");
        if (text[length] != '=' || length >= sizeof name || text[length + 1] < '0' ||
            text[length + 1] > '9')
            return err_set(e, ST_INVALID, "%s: shape \"%.40s\", expected NAME=NUMBER", op_name(op),
                           text);
        memcpy(name, text, length);
        name[length] = '\0';
        char *end;
        const uint64_t value = strtoull(text + length + 1, &end, 10);
        if (*end != '\0' && *end != ',')
            return err_set(e, ST_INVALID, "%s: %s is \"%.40s\", expected a number", op_name(op),
                           name, text + length + 1);
        enum status st = shape_set(out, name, value, e);
        if (st != ST_OK)
            return st;
        text = *end == ',' ? end + 1 : end;
    }
    return shape_check(out, e);
}

/* What of the params is no dimension of its own. */
static void complete(enum op_id op, union op_params *p)
{
    switch (op) {
    case OP_LINEAR: p->linear.y_stride = p->linear.m; break;
    case OP_MATMUL: p->matmul.alpha = 1; break;
    case OP_SOFTMAX: p->softmax.scale = 1; break;
    case OP_ARGMAX: p->argmax.x_stride = p->argmax.len; break;
    case OP_ELEMENTWISE: p->elementwise.factor = 2; break;
    case OP_SPARSE_GEMV:
        p->sparse_gemv.nnz = p->sparse_gemv.format == SPARSE_CSR
                                 ? (uint32_t)data_count_kept(SHAPE_SEED, p->sparse_gemv.m,
                                                             p->sparse_gemv.k, SHAPE_DENSITY)
                                 : p->sparse_gemv.m * (p->sparse_gemv.k / 2);
        break;
    case OP_CONV2D: {
        struct conv2d_params *c = &p->conv2d;
        c->stride_w = c->stride_h;
        c->pad_w = c->pad_h;
        c->dil_w = c->dil_h;
        const int64_t span_h =
            (int64_t)c->h + 2 * (int64_t)c->pad_h - (int64_t)c->dil_h * (c->kh - 1) - 1;
        const int64_t span_w =
            (int64_t)c->w + 2 * (int64_t)c->pad_w - (int64_t)c->dil_w * (c->kw - 1) - 1;
        c->ho = span_h < 0 ? 0 : (uint32_t)(span_h / c->stride_h + 1);
        c->wo = span_w < 0 ? 0 : (uint32_t)(span_w / c->stride_w + 1);
        break;
    }
    case OP_EMBED:
    case OP_NORM:
    case OP_QUANTIZE:
    case OP_ROPE_KV:
    case OP_ATTENTION:
    case OP_SWIGLU:
    case OP_ADD:
    case OP_REPACK:
    case OP_TOP_K:
    case OP_COUNT: break;
    }
}

void shape_params(const struct shape *s, union op_params *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < s->n_dims; i++)
        memcpy((char *)out + dim_at(s->op, i)->offset, &s->dims[i], sizeof *s->dims);
    complete(s->op, out);
}

double shape_distance(const struct shape *a, const struct shape *b)
{
    double distance = 0;
    if (a->op != b->op || a->n_dims != b->n_dims)
        return INFINITY;
    for (uint32_t i = 0; i < a->n_dims; i++) {
        if (dim_at(a->op, i)->exact) {
            if (a->dims[i] != b->dims[i])
                return INFINITY;
        } else if (a->dims[i] > 0 && b->dims[i] > 0) {
            distance += fabs(round(log2(a->dims[i])) - round(log2(b->dims[i])));
        }
    }
    return distance;
}
