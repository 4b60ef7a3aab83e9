/* The GGUF reader: what it accepts, what it refuses and how the refusal reads (S43), shards, and
 * its behaviour when memory fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "tests/unit/model/gguf_bytes.h"

/* A file with a value of every type, arrays and two tensors. */
static void make_sample(struct gguf_bytes *b)
{
    bytes_init(b);
    bytes_string(b, "general.architecture", "llama");
    bytes_u32(b, "general.alignment", 64);
    b->alignment = 64;
    bytes_scalar(b, "u8", GGUF_U8, 200, 1);
    bytes_scalar(b, "i8", GGUF_I8, (uint64_t)-5, 1);
    bytes_scalar(b, "u16", GGUF_U16, 60000, 2);
    bytes_scalar(b, "i16", GGUF_I16, (uint64_t)-300, 2);
    bytes_scalar(b, "i32", GGUF_I32, (uint64_t)-70000, 4);
    bytes_scalar(b, "u64", GGUF_U64, UINT64_MAX, 8);
    bytes_scalar(b, "i64", GGUF_I64, (uint64_t)INT64_MIN, 8);
    bytes_f32(b, "f32", 0.5f);
    bytes_scalar(b, "f64", GGUF_F64, 0x3FD0000000000000u, 8); /* 0.25 */
    bytes_scalar(b, "f64.big", GGUF_F64, 0x7FE0000000000000u, 8);
    bytes_scalar(b, "bool", GGUF_BOOL, 1, 1);
    bytes_array(b, "texts", GGUF_STRING, 3);
    bytes_put_string(&b->values, "first");
    bytes_put_string(&b->values, "");
    bytes_put_string(&b->values, "th\x1bird");
    bytes_array(b, "numbers", GGUF_F32, 2);
    bytes_put(&b->values, 0x3F800000, 4);
    bytes_put(&b->values, 0xC0000000, 4);
    bytes_array(b, "ids", GGUF_I32, 2);
    bytes_put(&b->values, 7, 4);
    bytes_put(&b->values, (uint64_t)-7, 4);
    bytes_array(b, "none", GGUF_U8, 0);
    bytes_string(b, "accents", "\xC3\xA9\xC3\xA9\xC3\xA9");
    bytes_tensor(b, "b.weight", 2, (uint64_t[]){32, 3}, DT_Q4_0, 0);
    bytes_tensor(b, "a.weight", 1, (uint64_t[]){5}, DT_F32, 64);
    b->data_bytes = 64 + 20;
    bytes_finish(b);
}

static enum status open_bytes(const struct gguf_bytes *b, struct gguf **g, struct err *e)
{
    return gguf_open_bytes(b->file.data, b->file.length, g, e);
}

/* Touches everything that a caller can reach. */
static void walk(const struct gguf *g)
{
    uint64_t sum = 0;
    char text[16];
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const char *key = gguf_kv_key(g, i);
        enum gguf_type type;
        bool is_array;
        uint64_t n;
        assert_true(gguf_kv_type(g, key, &type, &is_array, &n));
        for (uint64_t k = 0; k < n; k++)
            sum += strlen(gguf_kv_text(g, i, k, text, sizeof text));
        uint32_t u32;
        int64_t i64;
        float f32;
        bool flag;
        struct gguf_string string;
        gguf_get_u32(g, key, &u32, NULL);
        gguf_get_i64(g, key, &i64, NULL);
        gguf_get_f32(g, key, &f32, NULL);
        gguf_get_bool(g, key, &flag, NULL);
        gguf_get_string(g, key, &string, NULL);
        if (gguf_array(g, key, GGUF_I32, &n, NULL) == ST_OK)
            for (uint64_t k = 0; k < n; k++)
                sum += (uint64_t)gguf_array_int(g, key, k);
        if (gguf_array(g, key, GGUF_F32, &n, NULL) == ST_OK)
            for (uint64_t k = 0; k < n; k++)
                sum += gguf_array_f32(g, key, k) > 0.0f;
        if (gguf_array(g, key, GGUF_STRING, &n, NULL) == ST_OK)
            for (uint64_t k = 0; k < n; k++)
                sum += gguf_array_string(g, key, k).length;
    }
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        assert_ptr_equal(gguf_tensor_find(g, t->name), t);
        const unsigned char *data = t->data;
        sum += data[0];
        sum += data[t->n_bytes - 1];
    }
    assert_true(sum != 1); /* keeps the reads */
}

