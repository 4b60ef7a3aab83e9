/* The engine on `host` with tiny models: loading and its refusals, sessions, batches of several
 * sequences, greedy decoding, rewinding, NaN in a weight, and failing allocations. */
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
#include "engine/base/mem.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "tests/assert_ok.h"
#include "tests/golden/tiny.h"

#define N_PROMPT 12

static char path[64];
static struct device_list *devices;
static uint32_t host;

struct fixture {
    struct engine *engine;
    struct model_file *file;
    struct model *model;
};

static enum status open_with(struct fixture *f, const struct load_options *load,
                             uint64_t memory_limit, struct err *e)
{
    const struct engine_options options = {.device = {.memory_limit_bytes = memory_limit}};
    memset(f, 0, sizeof *f);
    enum status status = engine_open(devices, host, &options, &f->engine, e);
    if (status == ST_OK)
        status = model_file_open(path, &f->file, e);
    if (status == ST_OK)
        status = model_load(f->engine, f->file, load, &f->model, e);
    return status;
}

static void close_all(struct fixture *f)
{
    model_close(f->model);
    model_file_close(f->file);
    engine_close(f->engine);
}

static void write_default(void)
{
    ASSERT_OK(tiny_write(&tiny_default, path, e));
}

static token_id prompt_token(uint32_t seed, uint32_t i)
{
    return (token_id)((i * 31 + seed * 7 + 5) % tiny_default.n_vocab);
}

static void fill_prompt(token_id *tokens, uint32_t seed)
{
    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = prompt_token(seed, i);
}

/* Greedy tokens after a prompt, alone in the model and one per step. */
static void decode_alone(struct model *m, const token_id *prompt, token_id *out, uint32_t n)
{
    struct session *s;
    ASSERT_OK(session_open(m, &s, e));
    struct step_item item = {
        .session = s, .tokens = prompt, .n_tokens = N_PROMPT, .want = STEP_GREEDY, .n_greedy = 1};
    for (uint32_t i = 0; i < n; i++) {
        ASSERT_OK(model_step(m, &item, 1, e));
        assert_int_equal(item.n_out, 1);
        out[i] = item.greedy[0];
        item.tokens = &out[i];
        item.n_tokens = 1;
    }
    session_close(s);
}

static void many_greedy_tokens_are_the_single_ones(void **state)
{
    (void)state;
    struct fixture f;
    token_id prompt[N_PROMPT], alone[8];
    const struct load_options load = {.n_ctx = 64};
    write_default();
    ASSERT_OK(open_with(&f, &load, 0, e));
    fill_prompt(prompt, 0);
    decode_alone(f.model, prompt, alone, 8);
    struct session *s;
    ASSERT_OK(session_open(f.model, &s, e));
    struct step_item item = {
        .session = s, .tokens = prompt, .n_tokens = N_PROMPT, .want = STEP_GREEDY, .n_greedy = 8};
    ASSERT_OK(model_step(f.model, &item, 1, e));
    for (uint32_t i = 0; i < item.n_out; i++)
        assert_int_equal(item.greedy[i], alone[i]);
    assert_true(item.n_out == 8 ||
                tokenizer_is_eog(model_file_tokenizer(f.file), item.greedy[item.n_out - 1]));
    assert_int_equal(session_length(s), N_PROMPT + item.n_out - 1); /* all but the last */
    assert_memory_equal(session_tokens(s), prompt, sizeof prompt);
    close_all(&f);
}

