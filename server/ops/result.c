/* One JSON object a request; the figures of a variant that failed are left out, not zero. */
#include "server/ops/result.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "server/json.h"
#include "server/ops/npy.h"

static void put_stats(struct json *j, const char *key, const struct opbench_stats *s)
{
    json_key(j, key);
    json_open(j, '{');
    json_real_field(j, "min", s->min_ns);
    json_real_field(j, "median", s->median_ns);
    json_real_field(j, "p95", s->p95_ns);
    json_real_field(j, "mean", s->mean_ns);
    json_real_field(j, "stddev", s->stddev_ns);
    json_close(j, '}');
}

/* "ROWS=12 TOKENS=32" as an object. */
static void put_params(struct json *j, const char *settings)
{
    json_key(j, "params");
    json_open(j, '{');
    for (const char *at = settings; *at != '\0';) {
        const size_t n = strcspn(at, "=");
        if (at[n] != '=')
            break;
        char *end;
        json_text_n(j, at, n);
        json_colon(j);
        json_uint(j, strtoul(at + n + 1, &end, 10));
        at = end + strspn(end, " ");
    }
    json_close(j, '}');
}

static void put_verification(struct json *j, const struct opbench_row *row)
{
    json_key(j, "verification");
    if (!row->verified) {
        json_null(j);
        return;
    }
    json_open(j, '{');
    json_bool_field(j, "pass", row->pass);
    json_real_field(j, "max_abs", row->max_abs);
    json_real_field(j, "max_rel", row->max_rel);
    json_real_field(j, "nmse", row->nmse);
    if (row->reason[0] != '\0')
        json_text_field(j, "reason", row->reason);
    json_close(j, '}');
}

static void put_row(struct json *j, const struct opbench_row *row)
{
    json_open(j, '{');
    json_text_field(j, "variant", row->variant);
    put_params(j, row->settings);
    json_text_field(j, "status", row->status == ST_OK ? "ok" : status_name(row->status));
    if (row->status != ST_OK) {
        json_text_field(j, "error", row->reason);
        json_close(j, '}');
        return;
    }
    put_stats(j, "kernel_ns", &row->kernel);
    put_stats(j, "host_ns", &row->host);
    json_real_field(j, "gflop_s", row->gflop_s);
    json_real_field(j, "gb_s", row->gb_s);
    json_figure_field(j, "share_of_peak_flops", row->share_flops);
    json_figure_field(j, "share_of_peak_bandwidth", row->share_bandwidth);
    json_figure_field(j, "speedup_over_naive", row->speedup);
    put_verification(j, row);
    json_close(j, '}');
}

static void put_transfers(struct json *j, const struct opbench_transfers *t)
{
    json_key(j, "transfers");
    json_open(j, '{');
    json_uint_field(j, "upload_bytes", t->upload_bytes);
    json_real_field(j, "upload_ns", t->upload_ns);
    json_uint_field(j, "download_bytes", t->download_bytes);
    json_real_field(j, "download_ns", t->download_ns);
    json_key(j, "upload_beside_kernels");
    json_open(j, '{');
    json_real_field(j, "compute_busy_ns", t->compute_busy_ns);
    json_real_field(j, "transfer_busy_ns", t->transfer_busy_ns);
    json_real_field(j, "overlap_ns", t->overlap_ns);
    json_close(j, '}');
    json_close(j, '}');
}

static void put_shape(struct json *j, const struct op_array *x)
{
    json_open(j, '[');
    for (uint32_t i = 0; i < x->n_dims; i++)
        json_uint(j, x->dims[i]);
    json_close(j, ']');
}

static void put_arrays(struct json *j, const struct op_request *r)
{
    json_key(j, "inputs");
    json_open(j, '{');
    for (uint32_t i = 0; i < r->n_inputs; i++) {
        const struct op_array *x = &r->inputs[i];
        json_key(j, x->name);
        json_open(j, '{');
        json_key(j, "shape");
        if (x->dims[0] > 0)
            put_shape(j, x);
        else
            json_null(j); /* as long as the generator made it */
        json_bool_field(j, "generated", r->bench.data.inputs[x->tensor] == NULL);
        json_close(j, '}');
    }
    json_close(j, '}');
}

static void put_device(struct json *j, const struct device_info *d,
                       const struct device_peaks *peaks)
{
    json_key(j, "device");
    json_open(j, '{');
    json_uint_field(j, "index", d->index);
    json_text_field(j, "kind", device_kind_name(d->kind));
    json_text_field(j, "name", d->name);
    json_text_field(j, "vendor", d->vendor);
    json_text_field(j, "platform", d->platform);
    json_text_field(j, "driver", d->driver);
    json_text_field(j, "version", d->version);
    json_key(j, "peaks");
    json_open(j, '{');
    json_real_field(j, "read_gb_s", peaks->read_gb_s);
    json_real_field(j, "copy_gb_s", peaks->copy_gb_s);
    json_real_field(j, "f32_gflop_s", peaks->f32_gflop_s);
    json_close(j, '}');
    json_close(j, '}');
}

/* ---- the output ---- */

static uint32_t element_bytes(enum dtype dtype)
{
    return dtype == DT_F16 || dtype == DT_BF16 ? 2 : 4;
}

