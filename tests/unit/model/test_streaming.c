/* Layers that stream: which ones, and that a model with some or all of its layers streaming gives
 * exactly the logits of the same model with every layer in place, on every device and with CPU
 * devices treated as GPUs: layers in ordinary memory through the staging ring, in pinned memory,
 * and some in each; layers of several pieces; what the load report says; too small a limit; NaN in
 * a layer that streams; and profiling turned on in between.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/log.h"
#include "engine/cl/impl.h"
#include "engine/model/model.h"
#include "tests/assert_ok.h"
#include "tests/golden/tiny.h"

#define N_LAYER  5
#define N_PROMPT 13
#define N_BATCH  8 /* a prompt takes two runs */
#define N_MORE   3
#define N_ROWS   (2 * (1 + N_MORE) + 2) /* rows of logits that a script gives */
#define N_GREEDY 6
#define PLENTY   (1ull << 30) /* bytes: room for everything */

static char path[64];
static struct device_list *devices;

struct world {
    struct engine *engine;
    struct model_file *file;
    struct model *model;
};

/* What a CPU device is said to be. */
enum guise { AS_IT_IS, AS_DISCRETE, AS_INTEGRATED, AS_SMALL, GUISE_COUNT };
static const char *const guise_names[GUISE_COUNT] = {
    "", " as a discrete GPU", " as an integrated GPU", " as one with memory for two pinned layers"};

static void open_world(struct world *w, uint32_t device, enum guise guise)
{
    const struct engine_options options = {.device = {.cache_dir = getenv("OINFER_TEST_CACHE")},
                                           .stepwise = true};
    memset(w, 0, sizeof *w);
    ASSERT_OK(engine_open(devices, device, &options, &w->engine, e));
    struct device_info *info = &w->engine->device->info;
    if (guise != AS_IT_IS) {
        info->kind = guise == AS_DISCRETE ? DEVICE_DISCRETE_GPU : DEVICE_INTEGRATED_GPU;
        info->unified_memory = guise != AS_DISCRETE;
    }
}

static void unload(struct world *w)
{
    model_close(w->model);
    w->model = NULL;
    assert_int_equal(device_memory(w->engine->device).used_bytes, 0);
}

static void close_world(struct world *w)
{
    unload(w);
    model_file_close(w->file);
    engine_close(w->engine);
}

/* Loads the model at `path` on an engine opened with that limit. */
static enum status load(struct world *w, uint64_t limit, struct err *e)
{
    const struct load_options options = {.n_ctx = 64, .n_slots = 2, .n_batch = N_BATCH};
    w->engine->device->memory.peak_bytes = 0;
    w->engine->device->memory.limit_bytes = limit;
    w->engine->memory_limit_bytes = limit;
    return model_load(w->engine, w->file, &options, &w->model, e);
}

/* What the model needs on its device with every layer there, loading included. */
static uint64_t whole_bytes(const struct world *w)
{
    const struct load_report *r = model_load_report(w->model);
    return r->weights_bytes + r->kv_bytes + r->scratch_bytes +
           weights_loading_bytes(w->model->weights);
}

/* ---- which layers ---- */

static void few_layers_stream_and_evenly(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes[8], room;
        uint32_t n, count;
        const char *streams;
    } cases[] = {
        {{10, 10, 10, 10, 10, 10, 10, 10}, 79, 8, 3, "00100101"},
        {{10, 10, 10, 10, 10, 10, 10, 10}, 70, 8, 3, "00100101"},
        {{10, 10, 10, 10, 10, 10, 10, 10}, 69, 8, 4, "01010101"},
        {{10, 10, 10, 10, 10, 10, 10, 10}, 29, 8, 8, "11111111"},
        {{10, 10, 10, 10, 10, 10, 10, 10}, 20, 8, 8, "11111111"},
        {{10, 10, 10, 10, 10, 10, 10, 10}, 19, 8, 0, ""},
        {{10, 20, 10, 20}, 50, 4, 3, "0111"}, /* a slot holds the largest */
        {{10, 20, 10, 20}, 49, 4, 4, "1111"},
        {{10, 20, 10, 20}, 39, 4, 0, ""},
        {{10, 10}, 19, 2, 0, ""}, /* the slots would hold everything */
        {{10}, 9, 1, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool streams[8];
        assert_int_equal(streamer_choose(cases[i].bytes, cases[i].n, cases[i].room, streams),
                         cases[i].count);
        for (uint32_t l = 0; l < strlen(cases[i].streams); l++)
            assert_int_equal(streams[l], cases[i].streams[l] == '1');
    }
}

/* ---- the same numbers ---- */

struct answer {
    float *rows; /* [N_ROWS][n_vocab] */
    uint32_t n_rows;
    token_id greedy[N_GREEDY];
};

