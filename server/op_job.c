/* Operators as jobs. */
#include "server/op_job.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "server/ops/multipart.h"
#include "server/ops/result.h"
#include "server/route.h"
#include "server/service.h"

#define NPY_TYPE "application/x-npy"

struct op_job *op_job_open(enum api_op op, const char *content_type, const char *accept)
{
    struct op_job *o = mem_zalloc(sizeof *o);
    if (o == NULL)
        return NULL;
    o->op = op;
    o->wants_npy = accept != NULL && strncasecmp(accept, NPY_TYPE, sizeof NPY_TYPE - 1) == 0;
    if (!multipart_is(content_type))
        return o;
    o->content_type = mem_strdup(content_type);
    if (o->content_type == NULL) {
        mem_free(o);
        return NULL;
    }
    return o;
}

void op_job_close(struct op_job *o)
{
    if (o == NULL)
        return;
    opbench_close(&o->result);
    op_request_close(o->request);
    mem_free(o->content_type);
    mem_free(o);
}

/* ---- preparing ---- */

/* Splits a multipart body: the part "request" is the JSON, the others are inputs. */
static enum status parse_parts(struct op_job *o, const char *body, size_t n, uint64_t deadline_ms,
                               struct fault *f)
{
    struct multipart m;
    struct op_part parts[MULTIPART_MAX_PARTS];
    const char *json = NULL;
    size_t json_bytes = 0;
    uint32_t n_parts = 0;
    struct err e;
    enum status status = multipart_parse(o->content_type, body, n, &m, &e);
    if (status != ST_OK)
        return fault_set(f, FAULT_BAD_REQUEST, NULL, "%s", e.text);
    for (uint32_t i = 0; i < m.count; i++) {
        const struct multipart_part *part = &m.parts[i];
        if (strcmp(part->name, "request") != 0) {
            parts[n_parts++] = (struct op_part){part->name, part->bytes, part->n};
        } else if (json != NULL) {
            return fault_set(f, FAULT_BAD_REQUEST, NULL, "multipart: \"request\" is given twice");
        } else {
            json = part->bytes;
            json_bytes = part->n;
        }
    }
    return op_request_parse(o->op, json != NULL ? json : "", json_bytes, parts, n_parts,
                            deadline_ms, &o->request, f);
}

/* The worker of the device that the request names. */
static enum status find_worker(struct job *j, struct fault *f)
{
    const struct service_options *options = &j->service->options;
    const char *wanted = j->op->request->fields.common_device;
    uint32_t indices[WORKERS_MAX], n = WORKERS_MAX;
    struct err e;
    j->wanted_worker = JOB_ANY_WORKER;
    if (wanted == NULL)
        return ST_OK;
    if (device_select(options->devices, wanted, indices, &n, &e) != ST_OK)
        return fault_set(f, FAULT_BAD_REQUEST, "device", "%s", e.text);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t w = 0; w < options->n_devices; w++)
            if (options->device_indices[w] == indices[i]) {
                j->wanted_worker = w;
                return ST_OK;
            }
    return fault_set(f, FAULT_BAD_REQUEST, "device",
                     "device \"%.60s\" is not in use here; in use: %u device%s, the first is %s",
                     wanted, options->n_devices, options->n_devices == 1 ? "" : "s",
                     device_list_at(options->devices, options->device_indices[0])->name);
}

enum status op_job_prepare(struct job *j, const char *body, size_t n)
{
    struct op_job *o = j->op;
    struct fault f;
    const uint64_t deadline_ms = j->limits.deadline_ms;
    enum status status = o->content_type != NULL ? parse_parts(o, body, n, deadline_ms, &f)
                                                 : op_request_parse(o->op, body, n, NULL, 0,
                                                                    deadline_ms, &o->request, &f);
    if (status == ST_OK && o->wants_npy)
        o->request->bench.return_output = true;
    if (status == ST_OK)
        status = op_result_check(o->request, o->wants_npy, &f);
    if (status == ST_OK)
        status = find_worker(j, &f);
    if (status != ST_OK) {
        job_fail(j, &f);
        return status;
    }
    j->deadline_ns =
        j->timings.arrived_ns + (uint64_t)o->request->fields.common_deadline_ms * UINT64_C(1000000);
    return ST_OK;
}

/* ---- running ---- */

struct watch {
    const struct job *job;
    const struct op_job_host *host;
};

static bool proceed(void *user, double next_ns)
{
    const struct watch *w = user;
    return !job_is_cancelled(w->job) && clock_now_ns() < w->job->deadline_ns &&
           w->host->proceed(w->host->user, next_ns);
}

enum status op_job_run(struct job *j, struct device *d, const struct op_job_host *host,
                       struct err *e)
{
    struct op_job *o = j->op;
    struct watch watch = {.job = j, .host = host};
    struct fault f;
    const uint64_t start_ns = clock_now_ns();
    j->timings.started_ns = start_ns;
    o->device = *device_info(d);
    struct opbench_request request = o->request->bench;
    request.max_bytes = j->limits.matrix_bytes;
    request.proceed = proceed;
    request.user = &watch;
    request.deadline_ns = j->deadline_ns > start_ns ? j->deadline_ns - start_ns : 1;
    enum status status = opbench_run(d, &request, &o->result, e);
    j->timings.ended_ns = clock_now_ns();
    o->run_ns = j->timings.ended_ns - start_ns;
    if (status == ST_OK)
        return ST_OK;
    if (status == ST_CANCELLED && !job_is_cancelled(j) && j->timings.ended_ns >= j->deadline_ns)
        fault_set(&f, FAULT_ESTIMATE, "deadline_ms",
                  "it was not done after %.0f ms, the deadline; the estimate was %.0f ms",
                  (double)(j->timings.ended_ns - j->timings.arrived_ns) / 1e6,
                  o->result.estimate_ns / 1e6);
    else
        op_request_fault(o->request, e, &f);
    job_fail(j, &f);
    return status == ST_DEVICE_LOST ? status : ST_OK;
}

/* ---- the reply ---- */

const char *op_job_reply(const struct job *j, struct strbuf *out)
{
    const struct op_job *o = j->op;
    if (o->wants_npy) {
        op_result_npy(out, o->request, &o->result);
        return NPY_TYPE;
    }
    const struct op_run run = {.device = &o->device,
                               .queue_ns = j->timings.started_ns - j->timings.arrived_ns,
                               .run_ns = o->run_ns};
    op_result_json(out, o->request, &o->result, &run);
    return ROUTE_JSON;
}
