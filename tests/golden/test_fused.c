/* One launch for several tokens against a launch per step: the same model, the same sequence.
 *
 * On every device that has a one-launch executor, for several dtypes and shapes: tokens that one
 * launch decoded must be among the best under the stepwise logits at their place (the two round
 * differently, so that near ties may part), and the cells that it wrote must give the same logits
 * as cells written stepwise. The same for several sequences in the same steps, each with its own
 * prompt; and for logits of several sequences, some of which want tokens instead, that are read
 * after one launch. The rows of measured kernels sum to the time that the queue was busy, and a
 * GPU's launch is divided into its phases. Decoded again and again while other threads take the
 * CPUs away at any moment, the tokens stay the same: no group runs ahead of what another still
 * reads. A CPU that has such an executor has it for every model. test_fused [--device TEXT]
 * [--dtype NAME] [--repeats N]   only devices whose name or platform contains TEXT, only models of
 * that dtype, N times beside the other threads
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/model/synth.h"

#define N_PROMPT     21  /* of most models */
#define N_LONG       240 /* so long that attention starts to be split on CPU devices */
#define N_DECODED    40
#define PER_STEP     8     /* tokens of one step, some more than one launch's worth at times */
#define SHARE        0.03f /* of the logits' spread: how far below the best a token may be */
#define NMSE_BOUND   1e-3  /* of logits over the two caches */
#define MAX_TOGETHER 11    /* sequences decoded at once: more than any executor takes */
#define N_BUSY       4     /* threads that do nothing but run */
#define EXIT_SKIPPED 77

static const char *wanted_device, *wanted_dtype;
static uint32_t n_repeats = 100; /* of decoding beside busy threads */
static unsigned compared;        /* models on devices */

static const struct {
    const char *shape, *dtype;
    uint32_t n_prompt, n_together;
} models[] = {
    {"tiny,n_layer=3,n_embd=256,n_ff=768,n_head=4,n_head_kv=2,head_dim=64", "q4_0", N_PROMPT, 8},
    {"tiny,n_layer=2,n_embd=576,n_ff=1536,n_head=9,n_head_kv=3,tied=1", "q4_1", N_LONG, 3},
    {"tiny,n_layer=2,n_embd=512,n_ff=1280,n_head=8,n_head_kv=8,head_dim=64", "q8_0", N_PROMPT, 2},
    {"tiny,n_layer=4,n_embd=512,n_ff=1024,n_head=4,n_head_kv=2,head_dim=128", "q4_k_m", N_PROMPT,
     5},
    {"tiny,n_layer=2,n_embd=512,n_ff=1024,n_head=8,n_head_kv=2,head_dim=64,window=16", "q5_0",
     N_PROMPT, 4},
    {"tiny,n_layer=2,n_embd=256,n_ff=8192,n_head=4,n_head_kv=4,head_dim=64,rope_freqs=1", "q6_k",
     N_PROMPT, MAX_TOGETHER},
    {"tiny,n_layer=2,n_embd=512,n_ff=1536,n_head=8,n_head_kv=4,head_dim=64", "f16", N_LONG, 7},
    {"tiny,n_layer=2,n_embd=288,n_ff=800,n_head=9,n_head_kv=3,head_dim=64", "bf16", N_PROMPT, 2},
    {"tiny,n_layer=2,n_embd=256,n_ff=512,n_head=4,n_head_kv=4,head_dim=64", "f32", N_PROMPT, 3},
};

struct loaded {
    struct engine *engine;
    struct model *model;
    struct session *sessions[MAX_TOGETHER];
};

static void load(const struct device_list *devices, uint32_t index, const struct model_file *f,
                 bool stepwise, uint32_t n_sessions, struct loaded *l)
{
    struct err e = {0};
    const struct engine_options options = {.device = {.cache_dir = getenv("OINFER_TEST_CACHE")},
                                           .stepwise = stepwise};
    const struct load_options loading = {.n_ctx = 384, .n_slots = n_sessions, .n_batch = 256};
    if (engine_open(devices, index, &options, &l->engine, &e) != ST_OK ||
        model_load(l->engine, f, &loading, &l->model, &e) != ST_OK)
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < n_sessions; i++)
        if (session_open(l->model, &l->sessions[i], &e) != ST_OK)
            fail_msg("%s", e.text);
}