static void step(struct world *w, struct answer *a, struct step_item *items, uint32_t n)
{
    const uint32_t n_vocab = model_file_info(w->file)->n_vocab;
    ASSERT_OK(model_step(w->model, items, n, e));
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < items[i].n_out && items[i].logits; r++)
            memcpy(a->rows + (size_t)n_vocab * a->n_rows++, items[i].logits + (size_t)n_vocab * r,
                   n_vocab * sizeof(float));
}

/* Two prompts, one of them longer than a batch; tokens of both in the same steps; one is rewound
 * and goes on otherwise; greedy tokens at the end. `between` is called before the tokens. */
static void run_script(struct world *w, struct answer *a, void (*between)(struct world *w))
{
    const uint32_t n_vocab = model_file_info(w->file)->n_vocab;
    token_id prompts[2][N_PROMPT];
    struct session *s[2];
    *a = (struct answer){.rows = calloc(N_ROWS, n_vocab * sizeof(float))};
    assert_non_null(a->rows);
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_OK(session_open(w->model, &s[i], e));
        for (uint32_t t = 0; t < N_PROMPT; t++)
            prompts[i][t] = (token_id)((t * 31 + i * 7 + 5) % n_vocab);
        struct step_item first = {
            .session = s[i], .tokens = prompts[i], .n_tokens = N_BATCH, .want = STEP_NOTHING};
        step(w, a, &first, 1);
        struct step_item rest = {.session = s[i],
                                 .tokens = prompts[i] + N_BATCH,
                                 .n_tokens = N_PROMPT - N_BATCH,
                                 .want = STEP_LOGITS};
        step(w, a, &rest, 1);
    }
    if (between)
        between(w);
    for (uint32_t t = 0; t < N_MORE; t++) {
        struct step_item items[2];
        for (uint32_t i = 0; i < 2; i++)
            items[i] = (struct step_item){
                .session = s[i], .tokens = &prompts[i][t], .n_tokens = 1, .want = STEP_LOGITS};
        step(w, a, items, 2);
    }
    session_rewind(s[0], N_PROMPT - 2);
    struct step_item again = {
        .session = s[0], .tokens = prompts[1], .n_tokens = 2, .want = STEP_ALL_LOGITS};
    step(w, a, &again, 1);
    assert_int_equal(a->n_rows, N_ROWS);
    token_id next = prompts[1][0];
    for (uint32_t n = 0; n < N_GREEDY;) {
        struct step_item item = {.session = s[1],
                                 .tokens = &next,
                                 .n_tokens = 1,
                                 .want = STEP_GREEDY,
                                 .n_greedy = N_GREEDY - n};
        step(w, a, &item, 1);
        memcpy(a->greedy + n, item.greedy, item.n_out * sizeof *item.greedy);
        n += item.n_out;
        next = a->greedy[n - 1];
    }
    session_close(s[0]);
    session_close(s[1]);
}

static void same_answer(const struct world *w, const struct answer *a, const struct answer *b,
                        const char *label)
{
    const size_t n = (size_t)N_ROWS * model_file_info(w->file)->n_vocab;
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a->rows[i], &b->rows[i], sizeof(float)) != 0)
            fail_msg("%s: logit %zu is %g streamed, %g in place", label, i, (double)b->rows[i],
                     (double)a->rows[i]);
    assert_memory_equal(a->greedy, b->greedy, sizeof a->greedy);
}

static void check_report(const struct world *w, uint64_t limit, uint32_t n_streamed)
{
    const struct load_report *r = model_load_report(w->model);
    const struct device_memory memory = device_memory(w->engine->device);
    assert_int_equal(r->n_layer, N_LAYER);
    assert_int_equal(r->n_streamed, n_streamed);
    assert_true(r->stream_bytes > 0 && r->stream_gb_s > 0.0);
    assert_true(memory.peak_bytes <= limit);
    assert_int_equal(memory.weights_bytes, r->weights_bytes);
    assert_non_null(w->model->context.streamer);
}

/* Where the layers lie. */
static void check_way(const struct world *w, enum guise guise)
{
    const struct load_report *r = model_load_report(w->model);
    const struct device_info *info = device_info(w->engine->device);
    const bool copies = info->kind == DEVICE_CPU || info->kind == DEVICE_HOST;
    if (copies || info->kind == DEVICE_DISCRETE_GPU)
        assert_int_equal(r->n_pinned, 0);
    if (guise == AS_INTEGRATED)
        assert_int_equal(r->n_pinned, r->n_streamed);
    if (guise == AS_SMALL)
        assert_int_equal(r->n_pinned, 2);
    assert_int_equal(r->n_staged, copies ? 0 : r->n_streamed - r->n_pinned);
}

