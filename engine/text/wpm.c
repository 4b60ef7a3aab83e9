/* WordPiece, as BERT's vocabularies use it: the text is folded, cut at spaces, punctuation and
 * ideographs, and each word is covered from the left by the longest tokens; a word that cannot be
 * covered is the unknown token. Tokens that begin a word carry a space mark in front. Source:
 * Devlin 2018, Schuster 2012.
 */
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/fold.h"
#include "engine/text/tokenizer_internal.h"
#include "engine/text/utf8.h"

enum status wpm_open(struct tokenizer *t, struct err *e)
{
    return pretok_open("wordpiece", true, &t->pretok, e);
}

/* The longest token at the start of text[0..n), its bytes in *length; TEXT_MAP_NONE if none. */
static uint32_t longest_token(const struct tokenizer *t, const char *text, uint32_t n,
                              uint32_t *length)
{
    uint32_t size = n < t->words.longest_bytes ? n : t->words.longest_bytes;
    for (; size > 0; size--) {
        uint32_t id = text_map_get(&t->words, text, size, 0);
        if (id != TEXT_MAP_NONE) {
            *length = size;
            return id;
        }
    }
    return TEXT_MAP_NONE;
}

/* word: n bytes behind a space mark. */
static bool encode_word(const struct tokenizer *t, const char *word, uint32_t n,
                        struct token_list *out)
{
    uint32_t before = out->count, length = 0;
    for (uint32_t at = 0; at < n; at += length) {
        uint32_t id = longest_token(t, word + at, n - at, &length);
        if (id == TEXT_MAP_NONE) {
            out->count = before;
            return t->roles[ROLE_UNK] == TOKEN_NONE || token_list_push(out, t->roles[ROLE_UNK]);
        }
        if (!token_list_push(out, (token_id)id))
            return false;
    }
    return true;
}

static bool is_space(const char *text, uint32_t n)
{
    uint32_t cp;
    if (utf8_decode(text, n, &cp) <= 0)
        return false;
    return (cp >= 0x09 && cp <= 0x0D) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

enum status wpm_encode(const struct tokenizer *t, struct encode_scratch *scratch, const char *text,
                       size_t n, struct token_list *out, struct err *e)
{
    if (!byte_buffer_reserve(&scratch->text, FOLD_MAX_BYTES(n)))
        return err_set(e, ST_NO_MEMORY, "tokenizer: %zu bytes of text: out of memory", n);
    const char *folded = scratch->text.data;
    size_t length = fold_text(text, n, scratch->text.data);
    enum status status = pretok_split(t->pretok, folded, length, &scratch->pieces, e);
    if (status != ST_OK)
        return status;
    uint32_t start = 0;
    for (uint32_t i = 0; i < scratch->pieces.count; i++) {
        uint32_t size = scratch->pieces.ends[i] - start;
        const char *word = folded + start;
        start += size;
        if (is_space(word, size))
            continue;
        if (!byte_buffer_reserve(&scratch->word, SPACE_MARK_BYTES + (size_t)size))
            return err_set(e, ST_NO_MEMORY, "tokenizer: %zu bytes of text: out of memory", n);
        memcpy(scratch->word.data, SPACE_MARK, SPACE_MARK_BYTES);
        memcpy(scratch->word.data + SPACE_MARK_BYTES, word, size);
        if (!encode_word(t, scratch->word.data, SPACE_MARK_BYTES + size, out))
            return err_set(e, ST_NO_MEMORY, "tokenizer: %zu bytes of text: out of memory", n);
    }
    return ST_OK;
}
