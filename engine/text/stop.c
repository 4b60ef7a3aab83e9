/* Output text in two stages: bytes become well-formed characters, characters pass the stop strings.
 *
 * Each stop string has a Knuth-Morris-Pratt automaton whose state is the length of its longest
 * prefix that the text so far ends with; the largest state is what must be held back. So every
 * decision depends on the text alone and never on how it was cut into feeds.
 */
#include "engine/text/stop.h"

#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/utf8.h"

struct pattern {
    const char *text;       /* in the filter's block */
    const uint16_t *border; /* [length] longest proper prefix of text[0..i] that is its suffix */
    size_t length, state;
};

struct stop_filter {
    struct pattern patterns[STOP_MAX_STRINGS];
    uint32_t n_patterns;
    char partial[UTF8_MAX_BYTES]; /* beginning of a character */
    size_t n_partial;
    char *held; /* characters that may belong to a stop string: under the longest pattern + 4 */
    size_t n_held;
    uint32_t n_characters; /* taken */
    bool hit;
    char *texts;
    uint16_t *borders;
};

static void fill_border(const char *text, size_t length, uint16_t *border)
{
    size_t k = 0;
    border[0] = 0;
    for (size_t i = 1; i < length; i++) {
        while (k > 0 && text[i] != text[k])
            k = border[k - 1];
        if (text[i] == text[k])
            k++;
        border[i] = (uint16_t)k;
    }
}

static enum status check_string(const char *text, size_t length, uint32_t index, struct err *e)
{
    if (length == 0 || length > STOP_MAX_BYTES)
        return err_set(e, ST_INVALID, "stop string %u: %zu bytes, expected 1..%d", index, length,
                       STOP_MAX_BYTES);
    for (size_t at = 0; at < length;) {
        int size = utf8_decode(text + at, length - at, NULL);
        if (size <= 0)
            return err_set(e, ST_INVALID, "stop string %u: byte %zu is not UTF-8", index, at);
        at += (size_t)size;
    }
    return ST_OK;
}

enum status stop_filter_open(const char *const *strings, const size_t *lengths, uint32_t n,
                             struct stop_filter **out, struct err *e)
{
    *out = NULL;
    if (n > STOP_MAX_STRINGS)
        return err_set(e, ST_INVALID, "%u stop strings, at most %d", n, STOP_MAX_STRINGS);
    size_t total = 0, longest = 0;
    for (uint32_t i = 0; i < n; i++) {
        enum status status = check_string(strings[i], lengths[i], i, e);
        if (status != ST_OK)
            return status;
        total += lengths[i];
        longest = lengths[i] > longest ? lengths[i] : longest;
    }
    struct stop_filter *f = mem_zalloc(sizeof *f);
    if (f == NULL)
        return err_set(e, ST_NO_MEMORY, "stop strings: out of memory");
    f->texts = mem_alloc(total);
    f->borders = mem_array(total, sizeof *f->borders);
    f->held = mem_alloc(longest + UTF8_MAX_BYTES);
    if (f->texts == NULL || f->borders == NULL || f->held == NULL) {
        stop_filter_close(f);
        return err_set(e, ST_NO_MEMORY, "stop strings: out of memory");
    }
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(f->texts + at, strings[i], lengths[i]);
        fill_border(f->texts + at, lengths[i], f->borders + at);
        f->patterns[i] = (struct pattern){f->texts + at, f->borders + at, lengths[i], 0};
        at += lengths[i];
    }
    f->n_patterns = n;
    *out = f;
    return ST_OK;
}

void stop_filter_close(struct stop_filter *f)
{
    if (f == NULL)
        return;
    mem_free(f->held);
    mem_free(f->borders);
    mem_free(f->texts);
    mem_free(f);
}

size_t stop_filter_held(const struct stop_filter *f)
{
    return f->n_partial + f->n_held;
}

uint32_t stop_filter_characters(const struct stop_filter *f)
{
    return f->n_characters;
}

/* Gives out the first n held bytes. */
static enum status release(struct stop_filter *f, size_t n, struct strbuf *out, struct err *e)
{
    if (n > 0 && !strbuf_append(out, f->held, n))
        return err_set(e, ST_NO_MEMORY, "text: %zu bytes more than %zu cannot be held", n,
                       out->length);
    f->n_held -= n;
    memmove(f->held, f->held + n, f->n_held);
    return ST_OK;
}

/* The automata's step on one byte of the text. Returns the length of the longest stop string
 * completed by it, 0 if none; *open: the longest state after it. */
static size_t advance(struct stop_filter *f, char c, size_t *open)
{
    size_t completed = 0;
    *open = 0;
    for (uint32_t i = 0; i < f->n_patterns; i++) {
        struct pattern *p = &f->patterns[i];
        while (p->state > 0 && p->text[p->state] != c)
            p->state = p->border[p->state - 1];
        if (p->text[p->state] == c)
            p->state++;
        if (p->state == p->length && p->length > completed)
            completed = p->length;
        if (p->state > *open)
            *open = p->state;
    }
    return completed;
}

/* Takes one well-formed character of n bytes. */
static enum status take_character(struct stop_filter *f, const char *bytes, size_t n,
                                  struct strbuf *out, struct err *e)
{
    size_t open = 0;
    f->n_characters++;
    for (size_t i = 0; i < n; i++) {
        f->held[f->n_held++] = bytes[i];
        size_t completed = advance(f, bytes[i], &open);
        if (completed > 0) {
            f->hit = true;
            enum status status = release(f, f->n_held - completed, out, e);
            f->n_held = f->n_partial = 0;
            return status;
        }
    }
    return release(f, f->n_held - open, out, e);
}

static enum status take_replacement(struct stop_filter *f, struct strbuf *out, struct err *e)
{
    char bytes[UTF8_MAX_BYTES];
    return take_character(f, bytes, utf8_encode(UTF8_REPLACEMENT, bytes), out, e);
}

/* Takes one byte. */
static enum status take_byte(struct stop_filter *f, char c, struct strbuf *out, struct err *e)
{
    f->partial[f->n_partial++] = c;
    int length = utf8_decode(f->partial, f->n_partial, NULL);
    if (length == 0 && f->n_partial > 1) {
        /* What came before was a beginning; c may be another. */
        f->partial[0] = c;
        f->n_partial = 1;
        enum status status = take_replacement(f, out, e);
        if (status != ST_OK || f->hit)
            return status;
        length = utf8_decode(f->partial, 1, NULL);
    }
    if (length < 0)
        return ST_OK;
    f->n_partial = 0;
    if (length == 0)
        return take_replacement(f, out, e);
    return take_character(f, f->partial, (size_t)length, out, e);
}

enum status stop_filter_feed(struct stop_filter *f, const char *bytes, size_t n, struct strbuf *out,
                             bool *hit, struct err *e)
{
    enum status status = ST_OK;
    for (size_t i = 0; i < n && !f->hit && status == ST_OK; i++)
        status = take_byte(f, bytes[i], out, e);
    *hit = f->hit;
    return status;
}

enum status stop_filter_flush(struct stop_filter *f, struct strbuf *out, struct err *e)
{
    enum status status = ST_OK;
    if (f->n_partial > 0) {
        f->n_partial = 0;
        status = take_replacement(f, out, e);
    }
    return status == ST_OK ? release(f, f->n_held, out, e) : status;
}
