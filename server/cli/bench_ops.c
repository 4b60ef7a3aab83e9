/* `oinfer bench ops`: operators measured here or on daemons elsewhere, boxes side by side. */
#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/log.h"
#include "server/cli/args.h"
#include "server/cli/box.h"
#include "server/cli/cli.h"
#include "server/ops/request.h"

#define MAX_VARIANTS 64
#define SHAPE_BYTES  256

/* What is run when no operator is named. */
static const struct {
    const char *op, *shape;
} tour[] = {
    {"matmul", "m=512,n=512,k=512"},
    {"conv2d", "c=64,h=56,w=56,o=64,kh=3,kw=3,pad=1"},
    {"softmax", "rows=512,len=4096"},
    {"argmax", "rows=512,len=4096"},
    {"gemv", "m=4096,k=4096,wtype=q4_0"},
    {"attention", "n_head=32,head_dim=128,n_kv=1024"},
    {"sparse_gemv", "m=4096,k=4096,density=0.1"},
    {"norm", "rows=512,len=4096"},
    {"rope", "n_tokens=512,n_head=32,head_dim=128"},
    {"elementwise", "fn=silu,n=4194304"},
};

struct bench_ops {
    const char *op, *shape, *dtype, *variant, *device, *format;
    uint32_t warmup, iterations;
    bool verify;
    struct arg_texts urls;
    struct box *boxes[ARG_MAX_TEXTS];
    uint32_t n_boxes, n_failed;
    cJSON *all; /* -o json: every answer */
};

/* ---- the body ---- */

/* Adds name=value, the value being a number, true, false or a word. */
static bool add_field(cJSON *body, const char *text, size_t n)
{
    char field[SHAPE_BYTES];
    snprintf(field, sizeof field, "%.*s", (int)n, text);
    char *value = strchr(field, '=');
    if (value == NULL || value == field || n >= sizeof field)
        return false;
    *value++ = '\0';
    char *end;
    const double number = strtod(value, &end);
    cJSON_DeleteItemFromObjectCaseSensitive(body, field);
    if (*value != '\0' && *end == '\0')
        return cJSON_AddNumberToObject(body, field, number) != NULL;
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        return cJSON_AddBoolToObject(body, field, value[0] == 't') != NULL;
    return cJSON_AddStringToObject(body, field, value) != NULL;
}

static cJSON *make_body(const struct bench_ops *b, const char *shape)
{
    cJSON *body = cJSON_CreateObject();
    cJSON_AddNumberToObject(body, "warmup", b->warmup);
    cJSON_AddNumberToObject(body, "iterations", b->iterations);
    cJSON_AddBoolToObject(body, "verify", b->verify);
    cJSON_AddStringToObject(body, "variant", b->variant);
    if (b->dtype != NULL)
        cJSON_AddStringToObject(body, "dtype", b->dtype);
    for (const char *at = shape; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        if (!add_field(body, at, n)) {
            fprintf(stderr, "oinfer bench ops: --shape: \"%.*s\" is not name=value\n", (int)n, at);
            cJSON_Delete(body);
            return NULL;
        }
        at += n + (at[n] == ',');
    }
    return body;
}

/* ---- reading answers ---- */

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static const char *text_of(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text != NULL ? text : "";
}

static const cJSON *find_row(const cJSON *result, const char *variant)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(
                                result, "results")) if (strcmp(text_of(row, "variant"), variant) ==
                                                        0) return row;
    return NULL;
}

/* "", "pass" or "FAIL" of a row. */
static const char *verdict(const cJSON *row)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(row, "verification");
    if (!cJSON_IsObject(v))
        return "";
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(v, "pass")) ? "pass" : "FAIL";
}

/* The variants of all answers, in order of appearance. */
static uint32_t list_variants(const struct box_answer *answers, uint32_t n,
                              const char *out[MAX_VARIANTS])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        const cJSON *row;
        cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(answers[i].result, "results"))
        {
            uint32_t k = 0;
            while (k < count && strcmp(out[k], text_of(row, "variant")) != 0)
                k++;
            if (k == count && count < MAX_VARIANTS)
                out[count++] = text_of(row, "variant");
        }
    }
    return count;
}

static const char *device_of(const cJSON *result)
{
    return text_of(cJSON_GetObjectItemCaseSensitive(result, "device"), "name");
}

/* ---- tables ---- */

