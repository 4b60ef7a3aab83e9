/* A whole model file whose metadata is wrong: every value set to its extremes, and the file cut at
 * each hundredth. Opening, and loading and running what still opens, ends in an error with a text
 * or in a result, never in a crash. On `host`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/span.h"
#include "engine/engine.h"
#include "engine/model/gguf.h"
#include "tests/golden/tiny.h"

static char path[] = "/tmp/test_metadata_XXXXXX.gguf";
static struct device_list *devices;
static struct engine *engine;
static unsigned char *bytes;
static size_t n_bytes;

/* A scalar value in the file: of a key, or an element of its array. */
struct place {
    char key[96];
    uint32_t type;
    size_t at, width;
};

static size_t width_of(uint32_t type)
{
    static const size_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof widths / sizeof widths[0] ? widths[type] : 0;
}

static void write_file(const unsigned char *data, size_t n)
{
    FILE *f = fopen(path, "wbe");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Opens the file; what opens is loaded and runs a step. True when all of that worked. */
static bool try_file(const char *what)
{
    static const token_id tokens[] = {1, 5, 9};
    struct model_file *file = NULL;
    struct model *m = NULL;
    struct session *s = NULL;
    struct err e = {0};
    const struct load_options load = {.n_ctx = 16, .n_batch = 8};
    enum status status = model_file_open(path, &file, &e);
    if (status == ST_OK)
        status = model_load(engine, file, &load, &m, &e);
    if (status == ST_OK)
        status = session_open(m, &s, &e);
    struct step_item item = {
        .session = s, .tokens = tokens, .n_tokens = 3, .want = STEP_GREEDY, .n_greedy = 2};
    if (status == ST_OK)
        status = model_step(m, &item, 1, &e);
    if (status != ST_OK && (e.status != status || e.text[0] == '\0'))
        fail_msg("%s: %s without a text", what, status_name(status));
    const bool is_named = strstr(e.text, "key ") || strstr(e.text, "tensor ") ||
                          strstr(e.text, "token") || strstr(e.text, "context: ");
    if (status != ST_OK && !is_named)
        fail_msg("%s: \"%s\" names no key, tensor or token", what, e.text);
    if (status == ST_INTERNAL)
        fail_msg("%s: %s", what, e.text);
    session_close(s);
    model_close(m);
    model_file_close(file);
    return status == ST_OK;
}

static void expect_refusal(const char *what, const char *part)
{
    struct model_file *file = NULL;
    struct err e = {0};
    enum status status = model_file_open(path, &file, &e);
    if (status == ST_OK || strstr(e.text, part) == NULL)
        fail_msg("%s: %s: \"%s\" does not name %s", what, status_name(status), e.text, part);
}

/* Visits every number of the metadata: of arrays the first and the last element. */
static void visit(void (*f)(const struct place *p))
{
    struct span s = span_make((const char *)bytes, n_bytes);
    span_take(&s, 8);
    span_take(&s, 8);
    const uint64_t n_values = span_u64(&s);
    for (uint64_t i = 0; i < n_values; i++) {
        struct place p = {.type = 0};
        const uint64_t length = span_u64(&s);
        const char *key = span_take(&s, length);
        assert_true(key != NULL && length < sizeof p.key);
        memcpy(p.key, key, length);
        p.type = span_u32(&s);
        const bool is_array = p.type == GGUF_ARRAY;
        if (is_array)
            p.type = span_u32(&s);
        const uint64_t n = is_array ? span_u64(&s) : 1;
        p.width = width_of(p.type);
        for (uint64_t k = 0; k < n; k++) {
            if (p.width == 0) {
                span_take(&s, span_u64(&s));
                continue;
            }
            const char *value = span_take(&s, p.width);
            assert_non_null(value);
            p.at = (size_t)((const unsigned char *)value - bytes);
            if (k == 0 || k + 1 == n)
                f(&p);
        }
    }
}

static uint32_t n_tried, n_worked;

static void set_extremes(const struct place *p)
{
    static const uint64_t integers[] = {0,
                                        1,
                                        0x7f,
                                        0xff,
                                        0x7fff,
                                        0xffff,
                                        0x7fffffff,
                                        0x80000000u,
                                        0xffffffffu,
                                        0x7fffffffffffffffu,
                                        0xffffffffffffffffu};
    static const float reals[] = {0.0f, -0.0f, -1.0f, 1e-45f, 3.4e38f, -3.4e38f};
    const bool is_real = p->type == GGUF_F32;
    unsigned char kept[8];
    char what[160];
    memcpy(kept, bytes + p->at, p->width);
    for (size_t i = 0; i < sizeof integers / sizeof integers[0] + (is_real ? 6 : 0); i++) {
        const size_t n_integers = sizeof integers / sizeof integers[0];
        if (i < n_integers)
            memcpy(bytes + p->at, &integers[i], p->width);
        else
            memcpy(bytes + p->at, &reals[i - n_integers], p->width);
        write_file(bytes, n_bytes);
        snprintf(what, sizeof what, "%s, extreme %zu", p->key, i);
        n_tried++;
        n_worked += try_file(what);
    }
    memcpy(bytes + p->at, kept, p->width);
}

static void every_value_may_be_extreme(void **state)
{
    (void)state;
    n_tried = n_worked = 0;
    visit(set_extremes);
    print_message("%u values were tried, %u of them worked\n", n_tried, n_worked);
    assert_true(n_tried > 100 && n_worked < n_tried);
    write_file(bytes, n_bytes);
    assert_true(try_file("the file as it was"));
}

/* The counts that shapes follow from: too small and too large ones are refused by their names. */
static void refuse_extremes(const struct place *p)
{
    static const char *const counts[] = {".block_count", ".embedding_length",
                                         ".attention.head_count", ".context_length"};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const char *end = strstr(p->key, counts[i]);
        if (end == NULL || strcmp(end, counts[i]) != 0)
            continue;
        unsigned char kept[8];
        memcpy(kept, bytes + p->at, p->width);
        for (int large = 0; large < 2; large++) {
            memset(bytes + p->at, large ? 0xff : 0, p->width);
            write_file(bytes, n_bytes);
            expect_refusal(p->key, p->key);
            n_tried++;
        }
        memcpy(bytes + p->at, kept, p->width);
    }
}