static void test_reads_every_type(void **state)
{
    (void)state;
    struct gguf_bytes b;
    make_sample(&b);
    struct gguf *g;
    struct err e = {0};
    assert_int_equal(open_bytes(&b, &g, &e), ST_OK);
    walk(g);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_file_bytes(g), b.file.length);
    assert_string_equal(gguf_path(g), "");
    assert_int_equal(gguf_kv_count(g), 18);
    assert_string_equal(gguf_kv_key(g, 2), "u8");

    static const struct {
        const char *key;
        int64_t value;
    } integers[] = {{"u8", 200},   {"i8", -5},      {"u16", 60000},
                    {"i16", -300}, {"i32", -70000}, {"i64", INT64_MIN}};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        int64_t value;
        assert_int_equal(gguf_get_i64(g, integers[i].key, &value, &e), ST_OK);
        assert_true(value == integers[i].value);
        uint32_t u32 = 1;
        enum status status = gguf_get_u32(g, integers[i].key, &u32, &e);
        assert_int_equal(status, integers[i].value < 0 ? ST_FORMAT : ST_OK);
    }
    float f;
    assert_int_equal(gguf_get_f32(g, "f32", &f, &e), ST_OK);
    assert_true(f == 0.5f);
    assert_int_equal(gguf_get_f32(g, "f64", &f, &e), ST_OK);
    assert_true(f == 0.25f);
    bool flag = false;
    assert_int_equal(gguf_get_bool(g, "bool", &flag, &e), ST_OK);
    assert_true(flag);
    struct gguf_string string;
    assert_int_equal(gguf_get_string(g, "general.architecture", &string, &e), ST_OK);
    assert_int_equal(string.length, 5);
    assert_memory_equal(string.data, "llama", 5);
    uint64_t n;
    assert_int_equal(gguf_array(g, "texts", GGUF_STRING, &n, &e), ST_OK);
    assert_int_equal(n, 3);
    assert_int_equal(gguf_array_string(g, "texts", 1).length, 0);
    assert_memory_equal(gguf_array_string(g, "texts", 2).data, "th\x1bird", 6);
    char text[5];
    assert_string_equal(gguf_kv_text(g, 13, 2, text, sizeof text), "th?i");
    assert_string_equal(gguf_kv_text(g, 17, 0, text, 4), "\xC3\xA9");
    assert_true(gguf_array_f32(g, "numbers", 1) == -2.0f);
    assert_int_equal(gguf_array_int(g, "ids", 1), -7);
    assert_int_equal(gguf_array(g, "none", GGUF_I32, &n, &e), ST_OK);
    assert_int_equal(n, 0);
    gguf_close(g);
    bytes_free(&b);
}

