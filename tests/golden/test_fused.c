/* One launch for several tokens against a launch per step: the same model, the same sequence.
 *
 * On every device that has a one-launch executor, for several dtypes and shapes: tokens that one
 * launch decoded must be among the best under the stepwise logits at their place (the two round
 * differently, so that near ties may part), and the cells that it wrote must give the same logits
 * as cells written stepwise.
 *   test_fused [--device TEXT]   only devices whose name or platform contains TEXT
 */
#include <setjmp.h>
#include <stdarg.h>
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
#define EXIT_SKIPPED 77

static const char *wanted_device;

static const struct {
    const char *shape, *dtype;
    uint32_t n_prompt;
} models[] = {
    {"tiny,n_layer=3,n_embd=256,n_ff=768,n_head=4,n_head_kv=2,head_dim=64", "q4_0", N_PROMPT},
    {"tiny,n_layer=2,n_embd=576,n_ff=1536,n_head=9,n_head_kv=3,tied=1", "q4_1", N_LONG},
    {"tiny,n_layer=2,n_embd=512,n_ff=1280,n_head=8,n_head_kv=8,head_dim=64", "q8_0", N_PROMPT},
    {"tiny,n_layer=4,n_embd=512,n_ff=1024,n_head=4,n_head_kv=2,head_dim=128", "q4_k_m", N_PROMPT},
    {"tiny,n_layer=2,n_embd=512,n_ff=1024,n_head=8,n_head_kv=2,head_dim=64,window=16", "q5_0",
     N_PROMPT},
    {"tiny,n_layer=2,n_embd=256,n_ff=512,n_head=4,n_head_kv=4,head_dim=64,rope_freqs=1", "q6_k",
     N_PROMPT},
    {"tiny,n_layer=2,n_embd=512,n_ff=1536,n_head=8,n_head_kv=4,head_dim=64", "f16", N_PROMPT},
};

struct loaded {
    struct engine *engine;
    struct model *model;
    struct session *session;
};

static void load(const struct device_list *devices, uint32_t index, const struct model_file *f,
                 bool stepwise, struct loaded *l)
{
    struct err e = {0};
    const struct engine_options options = {.stepwise = stepwise};
    const struct load_options loading = {.n_ctx = 384, .n_batch = 256};
    if (engine_open(devices, index, &options, &l->engine, &e) != ST_OK ||
        model_load(l->engine, f, &loading, &l->model, &e) != ST_OK ||
        session_open(l->model, &l->session, &e) != ST_OK)
        fail_msg("%s", e.text);
}

static void unload(struct loaded *l)
{
    model_close(l->model);
    engine_close(l->engine);
}

/* Feeds tokens and leaves the logits after the last one in item->logits. */
static void feed(struct loaded *l, const token_id *tokens, uint32_t n, struct step_item *item)
{
    struct err e = {0};
    *item = (struct step_item){
        .session = l->session, .tokens = tokens, .n_tokens = n, .want = STEP_LOGITS};
    if (model_step(l->model, item, 1, &e) != ST_OK)
        fail_msg("%s", e.text);
}

/* Decodes N_DECODED tokens after the prompt [n_prompt], PER_STEP a step. */
static void decode(struct loaded *l, const token_id *prompt, uint32_t n_prompt, token_id *out)
{
    struct err e = {0};
    for (uint32_t n = 0; n < N_DECODED;) {
        struct step_item item = {.session = l->session,
                                 .tokens = n == 0 ? prompt : out + n - 1,
                                 .n_tokens = n == 0 ? n_prompt : 1,
                                 .want = STEP_GREEDY,
                                 .n_greedy = n + PER_STEP > N_DECODED ? N_DECODED - n : PER_STEP};
        if (model_step(l->model, &item, 1, &e) != ST_OK)
            fail_msg("%s", e.text);
        assert_in_range(item.n_out, 1, item.n_greedy);
        memcpy(out + n, item.greedy, item.n_out * sizeof *out);
        n += item.n_out;
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

static void compare(const struct device_list *devices, uint32_t index, const char *path,
                    const char *dtype, uint32_t n_prompt)
{
    struct err e = {0};
    struct model_file *f;
    if (model_file_open(path, &f, &e) != ST_OK)
        fail_msg("%s", e.text);
    const uint32_t n_vocab = model_file_info(f)->n_vocab;
    struct loaded fused, stepwise;
    load(devices, index, f, false, &fused);
    load(devices, index, f, true, &stepwise);
    token_id prompt[N_LONG], out[N_DECODED];
    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = (token_id)(3 + i * 37 % (n_vocab - 3));
    decode(&fused, prompt, n_prompt, out);

    struct step_item item, other;
    float worst = 0.0f;
    uint32_t same = 0;
    feed(&stepwise, prompt, n_prompt, &item);
    for (uint32_t i = 0; i < N_DECODED; i++) {
        const float share = share_below_best(item.logits, n_vocab, out[i]);
        same += share == 0.0f;
        worst = share > worst ? share : worst;
        if (i + 1 < N_DECODED)
            feed(&stepwise, &out[i], 1, &item);
    }
    feed(&stepwise, &out[N_DECODED - 1], 1, &item);
    feed(&fused, &out[N_DECODED - 1], 1, &other);
    const double error = nmse(other.logits, item.logits, n_vocab);
    printf("%s, %s: %u of %d tokens the best stepwise, worst %.4f below; logits NMSE %.2e\n",
           device_list_at(devices, index)->name, dtype, same, N_DECODED, (double)worst, error);
    assert_true(worst <= SHARE);
    assert_true(error <= NMSE_BOUND);
    unload(&fused);
    unload(&stepwise);
    model_file_close(f);
}

static void test_one_launch_agrees_with_stepwise(void **state)
{
    (void)state;
    struct err e = {0};
    struct device_list *devices;
    if (device_list_open(0, &devices, &e) != ST_OK)
        fail_msg("%s", e.text);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[] = "/tmp/oinfer-fused-XXXXXX";
        const int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        struct synth_shape shape;
        struct synth_dtype dtype;
        if (synth_shape_parse(models[i].shape, &shape, &e) != ST_OK ||
            synth_dtype_parse(models[i].dtype, &dtype, &e) != ST_OK ||
            synth_write(&shape, dtype, path, &e) != ST_OK)
            fail_msg("%s", e.text);
        for (uint32_t d = 0; d < device_list_count(devices); d++) {
            const struct device_info *info = device_list_at(devices, d);
            if (info->kind != DEVICE_HOST && info->available &&
                (!wanted_device || strstr(info->name, wanted_device) ||
                 strstr(info->platform, wanted_device)))
                compare(devices, d, path, models[i].dtype, models[i].n_prompt);
        }
        unlink(path);
    }
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
    if (argc == 3 && strcmp(argv[1], "--device") == 0)
        wanted_device = argv[2];
    if (!has_device()) {
        printf("skipped: no OpenCL device\n");
        return EXIT_SKIPPED;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_launch_agrees_with_stepwise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
