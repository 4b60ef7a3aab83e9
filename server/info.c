/* JSON and metrics of the GET routes. */
#include "server/info.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "server/json.h"
#include "server/openapi.h"
#include "server/ops/catalogue.h"
#include "server/reply.h"
#include "server/route.h"
#include "server/service.h"
#include "server/tune.h"

#define SLOTS_SHOWN 256

static void reply(struct service *s, struct exchange *x, unsigned status, struct strbuf *body)
{
    route_reply(s, x, status, ROUTE_JSON, NULL, 0, body);
}

/* ---- /health ---- */

static double age_ms(uint64_t since_ns)
{
    uint64_t now_ns = clock_now_ns();
    return now_ns > since_ns ? (double)(now_ns - since_ns) / 1e6 : 0;
}

static void put_worker_health(struct json *j, struct service *s, uint32_t i)
{
    struct worker_status status;
    worker_status(s->workers[i], &status);
    json_open(j, '{');
    json_text_field(j, "device",
                    device_list_at(s->options.devices, s->options.device_indices[i])->name);
    json_text_field(j, "status", worker_state_name(status.state));
    json_uint_field(j, "bytes_done", status.bytes_done);
    json_uint_field(j, "bytes_total", status.bytes_total);
    json_uint_field(j, "kernels_built", status.kernels_built);
    json_bool_field(j, "in_step", status.in_step);
    json_real_field(j, "step_age_ms", age_ms(status.step_ns));
    if (status.error.text[0] != '\0')
        json_text_field(j, "error", status.error.text);
    json_close(j, '}');
}

void info_health(struct service *s, struct exchange *x)
{
    struct strbuf body;
    strbuf_init(&body, REPLY_CEILING_BYTES);
    struct json j = json_begin(&body);
    struct scheduler_counts counts = scheduler_counts(s->scheduler);
    json_open(&j, '{');
    json_text_field(&j, "status", service_state_name(s->state));
    json_uint_field(&j, "queued", counts.preparing + counts.queued);
    json_uint_field(&j, "running", counts.running);
    json_key(&j, "devices");
    json_open(&j, '[');
    for (uint32_t i = 0; i < s->n_workers; i++)
        put_worker_health(&j, s, i);
    json_close(&j, ']');
    json_close(&j, '}');
    reply(s, x, s->state == SERVICE_READY ? 200 : 503, &body);
}

/* ---- /v1/models ---- */

static void put_model(struct json *j, const struct hosted_model *m)
{
    json_open(j, '{');
    json_text_field(j, "id", m->id);
    json_text_field(j, "object", "model");
    json_key(j, "created");
    json_int(j, m->created_s);
    json_text_field(j, "owned_by", "oinfer");
    json_key(j, "meta");
    json_open(j, '{');
    json_text_field(j, "name", m->info->name);
    json_text_field(j, "architecture", m->info->architecture);
    json_text_field(j, "quantisation", m->info->quantisation);
    json_uint_field(j, "n_ctx", m->n_ctx);
    json_uint_field(j, "n_ctx_train", m->info->n_ctx_train);
    json_uint_field(j, "n_vocab", m->info->n_vocab);
    json_uint_field(j, "n_embd", m->info->n_embd);
    json_uint_field(j, "n_layer", m->info->n_layer);
    json_uint_field(j, "n_params", m->info->n_params);
    json_uint_field(j, "size", m->info->file_bytes);
    json_close(j, '}');
    json_close(j, '}');
}

void info_models(struct service *s, struct exchange *x)
{
    struct strbuf body;
    strbuf_init(&body, REPLY_CEILING_BYTES);
    struct json j = json_begin(&body);
    json_open(&j, '{');
    json_text_field(&j, "object", "list");
    json_key(&j, "data");
    json_open(&j, '[');
    for (uint32_t i = 0; i < s->models->count; i++)
        put_model(&j, &s->models->items[i]);
    json_close(&j, ']');
    json_close(&j, '}');
    reply(s, x, 200, &body);
}

/* ---- /v1/devices ---- */