static void unload(struct loaded *l)
{
    model_close(l->model);
    engine_close(l->engine);
}

/* Feeds tokens of sequence i and leaves the logits after the last one in item->logits. */
static void feed(struct loaded *l, uint32_t i, const token_id *tokens, uint32_t n,
                 struct step_item *item)
{
    struct err e = {0};
    *item = (struct step_item){
        .session = l->sessions[i], .tokens = tokens, .n_tokens = n, .want = STEP_LOGITS};
    if (model_step(l->model, item, 1, &e) != ST_OK)
        fail_msg("%s", e.text);
}

/* A sequence: its prompt, and what was decoded after it. */
struct sequence {
    token_id prompt[N_LONG], out[N_DECODED];
    uint32_t n_prompt, n_out;
};

/* Decodes N_DECODED tokens after the prompts of s[n], PER_STEP of each a step. */
static void decode(struct loaded *l, struct sequence *s, uint32_t n)
{
    struct err e = {0};
    for (uint32_t i = 0; i < n; i++) { /* the first token comes with the prompt */
        struct step_item item = {.session = l->sessions[i],
                                 .tokens = s[i].prompt,
                                 .n_tokens = s[i].n_prompt,
                                 .want = STEP_GREEDY,
                                 .n_greedy = 1};
        if (model_step(l->model, &item, 1, &e) != ST_OK)
            fail_msg("%s", e.text);
        s[i].out[0] = item.greedy[0];
        s[i].n_out = 1;
    }
    for (;;) {
        struct step_item items[MAX_TOGETHER];
        struct sequence *of[MAX_TOGETHER];
        uint32_t n_items = 0;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t left = N_DECODED - s[i].n_out;
            if (left == 0)
                continue;
            of[n_items] = &s[i];
            items[n_items++] = (struct step_item){.session = l->sessions[i],
                                                  .tokens = &s[i].out[s[i].n_out - 1],
                                                  .n_tokens = 1,
                                                  .want = STEP_GREEDY,
                                                  .n_greedy = left < PER_STEP ? left : PER_STEP};
        }
        if (n_items == 0)
            return;
        if (model_step(l->model, items, n_items, &e) != ST_OK)
            fail_msg("%s", e.text);
        for (uint32_t i = 0; i < n_items; i++) {
            assert_in_range(items[i].n_out, 1, items[i].n_greedy);
            memcpy(of[i]->out + of[i]->n_out, items[i].greedy,
                   items[i].n_out * sizeof *items[i].greedy);
            of[i]->n_out += items[i].n_out;
        }
    }
}

/* How far `id` is below the best logit, as a share of the logits' spread. */
static float share_below_best(const float *logits, uint32_t n, token_id id)
{
    float best = logits[0], least = logits[0];
    for (uint32_t i = 1; i < n; i++) {
        best = logits[i] > best ? logits[i] : best;
        least = logits[i] < least ? logits[i] : least;
    }
    return (best - logits[id]) / (best - least);
}

static double nmse(const float *got, const float *want, uint32_t n)
{
    double error = 0, size = 0;
    for (uint32_t i = 0; i < n; i++) {
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    return error / size;
}

static void *keep_busy(void *stop)
{
    while (!atomic_load_explicit((_Atomic bool *)stop, memory_order_relaxed))
        ;
    return NULL;
}

/* Decodes the same prompts n_repeats times beside busy threads. */
static void repeat_under_load(const struct device_list *devices, uint32_t index,
                              const struct model_file *f, uint32_t n_sequences)
{
    static _Atomic bool stop;
    pthread_t threads[N_BUSY];
    struct sequence s[MAX_TOGETHER];
    token_id first[MAX_TOGETHER][N_DECODED];
    struct loaded l;
    uint32_t n_others = 0;
    load(devices, index, f, false, n_sequences, &l);
    for (uint32_t i = 0; i < n_sequences; i++) {
        s[i].n_prompt = 5 + i;
        for (uint32_t t = 0; t < s[i].n_prompt; t++)
            s[i].prompt[t] = (token_id)(1 + (t + i) * 69 % 500);
    }
    atomic_store(&stop, false);
    for (int i = 0; i < N_BUSY; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, &stop), 0);
    for (uint32_t n = 0; n < n_repeats / n_sequences; n++) {
        for (uint32_t i = 0; i < n_sequences; i++)
            session_rewind(l.sessions[i], 0);
        decode(&l, s, n_sequences);
        for (uint32_t i = 0; i < n_sequences; i++) {
            if (n == 0)
                memcpy(first[i], s[i].out, sizeof first[i]);
            n_others += memcmp(first[i], s[i].out, sizeof first[i]) != 0;
        }
    }
    atomic_store(&stop, true);
    for (int i = 0; i < N_BUSY; i++)
        pthread_join(threads[i], NULL);
    unload(&l);
    printf("%s: %u repetitions of %u sequences differ\n", device_list_at(devices, index)->name,
           n_others, n_sequences);
    assert_int_equal(n_others, 0);
}

