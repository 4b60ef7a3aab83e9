/* The writer, and the UTF-8 check that the reader shares. No state. */
#include "server/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

size_t utf8_length(const char *bytes, size_t n)
{
    /* Range of the first byte, range of the second, length. */
    static const struct {
        unsigned char from, to, low, high;
        size_t length;
    } forms[] = {
        {0x00, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    const unsigned char *s = (const unsigned char *)bytes;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (s[0] < forms[i].from || s[0] > forms[i].to)
            continue;
        if (forms[i].length > n)
            return 0;
        if (forms[i].length > 1 && (s[1] < forms[i].low || s[1] > forms[i].high))
            return 0;
        for (size_t k = 2; k < forms[i].length; k++)
            if (s[k] < 0x80 || s[k] > 0xBF)
                return 0;
        return forms[i].length;
    }
    return 0;
}

bool utf8_valid(const char *bytes, size_t n)
{
    while (n > 0) {
        size_t length = utf8_length(bytes, n);
        if (length == 0)
            return false;
        bytes += length;
        n -= length;
    }
    return true;
}

struct json json_begin(struct strbuf *out)
{
    return (struct json){.out = out};
}

static void separate(struct json *j)
{
    if (j->comma)
        strbuf_putc(j->out, ',');
    j->comma = true;
}

void json_open(struct json *j, char bracket)
{
    separate(j);
    strbuf_putc(j->out, bracket);
    j->comma = false;
}

void json_close(struct json *j, char bracket)
{
    strbuf_putc(j->out, bracket);
    j->comma = true;
}

static void put_escaped(struct strbuf *out, unsigned char c)
{
    static const char names[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
    const char *found = c != 0 ? strchr(names, c) : NULL;
    if (found != NULL) {
        char pair[2] = {'\\', escapes[found - names]};
        strbuf_append(out, pair, sizeof pair);
    } else {
        strbuf_printf(out, "\\u%04x", c);
    }
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
}

void json_text_n(struct json *j, const char *text, size_t n)
{
    separate(j);
    strbuf_putc(j->out, '"');
    size_t i = 0;
    while (i < n) {
        size_t run = 0;
        while (i + run < n && is_plain((unsigned char)text[i + run]))
            run++;
        strbuf_append(j->out, text + i, run);
        i += run;
        if (i == n)
            break;
        size_t length = utf8_length(text + i, n - i);
        if (length == 0)
            strbuf_puts(j->out, "\xEF\xBF\xBD");
        else if (length == 1)
            put_escaped(j->out, (unsigned char)text[i]);
        else
            strbuf_append(j->out, text + i, length);
        i += length > 0 ? length : 1;
    }
    strbuf_putc(j->out, '"');
}

void json_text(struct json *j, const char *text)
{
    json_text_n(j, text, strlen(text));
}

void json_colon(struct json *j)
{
    strbuf_putc(j->out, ':');
    j->comma = false;
}

void json_key(struct json *j, const char *key)
{
    json_text(j, key);
    json_colon(j);
}

void json_int(struct json *j, int64_t value)
{
    separate(j);
    strbuf_printf(j->out, "%" PRId64, value);
}

void json_uint(struct json *j, uint64_t value)
{
    separate(j);
    strbuf_printf(j->out, "%" PRIu64, value);
}

void json_real(struct json *j, double value, int digits)
{
    separate(j);
    if (isfinite(value))
        strbuf_printf(j->out, "%.*g", digits, value);
    else
        strbuf_puts(j->out, "null");
}

void json_bool(struct json *j, bool value)
{
    separate(j);
    strbuf_puts(j->out, value ? "true" : "false");
}

void json_null(struct json *j)
{
    separate(j);
    strbuf_puts(j->out, "null");
}

void json_text_field(struct json *j, const char *key, const char *text)
{
    json_key(j, key);
    json_text(j, text);
}

void json_uint_field(struct json *j, const char *key, uint64_t value)
{
    json_key(j, key);
    json_uint(j, value);
}

void json_real_field(struct json *j, const char *key, double value)
{
    json_key(j, key);
    json_real(j, value, JSON_DIGITS);
}

void json_bool_field(struct json *j, const char *key, bool value)
{
    json_key(j, key);
    json_bool(j, value);
}

void json_figure_field(struct json *j, const char *key, double value)
{
    json_key(j, key);
    if (value > 0)
        json_real(j, value, JSON_DIGITS);
    else
        json_null(j);
}
