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

/* What the executors below say: the plan's own tokens, with `off` added, and found as it is. */
static struct {
    token_id tokens[2];
    token_id off;
    float found;
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

static const struct fused_executor tokens_only = {
    .name = "answer", .max_rows = 1, .max_tokens = 2, .run = run_answer, .close = close_nothing};
static const struct fused_executor with_logits = {.name = "answer with logits",
                                                  .max_rows = 1,
                                                  .max_tokens = 2,
                                                  .leaves_logits = true,
                                                  .run = run_answer,
                                                  .close = close_nothing};
static const struct fused_executor stuck = {
    .name = "stuck", .max_rows = 1, .max_tokens = 2, .run = never_meets, .close = close_nothing};

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
    session_close(s);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
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
    model->fused_reads = model->plans[0];
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
    assert_string_equal(check(&tokens_only), "");
}

static void wrong_tokens_are_named(void **state)
{
    (void)state;
    answer.found = 1.0f;
    for (token_id off = 1; off <= 3; off++) {
        answer.off = off;
        assert_non_null(strstr(check(&tokens_only), "token 0 is "));
    }
    answer.off = -1 - answer.tokens[0];
    assert_non_null(strstr(check(&tokens_only), "token 0 is -1"));
    answer.off = 1000 * 1000;
    assert_non_null(strstr(check(&tokens_only), "1.00 of the logits' spread"));
    answer.off = 0;
}

/* The plan's logits are there from the step before, at another position: not these ones. */
static void wrong_logits_are_named(void **state)
{
    (void)state;
    struct session *s;
    const token_id other[3] = {7, 3, 9};
    struct step_item item = {.tokens = other, .n_tokens = 3, .want = STEP_LOGITS};
    answer.off = 0;
    answer.found = 1.0f;
    ASSERT_OK(session_open(model, &s, e));
    item.session = s;
    ASSERT_OK(model_step(model, &item, 1, e));
    session_close(s);
    assert_non_null(strstr(check(&with_logits), "the logits' NMSE is "));
}

/* NaN is not believed: the plan gives the step, and agrees with itself. */
static void nan_goes_to_the_plan(void **state)
{
    (void)state;
    answer.off = 5;
    answer.found = NAN;
    assert_string_equal(check(&tokens_only), "");
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