/* First byte of the output within what the engine gave; NULL: it gave none. */
static const char *output_start(const struct op_request *r, const struct opbench_result *result)
{
    const struct op_output *o = &r->output;
    const uint64_t n = op_array_count(&o->array);
    const uint64_t rows = o->width > 0 ? n / o->width : 0;
    const uint64_t span =
        rows > 0 ? ((rows - 1) * o->stride + o->width) * element_bytes(o->dtype) : 0;
    if (result->output == NULL || span == 0 || span > result->output_bytes)
        return NULL;
    return (const char *)result->output + (o->last ? result->output_bytes - span : 0);
}

static const char *element_at(const struct op_output *o, const char *start, uint64_t i)
{
    return start + (i / o->width * o->stride + i % o->width) * element_bytes(o->dtype);
}

static void put_element(struct json *j, enum dtype dtype, const char *at)
{
    if (dtype == DT_I32) {
        int32_t v;
        memcpy(&v, at, sizeof v);
        json_int(j, v);
    } else if (dtype == DT_F16) {
        uint16_t v;
        memcpy(&v, at, sizeof v);
        json_real(j, (double)half_to_float(v), 9);
    } else if (dtype == DT_BF16) {
        uint16_t v;
        memcpy(&v, at, sizeof v);
        json_real(j, (double)bf16_to_float(v), 9);
    } else {
        float v;
        memcpy(&v, at, sizeof v);
        json_real(j, (double)v, 9);
    }
}

static void put_output(struct json *j, const struct op_request *r,
                       const struct opbench_result *result)
{
    const struct op_output *o = &r->output;
    const char *start = output_start(r, result);
    json_key(j, "output");
    if (start == NULL) {
        json_null(j);
        return;
    }
    json_open(j, '{');
    json_text_field(j, "name", o->array.name);
    json_text_field(j, "variant", result->rows[result->output_row].variant);
    json_key(j, "shape");
    put_shape(j, &o->array);
    json_text_field(j, "dtype", dtype_name(o->dtype));
    json_key(j, "data");
    json_open(j, '[');
    const uint64_t n = op_array_count(&o->array);
    for (uint64_t i = 0; i < n; i++)
        put_element(j, o->dtype, element_at(o, start, i));
    json_close(j, ']');
    json_close(j, '}');
}

enum status op_result_check(const struct op_request *r, bool npy, struct fault *f)
{
    const struct op_array *x = &r->output.array;
    double n = 1; /* the product of unchecked dimensions */
    for (uint32_t i = 0; i < x->n_dims; i++)
        n *= (double)x->dims[i];
    if (npy || !r->bench.return_output || n <= (double)OPS_MAX_JSON_OUTPUT)
        return ST_OK;
    return fault_set(f, FAULT_BAD_REQUEST, "return_output",
                     "return_output: %.0f elements, the most in JSON is %" PRIu64
                     "; ask for Accept: application/x-npy",
                     n, OPS_MAX_JSON_OUTPUT);
}

void op_result_npy(struct strbuf *out, const struct op_request *r,
                   const struct opbench_result *result)
{
    const struct op_output *o = &r->output;
    const char *start = output_start(r, result);
    const uint64_t n = start != NULL ? op_array_count(&o->array) : 0;
    const bool widens = o->dtype == DT_BF16; /* npy has no such numbers */
    npy_write_header(out, widens ? DT_F32 : o->dtype, o->array.n_dims, o->array.dims);
    for (uint64_t i = 0; widens && i < n; i++) {
        uint16_t v;
        memcpy(&v, element_at(o, start, i), sizeof v);
        const float wide = bf16_to_float(v);
        strbuf_append(out, (const char *)&wide, sizeof wide);
    }
    for (uint64_t i = 0; !widens && i < n; i += o->width)
        strbuf_append(out, element_at(o, start, i), (size_t)o->width * element_bytes(o->dtype));
}

/* ---- all of it ---- */

void op_result_json(struct strbuf *out, const struct op_request *r,
                    const struct opbench_result *result, const struct op_run *run)
{
    struct json j = json_begin(out);
    json_open(&j, '{');
    json_text_field(&j, "op", api_op_name(r->op));
    json_text_field(&j, "dtype", dtype_name(r->bench.dtype));
    json_uint_field(&j, "seed", r->bench.data.seed);
    json_uint_field(&j, "warmup", r->bench.warmup);
    json_uint_field(&j, "iterations", r->bench.iterations);
    put_arrays(&j, r);
    json_uint_field(&j, "bytes", result->bytes);
    json_uint_field(&j, "flops", result->flops);
    put_device(&j, run->device, &result->peaks);
    json_key(&j, "results");
    json_open(&j, '[');
    for (uint32_t i = 0; i < result->n_rows; i++)
        put_row(&j, &result->rows[i]);
    json_close(&j, ']');
    put_transfers(&j, &result->transfers);
    if (r->bench.return_output)
        put_output(&j, r, result);
    json_key(&j, "timings");
    json_open(&j, '{');
    json_real_field(&j, "queue_ms", (double)run->queue_ns / 1e6);
    json_real_field(&j, "run_ms", (double)run->run_ns / 1e6);
    json_real_field(&j, "estimate_ms", result->estimate_ns / 1e6);
    json_text_field(&j, "device", run->device->name);
    json_close(&j, '}');
    json_close(&j, '}');
}