/* How what was decoded stands against the stepwise model, whose sequence 0 is used. */
static void compare_sequence(struct loaded *fused, struct loaded *stepwise, uint32_t i,
                             const struct sequence *s, uint32_t n_vocab, const char *label)
{
    struct step_item item, other;
    float worst = 0.0f;
    uint32_t same = 0;
    session_rewind(stepwise->sessions[0], 0);
    feed(stepwise, 0, s->prompt, s->n_prompt, &item);
    for (uint32_t t = 0; t < N_DECODED; t++) {
        const float share = share_below_best(item.logits, n_vocab, s->out[t]);
        same += share == 0.0f;
        worst = share > worst ? share : worst;
        if (t + 1 < N_DECODED)
            feed(stepwise, 0, &s->out[t], 1, &item);
    }
    feed(stepwise, 0, &s->out[N_DECODED - 1], 1, &item);
    feed(fused, i, &s->out[N_DECODED - 1], 1, &other);
    const double error = nmse(other.logits, item.logits, n_vocab);
    printf("%s: %u of %d tokens the best stepwise, worst %.4f below; logits NMSE %.2e\n", label,
           same, N_DECODED, (double)worst, error);
    assert_true(worst <= SHARE);
    assert_true(error <= NMSE_BOUND);
}

/* All sequences in one step, those of odd number for logits, the others for a token; which must be
 * what the stepwise model, whose sequence 0 is used, says after the same tokens. */
static void compare_mixed(struct loaded *fused, struct loaded *stepwise, const struct sequence *s,
                          uint32_t n, uint32_t n_vocab, const char *label)
{
    struct err e = {0};
    struct step_item items[MAX_TOGETHER], item;
    double worst_error = 0;
    float worst = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        session_rewind(fused->sessions[i], s[i].n_prompt + N_DECODED - 1);
        items[i] = (struct step_item){.session = fused->sessions[i],
                                      .tokens = &s[i].out[N_DECODED - 1],
                                      .n_tokens = 1,
                                      .want = i % 2 ? STEP_LOGITS : STEP_GREEDY,
                                      .n_greedy = 1};
    }
    if (model_step(fused->model, items, n, &e) != ST_OK)
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < n; i++) {
        session_rewind(stepwise->sessions[0], 0);
        feed(stepwise, 0, s[i].prompt, s[i].n_prompt, &item);
        feed(stepwise, 0, s[i].out, N_DECODED, &item);
        assert_int_equal(items[i].n_out, 1);
        if (i % 2) {
            const double error = nmse(items[i].logits, item.logits, n_vocab);
            worst_error = error > worst_error ? error : worst_error;
        } else {
            const float share = share_below_best(item.logits, n_vocab, items[i].greedy[0]);
            worst = share > worst ? share : worst;
        }
    }
    printf("%s: mixed, worst %.4f below; logits NMSE %.2e\n", label, (double)worst, worst_error);
    assert_true(worst <= SHARE);
    assert_true(worst_error <= NMSE_BOUND);
}