/* Loads it anew where there is room to pin two layers and a half. */
static void reload_small(struct world *w, uint64_t limit)
{
    const struct device_memory m = device_memory(w->engine->device);
    const struct load_report *r = model_load_report(w->model);
    const uint64_t layer = r->stream_bytes / r->n_streamed;
    const uint64_t taken = m.used_bytes + m.staging_bytes - r->n_pinned * layer +
                           weights_loading_bytes(w->model->weights);
    struct device_info *info = &w->engine->device->info;
    const uint64_t whole = info->global_bytes;
    unload(w);
    info->global_bytes = (taken + layer * 5 / 2) * 8 / 7;
    ASSERT_OK(load(w, limit, e));
    info->global_bytes = whole;
}

static const struct tiny models[] = {
    {.name = "q4_0, tied", .dtype = DT_Q4_0, .dtype_v = DT_COUNT, .tied = true},
    {.name = "q8_0, biases", .dtype = DT_Q8_0, .dtype_v = DT_COUNT, .biases = true},
    {.name = "q4_k and q6_k", .dtype = DT_Q4_K, .dtype_v = DT_Q6_K},
    {.name = "f16", .dtype = DT_F16, .dtype_v = DT_COUNT},
    /* layers of more than is read ahead, in pieces the last of which is short */
    {.name = "f16, large", .dtype = DT_F16, .dtype_v = DT_COUNT, .n_ff = 12800},
};

static void open_model(struct world *w, const struct tiny *wanted)
{
    struct tiny t = tiny_default;
    t.dtype = wanted->dtype;
    t.dtype_v = wanted->dtype_v;
    t.tied = wanted->tied;
    t.biases = wanted->biases;
    t.poison = wanted->poison;
    t.n_layer = N_LAYER;
    if (wanted->n_ff > 0)
        t.n_ff = wanted->n_ff;
    ASSERT_OK(tiny_write(&t, path, e));
    model_file_close(w->file);
    ASSERT_OK(model_file_open(path, &w->file, e));
}

/* Which of them: first, and the one after the last. */
static const size_t guise_models[GUISE_COUNT][2] = {{0, 4}, {0, 5}, {0, 1}, {0, 1}};

/* The script with every layer in place, with the fewest streaming, and with all of them. */
static void compare(struct world *w, const struct tiny *t, enum guise guise, const char *label)
{
    struct answer in_place, streamed;
    struct err err;
    char name[288];
    open_model(w, t);
    ASSERT_OK(load(w, PLENTY, e));
    assert_int_equal(model_load_report(w->model)->n_streamed, 0);
    assert_int_equal(model_streamed_bytes(w->model), 0);
    const uint64_t whole = whole_bytes(w);
    run_script(w, &in_place, NULL);
    unload(w);
    uint64_t limit = whole - 1;
    for (uint32_t n_streamed = STREAMER_SLOTS + 1; n_streamed <= N_LAYER;
         n_streamed += N_LAYER - STREAMER_SLOTS - 1) {
        ASSERT_OK(load(w, limit, e));
        if (guise == AS_SMALL)
            reload_small(w, limit);
        check_way(w, guise);
        check_report(w, limit, n_streamed);
        snprintf(name, sizeof name, "%s, %s, %u layers stream", label, t->name, n_streamed);
        run_script(w, &streamed, NULL);
        same_answer(w, &in_place, &streamed, name);
        const uint64_t layer = model_load_report(w->model)->stream_bytes / n_streamed;
        limit = whole - (N_LAYER - STREAMER_SLOTS) * layer; /* the least that all need */
        free(streamed.rows);
        unload(w);
    }
    assert_int_equal(load(w, limit - 1, &err), ST_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.text, "with all layers streaming"));
    assert_null(w->model);
    free(in_place.rows);
}

static void streamed_logits_are_those_in_place(void **state)
{
    (void)state;
    for (uint32_t d = 0; d < device_list_count(devices); d++) {
        const struct device_info *info = device_list_at(devices, d);
        const int n = info->kind == DEVICE_CPU ? GUISE_COUNT : 1;
        for (int guise = 0; guise < n && info->available; guise++) {
            struct world w;
            char label[192];
            snprintf(label, sizeof label, "%s%s", info->name, guise_names[guise]);
            open_world(&w, d, (enum guise)guise);
            for (size_t i = guise_models[guise][0]; i < guise_models[guise][1]; i++)
                compare(&w, &models[i], (enum guise)guise, label);
            close_world(&w);
        }
    }
}

/* ---- one device, as a GPU where it can be said to be one ---- */

static void open_streaming(struct world *w, const struct tiny *t)
{
    const bool host = device_list_at(devices, 0)->kind == DEVICE_HOST;
    open_world(w, 0, host ? AS_IT_IS : AS_DISCRETE);
    open_model(w, t);
    ASSERT_OK(load(w, PLENTY, e));
    const uint64_t whole = whole_bytes(w);
    unload(w);
    ASSERT_OK(load(w, whole - 1, e));
}

