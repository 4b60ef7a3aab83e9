/* Token ids back to bytes. The inverse of encoding: decode(encode(text)) is text for every
 * well-formed text (WPM vocabularies forget case, accents and spacing). */
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/tokenizer_internal.h"
#include "engine/text/utf8.h"

/* A bounded writer that counts what did not fit. */
struct writer {
    char *out;
    size_t size, length;
};

static void put(struct writer *w, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++, w->length++)
        if (w->length < w->size)
            w->out[w->length] = bytes[i];
}

/* Space marks become spaces. */
static void put_marked(struct writer *w, struct vocab_text text)
{
    for (uint32_t i = 0; i < text.length;) {
        if (text.length - i >= SPACE_MARK_BYTES &&
            memcmp(text.data + i, SPACE_MARK, SPACE_MARK_BYTES) == 0) {
            put(w, " ", 1);
            i += SPACE_MARK_BYTES;
        } else {
            put(w, text.data + i++, 1);
        }
    }
}

/* Characters of the byte alphabet become their bytes; others stay, as added tokens have them. */
static void put_mapped(struct writer *w, struct vocab_text text)
{
    for (uint32_t i = 0; i < text.length;) {
        uint32_t cp;
        int length = utf8_decode(text.data + i, text.length - i, &cp);
        int byte = length > 0 ? bpe_byte_of(cp) : -1;
        char c = (char)byte;
        if (byte >= 0)
            put(w, &c, 1);
        else
            put(w, text.data + i, length > 0 ? (size_t)length : 1);
        i += length > 0 ? (uint32_t)length : 1;
    }
}

size_t tokenizer_piece(const struct tokenizer *t, token_id id, bool special, char *buffer,
                       size_t size)
{
    struct writer w = {buffer, size, 0};
    if (id < 0 || (uint32_t)id >= t->n_tokens)
        return 0;
    struct vocab_text text = t->texts[id];
    char byte;
    switch ((enum token_type)t->types[id]) {
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
        if (special)
            put(&w, text.data, text.length);
        break;
    case TOKEN_USER_DEFINED: put(&w, text.data, text.length); break;
    case TOKEN_BYTE:
        byte = (char)spm_byte_of(text);
        put(&w, &byte, 1);
        break;
    case TOKEN_NORMAL:
    case TOKEN_UNUSED:
        if (t->kind == TOKENIZER_BPE)
            put_mapped(&w, text);
        else
            put_marked(&w, text);
        break;
    }
    return w.length;
}

/* Whether encoding puts a space in front of text that follows this token. */
static bool begins_text(const struct tokenizer *t, token_id id)
{
    enum token_type type = (enum token_type)t->types[id];
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED;
}

enum status tokenizer_decode(const struct tokenizer *t, const token_id *ids, uint32_t n,
                             bool special, bool strip_prefix, char **text, size_t *length,
                             struct err *e)
{
    *text = NULL;
    *length = 0;
    bool strips = strip_prefix && (t->add_space_prefix || t->kind == TOKENIZER_WPM);
    size_t need = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= t->n_tokens)
            return err_set(e, ST_INVALID, "token %u: id %d, vocabulary has %u tokens", i, ids[i],
                           t->n_tokens);
        need += tokenizer_piece(t, ids[i], special, NULL, 0);
    }
    char *out = mem_alloc(need + 1);
    if (out == NULL)
        return err_set(e, ST_NO_MEMORY, "text of %u tokens: out of memory", n);
    size_t at = 0;
    bool fresh = strips;
    for (uint32_t i = 0; i < n; i++) {
        size_t piece = tokenizer_piece(t, ids[i], special, out + at, need - at);
        bool text_token = !begins_text(t, ids[i]);
        if (fresh && text_token && piece > 0 && out[at] == ' ') {
            memmove(out + at, out + at + 1, piece - 1);
            piece--;
        }
        fresh = strips && !text_token;
        at += piece;
    }
    out[at] = '\0';
    *text = out;
    *length = at;
    return ST_OK;
}
