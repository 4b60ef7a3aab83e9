/* The store: replacement, limits, checks, and records as text. */
#include "tune_test.h"

#include <math.h>

#include "engine/tune/store.h"

static struct tune_record sample(const char *shape)
{
    struct tune_record r = {.variant = "rows",
                            .dtype = DT_Q4_0,
                            .device = "Some Device (TM) 3",
                            .driver = "1.2-3",
                            .source = 0x0123456789abcdefu,
                            .version = TUNER_VERSION,
                            .settings = "ROWS=2 LWS=64",
                            .ns = 1234.5,
                            .standard_ns = 2000,
                            .work = 2e6};
    assert_int_equal(shape_parse(OP_LINEAR, shape, &r.shape, NULL), ST_OK);
    return r;
}

static void newer_records_replace_older_ones_of_their_class(void **state)
{
    (void)state;
    struct tune_store *s;
    assert_int_equal(store_open(&s, NULL), ST_OK);
    struct tune_record r = sample("m=1000,k=512"), other = sample("m=1024,k=512");
    other.ns = 99;
    assert_int_equal(store_add(s, &r, NULL), ST_OK);
    assert_int_equal(store_add(s, &other, NULL), ST_OK); /* of the same class */
    assert_true(store_at(s, 0)->ns == 99);
    assert_null(store_at(s, 1));
    struct tune_record others[] = {other, other, other, other, other};
    snprintf(others[0].variant, sizeof others[0].variant, "tile");
    snprintf(others[1].device, sizeof others[1].device, "another");
    snprintf(others[2].driver, sizeof others[2].driver, "4");
    others[3].dtype = DT_Q8_0;
    others[4] = sample("m=1024,k=4096");
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(store_add(s, &others[i], NULL), ST_OK);
        assert_non_null(store_at(s, 1 + i));
    }
    other.source++; /* a changed kernel's record takes the place of the old one's */
    assert_int_equal(store_add(s, &other, NULL), ST_OK);
    assert_null(store_at(s, 6));
    assert_true(store_at(s, 5)->source == other.source);
    struct tune_store *copy;
    assert_int_equal(store_open(&copy, NULL), ST_OK);
    assert_int_equal(store_merge(copy, s, NULL), ST_OK);
    assert_int_equal(store_merge(copy, s, NULL), ST_OK);
    assert_non_null(store_at(copy, 5));
    assert_null(store_at(copy, 6));
    store_close(copy);
    store_close(s);
    store_close(NULL);
}

static void a_full_store_drops_the_oldest(void **state)
{
    (void)state;
    struct tune_store *s;
    assert_int_equal(store_open(&s, NULL), ST_OK);
    struct tune_record r = sample("m=16,k=16");
    for (uint32_t i = 0; i <= STORE_MAX_RECORDS; i++) {
        snprintf(r.device, sizeof r.device, "device %u", i);
        assert_int_equal(store_add(s, &r, NULL), ST_OK);
    }
    assert_string_equal(store_at(s, 0)->device, "device 1");
    assert_non_null(store_at(s, STORE_MAX_RECORDS - 1));
    assert_null(store_at(s, STORE_MAX_RECORDS));
    store_close(s);
}

static void malformed_records_are_refused(void **state)
{
    (void)state;
    struct tune_store *s;
    assert_int_equal(store_open(&s, NULL), ST_OK);
    struct tune_record bad[11];
    for (size_t i = 0; i < 11; i++)
        bad[i] = sample("m=16,k=16");
    bad[0].ns = 0;
    bad[1].ns = NAN;
    bad[2].work = -1;
    bad[3].standard_ns = INFINITY;
    bad[4].variant[0] = '\0';
    snprintf(bad[5].device, sizeof bad[5].device, "a\tb");
    memset(bad[6].driver, 'x', sizeof bad[6].driver);
    bad[7].dtype = DT_COUNT;
    bad[8].shape.dims[1] = 0;
    bad[9].shape.op = OP_ROPE_KV;
    snprintf(bad[10].settings, sizeof bad[10].settings, "ROWS=2 LWS");
    for (size_t i = 0; i < 11; i++) {
        struct err e = {0};
        assert_int_equal(store_add(s, &bad[i], &e), ST_INVALID);
        assert_true(e.text[0] != '\0');
    }
    assert_null(store_at(s, 0));
    store_close(s);
}

