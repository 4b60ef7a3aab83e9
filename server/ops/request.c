/* Walks the client's object once, by the rows of fields.def; then the shapes, then the inputs.
 *
 * The JSON tree lives only inside op_request_parse; everything kept is copied to the request's
 * arena, whose ceiling is a multiple of the body's length.
 */
#include "server/ops/request.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "server/json_check.h"

#define MAX_FIELDS  256 /* of one object that we read */
#define REQUIRED    NAN
#define ARENA_BYTES (65536 + 4 * OPS_MAX_POSITIONS) /* besides what grows with the body */

enum kind {
    KIND_SWITCH,
    KIND_INTEGER,
    KIND_REAL,
    KIND_CHOICE,
    KIND_TEXT,
    KIND_PAIR,
    KIND_LIST,
    KIND_SETTINGS,
    KIND_INPUTS
};

struct field {
    const char *op, *name, *detail;
    enum kind kind;
    size_t offset;
    double fallback, min, max;
};

static const struct field fields[] = {
#define OP(id, name)
#define FIELD(op, name, kind, fallback, min, max, detail) \
    {#op,                                                 \
     #name,                                               \
     detail,                                              \
     KIND_##kind,                                         \
     offsetof(struct op_fields, op##_##name),             \
     (double)(fallback),                                  \
     (double)(min),                                       \
     (double)(max)},
#include "server/ops/fields.def"
#undef FIELD
#undef OP
};
#define FIELD_COUNT (sizeof fields / sizeof fields[0])

static const char *const names[] = {
#define OP(id, name) #name,
#define FIELD(...)
#include "server/ops/fields.def"
#undef FIELD
#undef OP
};

const char *api_op_name(enum api_op op)
{
    return names[op];
}

enum api_op api_op_find(const char *name)
{
    enum api_op op = 0;
    while (op < API_COUNT && strcmp(names[op], name) != 0)
        op++;
    return op;
}

bool api_op_runs(enum api_op op, enum op_id id)
{
    static const enum op_id ids[API_COUNT] = {[API_MATMUL] = OP_MATMUL,
                                              [API_CONV2D] = OP_CONV2D,
                                              [API_SOFTMAX] = OP_SOFTMAX,
                                              [API_ARGMAX] = OP_ARGMAX,
                                              [API_GEMV] = OP_LINEAR,
                                              [API_ATTENTION] = OP_ATTENTION,
                                              [API_SPARSE_GEMV] = OP_SPARSE_GEMV,
                                              [API_NORM] = OP_NORM,
                                              [API_ROPE] = OP_ROPE_KV,
                                              [API_ELEMENTWISE] = OP_ELEMENTWISE};
    return ids[op] == id || (op == API_ARGMAX && id == OP_TOP_K);
}

static bool belongs_to(const struct field *field, enum api_op op)
{
    return strcmp(field->op, "common") == 0 || strcmp(field->op, names[op]) == 0;
}

bool api_field_at(enum api_op op, uint32_t i, struct api_field *out)
{
    static const char *const types[] = {[KIND_SWITCH] = "boolean",
                                        [KIND_INTEGER] = "integer",
                                        [KIND_REAL] = "number",
                                        [KIND_CHOICE] = "string",
                                        [KIND_TEXT] = "string",
                                        [KIND_PAIR] = "integer or [integer, integer]",
                                        [KIND_LIST] = "[integer]",
                                        [KIND_SETTINGS] = "object of integers",
                                        [KIND_INPUTS] = "object of nested arrays"};
    for (size_t k = 0; k < FIELD_COUNT; k++) {
        const struct field *f = &fields[k];
        if (!belongs_to(f, op) || i-- > 0)
            continue;
        const bool ranged = f->kind == KIND_INTEGER || f->kind == KIND_REAL || f->kind == KIND_PAIR;
        *out =
            (struct api_field){.name = f->name,
                               .type = types[f->kind],
                               .detail = f->detail,
                               .is_choice = f->kind == KIND_CHOICE,
                               .has_range = ranged,
                               .has_default = !isnan(f->fallback) &&
                                              (f->kind == KIND_SWITCH || f->kind == KIND_CHOICE ||
                                               (ranged && f->fallback >= f->min)),
                               .fallback = f->fallback,
                               .min = f->min,
                               .max = f->max};
        return true;
    }
    return false;
}

/* One parsing: what every reader of a kind needs. */
struct reader {
    struct op_request *request;
    struct fault *fault;
    struct strbuf ignored;
};

static enum status bad_type(struct reader *r, const struct field *field, const char *expected)
{
    return fault_set(r->fault, FAULT_BAD_REQUEST, field->name, "%s must be %s", field->name,
                     expected);
}

static enum status no_memory(struct fault *f)
{
    return fault_set(f, FAULT_MEMORY, NULL, "out of memory while reading the request");
}

static void set_fallbacks(struct op_request *r)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        void *out = (char *)&r->fields + fields[i].offset;
        if (!belongs_to(&fields[i], r->op) || isnan(fields[i].fallback))
            continue;
        if (fields[i].kind == KIND_SWITCH)
            *(bool *)out = fields[i].fallback != 0;
        else if (fields[i].kind == KIND_INTEGER)
            *(int64_t *)out = (int64_t)fields[i].fallback;
        else if (fields[i].kind == KIND_REAL)
            *(double *)out = fields[i].fallback;
        else if (fields[i].kind == KIND_CHOICE)
            *(int *)out = (int)fields[i].fallback;
        else if (fields[i].kind == KIND_PAIR)
            *(struct op_pair *)out =
                (struct op_pair){(int64_t)fields[i].fallback, (int64_t)fields[i].fallback};
    }
}

