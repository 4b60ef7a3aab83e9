/* The store: an array of records, and their text form. */
#include "engine/tune/store.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

#define MIN_NS      1.0
#define MAX_NS      1e15
#define MAX_WORK    1e20
#define N_FIELDS    11
#define FIELD_BYTES 256

struct tune_store {
    struct tune_record *records;
    uint32_t n, capacity;
};

enum status store_open(struct tune_store **out, struct err *e)
{
    *out = mem_zalloc(sizeof **out);
    return *out ? ST_OK : err_set(e, ST_NO_MEMORY, "tune store: %zu bytes", sizeof **out);
}

void store_close(struct tune_store *s)
{
    if (!s)
        return;
    mem_free(s->records);
    mem_free(s);
}

/* Printable, not empty, ended within its array. */
static bool is_text(const char *text, size_t size)
{
    const size_t length = strnlen(text, size);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20)
            return false;
    return length > 0 && length < size;
}

enum status record_settings(const char *text, struct setting out[CONFIG_MAX_TUNABLES], uint32_t *n,
                            char names[CONFIG_MAX_TUNABLES][24], struct err *e)
{
    const char *at = text;
    for (*n = 0; *at; (*n)++) {
        const size_t length = strcspn(at, "= ");
        if (*n == CONFIG_MAX_TUNABLES || at[length] != '=' || length == 0 || length >= 24 ||
            at[length + 1] < '0' || at[length + 1] > '9')
            return err_set(e, ST_INVALID, "settings \"%.60s\", expected NAME=NUMBER ..", text);
        memcpy(names[*n], at, length);
        names[*n][length] = '\0';
        char *end;
        const unsigned long long value = strtoull(at + length + 1, &end, 10);
        if (value > UINT32_MAX || (*end != '\0' && *end != ' '))
            return err_set(e, ST_INVALID, "settings \"%.60s\", expected NAME=NUMBER ..", text);
        out[*n] = (struct setting){names[*n], (uint32_t)value};
        at = end + (*end == ' ');
    }
    return ST_OK;
}

static enum status check(const struct tune_record *r, struct err *e)
{
    struct setting settings[CONFIG_MAX_TUNABLES];
    char names[CONFIG_MAX_TUNABLES][24];
    uint32_t n;
    if (!is_text(r->variant, sizeof r->variant) || !is_text(r->device, sizeof r->device) ||
        !is_text(r->driver, sizeof r->driver))
        return err_set(e, ST_INVALID, "tuned value: variant, device or driver is not a name");
    if (!dtype_info(r->dtype))
        return err_set(e, ST_INVALID, "tuned value: dtype is %d", (int)r->dtype);
    if (!(r->ns >= MIN_NS && r->ns <= MAX_NS) || !(r->work > 0 && r->work <= MAX_WORK) ||
        !(r->standard_ns >= 0 && r->standard_ns <= MAX_NS))
        return err_set(e, ST_INVALID, "tuned value: %g ns for work of %g, expected %g to %g", r->ns,
                       r->work, MIN_NS, MAX_NS);
    if (r->shape.n_dims == 0 ||
        shape_of(r->shape.op, &(union op_params){0}).n_dims != r->shape.n_dims)
        return err_set(e, ST_INVALID, "tuned value: %s is not tuned", op_name(r->shape.op));
    if (strnlen(r->settings, sizeof r->settings) == sizeof r->settings)
        return err_set(e, ST_INVALID, "tuned value: settings are too long");
    enum status st = record_settings(r->settings, settings, &n, names, e);
    return st == ST_OK ? shape_check(&r->shape, e) : st;
}

static bool same_key(const struct tune_record *a, const struct tune_record *b)
{
    return a->dtype == b->dtype && strcmp(a->variant, b->variant) == 0 &&
           strcmp(a->device, b->device) == 0 && strcmp(a->driver, b->driver) == 0 &&
           shape_distance(&a->shape, &b->shape) == 0;
}

static void drop(struct tune_store *s, uint32_t i)
{
    memmove(s->records + i, s->records + i + 1, (s->n - i - 1) * sizeof *s->records);
    s->n--;
}

enum status store_add(struct tune_store *s, const struct tune_record *r, struct err *e)
{
    enum status st = check(r, e);
    if (st != ST_OK)
        return st;
    if (s->n == s->capacity && s->capacity < STORE_MAX_RECORDS) {
        const uint32_t capacity = s->capacity ? 2 * s->capacity : 32;
        struct tune_record *bigger = mem_array_resize(s->records, capacity, sizeof *bigger);
        if (!bigger)
            return err_set(e, ST_NO_MEMORY, "tune store: %u records", capacity);
        s->records = bigger;
        s->capacity = capacity;
    }
    for (uint32_t i = 0; i < s->n; i++)
        if (same_key(&s->records[i], r)) {
            drop(s, i);
            break;
        }
    if (s->n == STORE_MAX_RECORDS)
        drop(s, 0);
    s->records[s->n++] = *r;
    return ST_OK;
}

