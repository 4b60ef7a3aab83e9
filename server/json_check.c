/* A pushdown automaton for RFC 8259: one byte at a time, a bit for each open bracket. */
#include "server/json_check.h"

#include <cjson/cJSON.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "server/json.h"

/* What may come next. */
enum expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* after [ */
    EXPECT_KEY,          /* after , in an object */
    EXPECT_KEY_OR_END,   /* after { */
    EXPECT_COLON,
    EXPECT_COMMA_OR_END,
    EXPECT_NOTHING
};

struct checker {
    const unsigned char *text;
    size_t n, at;
    uint64_t in_object; /* bit d: the bracket at depth d + 1 is a { */
    uint32_t depth, n_values;
    struct err *e;
};

static enum status fail(struct checker *c, const char *what)
{
    return err_set(c->e, ST_INVALID, "malformed JSON at byte %zu: %s", c->at, what);
}

/* Four hex digits at s, or -1. */
static int hex4(const unsigned char *s, size_t n)
{
    int value = 0;
    if (n < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int c = s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static size_t left(const struct checker *c)
{
    return c->n - c->at;
}

/* At the byte after a backslash. */
static enum status check_escape(struct checker *c)
{
    if (left(c) == 0)
        return fail(c, "unfinished string");
    char kind = (char)c->text[c->at];
    if (kind != 'u') {
        if (kind == '\0' || strchr("\"\\/bfnrt", kind) == NULL)
            return fail(c, "unknown escape");
        c->at++;
        return ST_OK;
    }
    int unit = hex4(c->text + c->at + 1, left(c) - 1);
    if (unit < 0)
        return fail(c, "\\u needs four hexadecimal digits");
    if (unit == 0)
        return fail(c, "\\u0000 is not supported");
    c->at += 5;
    if (unit < 0xD800 || unit > 0xDFFF)
        return ST_OK;
    int low = left(c) >= 6 && c->text[c->at] == '\\' && c->text[c->at + 1] == 'u'
                  ? hex4(c->text + c->at + 2, left(c) - 2)
                  : -1;
    if (unit > 0xDBFF || low < 0xDC00 || low > 0xDFFF)
        return fail(c, "lone surrogate");
    c->at += 6;
    return ST_OK;
}

/* At the opening quote. */
static enum status check_string(struct checker *c)
{
    c->at++;
    while (left(c) > 0) {
        unsigned char byte = c->text[c->at];
        if (byte == '"') {
            c->at++;
            return ST_OK;
        }
        if (byte < 0x20)
            return fail(c, "control character in a string");
        if (byte == '\\') {
            c->at++;
            enum status status = check_escape(c);
            if (status != ST_OK)
                return status;
            continue;
        }
        size_t length = utf8_length((const char *)c->text + c->at, left(c));
        if (length == 0)
            return fail(c, "bad UTF-8");
        c->at += length;
    }
    return fail(c, "unfinished string");
}

static size_t skip_digits(struct checker *c)
{
    size_t start = c->at;
    while (left(c) > 0 && c->text[c->at] >= '0' && c->text[c->at] <= '9')
        c->at++;
    return c->at - start;
}

static bool skip_byte(struct checker *c, char wanted)
{
    if (left(c) == 0 || c->text[c->at] != (unsigned char)wanted)
        return false;
    c->at++;
    return true;
}

static enum status check_number(struct checker *c)
{
    skip_byte(c, '-');
    if (!skip_byte(c, '0') && skip_digits(c) == 0)
        return fail(c, "a digit is missing");
    if (skip_byte(c, '.') && skip_digits(c) == 0)
        return fail(c, "a digit is missing");
    if (skip_byte(c, 'e') || skip_byte(c, 'E')) {
        if (!skip_byte(c, '+'))
            skip_byte(c, '-');
        if (skip_digits(c) == 0)
            return fail(c, "a digit is missing");
    }
    return ST_OK;
}

static enum status check_word(struct checker *c)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i]);
        if (left(c) >= n && memcmp(c->text + c->at, words[i], n) == 0) {
            c->at += n;
            return ST_OK;
        }
    }
    return fail(c, c->text[c->at] == 0xEF ? "a byte order mark is not allowed" : "unexpected byte");
}