/* ---- kinds ---- */

static enum status read_number(struct reader *r, const struct field *field, const char *name,
                               const cJSON *value, double min, double max, bool whole, double *out)
{
    if (!cJSON_IsNumber(value))
        return fault_set(r->fault, FAULT_BAD_REQUEST, field->name, "%s must be a %snumber", name,
                         whole ? "whole " : "");
    const double number = value->valuedouble;
    const int digits = whole ? 17 : 9;
    if (!isfinite(number) || number < min || number > max)
        return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                         "%s is %.*g, out of range %.*g to %.*g", name, digits, number, digits, min,
                         digits, max);
    if (whole && number != floor(number))
        return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                         "%s is %.17g, expected a whole number", name, number);
    *out = number;
    return ST_OK;
}

static enum status read_integer(struct reader *r, const struct field *field, const cJSON *value,
                                int64_t *out)
{
    double number = 0;
    const enum status status =
        read_number(r, field, field->name, value, field->min, field->max, true, &number);
    if (status == ST_OK)
        *out = (int64_t)number;
    return status;
}

static enum status read_choice(struct reader *r, const struct field *field, const cJSON *value,
                               int *out)
{
    int place = 0;
    const char *word = field->detail;
    if (!cJSON_IsString(value))
        return fault_set(r->fault, FAULT_BAD_REQUEST, field->name, "%s must be one of %s",
                         field->name, field->detail);
    for (;; place++) {
        const size_t n = strcspn(word, "|");
        if (strlen(value->valuestring) == n && strncmp(value->valuestring, word, n) == 0) {
            *out = place;
            return ST_OK;
        }
        if (word[n] == '\0')
            break;
        word += n + 1;
    }
    return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                     "%s is \"%.40s\", expected one of %s", field->name, value->valuestring,
                     field->detail);
}

static enum status read_text(struct reader *r, const struct field *field, const cJSON *value,
                             const char **out)
{
    if (!cJSON_IsString(value))
        return bad_type(r, field, "a string");
    const size_t n = strlen(value->valuestring);
    if ((double)n > field->max)
        return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                         "%s has %zu bytes, the most is %.0f", field->name, n, field->max);
    *out = arena_strndup(r->request->arena, value->valuestring, n);
    return *out != NULL ? ST_OK : no_memory(r->fault);
}

static uint32_t count_items(const cJSON *list)
{
    uint32_t n = 0;
    for (const cJSON *item = list->child; item != NULL; item = item->next)
        n++;
    return n;
}

static enum status read_pair(struct reader *r, const struct field *field, const cJSON *value,
                             struct op_pair *out)
{
    enum status status;
    if (!cJSON_IsArray(value)) {
        status = read_integer(r, field, value, &out->h);
        out->w = out->h;
        return status;
    }
    if (count_items(value) != 2)
        return bad_type(r, field, "a whole number or a list of two, [height, width]");
    status = read_integer(r, field, value->child, &out->h);
    return status == ST_OK ? read_integer(r, field, value->child->next, &out->w) : status;
}

