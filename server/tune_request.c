/* Reading the fields of POST /v1/tune by their table. */
#include "server/tune_request.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/json_check.h"

enum kind { TEXT, CHOICE, INTEGER, DIMS };

static const struct field {
    const char *name;
    enum kind kind;
    uint64_t fallback, min, max;
    const char *detail;
    size_t offset;
} fields[] = {
#define OFFSET_TEXT(name)    offsetof(struct tune_request, name)
#define OFFSET_CHOICE(name)  offsetof(struct tune_request, name)
#define OFFSET_INTEGER(name) offsetof(struct tune_request, name)
#define OFFSET_DIMS(name)    0
#define FIELD(name, kind, fallback, min, max, detail) \
    {#name, kind, fallback, min, max, detail, OFFSET_##kind(name)},
#include "server/tune_fields.def"
#undef FIELD
};
#define FIELD_COUNT (sizeof fields / sizeof fields[0])

struct reader {
    struct tune_request *r;
    struct fault *f;
    const cJSON *shape; /* read when the op is known */
};

static enum status refuse(struct reader *r, const struct field *field, const char *expected)
{
    return fault_set(r->f, FAULT_BAD_REQUEST, field->name, "%s: expected %s", field->name,
                     expected);
}

static enum status read_text(struct reader *r, const struct field *field, const cJSON *value)
{
    char *to = (char *)r->r + field->offset;
    if (!cJSON_IsString(value))
        return refuse(r, field, "a string");
    const size_t n = strlen(value->valuestring);
    if (n > field->max)
        return fault_set(r->f, FAULT_BAD_REQUEST, field->name,
                         "%s has %zu bytes, expected at most %" PRIu64, field->name, n, field->max);
    memcpy(to, value->valuestring, n + 1);
    return ST_OK;
}

static enum status read_choice(struct reader *r, const struct field *field, const cJSON *value)
{
    uint32_t place = 0;
    const char *at = field->detail;
    while (cJSON_IsString(value)) {
        const size_t n = strcspn(at, "|");
        if (strlen(value->valuestring) == n && memcmp(value->valuestring, at, n) == 0) {
            memcpy((char *)r->r + field->offset, &place, sizeof place);
            return ST_OK;
        }
        if (at[n] == '\0')
            break;
        at += n + 1;
        place++;
    }
    return fault_set(r->f, FAULT_BAD_REQUEST, field->name, "%s is \"%.40s\", expected one of %s",
                     field->name, cJSON_IsString(value) ? value->valuestring : "", field->detail);
}

/* A whole number that a double holds exactly. */
static bool whole(const cJSON *value, uint64_t *out)
{
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0 && value->valuedouble <= 0x1p53) ||
        value->valuedouble != floor(value->valuedouble))
        return false;
    *out = (uint64_t)value->valuedouble;
    return true;
}

static enum status read_integer(struct reader *r, const struct field *field, const cJSON *value)
{
    uint64_t number;
    if (!cJSON_IsNumber(value))
        return refuse(r, field, "a whole number");
    if (!whole(value, &number) || number < field->min || number > field->max)
        return fault_set(r->f, FAULT_BAD_REQUEST, field->name,
                         "%s is %.17g, expected a whole number of %" PRIu64 " to %" PRIu64,
                         field->name, value->valuedouble, field->min, field->max);
    memcpy((char *)r->r + field->offset, &number, sizeof number);
    return ST_OK;
}

static enum status read_field(struct reader *r, const struct field *field, const cJSON *value)
{
    if (cJSON_IsNull(value))
        return ST_OK;
    switch (field->kind) {
    case TEXT: return read_text(r, field, value);
    case CHOICE: return read_choice(r, field, value);
    case INTEGER: return read_integer(r, field, value);
    case DIMS:
        if (!cJSON_IsObject(value))
            return refuse(r, field, "an object of dimensions");
        r->shape = value;
        r->r->has_shape = true;
        return ST_OK;
    }
    return ST_OK;
}

static void note_ignored(struct tune_request *r, const char *name)
{
    size_t used = strlen(r->ignored);
    const char *comma = used > 0 ? ", " : "";
    if (used + strlen(comma) + strlen(name) >= sizeof r->ignored)
        return;
    used += (size_t)snprintf(r->ignored + used, sizeof r->ignored - used, "%s", comma);
    for (; *name; name++)
        r->ignored[used++] = *name > ' ' && *name < 0x7f && *name != ',' ? *name : '?';
    r->ignored[used] = '\0';
}