static void put_caps(struct json *j, uint32_t caps)
{
    json_open(j, '[');
    for (uint32_t bit = 0; bit < 32; bit++)
        if ((caps >> bit & 1u) && device_cap_name((enum device_cap)(1u << bit)) != NULL)
            json_text(j, device_cap_name((enum device_cap)(1u << bit)));
    json_close(j, ']');
}

static void put_lines(struct json *j, const struct strbuf *text)
{
    json_open(j, '[');
    for (const char *line = strbuf_text(text); *line != '\0';) {
        size_t n = strcspn(line, "\n");
        json_text_n(j, line, n);
        line += n + (line[n] == '\n');
    }
    json_close(j, ']');
}

/* What is only known of a device that is in use. */
static void put_opened(struct json *j, struct service *s, struct worker *w)
{
    struct worker_status status;
    struct device_peaks peaks;
    const struct worker_facts *facts = worker_facts(w);
    worker_status(w, &status);
    json_text_field(j, "status", worker_state_name(status.state));
    if (facts == NULL)
        return;
    json_key(j, "caps");
    put_caps(j, facts->caps);
    json_key(j, "peaks");
    if (worker_peaks(w, &peaks)) {
        json_open(j, '{');
        json_real_field(j, "read_gb_s", peaks.read_gb_s);
        json_real_field(j, "copy_gb_s", peaks.copy_gb_s);
        json_real_field(j, "f32_gflop_s", peaks.f32_gflop_s);
        json_close(j, '}');
    } else {
        json_null(j); /* the next time they are there */
        worker_measure(w);
    }
    json_key(j, "variants");
    json_open(j, '{');
    for (uint32_t m = 0; m < s->models->count; m++) {
        json_key(j, s->models->items[m].id);
        put_lines(j, &facts->plans[m]);
    }
    json_close(j, '}');
}

/* The worker on a device of the list; NULL: it is not in use. */
static struct worker *worker_on(struct service *s, uint32_t device)
{
    for (uint32_t i = 0; i < s->n_workers; i++)
        if (s->options.device_indices[i] == device)
            return s->workers[i];
    return NULL;
}

static void put_device(struct json *j, struct service *s, const struct device_info *d)
{
    struct worker *w = worker_on(s, d->index);
    json_open(j, '{');
    json_uint_field(j, "index", d->index);
    json_text_field(j, "name", d->name);
    json_text_field(j, "kind", device_kind_name(d->kind));
    json_text_field(j, "vendor", d->vendor);
    json_text_field(j, "platform", d->platform);
    json_text_field(j, "driver", d->driver);
    json_text_field(j, "version", d->version);
    json_text_field(j, "uuid", d->uuid);
    json_bool_field(j, "available", d->available);
    json_text_field(j, "note", d->note);
    json_uint_field(j, "compute_units", d->compute_units);
    json_uint_field(j, "max_work_group", d->max_work_group);
    json_uint_field(j, "clock_mhz", d->clock_mhz);
    json_uint_field(j, "global_bytes", d->global_bytes);
    json_uint_field(j, "max_alloc_bytes", d->max_alloc_bytes);
    json_uint_field(j, "local_bytes", d->local_bytes);
    json_bool_field(j, "unified_memory", d->unified_memory);
    json_bool_field(j, "in_use", w != NULL);
    if (w != NULL)
        put_opened(j, s, w);
    json_close(j, '}');
}

static void put_devices(struct json *j, struct service *s)
{
    json_open(j, '[');
    for (uint32_t i = 0; i < device_list_count(s->options.devices); i++)
        put_device(j, s, device_list_at(s->options.devices, i));
    json_close(j, ']');
}

void info_devices(struct service *s, struct exchange *x)
{
    struct strbuf body;
    strbuf_init(&body, REPLY_CEILING_BYTES);
    struct json j = json_begin(&body);
    json_open(&j, '{');
    json_text_field(&j, "object", "list");
    json_key(&j, "data");
    put_devices(&j, s);
    json_text_field(&j, "hint", device_list_hint(s->options.devices));
    json_close(&j, '}');
    reply(s, x, 200, &body);
}

/* ---- /props ---- */