static void test_value_errors_name_key_and_value(void **state)
{
    (void)state;
    struct gguf_bytes b;
    make_sample(&b);
    struct gguf *g;
    struct err e = {0};
    assert_int_equal(open_bytes(&b, &g, &e), ST_OK);
    uint32_t u32 = 42;
    uint64_t n;
    float f = 42.0f;
    bool flag;
    struct gguf_string string;
    assert_int_equal(gguf_get_u32(g, "absent", &u32, &e), ST_NOT_FOUND);
    assert_int_equal(u32, 42);
    assert_non_null(strstr(e.text, "absent"));
    assert_int_equal(gguf_get_u32(g, "u64", &u32, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "u64: 18446744073709551615 is not in 0 .. 4294967295"));
    assert_int_equal(gguf_get_u32(g, "f32", &u32, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "f32: f32 0.5, expected an integer"));
    assert_int_equal(gguf_get_u32(g, "ids", &u32, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "ids: array of 2 i32"));
    assert_int_equal(gguf_get_f32(g, "u8", &f, &e), ST_FORMAT);
    assert_int_equal(gguf_get_f32(g, "f64.big", &f, &e), ST_FORMAT);
    assert_true(f == 42.0f);
    assert_int_equal(gguf_get_bool(g, "u8", &flag, &e), ST_FORMAT);
    assert_int_equal(gguf_get_string(g, "u8", &string, &e), ST_FORMAT);
    assert_int_equal(gguf_array(g, "u8", GGUF_I32, &n, &e), ST_FORMAT);
    assert_int_equal(gguf_array(g, "texts", GGUF_I32, &n, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "texts: array of string, expected an array of integers"));
    assert_int_equal(gguf_array(g, "numbers", GGUF_STRING, &n, &e), ST_FORMAT);
    assert_int_equal(gguf_array(g, "absent", GGUF_F32, &n, &e), ST_NOT_FOUND);
    gguf_close(g);
    bytes_free(&b);
}

static void test_reads_tensors(void **state)
{
    (void)state;
    struct gguf_bytes b;
    make_sample(&b);
    struct gguf *g;
    assert_int_equal(open_bytes(&b, &g, NULL), ST_OK);
    assert_int_equal(gguf_tensor_count(g), 2);
    const struct gguf_tensor *t = gguf_tensor_at(g, 0);
    assert_string_equal(t->name, "b.weight");
    assert_int_equal(t->dtype, DT_Q4_0);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->ne[0], 32);
    assert_int_equal(t->ne[1], 3);
    assert_int_equal(t->ne[2], 1);
    assert_int_equal(t->n_bytes, 54);
    assert_int_equal(t->file_offset % 64, 0);
    assert_ptr_equal(t->data, b.file.data + t->file_offset);
    assert_int_equal(gguf_tensor_find(g, "a.weight")->n_bytes, 20);
    assert_null(gguf_tensor_find(g, "c.weight"));
    gguf_will_need(g, t); /* no mapping of ours: nothing happens */
    gguf_drop_pages(g, t);
    gguf_close(g);
    bytes_free(&b);
}

/* --- refusals: each builder makes one thing wrong --- */