/* Decodes once more with measuring on; the rows must sum to the time the queue was busy. */
static void check_timings(struct loaded *l, const struct sequence *s, uint32_t n_layer,
                          const char *label)
{
    struct err e = {0};
    struct prof_report report = {0};
    char line[256] = "";
    uint64_t sum_ns = 0, phases_ns = 0, other_ns = 0;
    uint32_t n_phases = 0;
    struct step_item item;
    assert_int_equal(engine_profile(l->engine, true, &e), ST_OK);
    session_rewind(l->sessions[0], s->n_prompt);
    item = (struct step_item){.session = l->sessions[0],
                              .tokens = s->out,
                              .n_tokens = 1,
                              .want = STEP_GREEDY,
                              .n_greedy = STEP_MAX_GREEDY};
    if (model_step(l->model, &item, 1, &e) != ST_OK ||
        engine_collect(l->engine, &report, &e) != ST_OK)
        fail_msg("%s", e.text);
    assert_int_equal(engine_profile(l->engine, false, &e), ST_OK);
    for (uint32_t i = 0; i < report.n_rows; i++) {
        const struct prof_row *row = &report.rows[i];
        sum_ns += row->total_ns;
        assert_true(row->calls > 0 && row->min_ns <= row->total_ns / row->calls + 1 &&
                    (row->max_ns + 1) * row->calls >= row->total_ns);
        if (strcmp(row->variant, "one_launch") != 0)
            continue;
        if (strcmp(row->name, "decode") == 0) {
            other_ns = row->total_ns;
            continue;
        }
        const uint32_t n = strcmp(row->name, "head") == 0 ? 1 : n_layer;
        assert_true(row->calls % n == 0 && row->calls / n >= item.n_out);
        assert_true(row->bytes > 0);
        phases_ns += row->total_ns;
        n_phases++;
    }
    assert_true(model_plan_line(l->model, 1, 0, line, sizeof line));
    const bool on_gpu = strstr(line, "one_launch_nvidia") != NULL;
    printf("%s: rows %.3f ms, busy %.3f ms, phases %.3f ms, the rest of the launches %.3f ms\n",
           label, (double)sum_ns / 1e6, (double)report.compute_busy_ns / 1e6,
           (double)phases_ns / 1e6, (double)other_ns / 1e6);
    assert_true((double)sum_ns >= 0.98 * (double)report.compute_busy_ns &&
                (double)sum_ns <= 1.02 * (double)report.compute_busy_ns);
    assert_int_equal(n_phases, on_gpu ? 6 : 0);
    if (on_gpu)
        assert_true(phases_ns > other_ns);
}

static void compare(const struct device_list *devices, uint32_t index, const struct model_file *f,
                    const char *dtype, uint32_t n_prompt, uint32_t n_sequences)
{
    const uint32_t n_vocab = model_file_info(f)->n_vocab;
    struct loaded fused, stepwise;
    struct sequence s[MAX_TOGETHER];
    load(devices, index, f, false, n_sequences, &fused);
    load(devices, index, f, true, 1, &stepwise);
    for (uint32_t i = 0; i < n_sequences; i++) {
        s[i].n_prompt = n_prompt - i;
        for (uint32_t t = 0; t < s[i].n_prompt; t++)
            s[i].prompt[t] = (token_id)(3 + (t * 37 + i * 11) % (n_vocab - 3));
    }
    decode(&fused, s, n_sequences);
    for (uint32_t i = 0; i < n_sequences; i++) {
        char label[256];
        snprintf(label, sizeof label, "%s, %s, sequence %u of %u",
                 device_list_at(devices, index)->name, dtype, i + 1, n_sequences);
        compare_sequence(&fused, &stepwise, i, &s[i], n_vocab, label);
        if (i + 1 < n_sequences)
            continue;
        if (n_sequences > 1)
            compare_mixed(&fused, &stepwise, s, n_sequences, n_vocab, label);
        check_timings(&fused, &s[0], model_file_info(f)->n_layer, label);
    }
    unload(&fused);
    unload(&stepwise);
}

/* Opens a synthetic model; its file is gone once that is closed. */
static struct model_file *open_synthetic(const char *shape_text, const char *dtype_text)
{
    struct err e = {0};
    char path[] = "/tmp/oinfer-fused-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct synth_shape shape;
    struct synth_dtype dtype;
    struct model_file *f = NULL;
    if (synth_shape_parse(shape_text, &shape, &e) != ST_OK ||
        synth_dtype_parse(dtype_text, &dtype, &e) != ST_OK ||
        synth_write(&shape, dtype, path, &e) != ST_OK || model_file_open(path, &f, &e) != ST_OK)
        fail_msg("%s", e.text);
    unlink(path);
    return f;
}