static enum status read_list(struct reader *r, const struct field *field, const cJSON *value,
                             struct op_list *out)
{
    if (!cJSON_IsArray(value))
        return bad_type(r, field, "a list of whole numbers");
    const uint32_t n = count_items(value);
    if ((double)n > field->max)
        return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                         "%s has %" PRIu32 " items, the most is %.0f", field->name, n, field->max);
    out->items = arena_array(r->request->arena, n > 0 ? n : 1, sizeof *out->items);
    if (out->items == NULL)
        return no_memory(r->fault);
    const cJSON *item = value->child;
    for (uint32_t i = 0; i < n; i++, item = item->next) {
        double number;
        const enum status status =
            read_number(r, field, field->name, item, field->min, field->max - 1, true, &number);
        if (status != ST_OK)
            return status;
        out->items[i] = (int32_t)number;
    }
    out->count = n;
    out->present = true;
    return ST_OK;
}

static enum status read_settings(struct reader *r, const struct field *field, const cJSON *value,
                                 struct op_settings *out)
{
    if (!cJSON_IsObject(value))
        return bad_type(r, field, "an object of tunables and whole numbers");
    const uint32_t n = count_items(value);
    if (n > CONFIG_MAX_TUNABLES)
        return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                         "%s has %" PRIu32 " items, the most is %d", field->name, n,
                         CONFIG_MAX_TUNABLES);
    const cJSON *item = value->child;
    for (uint32_t i = 0; i < n; i++, item = item->next) {
        char name[64];
        double number;
        snprintf(name, sizeof name, "params.%.40s", item->string);
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(out->items[k].name, item->string) == 0)
                return fault_set(r->fault, FAULT_BAD_REQUEST, field->name, "%s is given twice",
                                 name);
        const enum status status =
            read_number(r, field, name, item, field->min, field->max, true, &number);
        if (status != ST_OK)
            return status;
        out->items[i] = (struct setting){
            arena_strndup(r->request->arena, item->string, strlen(item->string)), (uint32_t)number};
        if (out->items[i].name == NULL)
            return no_memory(r->fault);
    }
    out->count = n;
    return ST_OK;
}

static enum status read_field(struct reader *r, const struct field *field, const cJSON *value)
{
    void *out = (char *)&r->request->fields + field->offset;
    switch (field->kind) {
    case KIND_SWITCH:
        if (!cJSON_IsBool(value))
            return bad_type(r, field, "true or false");
        *(bool *)out = cJSON_IsTrue(value);
        return ST_OK;
    case KIND_INTEGER: return read_integer(r, field, value, out);
    case KIND_REAL:
        return read_number(r, field, field->name, value, field->min, field->max, false, out);
    case KIND_CHOICE: return read_choice(r, field, value, out);
    case KIND_TEXT: return read_text(r, field, value, out);
    case KIND_PAIR: return read_pair(r, field, value, out);
    case KIND_LIST: return read_list(r, field, value, out);
    case KIND_SETTINGS: return read_settings(r, field, value, out);
    case KIND_INPUTS:
        if (!cJSON_IsObject(value))
            return bad_type(r, field, "an object of names and nested arrays");
        ((struct op_inputs *)out)->tree = value;
        return ST_OK;
    }
    return ST_OK;
}

/* ---- the body ---- */

/* Adds a name to the list of the ignored ones; bytes that a header cannot hold become '?'. */
static void note_ignored(struct reader *r, const char *name)
{
    if (r->ignored.failed)
        return;
    strbuf_puts(&r->ignored, r->ignored.length > 0 ? ", " : "");
    for (const char *p = name; *p != '\0'; p++)
        strbuf_putc(&r->ignored, *p > ' ' && *p < 0x7F && *p != ',' ? *p : '?');
}

static enum status read_fields(struct reader *r, const cJSON *body)
{
    bool seen[FIELD_COUNT] = {false};
    if (!cJSON_IsObject(body))
        return fault_set(r->fault, FAULT_BAD_REQUEST, NULL, "the body must be a JSON object");
    if (count_items(body) > MAX_FIELDS)
        return fault_set(r->fault, FAULT_BAD_REQUEST, NULL, "the body has more than %d fields",
                         MAX_FIELDS);
    for (const cJSON *item = body->child; item != NULL; item = item->next) {
        size_t i = 0;
        while (i < FIELD_COUNT && (!belongs_to(&fields[i], r->request->op) ||
                                   strcmp(fields[i].name, item->string) != 0))
            i++;
        if (i == FIELD_COUNT) {
            note_ignored(r, item->string);
            continue;
        }
        if (seen[i])
            return fault_set(r->fault, FAULT_BAD_REQUEST, fields[i].name, "%s is given twice",
                             fields[i].name);
        seen[i] = true;
        if (cJSON_IsNull(item)) {
            seen[i] = !isnan(fields[i].fallback);
            continue;
        }
        const enum status status = read_field(r, &fields[i], item);
        if (status != ST_OK)
            return status;
    }
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (belongs_to(&fields[i], r->request->op) && isnan(fields[i].fallback) && !seen[i])
            return fault_set(r->fault, FAULT_BAD_REQUEST, fields[i].name, "%s is missing",
                             fields[i].name);
    return ST_OK;
}

