/* Request bodies as typed structs: defaults, limits, and memory running out at every place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/mem.h"
#include "server/request.h"

static const struct request_limits limits = {
    .choices = 16, .stop_strings = 16, .max_tokens = 1000, .deadline_ms = 60000};

static enum status parse(enum request_route route, const char *body, struct request **out,
                         struct fault *f)
{
    memset(f, 0, sizeof *f);
    return request_parse(route, body, strlen(body), &limits, out, f);
}

static void defaults(void **state)
{
    (void)state;
    struct request *r;
    struct fault f;
    assert_int_equal(parse(REQUEST_COMPLETION, "{\"prompt\":\"hi\"}", &r, &f), ST_OK);
    assert_int_equal(r->max_tokens, 16);
    assert_int_equal(r->n, 1);
    assert_int_equal(r->best_of, 1);
    assert_int_equal(r->logprobs, -1);
    assert_int_equal(r->seed, -1);
    assert_true(r->temperature == 1 && r->top_p == 1 && r->repeat_penalty == 1);
    assert_true(r->mirostat_eta == 0.1);
    assert_true(r->cache_prompt);
    assert_false(r->stream || r->echo || r->ignore_eos);
    assert_int_equal(r->timings, TIMINGS_SUMMARY);
    assert_int_equal(r->prompt.count, 1);
    assert_string_equal(r->prompt.items[0].text.data, "hi");
    assert_null(r->model.data);
    assert_string_equal(r->ignored, "");
    request_close(r);
}

static void everything(void **state)
{
    (void)state;
    struct request *r;
    struct fault f;
    static const char body[] =
        "{\"model\":\"m\",\"prompt\":[[1,2],[3]],\"max_tokens\":0,\"n\":2,\"best_of\":3,\"echo\":"
        "true,"
        "\"stop\":[\"a\",\"\\u00e9\"],\"stop_token_ids\":[7],\"logprobs\":5,"
        "\"logit_bias\":{\"9\":-100,\"3\":2.5},\"temperature\":0,\"seed\":9007199254740992,"
        "\"timings\":\"kernels\",\"unknown\":{\"x\":[1]},\"other field\":1}";
    assert_int_equal(parse(REQUEST_COMPLETION, body, &r, &f), ST_OK);
    assert_int_equal(r->prompt.count, 2);
    assert_true(r->prompt.many);
    assert_int_equal(r->prompt.items[0].ids.ids[1], 2);
    assert_int_equal(r->stop.count, 2);
    assert_int_equal(r->stop.items[1].length, 2);
    assert_int_equal(r->logit_bias.items[0].id, 3);
    assert_true(r->logit_bias.items[1].bias == -100);
    assert_int_equal(r->seed, INT64_C(1) << 53);
    assert_int_equal(r->timings, TIMINGS_KERNELS);
    assert_string_equal(r->ignored, "unknown, other?field");
    request_close(r);
}

static void many_unknown_fields_are_cut(void **state)
{
    (void)state;
    struct strbuf body;
    struct request *r;
    struct fault f;
    strbuf_init(&body, 1 << 20);
    strbuf_puts(&body, "{\"prompt\":\"x\"");
    for (int i = 0; i < 200; i++)
        strbuf_printf(&body, ",\"unknown_field_%d\":1", i);
    strbuf_putc(&body, '}');
    assert_int_equal(parse(REQUEST_COMPLETION, strbuf_text(&body), &r, &f), ST_OK);
    assert_true(strlen(r->ignored) < sizeof r->ignored);
    assert_non_null(strstr(r->ignored, "unknown_field_3"));
    request_close(r);
    strbuf_free(&body);
}

static void refusals_name_the_field(void **state)
{
    (void)state;
    static const struct {
        enum request_route route;
        const char *body, *param;
        enum fault_kind kind;
    } cases[] = {
        {REQUEST_COMPLETION, "[]", "", FAULT_BAD_REQUEST},
        {REQUEST_COMPLETION, "{}", "prompt", FAULT_BAD_REQUEST},
        {REQUEST_COMPLETION, "{\"prompt\":1}", "prompt", FAULT_BAD_REQUEST},
        {REQUEST_COMPLETION, "{\"prompt\":[1,\"a\"]}", "prompt", FAULT_BAD_REQUEST},
        {REQUEST_COMPLETION, "{\"prompt\":\"x\",\"max_tokens\":1001}", "max_tokens",
         FAULT_BAD_REQUEST},
        {REQUEST_COMPLETION, "{\"prompt\":\"x\",\"max_tokens\":1e999}", "max_tokens",
         FAULT_BAD_REQUEST},
        {REQUEST_COMPLETION, "{\"prompt\":\"x\",\"temperature\":-1e-9}", "temperature",
         FAULT_BAD_REQUEST},
        {REQUEST_COMPLETION, "{\"prompt\":\"x\",\"deadline_ms\":60001}", "deadline_ms",
         FAULT_BAD_REQUEST},
        {REQUEST_COMPLETION, "{\"prompt\":\"x\",\"n\":17}", "n", FAULT_BAD_REQUEST},
        {REQUEST_COMPLETION, "{\"prompt\":\"x\",\"grammar\":\"\"}", "grammar", FAULT_UNSUPPORTED},
        {REQUEST_COMPLETION, "{\"prompt\":\"x\",\"prompt\":\"x\"}", "prompt", FAULT_BAD_REQUEST},
        {REQUEST_COMPLETION, "{\"prompt\":\"x\",\"stream_options\":[]}", "stream_options",
         FAULT_BAD_REQUEST},
        {REQUEST_TOKENIZE, "{\"tokens\":[1]}", "content", FAULT_BAD_REQUEST},
        {REQUEST_DETOKENIZE, "{\"content\":\"x\"}", "tokens", FAULT_BAD_REQUEST},
        {REQUEST_DETOKENIZE, "{\"tokens\":[1,-1]}", "tokens", FAULT_BAD_REQUEST},
        {REQUEST_DETOKENIZE, "{\"tokens\":[2147483648]}", "tokens", FAULT_BAD_REQUEST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request *r;
        struct fault f;
        assert_int_not_equal(parse(cases[i].route, cases[i].body, &r, &f), ST_OK);
        assert_null(r);
        assert_int_equal(f.kind, cases[i].kind);
        assert_string_equal(f.param, cases[i].param);
        assert_true(f.message[0] != '\0');
    }
}

static void null_is_absent(void **state)
{
    (void)state;
    struct request *r;
    struct fault f;
    static const char body[] =
        "{\"prompt\":\"x\",\"max_tokens\":null,\"stop\":null,\"logit_bias\":null,"
        "\"grammar\":null,\"stream\":null,\"timings\":null,\"seed\":null}";
    assert_int_equal(parse(REQUEST_COMPLETION, body, &r, &f), ST_OK);
    assert_int_equal(r->max_tokens, 16);
    assert_int_equal(r->stop.count, 0);
    request_close(r);
}

/* S14: each row of the table with every kind of value: a request or a 400, whatever the value. */
static void every_field_with_every_value(void **state)
{
    (void)state;
    static const char *const names[] = {
#define FIELD(name, kind, routes, fallback, min, max, detail) #name,
#include "server/request.def"
#undef FIELD
    };
    static const char *const values[] = {"-1",
                                         "0",
                                         "1",
                                         "2147483647",
                                         "2147483648",
                                         "-9223372036854775808",
                                         "9223372036854775808",
                                         "1e308",
                                         "-1e999",
                                         "0.5",
                                         "\"x\"",
                                         "\"\"",
                                         "null",
                                         "[]",
                                         "{}",
                                         "true",
                                         "false",
                                         "[null]",
                                         "[[]]",
                                         "[[[]]]",
                                         "[1,2]",
                                         "[\"a\"]",
                                         "{\"1\":1}",
                                         "{\"a\":null}",
                                         "[-1]",
                                         "[1.5]",
                                         "[1e10]"};
    static const enum request_route routes[] = {REQUEST_COMPLETION, REQUEST_TOKENIZE,
                                                REQUEST_DETOKENIZE};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            for (size_t k = 0; k < 3; k++) {
                char body[256];
                struct request *r;
                struct fault f;
                snprintf(body, sizeof body, "{\"%s\":%s}", names[i], values[v]);
                if (parse(routes[k], body, &r, &f) != ST_OK)
                    assert_int_equal(fault_http_status(f.kind), 400);
                request_close(r);
            }
        }
    }
}

static void out_of_memory_is_503(void **state)
{
    (void)state;
    static const char body[] =
        "{\"prompt\":[\"a\",[1,2]],\"stop\":[\"x\"],\"logit_bias\":{\"1\":1},"
        "\"user\":\"u\",\"foo\":1,\"stop_token_ids\":[1]}";
    bool succeeded = false;
    for (uint64_t n = 1; n < 300 && !succeeded; n++) {
        struct request *r;
        struct fault f;
        mem_fail_at(n, 0);
        enum status status = parse(REQUEST_COMPLETION, body, &r, &f);
        mem_fail_at(0, 0);
        succeeded = status == ST_OK;
        if (!succeeded)
            assert_int_equal(fault_http_status(f.kind), 503);
        request_close(r);
    }
    assert_true(succeeded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(everything),
        cmocka_unit_test(many_unknown_fields_are_cut),
        cmocka_unit_test(refusals_name_the_field),
        cmocka_unit_test(null_is_absent),
        cmocka_unit_test(every_field_with_every_value),
        cmocka_unit_test(out_of_memory_is_503),
    };
    request_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
