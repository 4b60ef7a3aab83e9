/* `oinfer bench seeds`: what is claimed elsewhere of well-known optimisations, measured here:
 * claim, ours, ratio.
 *
 * Each row compares the time of one thing with that of another on the same device; times are
 * medians of the device's own clock. A row that the device has no variant for says so.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "server/cli/args.h"
#include "server/cli/box.h"
#include "server/cli/cli.h"

#define TRIPLE_N    2000u
#define TRIPLE_ROWS 200u  /* of them are computed */
#define SLOW_NS     0.5e9 /* what takes so long is not run more than once after the warm-up */
#define MAX_NAMES   64
#define NAME_BYTES  32
#define BODY_BYTES  512

struct seeds {
    struct box *box;
    uint32_t iterations;
    const char *format;
    cJSON *rows;
};

/* ---- measuring ---- */

/* The answer to a request of so many runs; NULL: it could not be run, *why says so. */
static cJSON *ask(const struct seeds *s, const char *op, const char *fields, uint32_t iterations,
                  char *why, size_t n)
{
    char text[BODY_BYTES];
    struct box_answer answer;
    snprintf(text, sizeof text, "{\"iterations\":%u,\"warmup\":1,%s}", iterations, fields);
    cJSON *body = cJSON_Parse(text);
    boxes_run(&s->box, 1, op, body, &answer);
    cJSON_Delete(body);
    if (answer.result == NULL)
        snprintf(why, n, "%s", answer.error.text);
    return answer.result;
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static const cJSON *row_of(const cJSON *result, const char *variant)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(result, "results"))
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "variant"));
        if (variant == NULL || (name != NULL && strcmp(name, variant) == 0))
            return row;
    }
    return NULL;
}

static double median_ns(const cJSON *row)
{
    return number_of(cJSON_GetObjectItemCaseSensitive(row, "kernel_ns"), "median");
}

/* Median of the first row of a request; 0: it could not be run. */
static double time_of(const struct seeds *s, const char *op, const char *fields, char *why,
                      size_t n)
{
    cJSON *result = ask(s, op, fields, 1, why, n);
    double ns = median_ns(row_of(result, NULL));
    cJSON_Delete(result);
    if (ns > 0 && ns < SLOW_NS) {
        result = ask(s, op, fields, s->iterations, why, n);
        ns = median_ns(row_of(result, NULL));
        cJSON_Delete(result);
    }
    return ns;
}

/* Every variant of an operator on one shape. */
struct variants {
    char names[MAX_NAMES][NAME_BYTES];
    double ns[MAX_NAMES]; /* 0: it cannot run this */
    uint32_t n;
    double naive_ns, read_gb_s; /* the device's peak; 0: not known */
    char why[ERR_TEXT_BYTES];   /* n is 0 */
};

static void measure_variants(const struct seeds *s, const char *op, const char *shape,
                             struct variants *out)
{
    char fields[BODY_BYTES / 2];
    const cJSON *row;
    *out = (struct variants){.n = 0};
    snprintf(fields, sizeof fields, "%s,\"variant\":\"all\"", shape);
    cJSON *all = ask(s, op, fields, 1, out->why, sizeof out->why);
    const cJSON *device = cJSON_GetObjectItemCaseSensitive(all, "device");
    out->read_gb_s = number_of(cJSON_GetObjectItemCaseSensitive(device, "peaks"), "read_gb_s");
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(all, "results"))
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "variant"));
        double ns = median_ns(row);
        if (name == NULL || ns <= 0 || out->n == MAX_NAMES)
            continue;
        snprintf(fields, sizeof fields, "%s,\"variant\":\"%.31s\"", shape, name);
        if (ns < SLOW_NS)
            ns = time_of(s, op, fields, out->why, sizeof out->why);
        snprintf(out->names[out->n], NAME_BYTES, "%s", name);
        out->ns[out->n++] = ns;
        if (strcmp(name, "naive") == 0)
            out->naive_ns = ns;
    }
    cJSON_Delete(all);
}

/* How many times naive's speed the best variant has whose name begins so; 0: none. */
static double speedup_of(const struct variants *v, const char *prefix)
{
    double best = 0;
    for (uint32_t i = 0; i < v->n; i++)
        if (strncmp(v->names[i], prefix, strlen(prefix)) == 0 && v->ns[i] > 0)
            best = fmax(best, v->naive_ns / v->ns[i]);
    return best;
}