static void wrong_version_1(struct gguf_bytes *b)
{
    b->version = 1;
}
static void wrong_version_4(struct gguf_bytes *b)
{
    b->version = 4;
}
static void wrong_endian(struct gguf_bytes *b)
{
    b->version = 3u << 24;
}
static void wrong_kv_count(struct gguf_bytes *b)
{
    b->n_values = UINT64_MAX;
}
static void wrong_tensor_count(struct gguf_bytes *b)
{
    b->n_tensors = UINT64_MAX / 8;
}
static void wrong_empty_key(struct gguf_bytes *b)
{
    bytes_u32(b, "", 1);
}
static void wrong_control_key(struct gguf_bytes *b)
{
    bytes_u32(b, "a\nb", 1);
}
static void wrong_duplicate_key(struct gguf_bytes *b)
{
    bytes_u32(b, "twice", 1);
    bytes_u32(b, "once", 1);
    bytes_u32(b, "twice", 1);
}
static void wrong_value_type(struct gguf_bytes *b)
{
    bytes_scalar(b, "odd", (enum gguf_type)13, 0, 8);
}
static void wrong_element_type(struct gguf_bytes *b)
{
    bytes_array(b, "odd", 99, 0);
}
static void wrong_nested_array(struct gguf_bytes *b)
{
    bytes_array(b, "nested", GGUF_ARRAY, 1);
}
static void wrong_array_length(struct gguf_bytes *b)
{
    bytes_array(b, "long", GGUF_U64, UINT64_MAX / 8 + 2);
}
static void wrong_strings_length(struct gguf_bytes *b)
{
    bytes_array(b, "long", GGUF_STRING, (uint64_t)1 << 60);
}
static void wrong_string_length(struct gguf_bytes *b)
{
    bytes_key(b, "text", GGUF_STRING);
    bytes_put(&b->values, UINT64_MAX, 8);
}
static void wrong_alignment_zero(struct gguf_bytes *b)
{
    bytes_u32(b, "general.alignment", 0);
}
static void wrong_alignment_odd(struct gguf_bytes *b)
{
    bytes_u32(b, "general.alignment", 48);
}
static void wrong_alignment_big(struct gguf_bytes *b)
{
    bytes_u32(b, "general.alignment", 1 << 21);
}
static void wrong_alignment_type(struct gguf_bytes *b)
{
    bytes_string(b, "general.alignment", "32");
}
static void wrong_name_length(struct gguf_bytes *b)
{
    bytes_tensor(b, "0123456789012345678901234567890123456789012345678901234567890123", 1,
                 (uint64_t[]){1}, DT_F32, 0);
}
static void wrong_name_twice(struct gguf_bytes *b)
{
    bytes_tensor(b, "t", 1, (uint64_t[]){1}, DT_F32, 0);
    bytes_tensor(b, "t", 1, (uint64_t[]){1}, DT_F32, 32);
    b->data_bytes = 36;
}
static void wrong_no_dims(struct gguf_bytes *b)
{
    bytes_tensor(b, "flat", 0, NULL, DT_F32, 0);
}
static void wrong_many_dims(struct gguf_bytes *b)
{
    bytes_tensor(b, "deep", 5, (uint64_t[]){1, 1, 1, 1, 1}, DT_F32, 0);
}
static void wrong_zero_dim(struct gguf_bytes *b)
{
    bytes_tensor(b, "none", 2, (uint64_t[]){4, 0}, DT_F32, 0);
}
static void wrong_dims_product(struct gguf_bytes *b)
{
    bytes_tensor(b, "huge", 3, (uint64_t[]){4, (uint64_t)1 << 32, (uint64_t)1 << 32}, DT_F32, 0);
}
static void wrong_bytes_product(struct gguf_bytes *b)
{
    bytes_tensor(b, "huge", 2, (uint64_t[]){(uint64_t)1 << 32, (uint64_t)1 << 31}, DT_F32, 0);
}
static void wrong_row_bytes(struct gguf_bytes *b)
{
    bytes_tensor(b, "huge", 1, (uint64_t[]){UINT64_MAX}, DT_F32, 0);
}
static void wrong_element_count(struct gguf_bytes *b)
{
    /* 2^64 elements of half a byte and a bit: the bytes fit 64 bits, the count does not */
    bytes_tensor(b, "huge", 2, (uint64_t[]){(uint64_t)1 << 32, (uint64_t)1 << 32}, DT_Q4_0, 0);
}
static void wrong_type_hole(struct gguf_bytes *b)
{
    bytes_tensor(b, "old", 1, (uint64_t[]){32}, 4, 0);
}
static void wrong_type_beyond(struct gguf_bytes *b)
{
    bytes_tensor(b, "new", 1, (uint64_t[]){32}, 0x80000000u, 0);
}
static void wrong_block(struct gguf_bytes *b)
{
    bytes_tensor(b, "ragged", 1, (uint64_t[]){33}, DT_Q4_0, 0);
}
static void overlapping(struct gguf_bytes *b)
{
    bytes_tensor(b, "first", 1, (uint64_t[]){16}, DT_F32, 0);
    bytes_tensor(b, "second", 1, (uint64_t[]){16}, DT_F32, 32);
    b->data_bytes = 96;
}

static void in_one_place(struct gguf_bytes *b)
{
    bytes_tensor(b, "first", 1, (uint64_t[]){16}, DT_F32, 0);
    bytes_tensor(b, "second", 1, (uint64_t[]){16}, DT_F32, 0);
    b->data_bytes = 64;
}

