/* SentencePiece's unigram-by-merging tokeniser, as llama vocabularies use it: adjacent symbols are
 * joined while their text is a token, the highest score first; what is no token in the end goes
 * out byte by byte. Source: Kudo 2018; the reference engines' merge order.
 *
 * The text is one long word, so it is cut into independent parts where no merge can cross: before
 * a space mark, if no token of the vocabulary has one behind another character. That keeps the
 * queue small without changing the result.
 */
#include <math.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/tokenizer_internal.h"
#include "engine/text/utf8.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

int spm_byte_of(struct vocab_text text)
{
    if (text.length != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>')
        return -1;
    int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* A number that is lower for a higher score: the float's bits as an ordered integer, turned round.
 * Never MERGE_NO_RANK, because that would be a NaN. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

static bool mark_behind_another(struct vocab_text text)
{
    bool other = false;
    for (uint32_t i = 0; i < text.length;) {
        bool mark = text.length - i >= SPACE_MARK_BYTES &&
                    memcmp(text.data + i, SPACE_MARK, SPACE_MARK_BYTES) == 0;
        if (mark && other)
            return true;
        other |= !mark;
        i += mark ? SPACE_MARK_BYTES : 1;
    }
    return false;
}

enum status spm_open(struct tokenizer *t, const struct vocab_source *source, struct err *e)
{
    if (source->scores == NULL)
        return err_set(e, ST_FORMAT, "tokenizer: a llama vocabulary needs scores, there are none");
    t->ranks = mem_array(t->n_tokens, sizeof *t->ranks);
    if (t->ranks == NULL)
        return err_set(e, ST_NO_MEMORY, "tokenizer: %u scores: out of memory", t->n_tokens);
    t->marks_only_lead = true;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        if (isnan(source->scores[id]))
            return err_set(e, ST_FORMAT, "tokenizer: score of token %u is not a number", id);
        t->ranks[id] = rank_of_score(source->scores[id]);
        if (mark_behind_another(t->texts[id]))
            t->marks_only_lead = false;
        int byte = spm_byte_of(t->texts[id]);
        if (t->types[id] == TOKEN_BYTE)
            t->byte_tokens[byte] = (token_id)id;
    }
    for (uint32_t b = 0; b < 256; b++) {
        char text = (char)b;
        if (t->byte_tokens[b] == TOKEN_NONE)
            t->byte_tokens[b] = (token_id)text_map_get(&t->words, &text, 1, 0);
        if (t->byte_tokens[b] == TOKEN_NONE)
            t->byte_tokens[b] = t->roles[ROLE_UNK];
    }
    return ST_OK;
}

static uint32_t rank_pair(const void *context, const char *text, uint32_t left, uint32_t length)
{
    const struct tokenizer *t = context;
    (void)left;
    uint32_t id = text_map_get(&t->words, text, length, 0);
    return id == TEXT_MAP_NONE ? MERGE_NO_RANK : t->ranks[id];
}

/* Merges the symbols pushed so far and appends their tokens. */
static enum status emit(const struct tokenizer *t, struct merge_work *work, const char *text,
                        struct token_list *out, struct err *e)
{
    if (!merge_run(work, text, rank_pair, t))
        return err_set(e, ST_NO_MEMORY, "tokenizer: out of memory");
    for (int32_t i = work->n_symbols > 0 ? 0 : -1; i >= 0; i = work->symbols[i].next) {
        const struct merge_symbol *symbol = &work->symbols[i];
        uint32_t id = text_map_get(&t->words, text + symbol->start, symbol->length, 0);
        if (id != TEXT_MAP_NONE) {
            if (!token_list_push(out, (token_id)id))
                return err_set(e, ST_NO_MEMORY, "tokenizer: out of memory");
            continue;
        }
        for (uint32_t j = 0; j < symbol->length; j++) {
            unsigned char byte = (unsigned char)text[symbol->start + j];
            if (t->byte_tokens[byte] == TOKEN_NONE)
                return err_set(e, ST_UNSUPPORTED,
                               "tokenizer: no token for byte 0x%02X and no unknown token", byte);
            if (!token_list_push(out, t->byte_tokens[byte]))
                return err_set(e, ST_NO_MEMORY, "tokenizer: out of memory");
        }
    }
    return ST_OK;
}

/* The text with spaces as marks, behind the prefix if one is wanted; its length, or 0 when out of
 * memory. */
static size_t mark_spaces(struct byte_buffer *out, const char *text, size_t n, bool prefix)
{
    if (!byte_buffer_reserve(out, SPACE_MARK_BYTES * (n + 1)))
        return 0;
    size_t length = 0;
    if (prefix) {
        memcpy(out->data, SPACE_MARK, SPACE_MARK_BYTES);
        length = SPACE_MARK_BYTES;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ') {
            memcpy(out->data + length, SPACE_MARK, SPACE_MARK_BYTES);
            length += SPACE_MARK_BYTES;
        } else {
            out->data[length++] = text[i];
        }
    }
    return length;
}

static bool is_mark(const char *text, size_t n)
{
    return n >= SPACE_MARK_BYTES && memcmp(text, SPACE_MARK, SPACE_MARK_BYTES) == 0;
}

/* Bytes of the symbol at text[0..n). A byte announces the length even if what follows is not of
 * its character, as in the reference engines; but a space mark is never swallowed, because its
 * bytes could not be told from it afterwards. */
static size_t symbol_bytes(const char *text, size_t n)
{
    size_t size = utf8_announced_length(text[0]);
    if (size > n)
        size = n;
    for (size_t i = 1; i < size; i++)
        if (is_mark(text + i, n - i))
            return i;
    return size;
}

enum status spm_encode(const struct tokenizer *t, struct encode_scratch *scratch, const char *text,
                       size_t n, bool prefix, struct token_list *out, struct err *e)
{
    size_t length = mark_spaces(&scratch->text, text, n, prefix);
    if (length == 0 && n > 0)
        return err_set(e, ST_NO_MEMORY, "tokenizer: %zu bytes of text: out of memory", n);
    const char *marked = scratch->text.data;
    struct merge_work *work = &scratch->merge;
    bool after_mark = true;
    merge_begin(work);
    for (size_t at = 0; at < length;) {
        bool mark = is_mark(marked + at, length - at);
        size_t size = symbol_bytes(marked + at, length - at);
        if (mark && !after_mark && t->marks_only_lead) {
            enum status status = emit(t, work, marked, out, e);
            if (status != ST_OK)
                return status;
            merge_begin(work);
        }
        if (!merge_push(work, (uint32_t)at, (uint32_t)size))
            return err_set(e, ST_NO_MEMORY, "tokenizer: %zu bytes of text: out of memory", n);
        after_mark = mark;
        at += size;
    }
    return emit(t, work, marked, out, e);
}