static void extreme_counts_are_refused_by_name(void **state)
{
    (void)state;
    n_tried = 0;
    visit(refuse_extremes);
    assert_true(n_tried >= 8);
}

static void every_cut_is_refused_by_name(void **state)
{
    (void)state;
    char what[64];
    for (unsigned percent = 0; percent < 100; percent++) {
        write_file(bytes, n_bytes * percent / 100);
        snprintf(what, sizeof what, "cut at %u %%", percent);
        expect_refusal(what, path);
    }
}

static int prepare(void **state)
{
    (void)state;
    struct err e = {0};
    const struct engine_options options = {.n_threads = 1};
    struct tiny t = tiny_default;
    log_init(LOG_ERROR, false);
    t.n_embd = 64;
    t.n_ff = 64;
    t.n_head = 1;
    t.n_head_kv = 1;
    const int fd = mkstemps(path, 5);
    if (fd < 0 || close(fd) != 0)
        return -1;
    if (tiny_write(&t, path, &e) != ST_OK || device_list_open(1, &devices, &e) != ST_OK ||
        engine_open(devices, device_list_count(devices) - 1, &options, &engine, &e) != ST_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    FILE *f = fopen(path, "rbe");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0)
        return -1;
    n_bytes = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(n_bytes);
    const bool whole = bytes != NULL && fread(bytes, 1, n_bytes, f) == n_bytes;
    fclose(f);
    return whole && device_is_host(engine_device(engine)) ? 0 : -1;
}

static int clean_up(void **state)
{
    (void)state;
    engine_close(engine);
    device_list_close(devices);
    free(bytes);
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_may_be_extreme),
        cmocka_unit_test(extreme_counts_are_refused_by_name),
        cmocka_unit_test(every_cut_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
