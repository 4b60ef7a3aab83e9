/* The self-test of one-launch executors, on `host`: wrong tokens, tokens out of range, wrong logits
 * and NaN are found and the reason says which; what agrees with the plan passes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/cl/queue.h"
#include "engine/model/model.h"
#include "tests/assert_ok.h"
#include "tests/golden/tiny.h"

static struct engine *engine;
static struct model_file *file;
static struct model *model;
static uint32_t calls;

/* What the executors below say: the plan's own tokens, with `off` added, found as it is, and the
 * plan's own logits, those of another position where `other` is set. */
static struct {
    token_id tokens[2];
    token_id off;
    float found;
    float *logits, *others;
    bool other;
} answer;

static enum status run_answer(struct fused_plan *f, const struct fused_call *call, struct err *e)
{
    (void)f;
    (void)e;
    calls++;
    for (uint32_t t = 0; t < call->n_tokens; t++) {
        call->out[t] = answer.tokens[t] + answer.off;
        call->found[t] = answer.found;
    }
    if (call->n_logits > 0)
        memcpy(call->logits, answer.other ? answer.others : answer.logits,
               model_file_info(file)->n_vocab * sizeof *call->logits);
    return ST_OK;
}

static enum status never_meets(struct fused_plan *f, const struct fused_call *call, struct err *e)
{
    (void)f;
    (void)call;
    calls++;
    return err_set(e, ST_TIMEOUT, "2 groups did not meet");
}

static void close_nothing(struct fused_plan *f)
{
    (void)f;
}

static const struct fused_executor answering = {
    .name = "answer", .max_rows = 1, .max_tokens = 2, .run = run_answer, .close = close_nothing};
static const struct fused_executor stuck = {
    .name = "stuck", .max_rows = 1, .max_tokens = 2, .run = never_meets, .close = close_nothing};

/* A copy of the plan's logits after one more token of s. */
static float *logits_of(struct session *s, token_id token)
{
    const size_t n_bytes = model_file_info(file)->n_vocab * sizeof(float);
    struct step_item item = {.session = s, .tokens = &token, .n_tokens = 1, .want = STEP_LOGITS};
    ASSERT_OK(model_step(model, &item, 1, e));
    float *logits = malloc(n_bytes);
    assert_non_null(logits);
    memcpy(logits, item.logits, n_bytes);
    return logits;
}

static int open_model(void **state)
{
    (void)state;
    char path[] = "/tmp/oinfer-check-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct device_list *devices;
    const struct engine_options options = {0};
    const struct load_options load = {.n_ctx = 32};
    ASSERT_OK(tiny_write(&tiny_default, path, e));
    ASSERT_OK(device_list_open(0, &devices, e));
    ASSERT_OK(engine_open(devices, device_list_count(devices) - 1, &options, &engine, e));
    assert_true(device_is_host(engine_device(engine)));
    ASSERT_OK(model_file_open(path, &file, e));
    ASSERT_OK(model_load(engine, file, &load, &model, e));
    unlink(path);
    device_list_close(devices);
    struct session *s;
    ASSERT_OK(session_open(model, &s, e));
    const token_id first = 1;
    struct step_item item = {
        .session = s, .tokens = &first, .n_tokens = 1, .want = STEP_GREEDY, .n_greedy = 2};
    ASSERT_OK(model_step(model, &item, 1, e));
    assert_int_equal(item.n_out, 2);
    memcpy(answer.tokens, item.greedy, sizeof answer.tokens);
    answer.others = logits_of(s, 7);
    session_rewind(s, 0);
    answer.logits = logits_of(s, first);
    session_close(s);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    free(answer.logits);
    free(answer.others);
    model_close(model);
    model_file_close(file);
    engine_close(engine);
    return 0;
}

/* The reason that the self-test gives for an executor; "" when it passes. */
static const char *check(const struct fused_executor *executor)
{
    static char why[256];
    model->executor = executor;
    calls = 0;
    ASSERT_OK(model__check_fused(model, why, sizeof why, e));
    assert_true(calls > 0);
    model->executor = NULL;
    return why;
}

static void agreement_passes(void **state)
{
    (void)state;
    answer.off = 0;
    answer.found = 1.0f;
    assert_string_equal(check(&answering), "");
}

static void wrong_tokens_are_named(void **state)
{
    (void)state;
    answer.found = 1.0f;
    for (token_id off = 1; off <= 3; off++) {
        answer.off = off;
        assert_non_null(strstr(check(&answering), "token 0 is "));
    }
    answer.off = -1 - answer.tokens[0];
    assert_non_null(strstr(check(&answering), "token 0 is -1"));
    answer.off = 1000 * 1000;
    assert_non_null(strstr(check(&answering), "1.00 of the logits' spread"));
    answer.off = 0;
}

static void wrong_logits_are_named(void **state)
{
    (void)state;
    answer.off = 0;
    answer.found = 1.0f;
    answer.other = true;
    assert_non_null(strstr(check(&answering), "the logits' NMSE is "));
    answer.other = false;
}

/* NaN is not believed: the plan gives the step, and agrees with itself. */
static void nan_goes_to_the_plan(void **state)
{
    (void)state;
    answer.off = 5;
    answer.found = NAN;
    assert_string_equal(check(&answering), "");
    answer.off = 0;
}

static void giving_up_is_no_error(void **state)
{
    (void)state;
    assert_string_equal(check(&stuck), "");
    assert_null(model->executor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agreement_passes),       cmocka_unit_test(wrong_tokens_are_named),
        cmocka_unit_test(wrong_logits_are_named), cmocka_unit_test(nan_goes_to_the_plan),
        cmocka_unit_test(giving_up_is_no_error),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