static void print_md(const struct bench_ops *b, const char *op, const char *shape,
                     const struct box_answer *answers)
{
    const char *variants[MAX_VARIANTS];
    const uint32_t n = list_variants(answers, b->n_boxes, variants);
    printf("\n%s %s\n\n", op, shape);
    for (uint32_t i = 0; i < b->n_boxes; i++) {
        if (answers[i].result != NULL)
            printf("%u: %s, %s, driver %s; queue %.1f ms\n", i + 1, box_name(b->boxes[i]),
                   device_of(answers[i].result),
                   text_of(cJSON_GetObjectItemCaseSensitive(answers[i].result, "device"), "driver"),
                   number_of(cJSON_GetObjectItemCaseSensitive(answers[i].result, "timings"),
                             "queue_ms"));
        else
            printf("%u: %s: %s\n", i + 1, box_name(b->boxes[i]), answers[i].error.text);
    }
    if (n == 0)
        return;
    printf("\n| variant |");
    for (uint32_t i = 0; i < b->n_boxes; i++)
        printf(" %u: us | GFLOP/s | GB/s | of peak | x naive |%s", i + 1,
               b->verify ? " check |" : "");
    printf("\n|---|");
    for (uint32_t i = 0; i < b->n_boxes; i++)
        printf("---:|---:|---:|---:|---:|%s", b->verify ? "---|" : "");
    printf("\n");
    for (uint32_t k = 0; k < n; k++) {
        printf("| %s |", variants[k]);
        for (uint32_t i = 0; i < b->n_boxes; i++) {
            const cJSON *row = find_row(answers[i].result, variants[k]);
            const double us =
                number_of(cJSON_GetObjectItemCaseSensitive(row, "kernel_ns"), "median") / 1e3;
            const double flops = number_of(row, "share_of_peak_flops");
            const double bandwidth = number_of(row, "share_of_peak_bandwidth");
            const double speedup = number_of(row, "speedup_over_naive");
            if (us > 0)
                printf(" %.1f | %.1f | %.1f | %.0f %% |", us, number_of(row, "gflop_s"),
                       number_of(row, "gb_s"), 100 * (flops > bandwidth ? flops : bandwidth));
            if (us > 0 && speedup > 0)
                printf(" %.2f |", speedup);
            else if (us > 0)
                printf(" |");
            else
                printf(" %s | | | | |", row != NULL ? text_of(row, "status") : "-");
            if (b->verify)
                printf(" %s |", verdict(row));
        }
        printf("\n");
    }
}

static void print_csv(const struct bench_ops *b, const char *op, const char *shape,
                      const struct box_answer *answers, bool first)
{
    if (first)
        printf("box,device,op,shape,variant,params,status,median_us,min_us,p95_us,host_median_us,"
               "gflop_s,gb_s,share_of_peak_flops,share_of_peak_bandwidth,speedup_over_naive,check,"
               "queue_ms\n");
    for (uint32_t i = 0; i < b->n_boxes; i++) {
        const cJSON *result = answers[i].result, *row;
        if (result == NULL)
            printf("\"%s\",,%s,\"%s\",,,\"%s\",,,,,,,,,,,\n", box_name(b->boxes[i]), op, shape,
                   answers[i].error.text);
        cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(result, "results"))
        {
            const cJSON *kernel = cJSON_GetObjectItemCaseSensitive(row, "kernel_ns"), *p;
            printf("\"%s\",\"%s\",%s,\"%s\",%s,\"", box_name(b->boxes[i]), device_of(result), op,
                   shape, text_of(row, "variant"));
            cJSON_ArrayForEach(p, cJSON_GetObjectItemCaseSensitive(row, "params"))
                printf("%s%s=%.0f", p->prev != NULL && p->prev->next != NULL ? " " : "", p->string,
                       p->valuedouble);
            printf("\",%s,%.3f,%.3f,%.3f,%.3f,%.6g,%.6g,%.4g,%.4g,%.4g,%s,%.3f\n",
                   text_of(row, "status"), number_of(kernel, "median") / 1e3,
                   number_of(kernel, "min") / 1e3, number_of(kernel, "p95") / 1e3,
                   number_of(cJSON_GetObjectItemCaseSensitive(row, "host_ns"), "median") / 1e3,
                   number_of(row, "gflop_s"), number_of(row, "gb_s"),
                   number_of(row, "share_of_peak_flops"), number_of(row, "share_of_peak_bandwidth"),
                   number_of(row, "speedup_over_naive"), verdict(row),
                   number_of(cJSON_GetObjectItemCaseSensitive(result, "timings"), "queue_ms"));
        }
    }
}

/* Keeps the answers for the list at the end; what could not be had is an error in it. */
static void keep_json(struct bench_ops *b, const char *op, struct box_answer *answers)
{
    for (uint32_t i = 0; i < b->n_boxes; i++) {
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddStringToObject(entry, "box", box_name(b->boxes[i]));
        cJSON_AddStringToObject(entry, "op", op);
        if (answers[i].result != NULL)
            cJSON_AddItemToObject(entry, "result", answers[i].result);
        else
            cJSON_AddStringToObject(entry, "error", answers[i].error.text);
        answers[i].result = NULL;
        cJSON_AddItemToArray(b->all, entry);
    }
}