static void wrong_offset(struct gguf_bytes *b)
{
    bytes_tensor(b, "askew", 1, (uint64_t[]){1}, DT_F32, 4);
}
static void wrong_far_offset(struct gguf_bytes *b)
{
    bytes_tensor(b, "far", 1, (uint64_t[]){1}, DT_F32, UINT64_MAX - 31);
}
static void wrong_size(struct gguf_bytes *b)
{
    bytes_tensor(b, "long", 1, (uint64_t[]){33}, DT_F32, 0);
}
static void wrong_split(struct gguf_bytes *b)
{
    bytes_scalar(b, "split.count", GGUF_U16, 2, 2);
    bytes_scalar(b, "split.no", GGUF_U16, 0, 2);
}
static void wrong_split_number(struct gguf_bytes *b)
{
    bytes_scalar(b, "split.count", GGUF_U16, 2, 2);
    bytes_scalar(b, "split.no", GGUF_U16, 1, 2);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        void (*make)(struct gguf_bytes *b);
        enum status status;
        const char *thing, *value;
    } cases[] = {
        {wrong_version_1, ST_UNSUPPORTED, "version 1", "2 to 3"},
        {wrong_version_4, ST_UNSUPPORTED, "version 4", "2 to 3"},
        {wrong_endian, ST_UNSUPPORTED, "big-endian", ""},
        {wrong_kv_count, ST_FORMAT, "key-values", "18446744073709551615"},
        {wrong_tensor_count, ST_FORMAT, "tensors", "2305843009213693951"},
        {wrong_empty_key, ST_FORMAT, "key-value 0", "name of 0 bytes"},
        {wrong_control_key, ST_FORMAT, "key-value 0", "0x0a"},
        {wrong_duplicate_key, ST_FORMAT, "key twice", "more than once"},
        {wrong_value_type, ST_FORMAT, "key odd", "13"},
        {wrong_element_type, ST_FORMAT, "key odd", "99"},
        {wrong_nested_array, ST_UNSUPPORTED, "key nested", "arrays of arrays"},
        {wrong_array_length, ST_FORMAT, "key long", "2305843009213693953"},
        {wrong_strings_length, ST_FORMAT, "key long", "1152921504606846976"},
        {wrong_string_length, ST_FORMAT, "text", "18446744073709551615"},
        {wrong_alignment_zero, ST_FORMAT, "general.alignment", "0 is not in 1 .. 1048576"},
        {wrong_alignment_odd, ST_FORMAT, "general.alignment", "48 is not a power of two"},
        {wrong_alignment_big, ST_FORMAT, "general.alignment", "2097152"},
        {wrong_alignment_type, ST_FORMAT, "general.alignment", "expected an integer"},
        {wrong_name_length, ST_FORMAT, "tensor 0", "64 bytes"},
        {wrong_name_twice, ST_FORMAT, "tensor t", "more than once"},
        {wrong_no_dims, ST_FORMAT, "tensor flat", "0 dimensions"},
        {wrong_many_dims, ST_FORMAT, "tensor deep", "5 dimensions"},
        {wrong_zero_dim, ST_FORMAT, "tensor none", "dimension 1 is 0"},
        {wrong_dims_product, ST_FORMAT, "tensor huge", "overflow"},
        {wrong_bytes_product, ST_FORMAT, "tensor huge", "overflow"},
        {wrong_row_bytes, ST_FORMAT, "tensor huge", "overflow"},
        {wrong_element_count, ST_FORMAT, "tensor huge", "overflow"},
        {wrong_type_hole, ST_UNSUPPORTED, "tensor old", "type 4"},
        {wrong_type_beyond, ST_UNSUPPORTED, "tensor new", "type 2147483648"},
        {wrong_block, ST_FORMAT, "tensor ragged", "33 q4_0 values, not a multiple of 32"},
        {overlapping, ST_FORMAT, "tensor second", "inside tensor first"},
        {in_one_place, ST_FORMAT, "begins at byte", "inside tensor"},
        {wrong_offset, ST_FORMAT, "tensor askew", "offset 4 is not a multiple of 32"},
        {wrong_far_offset, ST_FORMAT, "tensor far", "18446744073709551584"},
        {wrong_size, ST_FORMAT, "tensor long", "132 bytes"},
        {wrong_split, ST_UNSUPPORTED, "2 shards", "from memory"},
        {wrong_split_number, ST_FORMAT, "shard 2 of 2", "open the first"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_bytes b;
        bytes_init(&b);
        b.data_bytes = 128;
        cases[i].make(&b);
        bytes_finish(&b);
        struct gguf *g = NULL;
        struct err e = {0};
        enum status status = open_bytes(&b, &g, &e);
        if (status != cases[i].status || strstr(e.text, cases[i].thing) == NULL ||
            strstr(e.text, cases[i].value) == NULL)
            fail_msg("case %zu: %s \"%s\", expected %s with \"%s\" and \"%s\"", i,
                     status_name(status), e.text, status_name(cases[i].status), cases[i].thing,
                     cases[i].value);
        assert_null(g);
        bytes_free(&b);
    }
}

