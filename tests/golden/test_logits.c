/* Logits of tiny models against the forward pass in double (reference.c), on every device found:
 * NMSE at most 1e-9 with float activations and cache, 1e-3 with int8 activations. Every feature of
 * the architecture, every weight dtype, every variant of linear and attention, every way of
 * cutting a sequence into steps; with --few a forced variant in one of these ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/cl/impl.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "tests/assert_ok.h"
#include "tests/golden/reference.h"
#include "tests/golden/tiny.h"

#define N_TOKENS     40
#define NMSE_FLOAT   1e-9
#define NMSE_INT8    1e-3
#define NMSE_HALF    1e-5 /* activations or cache of halves */
#define MAX_VARIANTS 32
/* Less than a matrix takes, little more than 384 rows of f16, no whole number of pages. */
#define SMALL_BYTES 197000
#define SMALL_BATCH 5

static char path[64];
static bool few;
static struct device_list *devices;
static token_id tokens[N_TOKENS];

/* The reference of the file last written: computed once, compared on every device. */
static double *expected;
static uint32_t n_vocab;

static void make_model(const struct tiny *t)
{
    ASSERT_OK(tiny_write(t, path, e));
    free(expected);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (token_id)((i * 37 + 11) % t->n_vocab);
    expected = reference_logits(path, tokens, N_TOKENS, &n_vocab);
    assert_non_null(expected);
}

/* How exact the plans of a loaded model can be: the coarsest format that a linear reads, or the
 * cache holds. */
static double bound_of(const struct model *m)
{
    double bound = m->kv.dtype == DT_F32   ? NMSE_FLOAT
                   : m->kv.dtype == DT_F16 ? NMSE_HALF
                                           : NMSE_INT8;
    for (uint32_t p = 0; p < m->n_plans; p++) {
        for (uint32_t i = 0; i < m->plans[p]->n_steps; i++) {
            const struct plan_step *s = &m->plans[p]->steps[i];
            uint32_t act = s->call.op == OP_LINEAR ? variant_act(s->variant) : ACT_F32;
            double own = act == ACT_F32 ? NMSE_FLOAT : act == ACT_F16 ? NMSE_HALF : NMSE_INT8;
            bound = own > bound ? own : bound;
        }
    }
    return bound;
}

/* Feeds the tokens in steps of `count`; the NMSE of the logits after all of them. */
static double nmse_of(struct model *m, uint32_t count)
{
    struct session *s;
    double error = 0.0, power = 0.0;
    ASSERT_OK(session_open(m, &s, e));
    for (uint32_t at = 0; at < N_TOKENS; at += count) {
        struct step_item item = {.session = s,
                                 .tokens = tokens + at,
                                 .n_tokens = N_TOKENS - at < count ? N_TOKENS - at : count,
                                 .want = STEP_ALL_LOGITS};
        ASSERT_OK(model_step(m, &item, 1, e));
        assert_int_equal(item.n_out, item.n_tokens);
        const double *want = expected + (size_t)at * n_vocab;
        for (size_t i = 0; i < (size_t)item.n_out * n_vocab; i++) {
            error += (item.logits[i] - want[i]) * (item.logits[i] - want[i]);
            power += want[i] * want[i];
        }
    }
    session_close(s);
    return error / power;
}

/* The model of `path` on a device, with a forced variant or NULL: a few tokens at a time, all at
 * once, one by one. */
static void check_device(const char *name, uint32_t device, const char *force, enum kv_dtype kv)
{
    static const uint32_t counts[] = {5, N_TOKENS, 1};
    const size_t n_counts = few && force ? 1 : sizeof counts / sizeof counts[0];
    const struct engine_options options = {
        .device = {.cache_dir = getenv("OINFER_TEST_CACHE")}, .stepwise = true, .force = force};
    const struct load_options load = {.n_ctx = 64, .n_batch = N_TOKENS, .kv = kv};
    struct engine *g;
    struct model_file *f;
    struct model *m;
    ASSERT_OK(engine_open(devices, device, &options, &g, e));
    ASSERT_OK(model_file_open(path, &f, e));
    ASSERT_OK(model_load(g, f, &load, &m, e));
    double bound = bound_of(m);
    for (size_t i = 0; i < n_counts; i++) {
        double nmse = nmse_of(m, counts[i]);
        if (!(nmse <= bound))
            fail_msg("%s on %s, %s, steps of %u: NMSE %.3g, at most %.0e", name,
                     device_list_at(devices, device)->name, force ? force : "own choice", counts[i],
                     nmse, bound);
    }
    model_close(m);
    model_file_close(f);
    engine_close(g);
}

static uint32_t chunks_of(const struct model *m)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < m->file->graph->n_weights; i++) {
        const struct weight *w = weights_at(m->weights, i);
        most = w->n_chunks > most ? w->n_chunks : most;
    }
    return most;
}

static void check_small_buffers(const char *name, uint32_t device)
{
    const struct engine_options options = {.device = {.cache_dir = getenv("OINFER_TEST_CACHE")},
                                           .stepwise = true};
    const struct load_options load = {.n_ctx = 64, .n_batch = SMALL_BATCH, .kv = KV_F32};
    struct engine *g;
    struct model_file *f;
    struct model *m;
    ASSERT_OK(engine_open(devices, device, &options, &g, e));
    ASSERT_OK(model_file_open(path, &f, e));
    engine_device(g)->info.max_alloc_bytes = SMALL_BYTES;
    ASSERT_OK(model_load(g, f, &load, &m, e));
    assert_true(chunks_of(m) >= 2);
    const double nmse = nmse_of(m, SMALL_BATCH), bound = bound_of(m);
    if (!(nmse <= bound))
        fail_msg("%s on %s in small buffers: NMSE %.3g, at most %.0e", name,
                 device_list_at(devices, device)->name, nmse, bound);
    model_close(m);
    model_file_close(f);
    engine_close(g);
}