const struct tune_record *store_at(const struct tune_store *s, uint32_t i)
{
    return i < s->n ? &s->records[i] : NULL;
}

enum status store_merge(struct tune_store *s, const struct tune_store *from, struct err *e)
{
    enum status st = ST_OK;
    for (uint32_t i = 0; st == ST_OK && i < from->n; i++)
        st = store_add(s, &from->records[i], e);
    return st;
}

/* ---- text ---- */

enum status record_write(const struct tune_record *r, char out[RECORD_TEXT_BYTES], struct err *e)
{
    char shape[SHAPE_TEXT_BYTES];
    const int n = snprintf(
        out, RECORD_TEXT_BYTES, "%s\t%s\t%s\t%s\t%s\t%s\t%016" PRIx64 "\t%u\t%s\t%.6g %.6g\t%.17g",
        op_name(r->shape.op), r->variant, dtype_name(r->dtype), shape_text(&r->shape, shape),
        r->device, r->driver, r->source, r->version, r->settings, r->ns, r->standard_ns, r->work);
    if (n < 0 || n >= RECORD_TEXT_BYTES)
        return err_set(e, ST_INVALID, "tuned value of %s: over %d bytes", r->variant,
                       RECORD_TEXT_BYTES);
    return ST_OK;
}

static bool copy_field(const char *from, char *to, size_t size)
{
    return (size_t)snprintf(to, size, "%s", from) < size;
}

/* A number that is all of the text up to `stop`. */
static bool number_of(const char *text, char stop, double *out, const char **rest)
{
    char *end;
    *out = strtod(text, &end);
    *rest = end;
    return end > text && *end == stop && isfinite(*out);
}

static enum status read_fields(char fields[N_FIELDS][FIELD_BYTES], struct tune_record *r,
                               struct err *e)
{
    enum op_id op;
    char *end;
    const char *rest;
    double version;
    if (!shape_op(fields[0], &op))
        return err_set(e, ST_FORMAT, "tuned value: op \"%.40s\"", fields[0]);
    if (!dtype_parse(fields[2], &r->dtype))
        return err_set(e, ST_FORMAT, "tuned value: dtype \"%.40s\"", fields[2]);
    enum status st = shape_parse(op, fields[3], &r->shape, e);
    if (st != ST_OK)
        return st;
    if (!copy_field(fields[1], r->variant, sizeof r->variant) ||
        !copy_field(fields[4], r->device, sizeof r->device) ||
        !copy_field(fields[5], r->driver, sizeof r->driver) ||
        !copy_field(fields[8], r->settings, sizeof r->settings))
        return err_set(e, ST_FORMAT, "tuned value: a name is too long");
    r->source = strtoull(fields[6], &end, 16);
    if (strlen(fields[6]) != 16 || *end)
        return err_set(e, ST_FORMAT, "tuned value: source \"%.40s\"", fields[6]);
    if (!number_of(fields[7], '\0', &version, &rest) || version < 0 || version > UINT32_MAX)
        return err_set(e, ST_FORMAT, "tuned value: version \"%.40s\"", fields[7]);
    r->version = (uint32_t)version;
    if (!number_of(fields[9], ' ', &r->ns, &rest) ||
        !number_of(rest + 1, '\0', &r->standard_ns, &rest) ||
        !number_of(fields[10], '\0', &r->work, &rest))
        return err_set(e, ST_FORMAT, "tuned value: times \"%.40s\", work \"%.40s\"", fields[9],
                       fields[10]);
    return check(r, e);
}

enum status record_read(const char *text, struct tune_record *out, struct err *e)
{
    char fields[N_FIELDS][FIELD_BYTES];
    *out = (struct tune_record){0};
    for (uint32_t i = 0; i < N_FIELDS; i++) {
        const size_t length = strcspn(text, "\t");
        if (length >= FIELD_BYTES || (text[length] == '\t') != (i + 1 < N_FIELDS))
            return err_set(e, ST_FORMAT, "tuned value: field %u of %d is cut or too long", i + 1,
                           N_FIELDS);
        memcpy(fields[i], text, length);
        fields[i][length] = '\0';
        text += length + 1;
    }
    enum status st = read_fields(fields, out, e);
    if (st != ST_OK && e)
        e->status = ST_FORMAT;
    return st == ST_OK ? ST_OK : ST_FORMAT;
}
