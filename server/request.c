/* Walks the client's object once, field by field, through the rows of request.def.
 *
 * The cJSON tree lives only inside request_parse; everything kept is copied to the request's arena,
 * whose ceiling is a multiple of the body's length. json_check has seen the text before, so strings
 * are valid UTF-8 without NULs, and the depth is bounded.
 */
#include "server/request.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "server/json_check.h"

#define MAX_FIELDS     256 /* of one object that we read */
#define MAX_STOP_BYTES 1024

enum kind {
    KIND_SWITCH,
    KIND_INTEGER,
    KIND_REAL,
    KIND_CHOICE,
    KIND_TEXT,
    KIND_TEXTS,
    KIND_IDS,
    KIND_PROMPTS,
    KIND_BIAS,
    KIND_OPTIONS,
    KIND_REFUSED
};

struct field {
    const char *name, *detail;
    enum kind kind;
    unsigned routes;
    size_t offset;
    double fallback, min, max;
};

static const struct field fields[] = {
#define FIELD(name, kind, routes, fallback, min, max, detail) \
    {#name,                                                   \
     detail,                                                  \
     KIND_##kind,                                             \
     REQUEST_##routes,                                        \
     offsetof(struct request, name),                          \
     (double)(fallback),                                      \
     (double)(min),                                           \
     (double)(max)},
#include "server/request.def"
#undef FIELD
};
#define FIELD_COUNT (sizeof fields / sizeof fields[0])

static void set_fallbacks(struct request *r)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        void *out = (char *)r + fields[i].offset;
        if (fields[i].kind == KIND_SWITCH)
            *(bool *)out = fields[i].fallback != 0;
        else if (fields[i].kind == KIND_INTEGER)
            *(int64_t *)out = (int64_t)fields[i].fallback;
        else if (fields[i].kind == KIND_REAL)
            *(double *)out = fields[i].fallback;
        else if (fields[i].kind == KIND_CHOICE)
            *(int *)out = (int)fields[i].fallback;
    }
}

/* One parsing: what every reader of a kind needs. */
struct reader {
    struct request *request;
    struct fault *fault;
    const struct request_limits *limits;
    struct strbuf ignored;
};

static enum status bad_type(struct reader *r, const struct field *field, const char *expected)
{
    return fault_set(r->fault, FAULT_BAD_REQUEST, field->name, "%s must be %s", field->name,
                     expected);
}

static enum status no_memory(struct reader *r)
{
    return fault_set(r->fault, FAULT_MEMORY, NULL, "out of memory while reading the request");
}

/* ---- numbers and words ---- */

static enum status read_number(struct reader *r, const struct field *field, const cJSON *value,
                               double min, double max, double *out)
{
    if (!cJSON_IsNumber(value))
        return bad_type(r, field, field->kind == KIND_INTEGER ? "a whole number" : "a number");
    double number = value->valuedouble;
    if (!isfinite(number) || number < min || number > max)
        return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                         "%s is %.17g, out of range %.17g to %.17g", field->name, number, min, max);
    *out = number;
    return ST_OK;
}

static enum status read_integer(struct reader *r, const struct field *field, const cJSON *value,
                                int64_t *out)
{
    double number = 0;
    enum status status = read_number(r, field, value, field->min, field->max, &number);
    if (status != ST_OK)
        return status;
    if (number != floor(number))
        return bad_type(r, field, "a whole number");
    *out = (int64_t)number;
    return ST_OK;
}

static enum status read_choice(struct reader *r, const struct field *field, const cJSON *value,
                               int *out)
{
    int place = 0;
    const char *word = field->detail;
    while (cJSON_IsString(value)) {
        size_t n = strcspn(word, "|");
        if (strlen(value->valuestring) == n && strncmp(value->valuestring, word, n) == 0) {
            *out = place;
            return ST_OK;
        }
        if (word[n] == '\0')
            break;
        word += n + 1;
        place++;
    }
    return fault_set(r->fault, FAULT_BAD_REQUEST, field->name, "%s must be one of %s", field->name,
                     field->detail);
}

/* ---- texts ---- */

static enum status copy_text(struct reader *r, const cJSON *value, struct request_text *out)
{
    out->length = strlen(value->valuestring);
    out->data = arena_strndup(r->request->arena, value->valuestring, out->length);
    return out->data != NULL ? ST_OK : no_memory(r);
}