/* ---- inputs ---- */

static enum status find_input(struct op_request *r, const char *name, struct op_array **out,
                              struct fault *f)
{
    char known[128] = "", param[FAULT_PARAM_BYTES];
    size_t n = 0;
    for (uint32_t i = 0; i < r->n_inputs; i++) {
        if (strcmp(r->inputs[i].name, name) == 0) {
            *out = &r->inputs[i];
            return ST_OK;
        }
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i > 0 ? ", " : "",
                              r->inputs[i].name);
    }
    snprintf(param, sizeof param, "inputs.%.40s", name);
    return fault_set(f, FAULT_BAD_REQUEST, param, "%s: this call of %s reads %s", param,
                     api_op_name(r->op), known);
}

static enum status check_new(const struct op_request *r, const struct op_array *x, struct fault *f)
{
    if (r->bench.data.inputs[x->tensor] == NULL)
        return ST_OK;
    return fault_set(f, FAULT_BAD_REQUEST, "inputs", "inputs.%s is given twice", x->name);
}

/* The indices and row starts of a sparse matrix mean nothing without its values. */
static enum status check_sparse(const struct op_request *r, struct fault *f)
{
    const void *const *inputs = r->bench.data.inputs;
    for (uint32_t i = 0; r->op == API_SPARSE_GEMV && i < 3 && i < r->n_inputs; i++)
        if ((inputs[i] != NULL) != (inputs[0] != NULL) && r->inputs[i].tensor == i)
            return fault_set(
                f, FAULT_BAD_REQUEST, "inputs",
                "inputs.%s is missing, the matrix is given by all of its parts or none",
                inputs[i] == NULL ? r->inputs[i].name : r->inputs[0].name);
    return ST_OK;
}

static enum status read_inputs(struct reader *r, const struct op_part *parts, uint32_t n_parts)
{
    struct op_request *q = r->request;
    const cJSON *tree = q->fields.common_inputs.tree;
    enum status status = ST_OK;
    struct op_array *x;
    q->fields.common_inputs.tree = NULL;
    for (const cJSON *item = tree != NULL ? tree->child : NULL; item != NULL && status == ST_OK;
         item = item->next) {
        status = find_input(q, item->string, &x, r->fault);
        if (status == ST_OK)
            status = check_new(q, x, r->fault);
        if (status == ST_OK)
            status = op__read_nested(q, x, item, r->fault);
    }
    for (uint32_t i = 0; i < n_parts && status == ST_OK; i++) {
        status = find_input(q, parts[i].name, &x, r->fault);
        if (status == ST_OK)
            status = check_new(q, x, r->fault);
        if (status == ST_OK)
            status = op__read_npy(q, x, &parts[i], r->fault);
    }
    return status == ST_OK ? check_sparse(q, r->fault) : status;
}

/* ---- all of it ---- */

static void set_bench(struct op_request *r)
{
    const struct op_fields *q = &r->fields;
    struct opbench_request *b = &r->bench;
    b->variant = q->common_variant;
    b->settings = q->common_params.items;
    b->n_settings = q->common_params.count;
    b->warmup = (uint32_t)q->common_warmup;
    b->iterations = (uint32_t)q->common_iterations;
    b->verify = q->common_verify;
    b->return_output = q->common_return_output;
    b->data.seed = (uint32_t)q->common_seed;
}

static enum status fill(struct reader *r, const cJSON *tree, const struct op_part *parts,
                        uint32_t n_parts, uint64_t max_deadline_ms)
{
    struct op_request *q = r->request;
    set_fallbacks(q);
    enum status status = read_fields(r, tree);
    if (status != ST_OK)
        return status;
    if (q->fields.common_deadline_ms > (int64_t)max_deadline_ms)
        return fault_set(r->fault, FAULT_BAD_REQUEST, "deadline_ms",
                         "deadline_ms is %" PRId64 ", the most here is %" PRIu64,
                         q->fields.common_deadline_ms, max_deadline_ms);
    if (q->fields.common_deadline_ms == 0)
        q->fields.common_deadline_ms = (int64_t)max_deadline_ms;
    set_bench(q);
    status = op__shape(q, r->fault);
    return status == ST_OK ? read_inputs(r, parts, n_parts) : status;
}

