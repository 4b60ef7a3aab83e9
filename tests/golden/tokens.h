/* What the token tests share: opening a vocabulary, golden files, comparing ids and text.
 *
 * A golden line is `p` or `s` (specials parsed), the text in hexadecimal (`-` for none), the ids.
 */
#ifndef OINFER_TESTS_GOLDEN_TOKENS_H
#define OINFER_TESTS_GOLDEN_TOKENS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/vocab.h"
#include "engine/text/utf8.h"

#define SKIPPED        77
#define LINE_BYTES     ((size_t)1 << 20)
#define REPORTED_LINES 10

static inline struct tokenizer *open_vocabulary(const char *path)
{
    struct err e = {0};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    if (gguf_open(path, &g, &e) != ST_OK || vocab_open(g, &t, &e) != ST_OK)
        fail_msg("%s: %s", path, e.text);
    gguf_close(g);
    return t;
}

static inline bool is_utf8(const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        int length = utf8_decode(text + at, n - at, NULL);
        if (length <= 0)
            return false;
        at += (size_t)length;
    }
    return true;
}

/* Whether the ids of text are those of the string `expected` ("1 2 3"), and its text comes back
 * from them if `exact`. Prints what differs. */
static inline bool same_tokens(const struct tokenizer *t, const char *text, size_t n,
                               bool parse_special, const char *expected, bool exact)
{
    struct err e = {0};
    struct token_list ids = {0};
    const struct tokenize_options options = {.parse_special = parse_special};
    if (tokenizer_encode(t, text, n, &options, &ids, &e) != ST_OK)
        fail_msg("%s", e.text);
    uint32_t i = 0;
    const char *at = expected;
    bool same = true;
    for (; same; i++) {
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at)
            break;
        same = i < ids.count && ids.ids[i] == id;
        at = end;
    }
    same = same && i == ids.count;
    char *back = NULL;
    size_t length = 0;
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.count, true, true, &back, &length, &e),
                     ST_OK);
    bool exactly = !exact || (length == n && memcmp(back, text, n) == 0);
    if (!same || !exactly) {
        print_error("%s of \"%.*s\"%s\n  expected %s\n  found   ", same ? "text" : "ids", (int)n,
                    text, parse_special ? " (specials parsed)" : "", expected);
        for (i = 0; i < ids.count; i++)
            print_error(" %d", ids.ids[i]);
        print_error("\n  text \"%.*s\"\n", (int)length, back);
    }
    mem_free(back);
    token_list_free(&ids);
    return same && exactly;
}

static inline int nibble(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* Calls `check` for each line of golden/NAME: the text, `p` or `s`, the ids as written. */
typedef bool golden_check(void *context, const char *text, size_t n, bool parse_special,
                          const char *ids);

static inline void each_golden_line(const char *name, golden_check *check, void *context)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/%s", OINFER_SOURCE_DIR, name);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        fail_msg("%s: cannot be opened", path);
    char *line = malloc(LINE_BYTES), *text = malloc(LINE_BYTES);
    assert_true(line != NULL && text != NULL);
    int plain = 0, wrong = 0;
    while (wrong < REPORTED_LINES && fgets(line, LINE_BYTES, f) != NULL) {
        char *hex = line + 2, *ids = strpbrk(hex, " \n");
        assert_non_null(ids);
        ids[strcspn(ids, "\n")] = '\0';
        size_t n = 0;
        for (const char *at = hex; *hex != '-' && at < ids; at += 2)
            text[n++] = (char)(nibble(at[0]) << 4 | nibble(at[1]));
        wrong += !check(context, text, n, line[0] == 's', ids);
        plain += line[0] == 'p'; /* each string once; some of them are there as `s` too */
    }
    fclose(f);
    free(line);
    free(text);
    assert_int_equal(wrong, 0);
    assert_true(plain >= 300);
}

struct golden_vocabulary {
    const struct tokenizer *t;
    bool (*exact)(const char *text, size_t n); /* must the text come back from its ids? */
    int n_exact;                               /* plain strings that had to */
};

static inline bool same_line(void *context, const char *text, size_t n, bool parse_special,
                             const char *ids)
{
    struct golden_vocabulary *v = context;
    const bool exact = v->exact(text, n);
    v->n_exact += exact && !parse_special;
    return same_tokens(v->t, text, n, parse_special, ids, exact);
}

#endif