static void sequences_in_company_are_as_alone(void **state)
{
    (void)state;
    enum { N = 3, STEPS = 5 };
    struct fixture f;
    token_id prompts[N][N_PROMPT], alone[N][STEPS], last[N];
    const struct load_options load = {.n_ctx = 64, .n_slots = N};
    struct session *sessions[N];
    struct step_item items[N];
    write_default();
    ASSERT_OK(open_with(&f, &load, 0, e));
    for (uint32_t i = 0; i < N; i++) {
        fill_prompt(prompts[i], i);
        decode_alone(f.model, prompts[i], alone[i], STEPS);
    }
    /* sequence i joins at step i: prompts and single tokens share a step */
    for (uint32_t step = 0; step < STEPS + N - 1; step++) {
        uint32_t n = 0, who[N];
        for (uint32_t i = 0; i < N; i++) {
            if (step < i || step - i >= STEPS)
                continue;
            if (step == i)
                ASSERT_OK(session_open(f.model, &sessions[i], e));
            who[n] = i;
            items[n++] = (struct step_item){.session = sessions[i],
                                            .tokens = step == i ? prompts[i] : &last[i],
                                            .n_tokens = step == i ? N_PROMPT : 1,
                                            .want = STEP_GREEDY,
                                            .n_greedy = 1};
        }
        ASSERT_OK(model_step(f.model, items, n, e));
        for (uint32_t j = 0; j < n; j++) {
            last[who[j]] = items[j].greedy[0];
            assert_int_equal(last[who[j]], alone[who[j]][step - who[j]]);
        }
    }
    close_all(&f);
}

static void logits_and_greedy_share_a_step(void **state)
{
    (void)state;
    struct fixture f;
    token_id a[N_PROMPT], b[N_PROMPT], expected;
    const struct load_options load = {.n_ctx = 64, .n_slots = 2};
    write_default();
    ASSERT_OK(open_with(&f, &load, 0, e));
    fill_prompt(a, 1);
    fill_prompt(b, 2);
    decode_alone(f.model, b, &expected, 1);
    struct step_item items[2] = {
        {.tokens = a, .n_tokens = N_PROMPT, .want = STEP_ALL_LOGITS},
        {.tokens = b, .n_tokens = N_PROMPT, .want = STEP_GREEDY, .n_greedy = 1}};
    ASSERT_OK(session_open(f.model, &items[0].session, e));
    ASSERT_OK(session_open(f.model, &items[1].session, e));
    ASSERT_OK(model_step(f.model, items, 2, e));
    assert_int_equal(items[0].n_out, N_PROMPT);
    assert_int_equal(items[1].greedy[0], expected);
    /* the last row of all logits is what STEP_LOGITS gives */
    const uint32_t n_vocab = tiny_default.n_vocab;
    float *row = malloc(n_vocab * sizeof *row);
    assert_non_null(row);
    memcpy(row, items[0].logits + (size_t)(N_PROMPT - 1) * n_vocab, n_vocab * sizeof *row);
    session_rewind(items[0].session, N_PROMPT - 1);
    struct step_item again = {.session = items[0].session,
                              .tokens = &a[N_PROMPT - 1],
                              .n_tokens = 1,
                              .want = STEP_LOGITS};
    ASSERT_OK(model_step(f.model, &again, 1, e));
    assert_int_equal(again.n_out, 1);
    for (uint32_t i = 0; i < n_vocab; i++)
        assert_true(fabsf(again.logits[i] - row[i]) < 1e-4f);
    free(row);
    close_all(&f);
}

static void bad_steps_are_refused_and_change_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct err err;
    token_id prompt[N_PROMPT], bad = (token_id)tiny_default.n_vocab;
    const struct load_options load = {.n_ctx = 16, .n_slots = 2, .n_batch = 14};
    write_default();
    ASSERT_OK(open_with(&f, &load, 0, e));
    fill_prompt(prompt, 0);
    struct session *s, *other, *third;
    ASSERT_OK(session_open(f.model, &s, e));
    ASSERT_OK(session_open(f.model, &other, e));
    assert_int_equal(session_open(f.model, &third, &err), ST_BUSY);
    const struct {
        struct step_item items[2];
        uint32_t n;
        enum status status;
        const char *says;
    } cases[] = {
        {{{.session = s, .tokens = &bad, .n_tokens = 1}}, 1, ST_INVALID, "token 0 is 288"},
        {{{.session = s, .tokens = prompt, .n_tokens = 0}}, 1, ST_INVALID, "no tokens"},
        {{{.session = s, .tokens = prompt, .n_tokens = 2},
          {.session = s, .tokens = prompt, .n_tokens = 2}},
         2,
         ST_INVALID,
         "same session"},
        {{{.session = s, .tokens = prompt, .n_tokens = 8},
          {.session = other, .tokens = prompt, .n_tokens = 8}},
         2,
         ST_INVALID,
         "at most 14"},
        {{{.session = s,
           .tokens = prompt,
           .n_tokens = N_PROMPT,
           .want = STEP_GREEDY,
           .n_greedy = 6}},
         1,
         ST_CONTEXT_FULL,
         "the context holds 16"},
        {{{.session = s,
           .tokens = prompt,
           .n_tokens = 1,
           .want = STEP_GREEDY,
           .n_greedy = STEP_MAX_GREEDY + 1}},
         1,
         ST_INVALID,
         "33 greedy tokens"},
        {{{.session = NULL, .tokens = prompt, .n_tokens = 1}}, 1, ST_INVALID, "not of this model"},
        {{{.session = s}}, 0, ST_INVALID, "0 items"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct step_item items[2];
        memcpy(items, cases[i].items, sizeof items);
        assert_int_equal(model_step(f.model, items, cases[i].n, &err), cases[i].status);
        assert_non_null(strstr(err.text, cases[i].says));
        assert_int_equal(session_length(s), 0);
    }
    session_close(other);
    ASSERT_OK(session_open(f.model, &third, e)); /* the seat is free again */
    close_all(&f);
}

