/* Pre-tokenisation with PCRE2: the table of pretok.def, compilation, and the splitting loop. */
#include "engine/text/pretok.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"

#define PRETOK_MAX_EXPRESSIONS 8
/* Backtracking steps of one match: a few per byte of the longest run, for any sane text. */
#define PRETOK_MATCH_LIMIT 100000000u

struct row {
    bool ignore_merges, add_bos;
    const char *expressions[PRETOK_MAX_EXPRESSIONS + 1]; /* NULL ends them */
};

enum row_index {
#define PRETOK(id, ignore_merges, add_bos, ...) ROW_##id,
#define PRETOK_NAME(name, id)
#include "engine/text/pretok.def"
#undef PRETOK
#undef PRETOK_NAME
};

static const struct row rows[] = {
#define PRETOK(id, ignore, bos, ...) \
    [ROW_##id] = {.ignore_merges = ignore, .add_bos = bos, .expressions = {__VA_ARGS__}},
#define PRETOK_NAME(name, id)
#include "engine/text/pretok.def"
#undef PRETOK
#undef PRETOK_NAME
};

static const struct {
    const char *name;
    enum row_index row;
} names[] = {
#define PRETOK(id, ignore_merges, add_bos, ...)
#define PRETOK_NAME(text, id) {text, ROW_##id},
#include "engine/text/pretok.def"
#undef PRETOK
#undef PRETOK_NAME
};

struct pretok {
    const struct row *row;
    uint32_t n_codes;
    pcre2_code *codes[PRETOK_MAX_EXPRESSIONS];
    pcre2_match_context *context;
};

/* NULL for a name that is not in the table. */
static const struct row *find_row(const char *name)
{
    if (name == NULL) {
        log_warn("the model names no pre-tokenizer: using the default, which may not be its own");
        name = "default";
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0)
            return &rows[names[i].row];
    return NULL;
}

static enum status compile(struct pretok *p, bool jit, struct err *e)
{
    for (; p->row->expressions[p->n_codes] != NULL; p->n_codes++) {
        const char *text = p->row->expressions[p->n_codes];
        int code;
        PCRE2_SIZE offset;
        pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                             PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
        if (compiled == NULL)
            return err_set(e, ST_INTERNAL, "pre-tokenizer expression %u: PCRE2 error %d at %zu",
                           p->n_codes, code, (size_t)offset);
        /* Without a JIT (not built in, or executable memory forbidden) the interpreter matches. */
        if (jit)
            (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
        p->codes[p->n_codes] = compiled;
    }
    return ST_OK;
}

enum status pretok_open(const char *name, bool jit, struct pretok **out, struct err *e)
{
    enum status status;
    const struct row *row = find_row(name);
    if (row == NULL)
        return err_set(e, ST_UNSUPPORTED, "pre-tokenizer \"%.64s\" is not one of the %zu known",
                       name, sizeof names / sizeof names[0]);
    struct pretok *p = mem_zalloc(sizeof *p);
    if (p == NULL)
        return err_set(e, ST_NO_MEMORY, "pre-tokenizer: out of memory");
    p->row = row;
    p->context = pcre2_match_context_create(NULL);
    if (p->context == NULL) {
        status = err_set(e, ST_NO_MEMORY, "pre-tokenizer: out of memory");
        goto fail;
    }
    pcre2_set_match_limit(p->context, PRETOK_MATCH_LIMIT);
    status = compile(p, jit, e);
    if (status != ST_OK)
        goto fail;
    *out = p;
    return ST_OK;
fail:
    pretok_close(p);
    return status;
}

void pretok_close(struct pretok *p)
{
    if (p == NULL)
        return;
    for (uint32_t i = 0; i < p->n_codes; i++)
        pcre2_code_free(p->codes[i]);
    pcre2_match_context_free(p->context);
    mem_free(p);
}

bool pretok_ignores_merges(const struct pretok *p)
{
    return p->row->ignore_merges;
}

bool pretok_adds_bos(const struct pretok *p)
{
    return p->row->add_bos;
}

void pretok_pieces_free(struct pretok_pieces *pieces)
{
    mem_free(pieces->ends);
    mem_free(pieces->spare);
    *pieces = (struct pretok_pieces){0};
}

static bool push_end(struct pretok_pieces *pieces, uint32_t end)
{
    if (pieces->count == pieces->capacity) {
        uint32_t capacity = pieces->capacity > 0 ? 2 * pieces->capacity : 64;
        void *grown = mem_array_resize(pieces->ends, capacity, sizeof *pieces->ends);
        if (grown == NULL)
            return false;
        pieces->ends = grown;
        pieces->capacity = capacity;
    }
    pieces->ends[pieces->count++] = end;
    return true;
}

/* Cuts text[start..end): pushes the ends of matches and of the gaps between them. */
static enum status split_piece(const struct pretok *p, const pcre2_code *code,
                               pcre2_match_data *match, const char *text, uint32_t start,
                               uint32_t end, struct pretok_pieces *pieces, struct err *e)
{
    PCRE2_SPTR piece = (PCRE2_SPTR)text + start;
    uint32_t length = end - start, at = 0;
    while (at < length) {
        int count = pcre2_match(code, piece, length, at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match,
                                p->context);
        if (count == PCRE2_ERROR_NOMATCH)
            break;
        if (count == PCRE2_ERROR_NOMEMORY)
            return err_set(e, ST_NO_MEMORY, "pre-tokenizer: out of memory");
        if (count < 0)
            return err_set(e, ST_INVALID, "pre-tokenizer: PCRE2 error %d at byte %u of the text",
                           count, start + at);
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(match);
        if ((range[0] > at && !push_end(pieces, start + (uint32_t)range[0])) ||
            !push_end(pieces, start + (uint32_t)range[1]))
            return err_set(e, ST_NO_MEMORY, "pre-tokenizer: out of memory");
        at = (uint32_t)range[1];
    }
    if (at < length && !push_end(pieces, end))
        return err_set(e, ST_NO_MEMORY, "pre-tokenizer: out of memory");
    return ST_OK;
}

/* The pieces so far become the spare list, and the list starts anew. */
static uint32_t swap_lists(struct pretok_pieces *pieces)
{
    struct pretok_pieces old = *pieces;
    *pieces = (struct pretok_pieces){.ends = old.spare,
                                     .capacity = old.spare_capacity,
                                     .spare = old.ends,
                                     .spare_capacity = old.capacity};
    return old.count;
}

enum status pretok_split(const struct pretok *p, const char *text, size_t n,
                         struct pretok_pieces *pieces, struct err *e)
{
    pieces->count = 0;
    if (n > 0 && !push_end(pieces, (uint32_t)n))
        return err_set(e, ST_NO_MEMORY, "pre-tokenizer: out of memory");
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (match == NULL)
        return err_set(e, ST_NO_MEMORY, "pre-tokenizer: out of memory");
    enum status status = ST_OK;
    for (uint32_t i = 0; i < p->n_codes && status == ST_OK; i++) {
        uint32_t count = swap_lists(pieces), start = 0;
        for (uint32_t j = 0; j < count && status == ST_OK; j++) {
            uint32_t end = pieces->spare[j];
            status = split_piece(p, p->codes[i], match, text, start, end, pieces, e);
            start = end;
        }
    }
    pcre2_match_data_free(match);
    return status;
}
