/* Configurations: parses the rows' tunables and applies settings to a copy of the row. ROWS, TOKENS
 * and LWS, LWS2, ... are fields of the stages; everything else is a macro of the build. */
#include "engine/ops/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The stage whose local size a name means: LWS, LWS2 ..; -1: none. */
static int local_stage(const char *name)
{
    if (strncmp(name, "LWS", 3) != 0)
        return -1;
    if (name[3] == '\0')
        return 0;
    const int stage = name[3] - '1';
    return name[4] == '\0' && stage >= 1 && stage < VARIANT_MAX_STAGES ? stage : -1;
}

/* The number after "-DNAME=" in the row's defines. */
static bool defined_value(const struct variant *v, const char *name, uint32_t *value)
{
    const size_t length = strlen(name);
    for (const char *at = v->defines; at && (at = strstr(at, "-D")); at += 2)
        if (strncmp(at + 2, name, length) == 0 && at[2 + length] == '=') {
            *value = (uint32_t)strtoul(at + 3 + length, NULL, 10);
            return true;
        }
    return false;
}

static uint32_t standard_value(const struct variant *v, const struct tunable *t)
{
    uint32_t value = t->values[0];
    const int stage = local_stage(t->name);
    if (strcmp(t->name, "ROWS") == 0)
        return variant_rows_of(v);
    if (strcmp(t->name, "TOKENS") == 0)
        return variant_tokens_of(v);
    if (stage >= 0)
        return v->stages[stage].lws;
    (void)defined_value(v, t->name, &value);
    return value;
}

uint32_t variant_tunable_list(const struct variant *v, struct tunable out[CONFIG_MAX_TUNABLES])
{
    uint32_t n = 0;
    for (const char *at = variant_tunables(v); *at && n < CONFIG_MAX_TUNABLES; n++) {
        struct tunable *t = &out[n];
        const size_t length = strcspn(at, "=");
        *t = (struct tunable){.n_values = 0};
        snprintf(t->name, sizeof t->name, "%.*s", (int)length, at);
        for (at += length; (*at == '=' || *at == ',') && t->n_values < CONFIG_MAX_VALUES;) {
            char *end;
            t->values[t->n_values++] = (uint32_t)strtoul(at + 1, &end, 10);
            at = end;
        }
        t->standard = standard_value(v, t);
        at += strspn(at, " ");
    }
    return n;
}

/* Text of the values allowed, for messages. */
static enum status refuse(const struct variant *v, const struct setting *s, const struct tunable *t,
                          struct err *e)
{
    char values[128] = "";
    size_t length = 0;
    for (uint32_t i = 0; t && i < t->n_values && length < sizeof values; i++)
        length += (size_t)snprintf(values + length, sizeof values - length, "%s%u", i ? ", " : "",
                                   t->values[i]);
    if (t)
        return err_set(e, ST_INVALID, "%s %s: %s is %u, expected one of %s", op_name(v->op),
                       v->name, s->name, s->value, values);
    return err_set(e, ST_INVALID, "%s %s: no tunable %.24s, it has \"%s\"", op_name(v->op), v->name,
                   s->name, variant_tunables(v));
}

/* Sets a macro, replacing the row's own value of it. */
static enum status set_macro(struct config *c, const struct setting *s, struct err *e)
{
    char others[sizeof c->defines] = "";
    const size_t length = strlen(s->name);
    for (const char *at = c->defines; *at;) {
        const size_t word = strcspn(at, " ");
        if (strncmp(at, "-D", 2) != 0 || strncmp(at + 2, s->name, length) != 0 ||
            at[2 + length] != '=') {
            const size_t used = strlen(others);
            snprintf(others + used, sizeof others - used, "%.*s ", (int)word, at);
        }
        at += word + strspn(at + word, " ");
    }
    const int n = snprintf(c->defines, sizeof c->defines, "%s-D%s=%u", others, s->name, s->value);
    if (n < 0 || (size_t)n >= sizeof c->defines)
        return err_set(e, ST_INVALID, "%s: build options over %zu bytes", s->name,
                       sizeof c->defines);
    return ST_OK;
}

static enum status apply(struct config *c, const struct variant *v, const struct setting *s,
                         struct err *e)
{
    const int stage = local_stage(s->name);
    if (stage >= 0) {
        c->row.stages[stage].lws = s->value;
        return ST_OK;
    }
    const bool rows = strcmp(s->name, "ROWS") == 0;
    if (!rows && strcmp(s->name, "TOKENS") != 0)
        return set_macro(c, s, e);
    for (uint32_t i = 0; i < VARIANT_MAX_STAGES;
         i++) { /* every stage that is cut as the main one */
        if (rows && v->stages[i].rows == variant_rows_of(v))
            c->row.stages[i].rows = s->value;
        if (!rows && v->stages[i].tokens == variant_tokens_of(v))
            c->row.stages[i].tokens = s->value;
    }
    return ST_OK;
}

enum status variant_configure(const struct variant *v, const struct setting *settings, uint32_t n,
                              struct config *out, struct err *e)
{
    struct tunable list[CONFIG_MAX_TUNABLES];
    const uint32_t n_list = variant_tunable_list(v, list);
    *out = (struct config){.row = *v};
    snprintf(out->defines, sizeof out->defines, "%s", v->defines ? v->defines : "");
    for (uint32_t i = 0; i < n; i++) {
        const struct tunable *t = NULL;
        bool allowed = false;
        for (uint32_t j = 0; j < n_list; j++)
            if (strcmp(list[j].name, settings[i].name) == 0)
                t = &list[j];
        for (uint32_t j = 0; t && j < t->n_values; j++)
            allowed = allowed || t->values[j] == settings[i].value;
        if (!allowed)
            return refuse(v, &settings[i], t, e);
        enum status st = apply(out, v, &settings[i], e);
        if (st != ST_OK)
            return st;
    }
    out->row.defines = out->defines;
    return ST_OK;
}
