/* Spaces: enumeration of the product, the filter, and the ways between codes, places and settings.
 */
#include "engine/tune/space.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/cl/device.h"
#include "engine/ops/config.h"
#include "engine/tune/condition.h"

#define COORDINATE_PER_DOUBLING (1.0 / 3) /* of the outputs that an item makes */

/* The place of each tunable in a code. */
static void split(const struct space *s, uint32_t code, uint32_t places[CONFIG_MAX_TUNABLES])
{
    for (uint32_t i = s->n_dims; i-- > 0;) {
        places[i] = code % s->dims[i].n_values;
        code /= s->dims[i].n_values;
    }
}

static uint32_t join(const struct space *s, const uint32_t places[CONFIG_MAX_TUNABLES])
{
    uint32_t code = 0;
    for (uint32_t i = 0; i < s->n_dims; i++)
        code = code * s->dims[i].n_values + places[i];
    return code;
}

/* Names and values for the condition, and the groups that every device limits. */
static enum status is_valid(const struct space *s, const uint32_t places[CONFIG_MAX_TUNABLES],
                            const char *require, const struct space_limits *limits, bool *out,
                            struct err *e)
{
    struct condition_name names[CONFIG_MAX_TUNABLES + 2];
    *out = true;
    for (uint32_t i = 0; i < s->n_dims; i++) {
        const struct tunable *t = &s->dims[i];
        names[i] = (struct condition_name){t->name, t->values[places[i]]};
        if (strncmp(t->name, "LWS", 3) == 0 && limits->max_work_group > 0 &&
            names[i].value > limits->max_work_group)
            *out = false;
    }
    if (!*out)
        return ST_OK;
    const int64_t most = INT64_MAX / 2;
    names[s->n_dims] = (struct condition_name){
        "LOCAL_BYTES", limits->local_bytes ? (int64_t)limits->local_bytes : most};
    names[s->n_dims + 1] = (struct condition_name){
        "MAX_GROUP", limits->max_work_group ? (int64_t)limits->max_work_group : most};
    return condition_holds(require, names, s->n_dims + 2, out, e);
}

static enum status enumerate(struct space *s, uint32_t n, const char *require,
                             const struct space_limits *limits, struct err *e)
{
    for (uint32_t code = 0; code < n; code++) {
        uint32_t places[CONFIG_MAX_TUNABLES];
        bool valid, standard = true;
        split(s, code, places);
        enum status st = is_valid(s, places, require, limits, &valid, e);
        if (st != ST_OK)
            return st;
        if (!valid)
            continue;
        for (uint32_t i = 0; i < s->n_dims; i++)
            standard = standard && s->dims[i].values[places[i]] == s->dims[i].standard;
        if (standard)
            s->standard = s->n_points;
        s->codes[s->n_points++] = (uint16_t)code;
    }
    if (s->n_points == 0)
        return err_set(e, ST_UNSUPPORTED, "none of %u configurations fits the device", n);
    return ST_OK;
}

static bool is_block(const struct tunable *t)
{
    return strcmp(t->name, "ROWS") == 0 || strcmp(t->name, "TOKENS") == 0;
}

static bool is_local_size(const struct tunable *t)
{
    return strncmp(t->name, "LWS", 3) == 0;
}

static uint32_t count_coordinates(const struct space *s)
{
    bool block = false, local_size = false;
    for (uint32_t i = 0; i < s->n_dims; i++) {
        block = block || is_block(&s->dims[i]);
        local_size = local_size || is_local_size(&s->dims[i]);
    }
    return s->n_dims + (block && local_size);
}