static void put_load(struct json *j, const struct load_report *r)
{
    json_open(j, '{');
    json_uint_field(j, "weights_bytes", r->weights_bytes);
    json_uint_field(j, "kv_bytes", r->kv_bytes);
    json_uint_field(j, "scratch_bytes", r->scratch_bytes);
    json_uint_field(j, "in_place_bytes", r->in_place_bytes);
    json_uint_field(j, "upload_bytes", r->upload_bytes);
    json_real_field(j, "upload_gb_s", r->upload_gb_s);
    json_real_field(j, "place_ms", r->place_ms);
    json_real_field(j, "weights_ms", r->weights_ms);
    json_real_field(j, "bind_ms", r->bind_ms);
    json_real_field(j, "overlap_ms", r->overlap_ms);
    json_real_field(j, "load_ms", r->load_ms);
    json_real_field(j, "build_ms", r->build_ms);
    json_uint_field(j, "layers", r->n_layer);
    json_uint_field(j, "layers_streamed", r->n_streamed);
    json_uint_field(j, "stream_bytes", r->stream_bytes);
    json_real_field(j, "stream_gb_s", r->stream_gb_s);
    json_uint_field(j, "layers_pinned", r->n_pinned);
    json_uint_field(j, "layers_staged", r->n_staged);
    json_uint_field(j, "kernels_built", r->kernels_built);
    json_uint_field(j, "kernels_cached", r->kernels_cached);
    json_key(j, "replaced");
    json_open(j, '[');
    for (uint32_t i = 0; i < r->n_replaced; i++) {
        json_open(j, '{');
        json_text_field(j, "op", r->replaced[i].op);
        json_text_field(j, "variant", r->replaced[i].variant);
        json_text_field(j, "reason", r->replaced[i].reason);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void put_memory(struct json *j, const struct device_memory *m)
{
    json_open(j, '{');
    json_uint_field(j, "used_bytes", m->used_bytes);
    json_uint_field(j, "peak_bytes", m->peak_bytes);
    json_uint_field(j, "limit_bytes", m->limit_bytes);
    json_uint_field(j, "weights_bytes", m->weights_bytes);
    json_uint_field(j, "kv_bytes", m->kv_bytes);
    json_uint_field(j, "scratch_bytes", m->scratch_bytes);
    json_uint_field(j, "staging_bytes", m->staging_bytes);
    json_close(j, '}');
}

/* The bill of every model on every device. */
static void put_bills(struct json *j, struct service *s)
{
    json_open(j, '[');
    for (uint32_t i = 0; i < s->n_workers; i++) {
        struct worker_status status;
        const struct worker_facts *facts = worker_facts(s->workers[i]);
        worker_status(s->workers[i], &status);
        json_open(j, '{');
        json_text_field(j, "device",
                        device_list_at(s->options.devices, s->options.device_indices[i])->name);
        json_text_field(j, "status", worker_state_name(status.state));
        json_key(j, "memory");
        put_memory(j, &status.memory);
        json_key(j, "loads");
        json_open(j, '{');
        for (uint32_t m = 0; facts != NULL && m < s->models->count; m++) {
            json_key(j, s->models->items[m].id);
            put_load(j, &facts->loads[m]);
        }
        json_close(j, '}');
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_model_props(struct json *j, struct service *s, const struct hosted_model *m)
{
    static const char *const kinds[] = {"spm", "bpe", "wpm"};
    json_open(j, '{');
    json_text_field(j, "id", m->id);
    json_text_field(j, "path", m->info->path);
    json_text_field(j, "architecture", m->info->architecture);
    json_uint_field(j, "n_ctx", m->n_ctx);
    json_key(j, "slots");
    json_int(j, s->config->slots);
    json_key(j, "chat_template");
    if (m->info->chat_template != NULL)
        json_text(j, m->info->chat_template);
    else
        json_null(j);
    json_text_field(j, "tokenizer", kinds[tokenizer_kind_of(m->tokenizer)]);
    json_text_field(j, "pre_tokenizer", tokenizer_pre(m->tokenizer));
    json_key(j, "bos");
    json_int(j, tokenizer_bos(m->tokenizer));
    json_key(j, "eos");
    json_int(j, tokenizer_eos(m->tokenizer));
    json_bool_field(j, "adds_bos", tokenizer_adds_bos(m->tokenizer));
    json_bool_field(j, "infill", tokenizer_has_infill(m->tokenizer));
    json_close(j, '}');
}

static void put_options(struct json *j, const struct config *c)
{
    struct strbuf value;
    strbuf_init(&value, REPLY_CEILING_BYTES);
    json_open(j, '{');
    for (uint32_t i = 0; i < config_option_count; i++) {
        strbuf_clear(&value);
        config_print_value(c, &config_options[i], &value);
        json_text_field(j, config_options[i].name, strbuf_text(&value));
    }
    json_close(j, '}');
    strbuf_free(&value);
}

void info_props(struct service *s, struct exchange *x)
{
    struct strbuf body;
    strbuf_init(&body, REPLY_CEILING_BYTES);
    struct json j = json_begin(&body);
    json_open(&j, '{');
    json_text_field(&j, "version", OINFER_VERSION);
    json_text_field(&j, "status", service_state_name(s->state));
    json_key(&j, "models");
    json_open(&j, '[');
    for (uint32_t i = 0; i < s->models->count; i++)
        put_model_props(&j, s, &s->models->items[i]);
    json_close(&j, ']');
    json_key(&j, "devices");
    put_devices(&j, s);
    json_key(&j, "memory");
    put_bills(&j, s);
    json_key(&j, "options");
    put_options(&j, s->config);
    json_close(&j, '}');
    reply(s, x, 200, &body);
}

/* ---- /slots ---- */

/* The prompt of a running job: its request does not change any more, so it may be read from here.
 */
static void put_prompt(struct json *j, struct service *s, uint64_t id)
{
    json_key(j, "prompt");
    for (const struct job *job = s->jobs; job != NULL; job = job->live_next) {
        if (job->id == id && job->state == JOB_RUNNING &&
            job->request->prompt.items[0].text.data != NULL) {
            json_text(j, job->request->prompt.items[0].text.data);
            return;
        }
    }
    json_null(j);
}

static void put_slot(struct json *j, struct service *s, uint32_t worker,
                     const struct slot_status *t)
{
    json_open(j, '{');
    json_uint_field(j, "id", t->slot);
    json_text_field(j, "model", s->models->items[t->model].id);
    json_text_field(j, "device",
                    device_list_at(s->options.devices, s->options.device_indices[worker])->name);
    json_text_field(j, "state",
                    !t->busy                       ? "idle"
                    : t->n_evaluated < t->n_prompt ? "prefill"
                                                   : "decode");
    json_bool_field(j, "is_processing", t->busy);
    json_uint_field(j, "job", t->job);
    json_uint_field(j, "n_ctx", s->models->items[t->model].n_ctx);
    json_uint_field(j, "n_timeline", t->n_timeline);
    if (t->busy) {
        json_uint_field(j, "prompt_n", t->n_prompt);
        json_uint_field(j, "evaluated_n", t->n_evaluated);
        json_uint_field(j, "cache_n", t->n_cached);
        json_uint_field(j, "predicted_n", t->n_predicted);
        if (s->config->show_prompts)
            put_prompt(j, s, t->job);
    }
    json_close(j, '}');
}

void info_slots(struct service *s, struct exchange *x)
{
    struct slot_status slots[SLOTS_SHOWN];
    struct strbuf body;
    strbuf_init(&body, REPLY_CEILING_BYTES);
    struct json j = json_begin(&body);
    json_open(&j, '[');
    for (uint32_t i = 0; i < s->n_workers; i++) {
        uint32_t n = worker_slots(s->workers[i], slots, SLOTS_SHOWN);
        for (uint32_t k = 0; k < n; k++)
            put_slot(&j, s, i, &slots[k]);
    }
    json_close(&j, ']');
    reply(s, x, 200, &body);
}

/* ---- /metrics ---- */

static void put_gauge(struct strbuf *out, const char *name, const char *help, double value)
{
    metrics_put_family(out, name, "gauge", help);
    metrics_put_value(out, name, NULL, NULL, value);
}

/* One family with a value for each device. */
static void put_per_device(struct strbuf *out, struct service *s, const char *name,
                           const char *type, const char *help,
                           double (*value)(const struct worker_status *status))
{
    metrics_put_family(out, name, type, help);
    for (uint32_t i = 0; i < s->n_workers; i++) {
        struct worker_status status;
        char label[16];
        worker_status(s->workers[i], &status);
        snprintf(label, sizeof label, "%u", s->options.device_indices[i]);
        metrics_put_value(out, name, "device", label, value(&status));
    }
}

static double is_ready(const struct worker_status *status)
{
    return status->state == WORKER_READY;
}

static double step_count(const struct worker_status *status)
{
    return (double)status->n_steps;
}

static double loss_count(const struct worker_status *status)
{
    return status->n_losses;
}

static double step_age_s(const struct worker_status *status)
{
    return age_ms(status->step_ns) / 1e3;
}

static double memory_used(const struct worker_status *status)
{
    return (double)status->memory.used_bytes;
}

static uint32_t busy_slots(struct service *s)
{
    struct slot_status slots[SLOTS_SHOWN];
    uint32_t busy = 0;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        uint32_t n = worker_slots(s->workers[i], slots, SLOTS_SHOWN);
        for (uint32_t k = 0; k < n; k++)
            busy += slots[k].busy;
    }
    return busy;
}

void info_metrics(struct service *s, struct exchange *x)
{
    struct strbuf body;
    strbuf_init(&body, REPLY_CEILING_BYTES);
    struct scheduler_counts counts = scheduler_counts(s->scheduler);
    metrics_put_all(&body, &s->metrics);
    put_gauge(&body, "oinfer_queue_jobs", "Requests that wait for a worker.",
              counts.preparing + counts.queued);
    put_gauge(&body, "oinfer_running_jobs", "Requests that a worker has.", counts.running);
    put_gauge(&body, "oinfer_busy_slots", "Slots with a sequence.", busy_slots(s));
    put_gauge(&body, "oinfer_connections", "Open connections.", http_connections(s->http));
    put_gauge(&body, "oinfer_resident_memory_bytes", "Resident memory of the process.",
              (double)mem_resident_bytes());
    put_per_device(&body, s, "oinfer_device_ready", "gauge", "1: the device serves.", is_ready);
    put_per_device(&body, s, "oinfer_device_steps_total", "counter", "Steps of the engine.",
                   step_count);
    put_per_device(&body, s, "oinfer_device_losses_total", "counter",
                   "Times that the device was lost and opened again.", loss_count);
    put_per_device(&body, s, "oinfer_device_step_age_seconds", "gauge",
                   "Time since the engine's last sign of progress.", step_age_s);
    put_per_device(&body, s, "oinfer_device_memory_bytes", "gauge", "Device memory in buffers.",
                   memory_used);
    metrics_put_family(&body, "oinfer_build_info", "gauge", "Version of the daemon.");
    metrics_put_value(&body, "oinfer_build_info", "version", OINFER_VERSION, 1);
    route_reply(s, x, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0, &body);
}

/* ---- /v1/ops ---- */

void info_ops(struct service *s, struct exchange *x)
{
    struct ops_device devices[WORKERS_MAX];
    uint32_t n = 0;
    struct strbuf body;
    strbuf_init(&body, REPLY_CEILING_BYTES);
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const struct worker_facts *facts = worker_facts(s->workers[i]);
        if (facts != NULL)
            devices[n++] = (struct ops_device){&facts->device, facts->caps};
    }
    ops_catalogue_json(&body, devices, n, tunings_store(s->tunings));
    reply(s, x, 200, &body);
}

/* ---- /openapi.yaml ---- */

void info_openapi(struct service *s, struct exchange *x)
{
    struct strbuf body;
    strbuf_init(&body, REPLY_CEILING_BYTES);
    strbuf_append(&body, openapi_yaml, openapi_yaml_length);
    route_reply(s, x, 200, "application/yaml", NULL, 0, &body);
}
