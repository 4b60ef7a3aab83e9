/* .npy headers as other programs write them, what is refused, and what is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/ops/multipart.h"
#include "server/ops/npy.h"

/* A file of version `major`.0 with the header and n bytes of data behind it; returns its length. */
static size_t make(char *out, unsigned major, const char *header, size_t n_data)
{
    const size_t n = strlen(header), start = major == 1 ? 10 : 12;
    memset(out, 0, start + n + n_data);
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (char)major;
    out[8] = (char)(n & 0xFF);
    out[9] = (char)(n >> 8);
    memcpy(out + start, header, n);
    return start + n + n_data;
}

static void headers_are_read(void **state)
{
    (void)state;
    char file[512];
    struct npy a;
    size_t n = make(file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", 24);
    assert_int_equal(npy_parse(file, n, &a, NULL), ST_OK);
    assert_true(a.dtype == DT_F32 && a.n_dims == 2 && a.dims[0] == 2 && a.dims[1] == 3 &&
                a.count == 6);
    assert_ptr_equal(a.data, file + n - 24);
    n = make(file, 2, "{\"shape\":(5L,),\"fortran_order\":False,\"descr\":\"<i4\"}", 20);
    assert_int_equal(npy_parse(file, n, &a, NULL), ST_OK);
    assert_true(a.dtype == DT_I32 && a.n_dims == 1 && a.dims[0] == 5);
    n = make(file, 1, "{'descr': '<f2', 'fortran_order': False, 'shape': ()}", 2);
    assert_int_equal(npy_parse(file, n, &a, NULL), ST_OK);
    assert_true(a.dtype == DT_F16 && a.n_dims == 0 && a.count == 1);
}

static void refused(unsigned major, const char *header, size_t n_data, const char *word)
{
    char file[8192];
    struct npy a;
    struct err e = {0};
    const size_t n = make(file, major, header, n_data);
    const enum status st = npy_parse(file, n, &a, &e);
    if ((st != ST_FORMAT && st != ST_UNSUPPORTED) || strstr(e.text, word) == NULL)
        fail_msg("%s: %s: %s, expected \"%s\"", header, status_name(st), e.text, word);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    static char spaces[5001];
#define HEAD "{'descr': '<f4', 'fortran_order': False, "
    refused(3, HEAD "'shape': (1,)}", 4, "version is 3.0");
    refused(1, HEAD "'shape': (1,)}", 3, "3 bytes of data, expected 4 (cut short)");
    refused(1, HEAD "'shape': (1,)}", 5, "5 bytes of data, expected 4");
    refused(1, HEAD "'shape': (1, }", 4, "shape");
    refused(1, HEAD "'shape': (-1,)}", 4, "shape");
    refused(1, HEAD "'shape': (1 1)}", 4, "shape");
    refused(1, HEAD "'shape': 1}", 4, "shape");
    refused(1, HEAD "'shape': (99999999999999999999999,)}", 4, "shape");
    refused(1, HEAD "'shape': (4294967296, 4294967296, 4294967296)}", 4, "2^61");
    refused(1, HEAD "'shape': (1,1,1,1,1,1,1,1,1)}", 4, "more than 8 dimensions");
    refused(1, HEAD "}", 4, "dictionary");
    refused(1, HEAD "'shape': (1,)", 4, "dictionary");
    refused(1, HEAD "'shape': (1,)} x", 4, "dictionary");
    refused(1, HEAD "'shape': (1,), 'shape': (1,)}", 4, "\"shape\" twice");
    refused(1, HEAD "'more': 1}", 4, "\"more\"");
    refused(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", 4,
            "fortran_order is True");
    refused(1, "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", 4, "fortran_order");
    refused(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", 8, "dtype is <f8");
    refused(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4, "dtype is >f4");
    refused(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, "structured");
    refused(1, "", 0, "dictionary");
    memset(spaces, ' ', sizeof spaces - 1);
    refused(1, spaces, 0, "header of 5000 bytes, the most is 4096");
    struct npy a;
    struct err e;
    char file[256];
    const size_t n = make(file, 1, HEAD "'shape': (1,)}", 4);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_not_equal(npy_parse(file, cut, &a, &e), ST_OK);
    assert_int_equal(npy_parse(file, n, &a, &e), ST_OK);
}

static void written_headers_are_aligned_and_read_again(void **state)
{
    (void)state;
    const uint64_t dims[NPY_MAX_DIMS] = {1, 2, 3, 4, 5, 1, 1, 1};
    for (uint32_t n = 0; n <= NPY_MAX_DIMS; n++) {
        struct strbuf out;
        struct npy a;
        strbuf_init(&out, 4096);
        assert_true(npy_write_header(&out, DT_F16, n, dims));
        assert_int_equal(out.length % 64, 0);
        uint64_t count = 1;
        for (uint32_t i = 0; i < n; i++)
            count *= dims[i];
        for (uint64_t i = 0; i < count; i++)
            strbuf_append(&out, "ab", 2);
        assert_int_equal(npy_parse(strbuf_text(&out), out.length, &a, NULL), ST_OK);
        assert_true(a.dtype == DT_F16 && a.n_dims == n && a.count == count);
        strbuf_free(&out);
    }
}

static void parts_are_found(void **state)
{
    (void)state;
    static const char body[] =
        "--b\r\nContent-Disposition: form-data; name=\"one\"\r\n\r\n\r\n--b\r\n"
        "X: y\r\ncontent-disposition:form-data;filename=\"f\";name=two\r\n\r\n"
        "-b\r\n--\r\n--b--\r\n";
    struct multipart m;
    struct err e = {0};
    if (multipart_parse("multipart/form-data;boundary=\"b\"", body, sizeof body - 1, &m, &e) !=
        ST_OK)
        fail_msg("%s", e.text);
    assert_int_equal(m.count, 2);
    assert_string_equal(m.parts[0].name, "one");
    assert_int_equal(m.parts[0].n, 0);
    assert_string_equal(m.parts[1].name, "two");
    assert_int_equal(m.parts[1].n, 6);
    assert_memory_equal(m.parts[1].bytes, "-b\r\n--", 6);
    assert_true(multipart_is("Multipart/Form-Data; boundary=x") &&
                !multipart_is("multipart/mixed"));
    for (size_t n = 0; n + 4 < sizeof body; n++)
        assert_int_not_equal(multipart_parse("multipart/form-data; boundary=b", body, n, &m, &e),
                             ST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(headers_are_read),
                                       cmocka_unit_test(bad_files_are_refused),
                                       cmocka_unit_test(written_headers_are_aligned_and_read_again),
                                       cmocka_unit_test(parts_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