static void test_not_gguf(void **state)
{
    (void)state;
    struct gguf *g = NULL;
    struct err e = {0};
    assert_int_equal(gguf_open_bytes(NULL, 0, &g, &e), ST_FORMAT);
    assert_int_equal(gguf_open_bytes("GG", 2, &g, &e), ST_FORMAT);
    assert_int_equal(gguf_open_bytes("PK\x03\x04zip", 7, &g, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "50 4b 03 04"));
    assert_null(g);
}

/* The least that is right: no key-values, no tensors, no padding. */
static void test_empty_model(void **state)
{
    (void)state;
    struct gguf_bytes b;
    bytes_init(&b);
    bytes_finish(&b);
    struct gguf *g;
    assert_int_equal(open_bytes(&b, &g, NULL), ST_OK);
    assert_int_equal(gguf_kv_count(g), 0);
    assert_false(gguf_has(g, "anything"));
    assert_null(gguf_tensor_find(g, "anything"));
    gguf_close(g);
    gguf_close(NULL);
    bytes_free(&b);
}

/* S43: a file cut anywhere is refused with a reason. Only padding after the last tensor may go. */
static void test_every_cut_is_refused(void **state)
{
    (void)state;
    struct gguf_bytes b;
    make_sample(&b);
    for (size_t n = 0; n < b.file.length; n++) {
        char *cut = mem_alloc(n); /* its own block, so that a read beyond it is caught */
        assert_non_null(cut);
        memcpy(cut, b.file.data, n);
        struct gguf *g = NULL;
        struct err e = {0};
        assert_int_equal(gguf_open_bytes(cut, n, &g, &e), ST_FORMAT);
        assert_true(strlen(e.text) > 10);
        mem_free(cut);
    }
    bytes_free(&b);
}

/* Extreme numbers written over every byte position of the head: no fault, whatever comes out. */
static void test_extremes_everywhere(void **state)
{
    (void)state;
    static const uint64_t extremes[] = {0,          1,
                                        0x7FFFFFFF, 0x80000000,
                                        0xFFFFFFFF, (uint64_t)1 << 32,
                                        INT64_MAX,  (uint64_t)1 << 63,
                                        UINT64_MAX, UINT64_MAX - 7};
    struct gguf_bytes b;
    make_sample(&b);
    char *copy = mem_alloc(b.file.length);
    assert_non_null(copy);
    for (size_t at = 4; at + 8 <= b.file.length; at++) {
        for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++) {
            for (size_t size = 1; size <= 8; size *= 2) {
                memcpy(copy, b.file.data, b.file.length);
                memcpy(copy + at, &extremes[i], size);
                struct gguf *g = NULL;
                struct err e = {0};
                if (gguf_open_bytes(copy, b.file.length, &g, &e) == ST_OK)
                    walk(g);
                else
                    assert_true(strlen(e.text) > 10);
                gguf_close(g);
            }
        }
    }
    mem_free(copy);
    bytes_free(&b);
}