/* ---- the command ---- */

static bool run_op(struct bench_ops *b, const char *op, const char *shape, bool first)
{
    struct box_answer answers[ARG_MAX_TEXTS];
    cJSON *body = make_body(b, shape);
    if (body == NULL)
        return false;
    boxes_run(b->boxes, b->n_boxes, op, body, answers);
    for (uint32_t i = 0; i < b->n_boxes; i++) {
        b->n_failed += answers[i].result == NULL;
        const cJSON *row;
        cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(answers[i].result, "results"))
            b->n_failed += strcmp(verdict(row), "FAIL") == 0;
    }
    if (strcmp(b->format, "csv") == 0)
        print_csv(b, op, shape, answers, first);
    else if (strcmp(b->format, "json") == 0)
        keep_json(b, op, answers);
    else
        print_md(b, op, shape, answers);
    fflush(stdout);
    for (uint32_t i = 0; i < b->n_boxes; i++)
        box_answer_free(&answers[i]);
    cJSON_Delete(body);
    return true;
}

static bool open_boxes(struct bench_ops *b)
{
    static const char *const local[] = {BOX_LOCAL};
    const char *const *urls = b->urls.count > 0 ? b->urls.items : local;
    const uint32_t n = b->urls.count > 0 ? b->urls.count : 1;
    struct err e;
    for (uint32_t i = 0; i < n; i++) {
        if (box_open(urls[i], b->device, &b->boxes[i], &e) != ST_OK) {
            fprintf(stderr, "oinfer bench ops: %s\n", e.text);
            return false;
        }
        b->n_boxes++;
    }
    return true;
}

static int run_all(struct bench_ops *b)
{
    const size_t n_tour = sizeof tour / sizeof tour[0];
    bool ok = open_boxes(b);
    if (ok && b->op != NULL)
        ok = run_op(b, b->op, b->shape, true);
    for (size_t i = 0; ok && b->op == NULL && i < n_tour; i++)
        ok = run_op(b, tour[i].op, tour[i].shape, i == 0);
    if (ok && strcmp(b->format, "json") == 0) {
        char *text = cJSON_Print(b->all);
        printf("%s\n", text != NULL ? text : "[]");
        cJSON_free(text);
    }
    for (uint32_t i = 0; i < b->n_boxes; i++)
        box_close(b->boxes[i]);
    return ok && b->n_failed == 0 ? 0 : CLI_FAILED;
}

int cli_bench_ops(int argc, char **argv)
{
    struct bench_ops b = {
        .shape = "", .variant = "all", .device = "", .format = "md", .warmup = 3, .iterations = 20};
    const struct arg args[] = {
        {"--op", NULL, "NAME", ARG_TEXT, &b.op, false,
         "operator; each of them in one shape if none"},
        {"--shape", "-s", "K=V,..", ARG_TEXT, &b.shape, false, "its fields: m=1024,n=1024,k=1024"},
        {"--dtype", NULL, "DTYPE", ARG_TEXT, &b.dtype, false, "f32, f16; matmul: bf16"},
        {"--variant", NULL, "NAME", ARG_TEXT, &b.variant, false, "all (default), auto or a name"},
        {"--url", NULL, "URL", ARG_TEXTS, &b.urls, false,
         "daemon to ask, several times for several; \"local\": this machine (default)"},
        {"--device", NULL, "NAME", ARG_TEXT, &b.device, false, "index, part of a name, host"},
        {"--iterations", "-r", "N", ARG_COUNT, &b.iterations, false, "measured runs (20)"},
        {"--warmup", NULL, "N", ARG_COUNT, &b.warmup, false, "runs before them (3)"},
        {"--verify", NULL, NULL, ARG_FLAG, &b.verify, false, "compare with the reference"},
        {"-o", "--output", "FORMAT", ARG_TEXT, &b.format, false, "md, csv or json (md)"},
    };
    int done = args_parse("bench ops",
                          "Measures operators here or on daemons; keys come from OINFER_API_KEY.",
                          args, sizeof args / sizeof args[0], argc, argv);
    if (done >= 0)
        return done;
    if (strcmp(b.format, "md") != 0 && strcmp(b.format, "csv") != 0 &&
        strcmp(b.format, "json") != 0) {
        fprintf(stderr, "oinfer bench ops: -o is md, csv or json\n");
        return CLI_USAGE;
    }
    log_init(LOG_WARN, 0);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        fprintf(stderr, "oinfer bench ops: libcurl cannot be used\n");
        return CLI_FAILED;
    }
    b.all = cJSON_CreateArray();
    int code = run_all(&b);
    cJSON_Delete(b.all);
    curl_global_cleanup();
    return code;
}