/* Mesa's software device takes seconds to build a kernel: it gets one case. */
static bool is_slow(uint32_t device)
{
    return strstr(device_list_at(devices, device)->name, "llvmpipe") != NULL;
}

static void check_all_devices(const struct tiny *t, bool slow_ones_too)
{
    make_model(t);
    for (uint32_t i = 0; i < device_list_count(devices); i++)
        if (device_list_at(devices, i)->available && (slow_ones_too || !is_slow(i)))
            check_device(t->name, i, NULL, KV_F32);
}

static void features(void **state)
{
    (void)state;
    struct tiny cases[8];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cases[i] = tiny_default;
    cases[0].name = "tied";
    cases[0].tied = true;
    cases[1].name = "key_length, one KV head";
    cases[1].n_head = 3;
    cases[1].n_head_kv = 1;
    cases[1].head_dim = 32;
    cases[2].name = "linear scaling";
    cases[2].scaling = "linear";
    cases[2].factor = 4.0f;
    cases[2].ctx_orig = 128;
    cases[3].name = "yarn";
    cases[3].scaling = "yarn";
    cases[3].factor = 8.0f;
    cases[3].ctx_orig = 64;
    cases[4].name = "rope_freqs";
    cases[4].rope_factors = true;
    cases[5].name = "sliding window";
    cases[5].window = 7;
    cases[6].name = "biases";
    cases[6].biases = true;
    cases[7].name = "two dtypes in a stack";
    cases[7].dtype = DT_Q4_K;
    cases[7].dtype_v = DT_Q6_K;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_all_devices(&cases[i], i == 0);
}

static void dtypes(void **state)
{
    (void)state;
    for (uint32_t dtype = 0; dtype < DT_COUNT; dtype++) {
        if (!dtype_info(dtype) || !dtype_info(dtype)->compute)
            continue;
        struct tiny t = tiny_default;
        t.name = dtype_name(dtype);
        t.dtype = (enum dtype)dtype;
        check_all_devices(&t, false);
    }
}

static void caches(void **state)
{
    (void)state;
    make_model(&tiny_default);
    for (uint32_t i = 0; i < device_list_count(devices); i++) {
        if (!device_list_at(devices, i)->available || is_slow(i))
            continue;
        check_device("f16 cache", i, NULL, KV_F16);
        check_device("q8_0 cache", i, NULL, KV_Q8_0);
    }
}

/* Buffers of at most SMALL_BYTES: rows of a matrix lie in several, uploaded and repacked or in the
 * file's mapping, and the layers' caches too. */
static void matrices_larger_than_a_buffer(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DT_Q8_0, DT_F16, DT_F32};
    for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++) {
        struct tiny t = tiny_default;
        t.n_ff = 1024;
        t.dtype = dtypes[k];
        make_model(&t);
        for (uint32_t i = 0; i < device_list_count(devices); i++)
            if (device_list_at(devices, i)->available && !is_slow(i))
                check_small_buffers(dtype_name((uint32_t)dtypes[k]), i);
    }
}

/* Names of an op's variants on a device, each once. */
static uint32_t list_variants(uint32_t device, enum op_id op, char names[MAX_VARIANTS][64])
{
    const struct engine_options options = {.device = {.cache_dir = getenv("OINFER_TEST_CACHE")}};
    struct engine *g;
    uint32_t n = 0;
    ASSERT_OK(engine_open(devices, device, &options, &g, e));
    const struct variant *v;
    for (uint32_t i = 0; (v = variant_at(engine_device(g), op, i)) != NULL; i++) {
        char name[64];
        bool seen = false;
        snprintf(name, sizeof name, "%s=%s", op_name(op), variant_name(v));
        for (uint32_t j = 0; j < n && !seen; j++)
            seen = strcmp(names[j], name) == 0;
        if (!seen && n < MAX_VARIANTS)
            memcpy(names[n++], name, sizeof name);
    }
    engine_close(g);
    return n;
}

static void variants(void **state)
{
    (void)state;
    static char names[MAX_VARIANTS][64];
    const enum op_id ops[] = {OP_LINEAR, OP_ATTENTION};
    make_model(&tiny_default);
    for (uint32_t i = 0; i < device_list_count(devices); i++) {
        for (size_t o = 0; o < sizeof ops / sizeof ops[0] && !is_slow(i); o++) {
            uint32_t n = list_variants(i, ops[o], names);
            for (uint32_t v = 0; v < n; v++)
                check_device("default", i, names[v], KV_F32);
        }
    }
}

static int open_devices(void **state)
{
    (void)state;
    setenv("RUSTICL_ENABLE", "llvmpipe", 0);
    snprintf(path, sizeof path, "/tmp/oinfer-logits-%ld.gguf", (long)getpid());
    return device_list_open(0, &devices, NULL) == ST_OK ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    unlink(path);
    free(expected);
    device_list_close(devices);
    return 0;
}

int main(int argc, char **argv)
{
    few = argc > 1 && strcmp(argv[1], "--few") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features), cmocka_unit_test(dtypes),
        cmocka_unit_test(caches),   cmocka_unit_test(matrices_larger_than_a_buffer),
        cmocka_unit_test(variants),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