static enum status read_text(struct reader *r, const struct field *field, const cJSON *value,
                             struct request_text *out)
{
    if (!cJSON_IsString(value))
        return bad_type(r, field, "a string");
    size_t n = strlen(value->valuestring);
    if ((double)n > field->max)
        return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                         "%s has %zu bytes, the most is %.0f", field->name, n, field->max);
    return copy_text(r, value, out);
}

/* Number of elements, without walking a list of millions more than once. */
static uint32_t count_items(const cJSON *list)
{
    uint32_t n = 0;
    for (const cJSON *item = list->child; item != NULL; item = item->next)
        n++;
    return n;
}

static enum status check_count(struct reader *r, const struct field *field, uint32_t n, double max)
{
    if ((double)n <= max)
        return ST_OK;
    return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                     "%s has %" PRIu32 " items, the most is %.0f", field->name, n, max);
}

static enum status read_texts(struct reader *r, const struct field *field, const cJSON *value,
                              struct request_texts *out)
{
    bool single = cJSON_IsString(value);
    if (!single && !cJSON_IsArray(value))
        return bad_type(r, field, "a string or a list of strings");
    uint32_t n = single ? 1 : count_items(value);
    enum status status = check_count(r, field, n, field->max);
    if (status != ST_OK)
        return status;
    out->items = arena_array(r->request->arena, n, sizeof *out->items);
    if (out->items == NULL)
        return no_memory(r);
    const cJSON *item = single ? value : value->child;
    for (uint32_t i = 0; i < n; i++, item = item->next) {
        if (!cJSON_IsString(item))
            return bad_type(r, field, "a string or a list of strings");
        size_t length = strlen(item->valuestring);
        if (length < 1 || length > MAX_STOP_BYTES)
            return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                             "%s: a string of %zu bytes, allowed are 1 to %d", field->name, length,
                             MAX_STOP_BYTES);
        status = copy_text(r, item, &out->items[i]);
        if (status != ST_OK)
            return status;
    }
    out->count = n;
    return ST_OK;
}

/* ---- token ids ---- */

static enum status read_ids(struct reader *r, const struct field *field, const cJSON *value,
                            double max, struct request_ids *out)
{
    if (!cJSON_IsArray(value))
        return bad_type(r, field, "a list of token ids");
    uint32_t n = count_items(value);
    enum status status = check_count(r, field, n, max);
    if (status != ST_OK)
        return status;
    out->ids = arena_array(r->request->arena, n > 0 ? n : 1, sizeof *out->ids);
    if (out->ids == NULL)
        return no_memory(r);
    const cJSON *item = value->child;
    for (uint32_t i = 0; i < n; i++, item = item->next) {
        double number = 0;
        status = read_number(r, field, item, 0, INT32_MAX, &number);
        if (status != ST_OK)
            return status;
        if (number != floor(number))
            return bad_type(r, field, "a list of token ids");
        out->ids[i] = (token_id)number;
    }
    out->count = n;
    out->present = true;
    return ST_OK;
}

static enum status read_prompt(struct reader *r, const struct field *field, const cJSON *value,
                               struct request_prompt *out)
{
    if (cJSON_IsString(value))
        return copy_text(r, value, &out->text);
    if (cJSON_IsArray(value))
        return read_ids(r, field, value, INT32_MAX, &out->ids);
    return bad_type(r, field,
                    "a string, a list of strings, a list of token ids, or a list of these");
}

static enum status read_prompts(struct reader *r, const struct field *field, const cJSON *value,
                                struct request_prompts *out)
{
    const cJSON *first = cJSON_IsArray(value) ? value->child : NULL;
    bool many = first != NULL && !cJSON_IsNumber(first);
    uint32_t n = many ? count_items(value) : 1;
    enum status status = check_count(r, field, n, r->limits->choices);
    if (status != ST_OK)
        return status;
    out->items = arena_array(r->request->arena, n, sizeof *out->items);
    if (out->items == NULL)
        return no_memory(r);
    const cJSON *item = many ? first : value;
    for (uint32_t i = 0; i < n; i++, item = item->next) {
        status = read_prompt(r, field, item, &out->items[i]);
        if (status != ST_OK)
            return status;
    }
    out->count = n;
    out->many = many;
    return ST_OK;
}

/* ---- objects ---- */