static struct device_list *open_devices(void)
{
    struct err e = {0};
    struct device_list *devices;
    if (device_list_open(0, &devices, &e) != ST_OK)
        fail_msg("%s", e.text);
    return devices;
}

static bool is_wanted(const struct device_info *info)
{
    return info->kind != DEVICE_HOST && info->available &&
           (!wanted_device || strstr(info->name, wanted_device) ||
            strstr(info->platform, wanted_device));
}

/* Is the model decoded in one launch? */
static bool is_fused(const struct device_list *devices, uint32_t index, const struct model_file *f)
{
    char line[256] = "";
    struct loaded l;
    load(devices, index, f, false, 1, &l);
    assert_true(model_plan_line(l.model, 1, 0, line, sizeof line));
    unload(&l);
    return strstr(line, "in one launch") != NULL;
}

static void test_one_launch_serves_all_models_of_cpus(void **state)
{
    (void)state;
    struct device_list *devices = open_devices();
    for (uint32_t d = 0; d < device_list_count(devices); d++) {
        uint32_t n = 0, n_fused = 0;
        const struct device_info *info = device_list_at(devices, d);
        for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
            if (!is_wanted(info) || info->kind != DEVICE_CPU ||
                (wanted_dtype && strcmp(wanted_dtype, models[i].dtype) != 0))
                continue;
            struct model_file *f = open_synthetic(models[i].shape, models[i].dtype);
            const bool fused = is_fused(devices, d, f);
            n++;
            n_fused += fused;
            printf("%s, %s: %s\n", info->name, models[i].dtype, fused ? "one launch" : "stepwise");
            model_file_close(f);
        }
        assert_true(n_fused == 0 || n_fused == n);
    }
    device_list_close(devices);
}

static void test_one_launch_agrees_with_stepwise(void **state)
{
    (void)state;
    struct device_list *devices = open_devices();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (wanted_dtype && strcmp(wanted_dtype, models[i].dtype) != 0)
            continue;
        struct model_file *f = open_synthetic(models[i].shape, models[i].dtype);
        for (uint32_t d = 0; d < device_list_count(devices); d++)
            for (int together = 0; together < 2; together++)
                if (is_wanted(device_list_at(devices, d))) {
                    compare(devices, d, f, models[i].dtype, models[i].n_prompt,
                            together ? models[i].n_together : 1);
                    compared++;
                }
        model_file_close(f);
    }
    device_list_close(devices);
}

/* Few rows to a step, so that the groups are apart by whole steps when one loses its CPU. */
static void test_one_launch_repeats_under_load(void **state)
{
    (void)state;
    if (wanted_dtype && strcmp(wanted_dtype, "q8_0") != 0)
        return;
    struct device_list *devices = open_devices();
    struct model_file *f = open_synthetic(
        "n_layer=2,n_embd=64,n_ff=128,n_head=2,n_head_kv=1,head_dim=64,n_vocab=512,n_ctx=512",
        "q8_0");
    for (uint32_t d = 0; d < device_list_count(devices); d++)
        if (is_wanted(device_list_at(devices, d))) {
            repeat_under_load(devices, d, f, 1);
            repeat_under_load(devices, d, f, 4);
        }
    model_file_close(f);
    device_list_close(devices);
}

static bool has_device(void)
{
    struct device_list *devices;
    if (device_list_open(0, &devices, NULL) != ST_OK)
        return false;
    const bool found = device_list_at(devices, 0)->kind != DEVICE_HOST;
    device_list_close(devices);
    return found;
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--repeats") == 0)
            n_repeats = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else
            *(strcmp(argv[i], "--dtype") == 0 ? &wanted_dtype : &wanted_device) = argv[i + 1];
    }
    if (!has_device()) {
        printf("skipped: no OpenCL device\n");
        return EXIT_SKIPPED;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_launch_serves_all_models_of_cpus),
                                       cmocka_unit_test(test_one_launch_agrees_with_stepwise),
                                       cmocka_unit_test(test_one_launch_repeats_under_load)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed == 0 && compared == 0) {
        printf("nothing was compared: no device \"%s\" or no model of dtype \"%s\"\n",
               wanted_device ? wanted_device : "", wanted_dtype ? wanted_dtype : "");
        return EXIT_FAILURE;
    }
    return failed;
}
