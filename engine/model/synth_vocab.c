/* The synthetic vocabulary: an SPM model whose pieces are strings of letters in a fixed order.
 *
 * Order: <unk> <s> </s>, the 256 bytes, the printable ASCII characters (space as U+2581), then for
 * length 1, 2, 3, ... every string of a-z, without and with a leading U+2581. Every prefix of a
 * piece is a piece of smaller index and better score, so that merging can reach each of them.
 */
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/synth_internal.h"

#define SPACE_MARK   "\xE2\x96\x81" /* U+2581 */
#define FIRST_BYTE   3u
#define FIRST_CHAR   (FIRST_BYTE + 256u)
#define N_CHARS      95u /* 0x20 .. 0x7E */
#define FIRST_STRING (FIRST_CHAR + N_CHARS)
#define PIECE_BYTES  24

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_BYTE = 6 };

/* String number k of the letters: single letters only with the mark (they are characters too). */
static void write_letters(uint32_t k, char *piece)
{
    uint32_t length = 1, count = 26;
    if (k < count) {
        snprintf(piece, PIECE_BYTES, SPACE_MARK "%c", (char)('a' + k));
        return;
    }
    for (k -= count; k >= 2 * count * 26; k -= 2 * count) {
        count *= 26;
        length++;
    }
    count *= 26;
    length++;
    char letters[PIECE_BYTES] = "";
    uint32_t rest = k / 2;
    for (uint32_t i = length; i > 0; i--, rest /= 26)
        letters[i - 1] = (char)('a' + rest % 26);
    snprintf(piece, PIECE_BYTES, "%s%.16s", k % 2 != 0 ? SPACE_MARK : "", letters);
}

/* Text of token i; returns its type. */
static int32_t write_piece(uint32_t i, char *piece)
{
    static const char *const specials[FIRST_BYTE] = {"<unk>", "<s>", "</s>"};
    if (i < FIRST_BYTE) {
        snprintf(piece, PIECE_BYTES, "%s", specials[i]);
        return i == 0 ? TYPE_UNKNOWN : TYPE_CONTROL;
    }
    if (i < FIRST_CHAR) {
        snprintf(piece, PIECE_BYTES, "<0x%02X>", i - FIRST_BYTE);
        return TYPE_BYTE;
    }
    if (i == FIRST_CHAR)
        snprintf(piece, PIECE_BYTES, SPACE_MARK);
    else if (i < FIRST_STRING)
        snprintf(piece, PIECE_BYTES, "%c", (char)(' ' + (i - FIRST_CHAR)));
    else
        write_letters(i - FIRST_STRING, piece);
    return TYPE_NORMAL;
}

enum status synth__add_vocab(struct gguf_writer *w, uint32_t n, struct err *e)
{
    float *scores = mem_array(n, sizeof *scores);
    int32_t *types = mem_array(n, sizeof *types);
    enum status status = ST_OK;
    if (scores == NULL || types == NULL) {
        status = err_set(e, ST_NO_MEMORY, "no memory for %u tokens", n);
        goto out;
    }
    gguf_writer_string(w, "tokenizer.ggml.model", "llama");
    gguf_writer_string(w, "tokenizer.ggml.pre", "default");
    gguf_writer_strings(w, "tokenizer.ggml.tokens", n);
    for (uint32_t i = 0; i < n; i++) {
        char piece[PIECE_BYTES];
        types[i] = write_piece(i, piece);
        scores[i] = types[i] == TYPE_NORMAL ? -(float)(i - FIRST_CHAR) : 0.0f;
        gguf_writer_add_string(w, piece, strlen(piece));
    }
    gguf_writer_f32s(w, "tokenizer.ggml.scores", scores, n);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", types, n);
    gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", false);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", true);
out:
    mem_free(scores);
    mem_free(types);
    return status;
}