enum status op_request_parse(enum api_op op, const char *body, size_t n,
                             const struct op_part *parts, uint32_t n_parts,
                             uint64_t max_deadline_ms, struct op_request **out, struct fault *f)
{
    cJSON *tree = NULL;
    size_t bytes = n;
    *out = NULL;
    enum status status = n > 0 ? json_read(body, n, &tree, f) : json_read("{}", 2, &tree, f);
    if (status != ST_OK)
        return status;
    for (uint32_t i = 0; i < n_parts; i++)
        bytes += parts[i].n;
    struct reader r = {.fault = f, .request = mem_zalloc(sizeof *r.request)};
    /* numbers take at least two bytes of a body and four of the arena */
    struct arena *arena = arena_open(4 * bytes + ARENA_BYTES);
    if (r.request == NULL || arena == NULL) {
        mem_free(r.request);
        arena_close(arena);
        cJSON_Delete(tree);
        return no_memory(f);
    }
    r.request->op = op;
    r.request->arena = arena;
    strbuf_init(&r.ignored, sizeof r.request->ignored - 1);
    status = fill(&r, tree, parts, n_parts, max_deadline_ms);
    cJSON_Delete(tree);
    snprintf(r.request->ignored, sizeof r.request->ignored, "%s", strbuf_text(&r.ignored));
    strbuf_free(&r.ignored);
    if (status != ST_OK) {
        op_request_close(r.request);
        return status;
    }
    *out = r.request;
    return ST_OK;
}

void op_request_close(struct op_request *r)
{
    if (r == NULL)
        return;
    arena_close(r->arena);
    mem_free(r);
}

/* ---- errors of the engine ---- */

/* The field that the engine's message speaks of: the first word after "op: " or "op variant: ". */
static const char *find_field(const struct op_request *r, const char *text)
{
    const char *word = strstr(text, ": ");
    if (word == NULL)
        return NULL;
    word += 2;
    const size_t n = strcspn(word, " :,");
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (belongs_to(&fields[i], r->op) && strlen(fields[i].name) == n &&
            strncmp(fields[i].name, word, n) == 0)
            return fields[i].name;
    for (uint32_t i = 0; i < r->n_inputs; i++)
        if (strlen(r->inputs[i].name) == n && strncmp(r->inputs[i].name, word, n) == 0)
            return "inputs";
    for (uint32_t i = 0; i < r->bench.n_settings; i++)
        if (strlen(r->bench.settings[i].name) == n &&
            strncmp(r->bench.settings[i].name, word, n) == 0)
            return "params";
    return NULL;
}

enum status op_request_fault(const struct op_request *r, const struct err *e, struct fault *f)
{
    const char *field = find_field(r, e->text);
    switch (e->status) {
    case ST_INVALID:
        if (field == NULL && strstr(e->text, "tunable") != NULL)
            field = "params";
        return fault_set(f, FAULT_BAD_REQUEST, field, "%s", e->text);
    case ST_NOT_FOUND:
    case ST_UNSUPPORTED:
        return fault_set(f, FAULT_UNSUPPORTED, field != NULL ? field : "variant", "%s", e->text);
    case ST_TIMEOUT: return fault_set(f, FAULT_ESTIMATE, "deadline_ms", "%s", e->text);
    case ST_NO_MEMORY:
    case ST_NO_DEVICE_MEMORY: return fault_set(f, FAULT_SHAPE, NULL, "%s", e->text);
    case ST_BUILD:
        if (r->bench.n_settings > 0) /* values that are right one by one, but not together here */
            return fault_set(f, FAULT_UNSUPPORTED, "params", "%s", e->text);
        break;
    case ST_IO: return fault_set(f, FAULT_ENGINE, NULL, "%s", e->text);
    case ST_OK:
    case ST_FORMAT:
    case ST_CONTEXT_FULL:
    case ST_DEVICE:
    case ST_DEVICE_LOST:
    case ST_NUMERIC:
    case ST_CANCELLED:
    case ST_BUSY:
    case ST_INTERNAL:
    case ST_COUNT: break;
    }
    return fault_from_err(f, NULL, e);
}
