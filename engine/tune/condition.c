/* Conditions: a recursive descent over the text, stopping at the first fault. */
#include "engine/tune/condition.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16 /* of parentheses */

struct reader {
    const char *at;
    const struct condition_name *names;
    uint32_t n, depth;
    const char *fault; /* static text; NULL: none so far */
};

static int64_t read_sum(struct reader *r);

static void skip_spaces(struct reader *r)
{
    r->at += strspn(r->at, " ");
}

static int64_t fail(struct reader *r, const char *fault)
{
    if (!r->fault)
        r->fault = fault;
    return 1;
}

static bool take(struct reader *r, const char *text)
{
    const size_t length = strlen(text);
    skip_spaces(r);
    if (strncmp(r->at, text, length) != 0)
        return false;
    r->at += length;
    return true;
}

static int64_t read_factor(struct reader *r)
{
    skip_spaces(r);
    if (*r->at == '(') {
        if (r->depth++ == DEPTH_MAX)
            return fail(r, "too many parentheses");
        r->at++;
        const int64_t value = read_sum(r);
        r->depth--;
        return take(r, ")") ? value : fail(r, "expected )");
    }
    if (*r->at >= '0' && *r->at <= '9') {
        char *end;
        const int64_t value = (int64_t)strtoul(r->at, &end, 10);
        r->at = end;
        return value;
    }
    const size_t length = strspn(r->at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    for (uint32_t i = 0; i < r->n && length > 0; i++)
        if (strlen(r->names[i].name) == length && memcmp(r->names[i].name, r->at, length) == 0) {
            r->at += length;
            return r->names[i].value;
        }
    return fail(r, "expected a number or a known name");
}

static int64_t read_product(struct reader *r)
{
    int64_t value = read_factor(r);
    while (!r->fault) {
        skip_spaces(r);
        const char operation = *r->at;
        if (operation != '*' && operation != '/' && operation != '%')
            break;
        r->at++;
        const int64_t other = read_factor(r);
        if (operation == '*')
            value *= other;
        else if (other == 0)
            return fail(r, "division by zero");
        else
            value = operation == '/' ? value / other : value % other;
    }
    return value;
}

static int64_t read_sum(struct reader *r)
{
    int64_t value = read_product(r);
    while (!r->fault) {
        if (take(r, "+"))
            value += read_product(r);
        else if (take(r, "-"))
            value -= read_product(r);
        else
            break;
    }
    return value;
}

static bool read_comparison(struct reader *r)
{
    const int64_t a = read_sum(r);
    if (take(r, "<="))
        return a <= read_sum(r);
    if (take(r, ">="))
        return a >= read_sum(r);
    if (take(r, "=="))
        return a == read_sum(r);
    if (take(r, "<"))
        return a < read_sum(r);
    if (take(r, ">"))
        return a > read_sum(r);
    fail(r, "expected a comparison");
    return false;
}

enum status condition_holds(const char *text, const struct condition_name *names, uint32_t n,
                            bool *out, struct err *e)
{
    *out = true;
    if (!text || !*text)
        return ST_OK;
    struct reader r = {.at = text, .names = names, .n = n};
    do
        *out = read_comparison(&r) && *out;
    while (!r.fault && take(&r, "&&"));
    skip_spaces(&r);
    if (!r.fault && *r.at)
        fail(&r, "expected the end");
    if (!r.fault)
        return ST_OK;
    *out = false;
    return err_set(e, ST_INVALID, "condition \"%s\": %s at \"%s\"", text, r.fault, r.at);
}
