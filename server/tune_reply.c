/* The JSON of a tuning. */
#include <inttypes.h>
#include <stdio.h>

#include "server/json.h"
#include "server/tune.h"

/* A time in microseconds; null for 0: there is none. */
static void time_field(struct json *j, const char *key, double ns)
{
    json_figure_field(j, key, ns * 1e-3);
}

static void put_shape(struct json *j, const struct shape *s)
{
    json_text_field(j, "op", op_name(s->op));
    json_key(j, "shape");
    json_open(j, '{');
    for (uint32_t i = 0; i < s->n_dims; i++)
        json_uint_field(j, shape_dim_name(s->op, i), s->dims[i]);
    json_close(j, '}');
}

static void put_settings(struct json *j, const char *key, const char *text)
{
    struct setting settings[CONFIG_MAX_TUNABLES];
    char names[CONFIG_MAX_TUNABLES][24];
    uint32_t n = 0;
    json_key(j, key);
    json_open(j, '{');
    if (record_settings(text, settings, &n, names, NULL) == ST_OK)
        for (uint32_t i = 0; i < n; i++)
            json_uint_field(j, settings[i].name, settings[i].value);
    json_close(j, '}');
}

static void put_progress(struct json *j, const struct tune_progress *p)
{
    json_key(j, "call");
    json_open(j, '{');
    json_uint_field(j, "number", p->call + 1);
    json_uint_field(j, "of", p->n_calls);
    put_shape(j, &p->shape);
    json_text_field(j, "dtype", dtype_name(p->dtype));
    json_text_field(j, "variant", p->variant ? p->variant : "");
    put_settings(j, "params", p->last.settings);
    time_field(j, "us", p->last.ns);
    json_text_field(j, "reason", p->last.reason);
    put_settings(j, "best_params", p->best_settings);
    time_field(j, "best_us", p->best_ns);
    time_field(j, "standard_us", p->standard_ns);
    json_close(j, '}');
}

static void put_result(struct json *j, const struct tune_record *r)
{
    json_open(j, '{');
    put_shape(j, &r->shape);
    json_text_field(j, "dtype", dtype_name(r->dtype));
    json_text_field(j, "variant", r->variant);
    put_settings(j, "params", r->settings);
    time_field(j, "us", r->ns);
    time_field(j, "standard_us", r->standard_ns);
    json_close(j, '}');
}

void tune_reply(struct strbuf *out, uint64_t id, const struct tune_request *request,
                const char *device, const struct tuning_state *state,
                const struct tune_store *results)
{
    struct json j = json_begin(out);
    const struct tune_progress *p = &state->progress;
    char name[32];
    snprintf(name, sizeof name, "tune-%" PRIu64, id);
    json_open(&j, '{');
    json_text_field(&j, "id", name);
    json_text_field(&j, "object", "tuning");
    json_text_field(&j, "status", tuning_status_name(state->status));
    json_text_field(&j, "device", device);
    json_text_field(&j, "search", search_kind_name((enum search_kind)request->search));
    json_uint_field(&j, "budget", request->budget);
    json_uint_field(&j, "seed", request->seed);
    json_uint_field(&j, "points", state->begun ? p->points : 0);
    json_uint_field(&j, "most_points", state->begun ? p->most_points : 0);
    json_real_field(&j, "elapsed_s", state->begun ? p->elapsed_s : 0);
    json_real_field(&j, "left_s", state->begun ? p->left_s : 0);
    if (state->begun && p->points > 0) {
        put_progress(&j, p);
    } else {
        json_key(&j, "call");
        json_null(&j);
    }
    json_key(&j, "results");
    json_open(&j, '[');
    const struct tune_record *r;
    for (uint32_t i = 0; results && (r = store_at(results, i)) != NULL; i++)
        put_result(&j, r);
    json_close(&j, ']');
    json_uint_field(&j, "applied", state->n_applied);
    json_key(&j, "error");
    if (state->error[0])
        json_text(&j, state->error);
    else
        json_null(&j);
    json_close(&j, '}');
}
