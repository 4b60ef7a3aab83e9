/* Rows of the engine's catalogue that differ only in dtype are one entry here. */
#include "server/ops/catalogue.h"

#include <math.h>
#include <string.h>

#include "engine/tune/store.h"
#include "server/json.h"

/* ---- fields ---- */

static void put_number(struct json *j, double value)
{
    if (fabs(value) <= OPS_MAX_INTEGER && floor(value) == value)
        json_int(j, (int64_t)value);
    else
        json_real(j, value, 9);
}

static void put_words(struct json *j, const char *words)
{
    json_open(j, '[');
    for (const char *at = words;;) {
        const size_t n = strcspn(at, "|");
        json_text_n(j, at, n);
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    json_close(j, ']');
}

static void put_default(struct json *j, const struct api_field *f)
{
    const char *word = f->detail;
    json_key(j, "default");
    if (strcmp(f->type, "boolean") == 0) {
        json_bool(j, f->fallback != 0);
    } else if (f->is_choice) {
        for (int i = 0; i < (int)f->fallback; i++)
            word += strcspn(word, "|") + 1;
        json_text_n(j, word, strcspn(word, "|"));
    } else {
        put_number(j, f->fallback);
    }
}

static void put_field(struct json *j, const struct api_field *f)
{
    json_open(j, '{');
    json_text_field(j, "name", f->name);
    json_text_field(j, "type", f->type);
    json_key(j, "required");
    json_bool(j, isnan(f->fallback));
    if (f->has_range) {
        json_key(j, "min");
        put_number(j, f->min);
        json_key(j, "max");
        put_number(j, f->max);
    }
    if (f->has_default)
        put_default(j, f);
    if (f->is_choice) {
        json_key(j, "choices");
        put_words(j, f->detail);
    } else {
        json_text_field(j, "help", f->detail);
    }
    json_close(j, '}');
}

/* ---- variants ---- */

static bool same_tunables(const struct catalogue_row *a, const struct catalogue_row *b)
{
    if (a->n_tunables != b->n_tunables)
        return false;
    for (uint32_t i = 0; i < a->n_tunables; i++)
        if (strcmp(a->tunables[i].name, b->tunables[i].name) != 0 ||
            a->tunables[i].n_values != b->tunables[i].n_values ||
            a->tunables[i].standard != b->tunables[i].standard ||
            memcmp(a->tunables[i].values, b->tunables[i].values,
                   a->tunables[i].n_values * sizeof a->tunables[i].values[0]) != 0)
            return false;
    return true;
}

static bool same_entry(const struct catalogue_row *a, const struct catalogue_row *b)
{
    return a->op == b->op && strcmp(a->variant, b->variant) == 0 && a->needs == b->needs &&
           a->reference == b->reference && same_tunables(a, b);
}

/* Is the row one of the operator's as the API runs it? */
static bool serves(enum api_op op, const struct catalogue_row *row)
{
    return api_op_runs(op, row->op) && (op != API_NORM || row->reference || row->act == ACT_F32) &&
           (op != API_ROPE || row->dtype < 0 || row->dtype == DT_F32);
}

static bool is_first(enum api_op op, uint32_t i, const struct catalogue_row *row)
{
    struct catalogue_row other;
    for (uint32_t k = 0; k < i; k++)
        if (catalogue_at(k, &other) && serves(op, &other) && same_entry(&other, row))
            return false;
    return true;
}

static void put_dtypes(struct json *j, enum api_op op, uint32_t from,
                       const struct catalogue_row *row)
{
    struct catalogue_row other;
    json_key(j, "dtypes");
    json_open(j, '[');
    for (uint32_t i = from; catalogue_at(i, &other); i++)
        if (serves(op, &other) && same_entry(&other, row) && other.dtype >= 0)
            json_text(j, dtype_name((uint32_t)other.dtype));
    json_close(j, ']');
}

static void put_caps(struct json *j, const char *key, uint32_t caps)
{
    json_key(j, key);
    json_open(j, '[');
    for (uint32_t bit = 0; bit < 32; bit++)
        if ((caps >> bit & 1u) && device_cap_name((enum device_cap)(1u << bit)) != NULL)
            json_text(j, device_cap_name((enum device_cap)(1u << bit)));
    json_close(j, ']');
}

static void put_tunables(struct json *j, const struct catalogue_row *row)
{
    json_key(j, "tunables");
    json_open(j, '[');
    for (uint32_t i = 0; i < row->n_tunables; i++) {
        const struct tunable *t = &row->tunables[i];
        json_open(j, '{');
        json_text_field(j, "name", t->name);
        json_key(j, "values");
        json_open(j, '[');
        for (uint32_t k = 0; k < t->n_values; k++)
            json_uint(j, t->values[k]);
        json_close(j, ']');
        json_key(j, "default");
        json_uint(j, t->standard);
        json_close(j, '}');
    }
    json_close(j, ']');
}

/* Devices in use and what was tuned: what the entries are made with. */
struct place {
    const struct ops_device *devices;
    uint32_t n;
    const struct tune_store *tuned;
};

static void put_record(struct json *j, uint32_t device, const struct tune_record *r)
{
    char text[SHAPE_TEXT_BYTES];
    struct setting settings[CONFIG_MAX_TUNABLES];
    char names[CONFIG_MAX_TUNABLES][24];
    uint32_t n = 0;
    json_open(j, '{');
    json_key(j, "device");
    json_uint(j, device);
    json_text_field(j, "dtype", dtype_name(r->dtype));
    json_text_field(j, "shape", shape_text(&r->shape, text));
    json_key(j, "params");
    json_open(j, '{');
    if (record_settings(r->settings, settings, &n, names, NULL) == ST_OK)
        for (uint32_t i = 0; i < n; i++) {
            json_key(j, settings[i].name);
            json_uint(j, settings[i].value);
        }
    json_close(j, '}');
    json_key(j, "us");
    json_real(j, r->ns / 1e3, 6);
    json_close(j, '}');
}

/* What was tuned of a variant on the devices. */
static void put_tuned(struct json *j, const struct catalogue_row *row, const struct place *p)
{
    const struct tune_record *r;
    json_key(j, "tuned");
    json_open(j, '[');
    for (uint32_t i = 0; p->tuned != NULL && (r = store_at(p->tuned, i)) != NULL; i++)
        for (uint32_t d = 0; d < p->n; d++)
            if (r->shape.op == row->op && strcmp(r->variant, row->variant) == 0 &&
                strcmp(r->device, p->devices[d].info->name) == 0 &&
                strcmp(r->driver, p->devices[d].info->driver) == 0)
                put_record(j, p->devices[d].info->index, r);
    json_close(j, ']');
}

static void put_variant(struct json *j, enum api_op op, uint32_t i, const struct catalogue_row *row,
                        const struct place *p)
{
    json_open(j, '{');
    json_text_field(j, "variant", row->variant);
    json_text_field(j, "kernel", op_name(row->op));
    put_dtypes(j, op, i, row);
    put_caps(j, "needs", row->needs);
    put_tunables(j, row);
    json_key(j, "runs_on");
    json_open(j, '[');
    for (uint32_t d = 0; d < p->n; d++)
        if (catalogue_runs_on(row, p->devices[d].info->kind == DEVICE_HOST, p->devices[d].caps))
            json_uint(j, p->devices[d].info->index);
    json_close(j, ']');
    put_tuned(j, row, p);
    json_close(j, '}');
}

static void put_op(struct json *j, enum api_op op, const struct place *p)
{
    struct catalogue_row row;
    struct api_field field;
    json_open(j, '{');
    json_text_field(j, "op", api_op_name(op));
    json_key(j, "fields");
    json_open(j, '[');
    for (uint32_t i = 0; api_field_at(op, i, &field); i++)
        put_field(j, &field);
    json_close(j, ']');
    json_key(j, "variants");
    json_open(j, '[');
    for (uint32_t i = 0; catalogue_at(i, &row); i++)
        if (serves(op, &row) && is_first(op, i, &row))
            put_variant(j, op, i, &row, p);
    json_close(j, ']');
    json_close(j, '}');
}

void ops_catalogue_json(struct strbuf *out, const struct ops_device *devices, uint32_t n,
                        const struct tune_store *tuned)
{
    const struct place place = {devices, n, tuned};
    struct json j = json_begin(out);
    json_open(&j, '{');
    json_text_field(&j, "object", "list");
    json_key(&j, "devices");
    json_open(&j, '[');
    for (uint32_t d = 0; d < n; d++) {
        json_open(&j, '{');
        json_key(&j, "index");
        json_uint(&j, devices[d].info->index);
        json_text_field(&j, "name", devices[d].info->name);
        json_text_field(&j, "driver", devices[d].info->driver);
        put_caps(&j, "caps", devices[d].caps);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_key(&j, "data");
    json_open(&j, '[');
    for (enum api_op op = 0; op < API_COUNT; op++)
        put_op(&j, op, &place);
    json_close(&j, ']');
    json_close(&j, '}');
}