/* ---- rows ---- */

/* Prints a row: ours is how many times faster (or a share); 0: not measured, `why` says it. claim
 * 0: nothing is claimed. */
static void put_row(struct seeds *s, const char *what, double claim, double ours, const char *unit,
                    const char *why)
{
    if (strcmp(s->format, "json") == 0) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "what", what);
        if (claim > 0)
            cJSON_AddNumberToObject(row, "claim", claim);
        if (ours > 0)
            cJSON_AddNumberToObject(row, "ours", ours);
        if (ours > 0 && claim > 0)
            cJSON_AddNumberToObject(row, "ratio", ours / claim);
        if (ours <= 0)
            cJSON_AddStringToObject(row, "not_measured", why);
        cJSON_AddStringToObject(row, "unit", unit);
        cJSON_AddItemToArray(s->rows, row);
        return;
    }
    const bool csv = strcmp(s->format, "csv") == 0;
    if (ours > 0 && claim <= 0)
        printf(csv ? "\"%s\",,%.2f,,%s\n" : "| %s | | %.2f | | %s |\n", what, ours, unit);
    else if (ours > 0)
        printf(csv ? "\"%s\",%.2f,%.2f,%.2f,%s\n" : "| %s | %.2f | %.2f | %.2f | %s |\n", what,
               claim, ours, ours / claim, unit);
    else
        printf(csv ? "\"%s\",%.2f,,,\"%s\"\n" : "| %s | %.2f | | | %s |\n", what, claim, why);
    fflush(stdout);
}

static const char *why_not(const struct variants *v)
{
    return v->n > 0 ? "no such variant here" : v->why;
}

/* What the work-group size of a variant alone gains over its default; `fields` names both. */
static void put_sizes(struct seeds *s, const char *what, double claim, const char *op,
                      const char *fields, uint32_t standard_lws)
{
    char why[ERR_TEXT_BYTES] = "", unit[32];
    double standard = 0, best = 0;
    for (uint32_t lws = 32; lws <= 256; lws *= 2) {
        char body[BODY_BYTES / 2];
        snprintf(body, sizeof body, "%s,\"params\":{\"LWS\":%u}", fields, lws);
        const double ns = time_of(s, op, body, why, sizeof why);
        standard = lws == standard_lws ? ns : standard;
        best = ns > 0 && (best <= 0 || ns < best) ? ns : best;
    }
    snprintf(unit, sizeof unit, "x %u items", standard_lws);
    put_row(s, what, claim, best > 0 ? standard / best : 0, unit, why);
}

static void matmul_variants(struct seeds *s)
{
    const char *shape = "\"m\":1024,\"n\":1024,\"k\":1024";
    struct variants v;
    measure_variants(s, "matmul", shape, &v);
    put_row(s, "matmul 1024 f32, the best variant", 8.9, speedup_of(&v, ""), "x naive",
            why_not(&v));
    put_row(s, "matmul 1024 f32, subgroup", 3.6, speedup_of(&v, "subgroup"), "x naive",
            why_not(&v));
    put_row(s, "matmul 1024 f32, vectorised (vec4, vec8)", 5.4, speedup_of(&v, "vec"), "x naive",
            why_not(&v));
    for (uint32_t i = 0; i < v.n; i++) {
        char what[64];
        snprintf(what, sizeof what, "matmul 1024 f32, %s", v.names[i]);
        if (v.ns[i] > 0)
            put_row(s, what, 0, v.naive_ns / v.ns[i], "x naive", "");
    }
    put_sizes(s, "matmul 1024 f32, work-group size of naive alone", 1.23, "matmul",
              "\"m\":1024,\"n\":1024,\"k\":1024,\"variant\":\"naive\"", 64);
}

/* C = A B, the way it is first written: three loops on one core. Seconds, of some rows times their
 * share, as all cost the same; 0: no memory. */