static int by_id(const void *a, const void *b)
{
    const struct logit_bias *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static enum status read_biases(struct reader *r, const struct field *field, const cJSON *value,
                               struct request_biases *out)
{
    if (!cJSON_IsObject(value))
        return bad_type(r, field, "an object of token ids and numbers");
    uint32_t n = count_items(value);
    enum status status = check_count(r, field, n, field->max);
    if (status != ST_OK)
        return status;
    out->items = arena_array(r->request->arena, n > 0 ? n : 1, sizeof *out->items);
    if (out->items == NULL)
        return no_memory(r);
    const cJSON *item = value->child;
    for (uint32_t i = 0; i < n; i++, item = item->next) {
        double number, bias = 0;
        char *end = NULL;
        const char *name = item->string;
        number = name[0] >= '0' && name[0] <= '9' && strlen(name) <= 10
                     ? (double)strtoll(name, &end, 10)
                     : -1;
        if (number < 0 || number > INT32_MAX || *end != '\0')
            return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                             "logit_bias: \"%.20s\" is no token id", name);
        status = read_number(r, field, item, field->min, -field->min, &bias);
        if (status != ST_OK)
            return status;
        out->items[i] = (struct logit_bias){.id = (token_id)number, .bias = (float)bias};
    }
    qsort(out->items, n, sizeof *out->items, by_id);
    for (uint32_t i = 1; i < n; i++)
        if (out->items[i].id == out->items[i - 1].id)
            return fault_set(r->fault, FAULT_BAD_REQUEST, field->name,
                             "logit_bias: token id %d is given twice", (int)out->items[i].id);
    out->count = n;
    return ST_OK;
}

/* Adds a name to the list of the ignored ones; bytes that a header cannot hold become '?'. */
static void note_ignored(struct reader *r, const char *prefix, const char *name)
{
    if (r->ignored.failed)
        return;
    strbuf_printf(&r->ignored, "%s%s", r->ignored.length > 0 ? ", " : "", prefix);
    for (const char *p = name; *p != '\0'; p++)
        strbuf_putc(&r->ignored, *p > ' ' && *p < 0x7F && *p != ',' ? *p : '?');
}

static enum status read_stream_options(struct reader *r, const struct field *field,
                                       const cJSON *value, struct request_stream_options *out)
{
    if (!cJSON_IsObject(value))
        return bad_type(r, field, "an object");
    enum status status = check_count(r, field, count_items(value), MAX_FIELDS);
    if (status != ST_OK)
        return status;
    for (const cJSON *item = value->child; item != NULL; item = item->next) {
        if (strcmp(item->string, "include_usage") != 0)
            note_ignored(r, "stream_options.", item->string);
        else if (cJSON_IsBool(item))
            out->include_usage = cJSON_IsTrue(item);
        else if (!cJSON_IsNull(item))
            return bad_type(r, field, "an object whose include_usage is true or false");
    }
    return ST_OK;
}

/* ---- the body ---- */

static enum status read_field(struct reader *r, const struct field *field, const cJSON *value)
{
    void *out = (char *)r->request + field->offset;
    if (cJSON_IsNull(value))
        return ST_OK;
    switch (field->kind) {
    case KIND_SWITCH:
        if (!cJSON_IsBool(value))
            return bad_type(r, field, "true or false");
        *(bool *)out = cJSON_IsTrue(value);
        return ST_OK;
    case KIND_INTEGER: return read_integer(r, field, value, out);
    case KIND_REAL: return read_number(r, field, value, field->min, field->max, out);
    case KIND_CHOICE: return read_choice(r, field, value, out);
    case KIND_TEXT: return read_text(r, field, value, out);
    case KIND_TEXTS: return read_texts(r, field, value, out);
    case KIND_IDS: return read_ids(r, field, value, field->max, out);
    case KIND_PROMPTS: return read_prompts(r, field, value, out);
    case KIND_BIAS: return read_biases(r, field, value, out);
    case KIND_OPTIONS: return read_stream_options(r, field, value, out);
    case KIND_REFUSED:
        return fault_set(r->fault, FAULT_UNSUPPORTED, field->name, "%s", field->detail);
    }
    return ST_OK;
}