static void test_memory_fails(void **state)
{
    (void)state;
    struct gguf_bytes b;
    make_sample(&b);
    struct gguf *g = NULL;
    mem_fail_at(0, 0);
    assert_int_equal(open_bytes(&b, &g, NULL), ST_OK);
    uint64_t allocations = mem_fail_at(0, 0);
    gguf_close(g);
    assert_true(allocations >= 8);
    for (uint64_t n = 1; n <= allocations; n++) {
        struct err e = {0};
        g = NULL;
        mem_fail_at(n, 0);
        enum status status = open_bytes(&b, &g, &e);
        mem_fail_at(0, 0);
        assert_int_equal(status, ST_NO_MEMORY);
        assert_non_null(strstr(e.text, "no memory"));
        assert_null(g);
    }
    bytes_free(&b);
}

/* --- files and shards --- */

static char folder[] = "/tmp/test_gguf_XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void write_file(const char *name, const struct gguf_bytes *b, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(strbuf_text(&b->file), 1, b->file.length, f), b->file.length);
    assert_int_equal(fclose(f), 0);
}

static void test_opens_a_file(void **state)
{
    (void)state;
    struct gguf_bytes b;
    make_sample(&b);
    char path[256];
    write_file("sample.gguf", &b, path, sizeof path);
    struct gguf *g, *again;
    struct err e = {0};
    assert_int_equal(gguf_open(path, &g, &e), ST_OK);
    assert_string_equal(gguf_path(g), path);
    walk(g);
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        gguf_will_need(g, gguf_tensor_at(g, i));
        gguf_drop_pages(g, gguf_tensor_at(g, i));
    }
    walk(g); /* dropped pages come back from the file */
    assert_int_equal(gguf_open(path, &again, &e), ST_OK);
    assert_true(gguf_identity(g) == gguf_identity(again));
    gguf_close(again);
    struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    assert_int_equal(gguf_open(path, &again, &e), ST_OK);
    assert_true(gguf_identity(g) == gguf_identity(again)); /* the same content, copied later */
    gguf_close(again);
    b.file.data[b.file.length - 1] ^= 1;
    write_file("other.gguf", &b, path, sizeof path);
    assert_int_equal(gguf_open(path, &again, &e), ST_OK);
    assert_true(gguf_identity(g) != gguf_identity(again)); /* other data below the same header */
    gguf_close(again);
    unlink(path);
    strbuf_putc(&b.file, 1); /* a different size is a different identity */
    write_file("sample.gguf", &b, path, sizeof path);
    assert_int_equal(gguf_open(path, &again, &e), ST_OK);
    assert_true(gguf_identity(g) != gguf_identity(again));
    gguf_close(again);
    gguf_close(g);
    unlink(path);
    bytes_free(&b);
}

static void test_unreadable_paths(void **state)
{
    (void)state;
    char path[256];
    struct gguf *g = NULL;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/absent.gguf", folder);
    assert_int_equal(gguf_open(path, &g, &e), ST_IO);
    assert_non_null(strstr(e.text, "absent.gguf: cannot open: No such file"));
    assert_int_equal(gguf_open(folder, &g, &e), ST_IO);
    assert_non_null(strstr(e.text, "not a regular file"));
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(gguf_open(path, &g, &e), ST_IO); /* at once: nobody writes */
    unlink(path);
    struct gguf_bytes b;
    bytes_init(&b);
    write_file("empty.gguf", &b, path, sizeof path);
    assert_int_equal(gguf_open(path, &g, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "empty.gguf: 0 bytes"));
    unlink(path);
    bytes_free(&b);
}