static void every_run_streams_its_bytes(void **state)
{
    (void)state;
    struct world w;
    struct session *s;
    token_id token = 7;
    open_streaming(&w, &models[0]);
    ASSERT_OK(session_open(w.model, &s, e));
    struct step_item item = {.session = s, .tokens = &token, .n_tokens = 1, .want = STEP_LOGITS};
    ASSERT_OK(model_step(w.model, &item, 1, e)); /* fills the slots ahead */
    for (uint32_t i = 0; i < 3; i++) {
        const uint64_t before = model_streamed_bytes(w.model);
        ASSERT_OK(model_step(w.model, &item, 1, e));
        assert_int_equal(model_streamed_bytes(w.model) - before,
                         model_load_report(w.model)->stream_bytes);
    }
    close_world(&w);
}

/* New queues in the middle: the marks of the old ones are not waited for. */
static void profile(struct world *w)
{
    ASSERT_OK(engine_profile(w->engine, true, e));
}

static void profiling_shows_the_transfers(void **state)
{
    (void)state;
    struct world w;
    struct answer plain, profiled;
    struct prof_report *report = calloc(1, sizeof *report);
    assert_non_null(report);
    open_streaming(&w, &models[1]);
    run_script(&w, &plain, NULL);
    run_script(&w, &profiled, profile);
    same_answer(&w, &plain, &profiled, "profiled");
    ASSERT_OK(engine_collect(w.engine, report, e));
    const struct prof_row *row = NULL;
    for (uint32_t i = 0; i < report->n_rows; i++)
        if (strcmp(report->rows[i].name, "stream") == 0)
            row = &report->rows[i];
    assert_non_null(row);
    /* the rest of the first run in flight, N_MORE + 1 + N_GREEDY whole runs, the slots ahead */
    assert_true(row->bytes >= (N_MORE + 1) * model_load_report(w.model)->stream_bytes);
    assert_true(report->transfer_busy_ns > 0);
    ASSERT_OK(engine_profile(w.engine, false, e));
    free(plain.rows);
    free(profiled.rows);
    free(report);
    close_world(&w);
}

/* The layer with the bad weight is named, and what breaks off leaves the layers in order. */
static void nan_in_a_streamed_layer_is_named(void **state)
{
    (void)state;
    struct world w;
    struct session *s;
    struct err err;
    token_id token = 7;
    struct tiny t = models[3]; /* float activations: integers hold no NaN */
    t.poison = NAN;
    open_streaming(&w, &t);
    ASSERT_OK(session_open(w.model, &s, e));
    for (uint32_t i = 0; i < 2; i++) {
        struct step_item item = {
            .session = s, .tokens = &token, .n_tokens = 1, .want = STEP_LOGITS};
        assert_int_equal(model_step(w.model, &item, 1, &err), ST_NUMERIC);
        assert_non_null(strstr(err.text, "ffn_norm"));
        assert_non_null(strstr(err.text, "layer 1"));
    }
    close_world(&w);
}

/* A CPU's memory is the machine's: only a limit that was asked for makes layers stream there. */
static void without_an_option_cpus_do_not_stream(void **state)
{
    (void)state;
    struct world w;
    struct err err;
    uint32_t d = 0;
    while (device_list_at(devices, d)->kind < DEVICE_CPU) /* the last is `host` */
        d++;
    open_world(&w, d, AS_IT_IS);
    open_model(&w, &models[0]);
    ASSERT_OK(load(&w, PLENTY, e));
    const uint64_t whole = whole_bytes(&w);
    unload(&w);
    w.engine->device->memory.limit_bytes = whole - 1;
    w.engine->memory_limit_bytes = 0;
    const struct load_options options = {.n_ctx = 64, .n_slots = 2, .n_batch = N_BATCH};
    assert_int_equal(model_load(w.engine, w.file, &options, &w.model, &err), ST_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.text, "available"));
    assert_null(strstr(err.text, "streaming"));
    close_world(&w);
}

static int open_devices(void **state)
{
    (void)state;
    log_init(LOG_ERROR, 0);
    snprintf(path, sizeof path, "/tmp/oinfer-streaming-%ld.gguf", (long)getpid());
    return device_list_open(0, &devices, NULL) == ST_OK ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    unlink(path);
    device_list_close(devices);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_layers_stream_and_evenly),
        cmocka_unit_test(streamed_logits_are_those_in_place),
        cmocka_unit_test(every_run_streams_its_bytes),
        cmocka_unit_test(profiling_shows_the_transfers),
        cmocka_unit_test(nan_in_a_streamed_layer_is_named),
        cmocka_unit_test(without_an_option_cpus_do_not_stream),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