static double triple_loop_s(void)
{
    const size_t n = TRIPLE_N;
    float *a = mem_array(3 * n * n, sizeof *a);
    if (a == NULL)
        return 0;
    float *b = a + n * n, *c = b + n * n;
    for (size_t i = 0; i < 2 * n * n; i++)
        a[i] = data_value(0, 0, (uint32_t)i);
    const uint64_t start_ns = clock_now_ns();
    for (size_t i = 0; i < TRIPLE_ROWS; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = 0;
            for (size_t k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
    volatile float seen = c[n + 1]; /* so that it is not left out */
    (void)seen;
    const double seconds = (double)(clock_now_ns() - start_ns) / 1e9;
    mem_free(a);
    return seconds * TRIPLE_N / TRIPLE_ROWS;
}

static void matmul_against_c(struct seeds *s)
{
    char why[ERR_TEXT_BYTES] = "";
    const double ns = time_of(s, "matmul", "\"m\":2000,\"n\":2000,\"k\":2000,\"variant\":\"auto\"",
                              why, sizeof why);
    put_row(s, "matmul 2000 f32 against three C loops on one core", 200,
            ns > 0 ? triple_loop_s() * 1e9 / ns : 0, "x", why);
}

static void argmax_variants(struct seeds *s)
{
    struct variants v;
    measure_variants(s, "argmax", "\"rows\":1,\"len\":16777216", &v);
    const double two_stage = speedup_of(&v, "two_stage");
    put_row(s, "argmax of 2^24, tree", 3.9, speedup_of(&v, "tree"), "x naive", why_not(&v));
    put_row(s, "argmax of 2^24, two_stage", 6.9, two_stage, "x naive", why_not(&v));
    const double gb_s = v.naive_ns > 0 ? 4 * 16777216.0 * speedup_of(&v, "") / v.naive_ns : 0;
    put_row(s, "argmax of 2^24, the best variant, share of the read bandwidth", 0.92,
            v.read_gb_s > 0 ? gb_s / v.read_gb_s : 0, "of measured", why_not(&v));
}

static void softmax_storage(struct seeds *s)
{
    char why[ERR_TEXT_BYTES] = "";
    const double wide =
        time_of(s, "softmax", "\"rows\":1024,\"len\":8192,\"dtype\":\"f32\"", why, sizeof why);
    const double half =
        time_of(s, "softmax", "\"rows\":1024,\"len\":8192,\"dtype\":\"f16\"", why, sizeof why);
    put_row(s, "softmax 1024 x 8192, f16 storage", 1.8, half > 0 ? wide / half : 0, "x f32", why);
}

/* The three parts of an attention written to memory in between, against the fused one. */
static void fused_attention(struct seeds *s)
{
    char why[ERR_TEXT_BYTES] = "";
    const double fused = time_of(s, "attention",
                                 "\"n_head\":16,\"head_dim\":64,\"n_q\":256,\"n_kv\":256,"
                                 "\"causal\":false,\"kv_dtype\":\"f32\"",
                                 why, sizeof why);
    const double scores = time_of(
        s, "matmul", "\"batch\":16,\"m\":256,\"n\":256,\"k\":64,\"trans_b\":true", why, sizeof why);
    const double weights =
        time_of(s, "softmax", "\"rows\":4096,\"len\":256,\"scale\":0.125", why, sizeof why);
    const double sums =
        time_of(s, "matmul", "\"batch\":16,\"m\":256,\"n\":64,\"k\":256", why, sizeof why);
    const bool whole = fused > 0 && scores > 0 && weights > 0 && sums > 0;
    put_row(s, "attention 16 heads, 256 x 256, fused", 1.5,
            whole ? (scores + weights + sums) / fused : 0, "x unfused", why);
}

static void gemv_variants(struct seeds *s)
{
    char why[ERR_TEXT_BYTES] = "";
    put_sizes(s, "gemv 4096 q4_0, work-group size of rows alone", 1.47, "gemv",
              "\"m\":4096,\"k\":4096,\"wtype\":\"q4_0\",\"variant\":\"rows\"", 32);
    const double naive =
        time_of(s, "gemv", "\"m\":4096,\"k\":4096,\"wtype\":\"q4_0\",\"variant\":\"naive\"", why,
                sizeof why);
    const double fused =
        time_of(s, "gemv", "\"m\":4096,\"k\":4096,\"wtype\":\"q4_0\",\"variant\":\"rows\"", why,
                sizeof why);
    put_row(s, "gemv 4096 q4_0, unpacking fused with the products", 1.43,
            fused > 0 ? naive / fused : 0, "x naive", why);
}

static void hidden_transfers(struct seeds *s)
{
    char why[ERR_TEXT_BYTES] = "";
    cJSON *result =
        ask(s, "matmul", "\"m\":1024,\"n\":1024,\"k\":1024", s->iterations, why, sizeof why);
    const cJSON *beside = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(result, "transfers"), "upload_beside_kernels");
    const double busy = number_of(beside, "transfer_busy_ns");
    put_row(s, "upload beside the kernels of a matmul, share hidden", 1,
            busy > 0 ? number_of(beside, "overlap_ns") / busy : 0, "of its time",
            why[0] != '\0' ? why : "nothing was hidden, or the device has no transfers");
    cJSON_Delete(result);
}

/* The weights of a decoding step in the shape of Llama 2 7B, one product after another. */
static void decode_7b(struct seeds *s)
{
    static const struct {
        uint32_t m, k, times;
    } products[] = {
        {4096, 4096, 4 * 32}, {11008, 4096, 2 * 32}, {4096, 11008, 32}, {32000, 4096, 1}};
    static const char *const variants[] = {"naive", "auto"};
    char why[ERR_TEXT_BYTES] = "";
    double ns[2] = {0};
    for (uint32_t v = 0; v < 2; v++)
        for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
            char fields[BODY_BYTES];
            snprintf(fields, sizeof fields,
                     "\"m\":%u,\"k\":%u,\"wtype\":\"q4_0\",\"variant\":\"%s\"", products[i].m,
                     products[i].k, variants[v]);
            ns[v] += products[i].times * time_of(s, "gemv", fields, why, sizeof why);
        }
    put_row(s, "products of a decoding step of Llama 2 7B, q4_0", 3.2,
            why[0] == '\0' && ns[1] > 0 ? ns[0] / ns[1] : 0, "x naive", why);
}