static void poison_is_reported_with_its_place(float poison)
{
    struct fixture f;
    struct err err;
    token_id prompt[N_PROMPT];
    struct tiny t = tiny_default;
    const struct load_options load = {.n_ctx = 32};
    t.poison = poison;
    ASSERT_OK(tiny_write(&t, path, e));
    ASSERT_OK(open_with(&f, &load, 0, e));
    fill_prompt(prompt, 0);
    for (int want = STEP_GREEDY; want <= STEP_LOGITS; want++) {
        struct session *s;
        ASSERT_OK(session_open(f.model, &s, e));
        struct step_item item = {.session = s,
                                 .tokens = prompt,
                                 .n_tokens = N_PROMPT,
                                 .want = (enum step_want)want,
                                 .n_greedy = 4};
        assert_int_equal(model_step(f.model, &item, 1, &err), ST_NUMERIC);
        assert_non_null(strstr(err.text, "ffn_norm"));
        assert_non_null(strstr(err.text, "layer 1"));
        assert_int_equal(session_length(s), 0);
        session_close(s);
    }
    close_all(&f);
}

static void nan_or_infinity_in_a_weight_is_reported_with_its_place(void **state)
{
    (void)state;
    poison_is_reported_with_its_place(NAN);
    poison_is_reported_with_its_place(INFINITY);
    poison_is_reported_with_its_place(-INFINITY);
}

static bool cancel_soon(void *user, uint64_t done, uint64_t total, uint32_t kernels)
{
    (void)kernels;
    assert_true(done <= total);
    return ++*(int *)user < 3;
}