static enum status read_fields(struct reader *r, const cJSON *tree)
{
    const cJSON *item;
    if (!cJSON_IsObject(tree))
        return fault_set(r->f, FAULT_BAD_REQUEST, NULL, "the body must be a JSON object");
    cJSON_ArrayForEach(item, tree)
    {
        size_t i = 0;
        while (i < FIELD_COUNT && strcmp(fields[i].name, item->string) != 0)
            i++;
        if (i == FIELD_COUNT) {
            note_ignored(r->r, item->string);
            continue;
        }
        if (cJSON_GetObjectItemCaseSensitive(tree, item->string) != item)
            return fault_set(r->f, FAULT_BAD_REQUEST, fields[i].name, "%s is given twice",
                             fields[i].name);
        enum status st = read_field(r, &fields[i], item);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

static enum status read_shape(struct reader *r)
{
    struct shape *shape = &r->r->call.shape;
    const cJSON *dim;
    struct err e;
    cJSON_ArrayForEach(dim, r->shape)
    {
        uint64_t value;
        if (cJSON_IsBool(dim))
            value = cJSON_IsTrue(dim) ? 1 : 0;
        else if (!whole(dim, &value))
            return fault_set(r->f, FAULT_BAD_REQUEST, "shape",
                             "shape: %.40s: expected a whole number", dim->string);
        if (shape_set(shape, dim->string, value, &e) != ST_OK)
            return fault_set(r->f, FAULT_BAD_REQUEST, "shape", "shape: %s", e.text);
    }
    if (shape_check(shape, &e) != ST_OK)
        return fault_set(r->f, FAULT_BAD_REQUEST, "shape", "shape: %s", e.text);
    return ST_OK;
}

/* What the fields mean together. */
static enum status combine(struct reader *r)
{
    struct tune_request *q = r->r;
    enum op_id op;
    if ((q->op[0] != '\0') == (q->model[0] != '\0'))
        return fault_set(r->f, FAULT_BAD_REQUEST, "op", "op: give either op and shape, or model");
    if (q->model[0]) {
        if (q->has_shape || q->variant[0] || q->dtype[0])
            return fault_set(r->f, FAULT_BAD_REQUEST, "model",
                             "model: shape, dtype and variant go with op");
        return ST_OK;
    }
    if (!shape_op(q->op, &op))
        return fault_set(r->f, FAULT_BAD_REQUEST, "op", "op is \"%s\", expected one of %s", q->op,
                         fields[0].detail);
    if (!q->dtype[0])
        snprintf(q->dtype, sizeof q->dtype, "%s", op == OP_LINEAR ? "q4_0" : "f32");
    if (!dtype_parse(q->dtype, &q->call.dtype) || !dtype_info(q->call.dtype)->compute)
        return fault_set(r->f, FAULT_BAD_REQUEST, "dtype",
                         "dtype is \"%s\", which is not a number format of weights", q->dtype);
    q->call.shape = shape_standard(op);
    snprintf(q->call.variant, sizeof q->call.variant, "%s", q->variant);
    if (!q->has_shape)
        return fault_set(r->f, FAULT_BAD_REQUEST, "shape", "shape is missing");
    return read_shape(r);
}

enum status tune_request_parse(const char *body, size_t n, struct tune_request *out,
                               struct fault *f)
{
    struct reader r = {.r = out, .f = f};
    *out = (struct tune_request){0};
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const uint32_t choice = (uint32_t)fields[i].fallback;
        if (fields[i].kind == INTEGER)
            memcpy((char *)out + fields[i].offset, &fields[i].fallback, sizeof(uint64_t));
        else if (fields[i].kind == CHOICE)
            memcpy((char *)out + fields[i].offset, &choice, sizeof choice);
    }
    cJSON *tree;
    enum status st = json_read(body, n, &tree, f);
    if (st == ST_OK)
        st = read_fields(&r, tree);
    if (st == ST_OK)
        st = combine(&r);
    cJSON_Delete(tree);
    return st;
}

enum status tune_request_fault(const struct tune_request *r, const struct err *e, struct fault *f)
{
    const char *field = r->model[0] ? "model" : r->variant[0] ? "variant" : "shape";
    switch (e->status) {
    case ST_NOT_FOUND:
    case ST_UNSUPPORTED: return fault_set(f, FAULT_UNSUPPORTED, field, "%s", e->text);
    case ST_NO_MEMORY:
    case ST_NO_DEVICE_MEMORY: return fault_set(f, FAULT_SHAPE, "shape", "%s", e->text);
    case ST_INVALID: return fault_set(f, FAULT_BAD_REQUEST, "shape", "%s", e->text);
    case ST_OK:
    case ST_FORMAT:
    case ST_CONTEXT_FULL:
    case ST_IO:
    case ST_BUILD:
    case ST_DEVICE:
    case ST_DEVICE_LOST:
    case ST_NUMERIC:
    case ST_CANCELLED:
    case ST_TIMEOUT:
    case ST_BUSY:
    case ST_INTERNAL:
    case ST_COUNT: break;
    }
    return fault_from_err(f, NULL, e);
}