static void records_survive_as_text(void **state)
{
    (void)state;
    const struct tune_record r = sample("m=4096,k=11008,n_tokens=8");
    struct tune_record back;
    char text[RECORD_TEXT_BYTES], again[RECORD_TEXT_BYTES];
    struct err e = {0};
    assert_int_equal(record_write(&r, text, NULL), ST_OK);
    assert_string_equal(text, "linear\trows\tq4_0\tm=4096,k=11008,n_tokens=8\tSome Device (TM) 3\t"
                              "1.2-3\t0123456789abcdef\t1\tROWS=2 LWS=64\t1234.5 2000\t2000000");
    if (record_read(text, &back, &e) != ST_OK)
        fail_msg("%s", e.text);
    assert_int_equal(record_write(&back, again, NULL), ST_OK);
    assert_string_equal(text, again);
    assert_true(back.source == r.source && back.shape.dims[1] == 11008 && back.ns == 1234.5);
}

/* Cut anywhere, or with any character replaced, a line is refused or read as a sound record. */
static void hostile_text_is_no_danger(void **state)
{
    (void)state;
    const struct tune_record r = sample("m=4096,k=11008");
    char text[RECORD_TEXT_BYTES];
    struct tune_record back;
    assert_int_equal(record_write(&r, text, NULL), ST_OK);
    const size_t length = strlen(text);
    uint32_t n_refused = 0;
    for (size_t at = 0; at < length; at++) {
        static const char replacements[] = {'\t', '\x01', '=', '9', '-', ',', ' '};
        char changed[RECORD_TEXT_BYTES];
        struct err e = {0};
        memcpy(changed, text, sizeof changed);
        changed[at] = '\0';
        const enum status cut = record_read(changed, &back, &e);
        assert_true(cut == ST_FORMAT || (cut == ST_OK && at > length - 8)); /* within the work */
        for (size_t i = 0; i < sizeof replacements; i++) {
            changed[at] = replacements[i];
            changed[at + 1] = text[at + 1];
            const enum status st = record_read(changed, &back, &e);
            assert_true(st == ST_OK || st == ST_FORMAT);
            n_refused += st != ST_OK;
        }
    }
    assert_true(n_refused > length);
    static const char *const bad[] = {
        "",
        "linear",
        "warp\trows\tq4_0\tm=1,k=1\td\td\t0123456789abcdef\t1\t\t9 9\t9",
        "linear\trows\tq9_9\tm=1,k=1\td\td\t0123456789abcdef\t1\t\t9 9\t9",
        "linear\trows\tq4_0\tm=1,k=-1\td\td\t0123456789abcdef\t1\t\t9 9\t9",
        "linear\trows\tq4_0\tm=1\td\td\t0123456789abcdef\t1\t\t9 9\t9",
        "linear\trows\tq4_0\tm=1,k=99999999999999999999\td\td\t0123456789abcdef\t1\t\t9 9\t9",
        "linear\trows\tq4_0\tm=1,k=1\td\td\t0123\t1\t\t9 9\t9",
        "linear\trows\tq4_0\tm=1,k=1\td\td\t0123456789abcdef\t1\tA=99999999999\t9 9\t9",
        "linear\trows\tq4_0\tm=1,k=1\td\td\t0123456789abcdef\t1\t\tnan 9\t9",
        "linear\trows\tq4_0\tm=1,k=1\td\td\t0123456789abcdef\t1\t\t9 9\tinf",
        "linear\trows\tq4_0\tm=1,k=1\td\td\t0123456789abcdef\t1\t\t9 9\t9\t9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(record_read(bad[i], &back, NULL), ST_FORMAT);
}

static void shapes_fall_in_classes(void **state)
{
    (void)state;
    struct shape a, b;
    const struct {
        const char *a, *b;
        double distance;
    } cases[] = {{"m=1024,n=1024,k=1024", "m=1000,n=1100,k=1024", 0},
                 {"m=1024,n=1024,k=1024", "m=2048,n=1024,k=512", 2},
                 {"m=64,n=64,k=64", "m=64,n=64,k=64,batch=16", 4},
                 {"m=64,n=64,k=64", "m=64,n=64,k=64,trans_b=1", INFINITY}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(shape_parse(OP_MATMUL, cases[i].a, &a, NULL), ST_OK);
        assert_int_equal(shape_parse(OP_MATMUL, cases[i].b, &b, NULL), ST_OK);
        assert_true(shape_distance(&a, &b) == cases[i].distance);
    }
    assert_int_equal(shape_parse(OP_LINEAR, "m=8,k=8", &b, NULL), ST_OK);
    assert_true(isinf(shape_distance(&a, &b)));
    struct err e = {0};
    assert_int_equal(shape_parse(OP_MATMUL, "m=4,n=4", &a, &e), ST_INVALID);
    assert_string_equal(e.text, "matmul: k is missing");
    assert_int_equal(shape_parse(OP_MATMUL, "m=4,n=0,k=1", &a, &e), ST_INVALID);
    assert_string_equal(e.text, "matmul: n is 0, expected 1 to 67108864");
    assert_int_equal(shape_parse(OP_MATMUL, "m=4,q=1", &a, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "no dimension \"q\", it has m n k batch"));
    assert_int_equal(shape_parse(OP_MATMUL, "m", &a, &e), ST_INVALID);
    assert_int_equal(shape_parse(OP_MATMUL, "m=4x", &a, &e), ST_INVALID);
    assert_int_equal(shape_parse(OP_SPARSE_GEMV, "m=65536,k=65536", &a, &e), ST_INVALID);
    enum op_id op;
    assert_true(shape_op("gemv", &op) && op == OP_LINEAR);
    assert_false(shape_op("rope_kv", &op));
}

/* Plain calls of every op that is tuned pass the op's own checks. */
static void shapes_make_sound_calls(void **state)
{
    (void)state;
    static const char *const texts[][2] = {{"gemv", "m=64,k=64"},
                                           {"matmul", "m=8,n=9,k=10"},
                                           {"softmax", "rows=3,len=7"},
                                           {"argmax", "rows=2,len=9"},
                                           {"top_k", "rows=2,len=9,top_k=3"},
                                           {"elementwise", "n=5"},
                                           {"sparse_gemv", "m=8,k=16"},
                                           {"sparse_gemv", "m=8,k=16,format=1"},
                                           {"conv2d", "c=3,h=8,w=9,o=4,kh=3,kw=3,pad=1,stride=2"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct op_call call;
        struct shape s;
        struct err e = {0};
        char text[SHAPE_TEXT_BYTES];
        assert_true(shape_op(texts[i][0], &call.op));
        assert_int_equal(shape_parse(call.op, texts[i][1], &s, NULL), ST_OK);
        shape_params(&s, &call.params);
        if (op_check_params(variant_reference(call.op), &call, &e) != ST_OK)
            fail_msg("%s", e.text);
        const struct shape back = shape_of(call.op, &call.params);
        assert_true(shape_distance(&s, &back) == 0 && op_flops(&call) + 1 > 0);
        assert_true(strlen(shape_text(&s, text)) < SHAPE_TEXT_BYTES - 1);
    }
}

static void failing_allocations_are_reported(void **state)
{
    (void)state;
    struct tune_store *s;
    const struct tune_record r = sample("m=16,k=16");
    mem_fail_at(1, 0);
    assert_int_equal(store_open(&s, NULL), ST_NO_MEMORY);
    mem_fail_at(0, 0);
    assert_int_equal(store_open(&s, NULL), ST_OK);
    mem_fail_at(1, 0);
    assert_int_equal(store_add(s, &r, NULL), ST_NO_MEMORY);
    mem_fail_at(0, 0);
    assert_null(store_at(s, 0));
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newer_records_replace_older_ones_of_their_class),
        cmocka_unit_test(a_full_store_drops_the_oldest),
        cmocka_unit_test(malformed_records_are_refused),
        cmocka_unit_test(records_survive_as_text),
        cmocka_unit_test(hostile_text_is_no_danger),
        cmocka_unit_test(shapes_fall_in_classes),
        cmocka_unit_test(shapes_make_sound_calls),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
