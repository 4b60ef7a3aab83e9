/* Special tokens: which tokens are cut out of a text before it is tokenised, and the cutting.
 *
 * The order is that of the reference engines: for each special token, longest first, its
 * occurrences in the text that is still uncut, from the left. To do that only for tokens that
 * occur at all, one pass over the text marks those first: at each byte the sorted list of specials
 * is narrowed byte by byte.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/tokenizer_internal.h"

static bool is_special(const struct tokenizer *t, uint32_t id)
{
    enum token_type type = (enum token_type)t->types[id];
    return t->texts[id].length > 0 &&
           (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED);
}

/* A special token while it is sorted. */
struct sort_row {
    struct vocab_text text;
    uint32_t index;
};

static int compare_bytes(const void *a, const void *b)
{
    const struct sort_row *x = a, *y = b;
    uint32_t shorter = x->text.length < y->text.length ? x->text.length : y->text.length;
    int order = memcmp(x->text.data, y->text.data, shorter);
    if (order != 0)
        return order;
    if (x->text.length != y->text.length)
        return x->text.length < y->text.length ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int compare_size(const void *a, const void *b)
{
    const struct sort_row *x = a, *y = b;
    if (x->text.length != y->text.length)
        return x->text.length > y->text.length ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

enum status special_open(struct tokenizer *t, struct err *e)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < t->n_tokens; id++)
        n += is_special(t, id);
    struct sort_row *sorted = mem_array(n, sizeof *sorted);
    t->specials = mem_array(n, sizeof *t->specials);
    t->specials_by_size = mem_array(n, sizeof *t->specials_by_size);
    if (sorted == NULL || t->specials == NULL || t->specials_by_size == NULL) {
        mem_free(sorted);
        return err_set(e, ST_NO_MEMORY, "tokenizer: %u special tokens: out of memory", n);
    }
    t->n_specials = n;
    n = 0;
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (is_special(t, id))
            sorted[n++] = (struct sort_row){t->texts[id], id};
    qsort(sorted, n, sizeof *sorted, compare_bytes);
    for (uint32_t i = 0; i < n; i++) {
        t->specials[i] = (token_id)sorted[i].index;
        sorted[i].index = i;
        t->special_first[(unsigned char)sorted[i].text.data[0] + 1]++;
    }
    for (uint32_t b = 0; b < 256; b++)
        t->special_first[b + 1] += t->special_first[b];
    qsort(sorted, n, sizeof *sorted, compare_size);
    for (uint32_t i = 0; i < n; i++)
        t->specials_by_size[i] = sorted[i].index;
    mem_free(sorted);
    return ST_OK;
}

static const struct vocab_text *special_text(const struct tokenizer *t, uint32_t index)
{
    return &t->texts[t->specials[index]];
}

/* First special of [low, high), all longer than `depth`, whose byte at depth is >= byte. */
static uint32_t lower_bound(const struct tokenizer *t, uint32_t low, uint32_t high, uint32_t depth,
                            unsigned int byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((unsigned char)special_text(t, middle)->data[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Marks every special that text[0..n) begins with. True if there is one. */
static bool mark_prefixes(const struct tokenizer *t, const char *text, size_t n, bool *found)
{
    unsigned char first = (unsigned char)text[0];
    uint32_t low = t->special_first[first], high = t->special_first[first + 1];
    bool any = false;
    for (uint32_t depth = 1; low < high; depth++) {
        for (; low < high && special_text(t, low)->length == depth; low++)
            any = found[low] = true;
        if (depth == n)
            break;
        unsigned int byte = (unsigned char)text[depth];
        low = lower_bound(t, low, high, depth, byte);
        high = lower_bound(t, low, high, depth, byte + 1);
    }
    return any;
}

static bool fragment_push(struct fragment_list *list, uint32_t start, uint32_t length,
                          token_id special)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity > 0 ? 2 * list->capacity : 16;
        void *grown = mem_array_resize(list->items, capacity, sizeof *list->items);
        if (grown == NULL)
            return false;
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->count++] = (struct fragment){start, length, special};
    return true;
}

/* Offset of `what` in text[from..end), or end. */
static uint32_t find_bytes(const char *text, uint32_t from, uint32_t end, struct vocab_text what)
{
    while (end - from >= what.length) {
        const char *at = memchr(text + from, what.data[0], end - from - what.length + 1);
        if (at == NULL)
            break;
        if (memcmp(at, what.data, what.length) == 0)
            return (uint32_t)(at - text);
        from = (uint32_t)(at - text) + 1;
    }
    return end;
}

/* Appends `from` to `to` with every occurrence of special `id` cut out. */
static bool cut(const struct tokenizer *t, const char *text, token_id id,
                const struct fragment_list *from, struct fragment_list *to)
{
    struct vocab_text what = t->texts[id];
    for (uint32_t i = 0; i < from->count; i++) {
        struct fragment f = from->items[i];
        if (f.special != TOKEN_NONE) {
            if (!fragment_push(to, f.start, f.length, f.special))
                return false;
            continue;
        }
        uint32_t at = f.start, end = f.start + f.length;
        while (at < end) {
            uint32_t hit = find_bytes(text, at, end, what);
            if (hit > at && !fragment_push(to, at, hit - at, TOKEN_NONE))
                return false;
            if (hit < end && !fragment_push(to, hit, what.length, id))
                return false;
            at = hit < end ? hit + what.length : end;
        }
    }
    return true;
}

static bool allowed(const struct tokenizer *t, token_id id, bool parse_special)
{
    return parse_special || t->types[id] == TOKEN_USER_DEFINED;
}

enum status special_split(const struct tokenizer *t, const char *text, size_t n, bool parse_special,
                          struct fragment_list *out, struct err *e)
{
    struct fragment_list spare = {0};
    bool any = false;
    bool *found = mem_array(t->n_specials, sizeof *found);
    if (found == NULL || (n > 0 && !fragment_push(out, 0, (uint32_t)n, TOKEN_NONE)))
        goto no_memory;
    if (t->n_specials > 0)
        for (size_t i = 0; i < n; i++)
            any |= mark_prefixes(t, text + i, n - i, found);
    for (uint32_t i = 0; any && i < t->n_specials; i++) {
        uint32_t index = t->specials_by_size[i];
        if (!found[index] || !allowed(t, t->specials[index], parse_special))
            continue;
        spare.count = 0;
        if (!cut(t, text, t->specials[index], out, &spare))
            goto no_memory;
        struct fragment_list swap = *out;
        *out = spare;
        spare = swap;
    }
    mem_free(spare.items);
    mem_free(found);
    return ST_OK;
no_memory:
    mem_free(spare.items);
    mem_free(found);
    return err_set(e, ST_NO_MEMORY, "tokenizer: %zu bytes of text: out of memory", n);
}