static enum status open_bracket(struct checker *c, bool object, enum expect *next)
{
    if (c->depth == JSON_MAX_DEPTH)
        return err_set(c->e, ST_INVALID, "JSON deeper than %d levels at byte %zu", JSON_MAX_DEPTH,
                       c->at);
    c->in_object =
        object ? c->in_object | (uint64_t)1 << c->depth : c->in_object & ~((uint64_t)1 << c->depth);
    c->depth++;
    c->at++;
    *next = object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    return ST_OK;
}

static bool in_object(const struct checker *c)
{
    return c->depth > 0 && (c->in_object >> (c->depth - 1) & 1);
}

static enum expect after_value(const struct checker *c)
{
    return c->depth == 0 ? EXPECT_NOTHING : EXPECT_COMMA_OR_END;
}

static enum status check_value(struct checker *c, enum expect *next)
{
    unsigned char byte = c->text[c->at];
    if (++c->n_values > JSON_MAX_VALUES)
        return err_set(c->e, ST_INVALID, "JSON with more than %d values", JSON_MAX_VALUES);
    if (byte == '{' || byte == '[')
        return open_bracket(c, byte == '{', next);
    *next = after_value(c);
    if (byte == '"')
        return check_string(c);
    if (byte == '-' || (byte >= '0' && byte <= '9'))
        return check_number(c);
    return check_word(c);
}

static enum status close_bracket(struct checker *c, enum expect *next)
{
    c->depth--;
    c->at++;
    *next = after_value(c);
    return ST_OK;
}

/* One token, at a byte that is not white space. */
static enum status check_token(struct checker *c, enum expect *next)
{
    unsigned char byte = c->text[c->at];
    unsigned char end = in_object(c) ? '}' : ']';
    switch (*next) {
    case EXPECT_VALUE_OR_END:
        if (byte == end)
            return close_bracket(c, next);
        return check_value(c, next);
    case EXPECT_VALUE: return check_value(c, next);
    case EXPECT_KEY_OR_END:
        if (byte == end)
            return close_bracket(c, next);
        if (byte != '"')
            return fail(c, "a name in quotes or } is missing");
        *next = EXPECT_COLON;
        return check_string(c);
    case EXPECT_KEY:
        if (byte != '"')
            return fail(c, "a name in quotes is missing");
        *next = EXPECT_COLON;
        return check_string(c);
    case EXPECT_COLON:
        if (byte != ':')
            return fail(c, "a colon is missing");
        c->at++;
        *next = EXPECT_VALUE;
        return ST_OK;
    case EXPECT_COMMA_OR_END:
        if (byte == end)
            return close_bracket(c, next);
        if (byte != ',')
            return fail(c, "a comma or closing bracket is missing");
        c->at++;
        *next = in_object(c) ? EXPECT_KEY : EXPECT_VALUE;
        return ST_OK;
    case EXPECT_NOTHING: break;
    }
    return fail(c, "bytes after the end");
}

enum status json_check(const char *text, size_t n, struct err *e)
{
    struct checker c = {.text = (const unsigned char *)text, .n = n, .e = e};
    enum expect next = EXPECT_VALUE;
    for (;;) {
        while (left(&c) > 0 && c.text[c.at] != '\0' &&
               strchr(" \t\r\n", (char)c.text[c.at]) != NULL)
            c.at++;
        if (left(&c) == 0)
            break;
        enum status status = check_token(&c, &next);
        if (status != ST_OK)
            return status;
    }
    return next == EXPECT_NOTHING ? ST_OK
                                  : fail(&c, n == 0 ? "the body is empty" : "unexpected end");
}

enum status json_read(const char *body, size_t n, cJSON **out, struct fault *f)
{
    struct err e;
    *out = NULL;
    enum status status = json_check(body, n, &e);
    if (status != ST_OK)
        return fault_from_err(f, NULL, &e);
    *out = cJSON_ParseWithLengthOpts(body, n, NULL, false);
    return *out != NULL
               ? ST_OK
               : fault_set(f, FAULT_MEMORY, NULL, "out of memory while reading the request");
}