/* ---- the command ---- */

static void run(struct seeds *s)
{
    if (strcmp(s->format, "md") == 0)
        printf("%s\n\n| what | claim | ours | ours / claim | unit |\n|---|---:|---:|---:|---|\n",
               box_name(s->box));
    else if (strcmp(s->format, "csv") == 0)
        printf("what,claim,ours,ratio,unit\n");
    matmul_variants(s);
    matmul_against_c(s);
    argmax_variants(s);
    softmax_storage(s);
    fused_attention(s);
    gemv_variants(s);
    hidden_transfers(s);
    decode_7b(s);
    if (strcmp(s->format, "json") == 0) {
        char *text = cJSON_Print(s->rows);
        printf("%s\n", text != NULL ? text : "[]");
        cJSON_free(text);
    }
}

int cli_bench_seeds(int argc, char **argv)
{
    struct seeds s = {.iterations = 5, .format = "md"};
    const char *device = "", *url = BOX_LOCAL;
    const struct arg args[] = {
        {"--device", NULL, "NAME", ARG_TEXT, &device, false, "index, part of a name"},
        {"--url", NULL, "URL", ARG_TEXT, &url, false, "a daemon instead of this machine"},
        {"--iterations", "-r", "N", ARG_COUNT, &s.iterations, false, "measured runs of each (5)"},
        {"-o", "--output", "FORMAT", ARG_TEXT, &s.format, false, "md, csv or json (md)"},
    };
    int done = args_parse("bench seeds", "Measures what is claimed of well-known optimisations.",
                          args, sizeof args / sizeof args[0], argc, argv);
    if (done >= 0)
        return done;
    if (strcmp(s.format, "md") != 0 && strcmp(s.format, "csv") != 0 &&
        strcmp(s.format, "json") != 0) {
        fprintf(stderr, "oinfer bench seeds: -o is md, csv or json\n");
        return CLI_USAGE;
    }
    log_init(LOG_WARN, 0);
    struct err e = {0};
    s.rows = cJSON_CreateArray();
    if (box_open(url, device, &s.box, &e) == ST_OK)
        run(&s);
    box_close(s.box);
    cJSON_Delete(s.rows);
    if (e.status == ST_OK)
        return 0;
    fprintf(stderr, "oinfer bench seeds: %s\n", e.text);
    return CLI_FAILED;
}