enum status space_make(const struct tunable *dims, uint32_t n_dims, const char *require,
                       const struct space_limits *limits, struct space **out, struct err *e)
{
    *out = NULL;
    uint32_t n = 1;
    for (uint32_t i = 0; i < n_dims && n <= SPACE_MAX_POINTS; i++)
        n *= dims[i].n_values;
    if (n_dims > CONFIG_MAX_TUNABLES || n > SPACE_MAX_POINTS)
        return err_set(e, ST_INVALID, "a space of %u tunables and %u points, at most %d and %d",
                       n_dims, n, CONFIG_MAX_TUNABLES, SPACE_MAX_POINTS);
    struct space *s = mem_zalloc(sizeof *s);
    if (s)
        s->codes = mem_array(n, sizeof *s->codes);
    if (!s || !s->codes) {
        space_close(s);
        return err_set(e, ST_NO_MEMORY, "a space of %u points", n);
    }
    s->n_dims = n_dims;
    s->standard = SPACE_NONE;
    if (n_dims > 0)
        memcpy(s->dims, dims, n_dims * sizeof *dims);
    s->n_coordinates = count_coordinates(s);
    enum status st = enumerate(s, n, require, limits, e);
    if (st != ST_OK) {
        space_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

enum status space_open(struct device *d, const struct variant *v, struct space **out, struct err *e)
{
    struct tunable dims[CONFIG_MAX_TUNABLES];
    const uint32_t n = variant_tunable_list(v, dims);
    const struct device_info *info = device_info(d);
    const struct space_limits limits = {info->local_bytes, info->max_work_group};
    enum status st = space_make(dims, n, v->require, &limits, out, e);
    return st == ST_OK ? st : err_prefix(e, "%s %s: ", op_name(v->op), v->name);
}

void space_close(struct space *s)
{
    if (!s)
        return;
    mem_free(s->codes);
    mem_free(s);
}

void space_places(const struct space *s, uint32_t point, uint32_t places[CONFIG_MAX_TUNABLES])
{
    split(s, s->codes[point], places);
}

static int compare_codes(const void *a, const void *b)
{
    const uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;
    return (x > y) - (x < y);
}

uint32_t space_at(const struct space *s, const uint32_t places[CONFIG_MAX_TUNABLES])
{
    const uint16_t code = (uint16_t)join(s, places);
    const uint16_t *at = bsearch(&code, s->codes, s->n_points, sizeof code, compare_codes);
    return at ? (uint32_t)(at - s->codes) : SPACE_NONE;
}

uint32_t space_settings(const struct space *s, uint32_t point,
                        struct setting out[CONFIG_MAX_TUNABLES])
{
    uint32_t places[CONFIG_MAX_TUNABLES];
    space_places(s, point, places);
    for (uint32_t i = 0; i < s->n_dims; i++)
        out[i] = (struct setting){s->dims[i].name, s->dims[i].values[places[i]]};
    return s->n_dims;
}

uint32_t space_find(const struct space *s, const struct setting *settings, uint32_t n)
{
    uint32_t places[CONFIG_MAX_TUNABLES];
    if (n != s->n_dims)
        return SPACE_NONE;
    for (uint32_t i = 0; i < s->n_dims; i++) {
        const struct tunable *t = &s->dims[i];
        bool found = false;
        for (uint32_t j = 0; j < n; j++)
            for (uint32_t k = 0; k < t->n_values && strcmp(settings[j].name, t->name) == 0; k++)
                if (t->values[k] == settings[j].value) {
                    places[i] = k;
                    found = true;
                }
        if (!found)
            return SPACE_NONE;
    }
    return space_at(s, places);
}

const char *space_text(const struct space *s, uint32_t point, char out[SPACE_TEXT_BYTES])
{
    struct setting settings[CONFIG_MAX_TUNABLES];
    const uint32_t n = space_settings(s, point, settings);
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && used < SPACE_TEXT_BYTES; i++)
        used += (size_t)snprintf(out + used, SPACE_TEXT_BYTES - used, "%s%s=%u", i ? " " : "",
                                 settings[i].name, settings[i].value);
    return out;
}

enum status space_configure(const struct space *s, uint32_t point, const struct variant *v,
                            struct config *out, struct err *e)
{
    struct setting settings[CONFIG_MAX_TUNABLES];
    const uint32_t n = space_settings(s, point, settings);
    return variant_configure(v, settings, n, out, e);
}

uint32_t space_steps(const struct space *s, uint32_t a, uint32_t b)
{
    uint32_t from[CONFIG_MAX_TUNABLES], to[CONFIG_MAX_TUNABLES], n = 0;
    space_places(s, a, from);
    space_places(s, b, to);
    for (uint32_t i = 0; i < s->n_dims; i++)
        n += from[i] > to[i] ? from[i] - to[i] : to[i] - from[i];
    return n;
}

static bool ascends_from_one(const struct tunable *t)
{
    for (uint32_t i = 0; i < t->n_values; i++)
        if (t->values[i] == 0 || (i > 0 && t->values[i] <= t->values[i - 1]))
            return false;
    return true;
}

void space_coordinates(const struct space *s, uint32_t point, double out[SPACE_MAX_COORDINATES])
{
    uint32_t places[CONFIG_MAX_TUNABLES];
    double outputs = 0;
    space_places(s, point, places);
    for (uint32_t i = 0; i < s->n_dims; i++) {
        const struct tunable *t = &s->dims[i];
        const uint32_t last = t->n_values - 1, value = t->values[places[i]];
        if (last == 0)
            out[i] = 0;
        else if (ascends_from_one(t))
            out[i] =
                log((double)value / t->values[0]) / log((double)t->values[last] / t->values[0]);
        else
            out[i] = (double)places[i] / last;
        if (value > 0 && (is_block(t) || is_local_size(t)))
            outputs += is_block(t) ? log2(value) : -log2(value);
    }
    if (s->n_coordinates > s->n_dims)
        out[s->n_dims] = outputs * COORDINATE_PER_DOUBLING;
}