/* Shard `no` of `count` with one tensor, written under the name of shard `place`. */
static void write_shard(uint32_t place, uint32_t no, uint32_t count, const char *tensor,
                        uint32_t total)
{
    struct gguf_bytes b;
    bytes_init(&b);
    if (place == 1)
        bytes_string(&b, "general.name", "in shards");
    bytes_scalar(&b, "split.no", GGUF_U16, no, 2);
    bytes_scalar(&b, "split.count", GGUF_U16, count, 2);
    bytes_scalar(&b, "split.tensors.count", GGUF_I32, total, 4);
    bytes_tensor(&b, tensor, 1, (uint64_t[]){8}, DT_F32, 0);
    b.data_bytes = 32;
    bytes_finish(&b);
    char name[64], path[256];
    snprintf(name, sizeof name, "m-%05u-of-%05u.gguf", place, count);
    write_file(name, &b, path, sizeof path);
    bytes_free(&b);
}

static enum status open_shard(uint32_t place, struct gguf **g, struct err *e)
{
    char path[256];
    snprintf(path, sizeof path, "%s/m-%05u-of-00003.gguf", folder, place);
    return gguf_open(path, g, e);
}

static void test_shards(void **state)
{
    (void)state;
    struct gguf *g = NULL;
    struct err e = {0};
    write_shard(1, 0, 3, "c", 3);
    write_shard(2, 1, 3, "a", 3);
    assert_int_equal(open_shard(1, &g, &e), ST_IO); /* the third is missing: named */
    assert_non_null(strstr(e.text, "shard 3 of 3"));
    assert_non_null(strstr(e.text, "m-00003-of-00003.gguf: cannot open"));
    write_shard(3, 2, 3, "b", 3);
    assert_int_equal(open_shard(2, &g, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "open the first"));

    assert_int_equal(open_shard(1, &g, &e), ST_OK);
    assert_int_equal(gguf_tensor_count(g), 3);
    assert_string_equal(gguf_tensor_at(g, 1)->name, "a");
    assert_int_equal(gguf_tensor_find(g, "b")->shard, 2);
    assert_true(gguf_has(g, "general.name"));
    walk(g);
    gguf_close(g);

    uint64_t allocations;
    mem_fail_at(0, 0);
    assert_int_equal(open_shard(1, &g, &e), ST_OK);
    allocations = mem_fail_at(0, 0);
    gguf_close(g);
    for (uint64_t n = 1; n <= allocations; n++) {
        mem_fail_at(n, 0);
        enum status status = open_shard(1, &g, &e);
        mem_fail_at(0, 0);
        assert_int_equal(status, ST_NO_MEMORY);
    }

    write_shard(3, 1, 3, "b", 3); /* the second one again in the third's place */
    assert_int_equal(open_shard(1, &g, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "split.no: 1 is not in 2 .. 2"));
    write_shard(3, 2, 3, "a", 3);
    assert_int_equal(open_shard(1, &g, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "tensor a is there more than once"));
    write_shard(3, 2, 3, "b", 3);
    write_shard(1, 0, 3, "c", 4);
    assert_int_equal(open_shard(1, &g, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "split.tensors.count: 4"));

    char path[256], renamed[256];
    snprintf(path, sizeof path, "%s/m-00001-of-00003.gguf", folder);
    snprintf(renamed, sizeof renamed, "%s/first.gguf", folder);
    assert_int_equal(rename(path, renamed), 0);
    assert_int_equal(gguf_open(renamed, &g, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "-00001-of-00003.gguf"));
    unlink(renamed);
    for (uint32_t i = 2; i <= 3; i++) {
        snprintf(path, sizeof path, "%s/m-%05u-of-00003.gguf", folder, i);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_every_type),
        cmocka_unit_test(test_value_errors_name_key_and_value),
        cmocka_unit_test(test_reads_tensors),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_not_gguf),
        cmocka_unit_test(test_empty_model),
        cmocka_unit_test(test_every_cut_is_refused),
        cmocka_unit_test(test_extremes_everywhere),
        cmocka_unit_test(test_memory_fails),
        cmocka_unit_test(test_opens_a_file),
        cmocka_unit_test(test_unreadable_paths),
        cmocka_unit_test(test_shards),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