static void loading_is_refused_with_reasons(void **state)
{
    (void)state;
    struct fixture f;
    struct err err;
    int calls = 0;
    write_default();
    const struct {
        struct load_options load;
        uint64_t memory_limit;
        enum status status;
        const char *says;
    } cases[] = {
        {{.n_ctx = 1024}, 0, ST_INVALID, "trained for 512"},
        {{.n_slots = 1000}, 0, ST_INVALID, "slots: 1000"},
        {{.n_batch = 1u << 20}, 0, ST_INVALID, "batch: 1048576"},
        {{.progress = cancel_soon, .user = &calls}, 0, ST_CANCELLED, "cancelled"},
        {{.n_ctx = 512, .n_slots = 64}, 1 << 20, ST_NO_DEVICE_MEMORY, "KV cache"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(open_with(&f, &cases[i].load, cases[i].memory_limit, &err),
                         cases[i].status);
        assert_non_null(strstr(err.text, cases[i].says));
        assert_null(f.model);
        close_all(&f);
    }
    assert_int_equal(calls, 3);
}

static void report_tells_what_is_where(void **state)
{
    (void)state;
    struct fixture f;
    char line[160];
    const struct load_options load = {.n_ctx = 100, .n_slots = 2};
    write_default();
    ASSERT_OK(open_with(&f, &load, 0, e));
    const struct load_report *r = model_load_report(f.model);
    struct device_memory memory = device_memory(engine_device(f.engine));
    assert_true(r->in_place_bytes > 0 && r->weights_bytes > 0 && r->load_ms > 0);
    assert_int_equal(r->kv_bytes, memory.kv_bytes);
    assert_int_equal(r->kv_bytes, 2ull * 2 * 2 * 2 * 128 * 64 * 2); /* 100 is padded to 128 */
    assert_true(model_plan_line(f.model, 1, 0, line, sizeof line));
    assert_non_null(strstr(line, "embed"));
    assert_false(model_plan_line(f.model, 1, 1000, line, sizeof line));
    close_all(&f);
}

/* Every allocation of opening, loading and stepping fails once: an error, no crash, no leak. */
static void failing_allocations_are_survived(void **state)
{
    (void)state;
    token_id prompt[N_PROMPT];
    struct err err = {0};
    const struct load_options load = {.n_ctx = 32};
    write_default();
    fill_prompt(prompt, 0);
    for (uint64_t n = 1;; n++) {
        struct fixture f;
        struct session *s = NULL;
        mem_fail_at(n, 0);
        enum status status = open_with(&f, &load, 0, &err);
        if (status == ST_OK)
            status = session_open(f.model, &s, &err);
        if (status == ST_OK) {
            struct step_item item = {
                .session = s, .tokens = prompt, .n_tokens = N_PROMPT, .want = STEP_LOGITS};
            status = model_step(f.model, &item, 1, &err);
        }
        bool done = mem_fail_at(0, 0) < n;
        close_all(&f);
        if (done) {
            assert_int_equal(status, ST_OK);
            assert_true(n > 50);
            return;
        }
        if (status != ST_OK && status != ST_NO_MEMORY && status != ST_NO_DEVICE_MEMORY)
            fail_msg("allocation %llu: %s: %s", (unsigned long long)n, status_name(status),
                     err.text);
    }
}

static int open_devices(void **state)
{
    (void)state;
    log_init(LOG_ERROR, 0);
    snprintf(path, sizeof path, "/tmp/oinfer-engine-%ld.gguf", (long)getpid());
    if (device_list_open(0, &devices, NULL) != ST_OK)
        return -1;
    uint32_t n = 1;
    return device_select(devices, "host", &host, &n, NULL) == ST_OK ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    unlink(path);
    device_list_close(devices);
    return 0;
}

/* The file is cut between being opened and being loaded, while it is used, and is whole again. */
static void a_file_that_is_cut_is_an_error(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct err error = {0};
    token_id prompt[N_PROMPT];
    const struct load_options load = {.n_ctx = 64};
    write_default();
    ASSERT_OK(open_with(&f, &load, 0, e));
    assert_true(model_load_report(f.model)->in_place_bytes > 0);
    fill_prompt(prompt, 0);
    struct session *s;
    ASSERT_OK(session_open(f.model, &s, e));
    struct step_item item = {
        .session = s, .tokens = prompt, .n_tokens = N_PROMPT, .want = STEP_GREEDY, .n_greedy = 1};
    const off_t n = (off_t)model_file_info(f.file)->file_bytes;
    assert_int_equal(truncate(path, n / 2), 0);
    assert_int_equal(model_step(f.model, &item, 1, &error), ST_IO);
    assert_non_null(strstr(error.text, path));
    assert_int_equal(session_length(s), 0);
    session_close(s);
    model_close(f.model);
    f.model = NULL;
    assert_int_equal(model_load(f.engine, f.file, &load, &f.model, &error), ST_IO);
    assert_non_null(strstr(error.text, path));
    f.model = NULL;
    close_all(&f);
    write_default();
    ASSERT_OK(open_with(&f, &load, 0, e));
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_greedy_tokens_are_the_single_ones),
        cmocka_unit_test(sequences_in_company_are_as_alone),
        cmocka_unit_test(logits_and_greedy_share_a_step),
        cmocka_unit_test(bad_steps_are_refused_and_change_nothing),
        cmocka_unit_test(nan_or_infinity_in_a_weight_is_reported_with_its_place),
        cmocka_unit_test(loading_is_refused_with_reasons),
        cmocka_unit_test(report_tells_what_is_where),
        cmocka_unit_test(failing_allocations_are_survived),
        cmocka_unit_test(a_file_that_is_cut_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
