/* Fuzz target: text from a stranger, under a small vocabulary of each kind. Byte 0 chooses the kind
 * and options, byte 1 how the decoded bytes are cut for the stop filter; the rest is the text. SPM
 * and (for well-formed text) BPE must give the text back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/text/stop.h"
#include "engine/text/utf8.h"
#include "tests/unit/text/small_vocab.h"

#define MAX_TEXT_BYTES ((size_t)1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tokenizer *tokenizers[3];

static void open_all(void)
{
    static struct small_vocab vocab;
    void (*const fills[])(struct small_vocab *) = {small_spm, small_bpe, small_wpm};
    for (size_t i = 0; i < 3 && tokenizers[2] == NULL; i++) {
        fills[i](&vocab);
        if (tokenizer_open(&vocab.source, &tokenizers[i], NULL) != ST_OK)
            abort();
    }
}

/* Whether the tokenizer keeps this text exactly. */
static bool is_kept(const struct tokenizer *t, const char *text, size_t n)
{
    bool bpe = tokenizer_kind_of(t) == TOKENIZER_BPE;
    if (tokenizer_kind_of(t) == TOKENIZER_WPM)
        return false;
    for (size_t at = 0; at < n; at++) {
        if (!bpe && n - at >= SPACE_MARK_BYTES &&
            memcmp(text + at, SPACE_MARK, SPACE_MARK_BYTES) == 0)
            return false;
        int length = utf8_decode(text + at, n - at, NULL);
        if (bpe && length <= 0)
            return false;
        at += bpe ? (size_t)length - 1 : 0;
    }
    return true;
}

/* Feeds text in pieces of `step` bytes; returns what came out. */
static struct strbuf filter(const char *text, size_t n, size_t step)
{
    static const char *const stops[] = {"aab", "\n\nUser:", "\xC3\xA9"};
    static const size_t lengths[] = {3, 7, 2};
    struct stop_filter *f = NULL;
    struct strbuf out;
    bool hit = false;
    strbuf_init(&out, 4 * MAX_TEXT_BYTES);
    if (stop_filter_open(stops, lengths, 3, &f, NULL) != ST_OK)
        abort();
    for (size_t at = 0; at < n; at += step)
        if (stop_filter_feed(f, text + at, n - at < step ? n - at : step, &out, &hit, NULL) !=
            ST_OK)
            abort();
    if (stop_filter_flush(f, &out, NULL) != ST_OK)
        abort();
    for (size_t i = 0; i < 3; i++)
        if (strstr(strbuf_text(&out), stops[i]) != NULL)
            abort();
    stop_filter_close(f);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > MAX_TEXT_BYTES)
        return 0;
    open_all();
    const struct tokenizer *t = tokenizers[data[0] % 3];
    const struct tokenize_options options = {.add_special = (data[0] & 0x40) != 0,
                                             .parse_special = (data[0] & 0x80) != 0};
    const char *text = (const char *)data + 2;
    size_t n = size - 2, length;
    struct token_list ids = {0};
    char *back;
    if (tokenizer_encode(t, text, n, &options, &ids, NULL) != ST_OK ||
        tokenizer_decode(t, ids.ids, ids.count, true, true, &back, &length, NULL) != ST_OK)
        abort();
    if (!options.add_special && is_kept(t, text, n) && (length != n || memcmp(back, text, n) != 0))
        abort();
    struct strbuf whole = filter(text, n, MAX_TEXT_BYTES);
    struct strbuf pieces = filter(text, n, 1 + data[1] % 7);
    if (whole.length != pieces.length ||
        memcmp(strbuf_text(&whole), strbuf_text(&pieces), whole.length) != 0)
        abort();
    strbuf_free(&whole);
    strbuf_free(&pieces);
    mem_free(back);
    token_list_free(&ids);
    return 0;
}