static enum status read_fields(struct reader *r, enum request_route route, const cJSON *body)
{
    bool seen[FIELD_COUNT] = {false};
    if (!cJSON_IsObject(body))
        return fault_set(r->fault, FAULT_BAD_REQUEST, NULL, "the body must be a JSON object");
    if (count_items(body) > MAX_FIELDS)
        return fault_set(r->fault, FAULT_BAD_REQUEST, NULL, "the body has more than %d fields",
                         MAX_FIELDS);
    for (const cJSON *item = body->child; item != NULL; item = item->next) {
        size_t i = 0;
        while (i < FIELD_COUNT &&
               (!(fields[i].routes & route) || strcmp(fields[i].name, item->string) != 0))
            i++;
        if (i == FIELD_COUNT) {
            note_ignored(r, "", item->string);
            continue;
        }
        if (seen[i])
            return fault_set(r->fault, FAULT_BAD_REQUEST, fields[i].name, "%s is given twice",
                             fields[i].name);
        seen[i] = true;
        enum status status = read_field(r, &fields[i], item);
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

/* What concerns several fields, and what must be there. */
static enum status check_completion(struct reader *r)
{
    struct request *q = r->request;
    const struct request_limits *limits = r->limits;
    if (q->prompt.count == 0)
        return fault_set(r->fault, FAULT_BAD_REQUEST, "prompt", "prompt is missing");
    if (q->best_of == 0)
        q->best_of = q->n;
    if (q->best_of < q->n)
        return fault_set(r->fault, FAULT_BAD_REQUEST, "best_of",
                         "best_of is %" PRId64 ", less than n, which is %" PRId64, q->best_of,
                         q->n);
    if (q->stream && q->best_of > q->n)
        return fault_set(r->fault, FAULT_BAD_REQUEST, "best_of",
                         "best_of over n cannot be streamed");
    if (q->best_of * q->prompt.count > limits->choices)
        return fault_set(r->fault, FAULT_BAD_REQUEST, q->best_of > q->n ? "best_of" : "n",
                         "%" PRIu32 " prompts of %" PRId64
                         " choices are over the limit of %" PRIu32,
                         q->prompt.count, q->best_of, limits->choices);
    if (q->stop.count > limits->stop_strings)
        return fault_set(r->fault, FAULT_BAD_REQUEST, "stop",
                         "stop has %" PRIu32 " strings, the most here is %" PRIu32, q->stop.count,
                         limits->stop_strings);
    if (limits->max_tokens != 0 && q->max_tokens > limits->max_tokens)
        return fault_set(r->fault, FAULT_BAD_REQUEST, "max_tokens",
                         "max_tokens is %" PRId64 ", the most here is %" PRIu32, q->max_tokens,
                         limits->max_tokens);
    if (q->deadline_ms > (int64_t)limits->deadline_ms)
        return fault_set(r->fault, FAULT_BAD_REQUEST, "deadline_ms",
                         "deadline_ms is %" PRId64 ", the most here is %" PRIu64, q->deadline_ms,
                         limits->deadline_ms);
    return ST_OK;
}

static enum status check_request(struct reader *r, enum request_route route)
{
    if (route == REQUEST_COMPLETION)
        return check_completion(r);
    if (route == REQUEST_TOKENIZE && r->request->content.data == NULL)
        return fault_set(r->fault, FAULT_BAD_REQUEST, "content", "content is missing");
    if (route == REQUEST_DETOKENIZE && !r->request->tokens.present)
        return fault_set(r->fault, FAULT_BAD_REQUEST, "tokens", "tokens is missing");
    return ST_OK;
}

void request_init(void)
{
    cJSON_Hooks hooks = {.malloc_fn = mem_alloc, .free_fn = mem_free};
    cJSON_InitHooks(&hooks);
}

enum status request_parse(enum request_route route, const char *body, size_t n,
                          const struct request_limits *limits, struct request **out,
                          struct fault *f)
{
    *out = NULL;
    cJSON *tree = NULL;
    enum status status = json_read(body, n, &tree, f);
    if (status != ST_OK)
        return status;
    struct reader r = {.fault = f, .limits = limits};
    r.request = mem_zalloc(sizeof *r.request);
    /* Ids take the most room for their length in the body: 4 bytes and its share of a list for two.
     */
    struct arena *arena = arena_open(16 * n + 65536);
    if (r.request == NULL || arena == NULL) {
        mem_free(r.request);
        arena_close(arena);
        cJSON_Delete(tree);
        return no_memory(&r);
    }
    r.request->arena = arena;
    strbuf_init(&r.ignored, sizeof r.request->ignored - 1);
    set_fallbacks(r.request);
    status = read_fields(&r, route, tree);
    cJSON_Delete(tree);
    if (status == ST_OK)
        status = check_request(&r, route);
    snprintf(r.request->ignored, sizeof r.request->ignored, "%s", strbuf_text(&r.ignored));
    strbuf_free(&r.ignored);
    if (status != ST_OK) {
        request_close(r.request);
        return status;
    }
    *out = r.request;
    return ST_OK;
}

void request_close(struct request *r)
{
    if (r == NULL)
        return;
    arena_close(r->arena);
    mem_free(r);
}
