/* Byte-level byte-pair encoding: every byte is a printable character (GPT-2's alphabet), words
 * come from the pre-tokeniser, and within a word pairs are merged in the order of the merge list.
 * Source: Sennrich 2016, Radford 2019.
 *
 * Like the reference engines, a byte that belongs to no well-formed character is taken as U+FFFD:
 * the word expressions are defined on characters, and vocabularies lack the bytes that no text has.
 */
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/tokenizer_internal.h"
#include "engine/text/utf8.h"

/* Bytes that stand for themselves are '!'..'~', 0xA1..0xAC, 0xAE..0xFF; the others, in order, are
 * the characters from U+0100 on. */
static uint32_t character_of(unsigned char byte)
{
    if (byte < 0x21)
        return 0x100u + byte;
    if (byte >= 0x7F && byte <= 0xA0)
        return 0x100u + 0x21 + (byte - 0x7Fu);
    if (byte == 0xAD)
        return 0x100u + 0x21 + 0x22;
    return byte;
}

int bpe_byte_of(uint32_t cp)
{
    if (cp >= 0x100 && cp < 0x100 + 0x21)
        return (int)cp - 0x100;
    if (cp >= 0x121 && cp < 0x121 + 0x22)
        return (int)cp - 0x121 + 0x7F;
    if (cp == 0x143)
        return 0xAD;
    return cp < 0x100 && character_of((unsigned char)cp) == cp ? (int)cp : -1;
}

size_t bpe_map_bytes(const char *text, size_t n, char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < n; i++)
        length += utf8_encode(character_of((unsigned char)text[i]), out + length);
    return length;
}

/* Puts the merges into the map; their texts go to the pool without the space between. */
static enum status add_merges(struct tokenizer *t, const struct vocab_source *source, char *pool,
                              struct err *e)
{
    for (uint32_t i = 0; i < source->n_merges; i++) {
        struct vocab_text merge = source->merges[i];
        const char *space = merge.length > 2 ? memchr(merge.data + 1, ' ', merge.length - 2) : NULL;
        if (space == NULL)
            return err_set(e, ST_FORMAT, "tokenizer: merge %u: \"%.*s\" is not two texts", i,
                           merge.length < 64 ? (int)merge.length : 64, merge.data);
        uint32_t left = (uint32_t)(space - merge.data), right = merge.length - left - 1;
        memcpy(pool, merge.data, left);
        memcpy(pool + left, space + 1, right);
        text_map_put(&t->merges, pool, left + right, left, i, false);
        pool += left + right;
    }
    return ST_OK;
}

enum status bpe_open(struct tokenizer *t, const struct vocab_source *source, char *pool,
                     struct err *e)
{
    if (source->merges == NULL || source->n_merges == 0)
        return err_set(e, ST_FORMAT, "tokenizer: a gpt2 vocabulary needs merges, there are none");
    enum status status = pretok_open(source->pre, true, &t->pretok, e);
    if (status != ST_OK)
        return status;
    t->ignore_merges =
        source->ignore_merges >= 0 ? source->ignore_merges != 0 : pretok_ignores_merges(t->pretok);
    if (!text_map_open(&t->merges, source->n_merges))
        return err_set(e, ST_NO_MEMORY, "tokenizer: %u merges: out of memory", source->n_merges);
    return add_merges(t, source, pool, e);
}

static uint32_t rank_pair(const void *context, const char *text, uint32_t left, uint32_t length)
{
    const struct tokenizer *t = context;
    uint32_t rank = text_map_get(&t->merges, text, length, left);
    return rank == TEXT_MAP_NONE ? MERGE_NO_RANK : rank;
}

/* A text that is no token: its characters, one by one. A character that is no token either is left
 * out, as in the reference engines: the vocabulary cannot say it. */
static bool emit_characters(const struct tokenizer *t, const char *text, uint32_t length,
                            struct token_list *out)
{
    for (uint32_t at = 0; at < length;) {
        uint32_t size = (uint32_t)utf8_announced_length(text[at]);
        uint32_t id = text_map_get(&t->words, text + at, size, 0);
        if (id != TEXT_MAP_NONE && !token_list_push(out, (token_id)id))
            return false;
        at += size;
    }
    return true;
}

/* Tokens of one word given in the byte alphabet. */
static bool encode_word(const struct tokenizer *t, struct merge_work *work, const char *word,
                        uint32_t length, struct token_list *out)
{
    uint32_t whole = t->ignore_merges ? text_map_get(&t->words, word, length, 0) : TEXT_MAP_NONE;
    if (whole != TEXT_MAP_NONE)
        return token_list_push(out, (token_id)whole);
    merge_begin(work);
    for (uint32_t at = 0; at < length;) {
        uint32_t size = (uint32_t)utf8_announced_length(word[at]);
        if (!merge_push(work, at, size))
            return false;
        at += size;
    }
    if (!merge_run(work, word, rank_pair, t))
        return false;
    for (int32_t i = 0; i >= 0; i = work->symbols[i].next) {
        const struct merge_symbol *symbol = &work->symbols[i];
        uint32_t id = text_map_get(&t->words, word + symbol->start, symbol->length, 0);
        if (id != TEXT_MAP_NONE ? !token_list_push(out, (token_id)id)
                                : !emit_characters(t, word + symbol->start, symbol->length, out))
            return false;
    }
    return true;
}

enum status bpe_encode(const struct tokenizer *t, struct encode_scratch *scratch, const char *text,
                       size_t n, struct token_list *out, struct err *e)
{
    if (!byte_buffer_reserve(&scratch->text, 3 * n))
        return err_set(e, ST_NO_MEMORY, "tokenizer: %zu bytes of text: out of memory", n);
    size_t length = utf8_repair(text, n, scratch->text.data);
    const char *clean = scratch->text.data;
    struct pretok_pieces *pieces = &scratch->pieces;
    enum status status = pretok_split(t->pretok, clean, length, pieces, e);
    if (status != ST_OK)
        return status;
    uint32_t start = 0;
    for (uint32_t i = 0; i < pieces->count; i++) {
        uint32_t size = pieces->ends[i] - start;
        if (!byte_buffer_reserve(&scratch->word, 2 * (size_t)size))
            return err_set(e, ST_NO_MEMORY, "tokenizer: %zu bytes of text: out of memory", n);
        uint32_t mapped = (uint32_t)bpe_map_bytes(clean + start, size, scratch->word.data);
        if (!encode_word(t, &scratch->merge, scratch->word.data, mapped, out))
            return err_set(e, ST_NO_MEMORY, "tokenizer: %zu bytes of text: out of memory", n);
        start = pieces->ends[i];
    }
    return ST_OK;
}
