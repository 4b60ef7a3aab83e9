/* Tokenizers: text to token ids and back, equal to the reference engines id for id.
 *
 * SPM (llama), byte-level BPE (gpt2) and WPM (bert). Built once from plain arrays (struct
 * vocab_source, filled from a GGUF by engine/model/vocab.c), immutable afterwards: any number of
 * threads may tokenize at once. Time is O(n log n) in the text for SPM and BPE; no recursion.
 */
#ifndef OINFER_TEXT_TOKENIZER_H
#define OINFER_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

typedef int32_t token_id; /* -1: none */
#define TOKEN_NONE (-1)

enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
};

enum tokenizer_kind { TOKENIZER_SPM, TOKENIZER_BPE, TOKENIZER_WPM };

struct vocab_text {
    const char *data; /* not NUL-terminated */
    uint32_t length;
};

/* What a tokenizer is built from. Everything is copied: the source may die afterwards. */
struct vocab_source {
    const char *model; /* tokenizer.ggml.model: "llama" "gpt2" "bert" */
    const char *pre;   /* tokenizer.ggml.pre or NULL */
    uint32_t n_tokens;
    const struct vocab_text *tokens; /* [n_tokens] */
    const float *scores;             /* [n_tokens] or NULL (required by SPM) */
    const int32_t *types;            /* [n_tokens] or NULL (all normal) */
    uint32_t n_merges;
    const struct vocab_text *merges; /* [n_merges] "left right" (required by BPE) */
    token_id bos, eos, unk, sep, pad, cls, mask, eot, eom; /* TOKEN_NONE if absent */
    token_id fim_prefix, fim_suffix, fim_middle;
    int add_bos, add_eos, add_space_prefix; /* -1 absent (the kind's default), 0, 1 */
    int remove_extra_whitespaces, ignore_merges;
};

struct tokenizer;

/* ST_FORMAT (bad ids, lengths, byte tokens), ST_UNSUPPORTED (unknown model or pre: named),
 * ST_NO_MEMORY. A missing `pre` gives the default and a warning in the log. */
enum status tokenizer_open(const struct vocab_source *source, struct tokenizer **out,
                           struct err *e);
void tokenizer_close(struct tokenizer *t); /* accepts NULL */

enum tokenizer_kind tokenizer_kind_of(const struct tokenizer *t);
const char *tokenizer_pre(const struct tokenizer *t); /* name of the pre-tokeniser in use */
uint32_t tokenizer_n_tokens(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
token_id tokenizer_bos(const struct tokenizer *t);
token_id tokenizer_eos(const struct tokenizer *t);
/* fim_prefix etc. all present. */
bool tokenizer_has_infill(const struct tokenizer *t);
/* The three ids of prefix, suffix and middle; TOKEN_NONE where the model has none. */
void tokenizer_infill(const struct tokenizer *t, token_id *prefix, token_id *suffix,
                      token_id *middle);
/* End-of-generation: eos, eot, eom and tokens with the known texts. */
bool tokenizer_is_eog(const struct tokenizer *t, token_id id);
bool tokenizer_is_control(const struct tokenizer *t, token_id id);
enum token_type tokenizer_type(const struct tokenizer *t, token_id id);
/* The token's own text in the vocabulary (not decoded); borrowed. {NULL,0} for a bad id. */
struct vocab_text tokenizer_text(const struct tokenizer *t, token_id id);

struct token_list { /* owned array of ids; free with token_list_free */
    token_id *ids;
    uint32_t count, capacity;
};
void token_list_free(struct token_list *list);
bool token_list_push(struct token_list *list, token_id id); /* false: out of memory */

struct tokenize_options {
    bool add_special;    /* add BOS / EOS as the model asks; a BOS already there is not doubled */
    bool parse_special;  /* texts of control tokens become those tokens (user-defined always do) */
    uint32_t max_tokens; /* refuse more (ST_CONTEXT_FULL, with both counts); 0: no limit */
};
/* Appends the ids of n bytes of text to *out. Any bytes, NUL too; what is not well-formed UTF-8
 * goes through the byte fallback in SPM, counts as U+FFFD in BPE (like the reference engines; its
 * words are of characters) and vanishes in WPM. Characters that a BPE vocabulary has no bytes for
 * vanish too. At most 256 MiB, else ST_INVALID. On failure *out is as before. Any thread. */
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                             const struct tokenize_options *options, struct token_list *out,
                             struct err *e);

/* Bytes of one token as generated text: byte tokens give their byte, BPE tokens are mapped back,
 * SPM's U+2581 becomes a space. Control tokens give nothing unless `special`. Returns the length
 * and copies at most `size` bytes; call with size 0 to ask. */
size_t tokenizer_piece(const struct tokenizer *t, token_id id, bool special, char *buffer,
                       size_t size);
/* Joined pieces of a list. With `strip_prefix` the space that encoding puts in front of text, at
 * the start and behind special tokens, is dropped again (SPM, WPM): decode(encode(text)) is the
 * text. Any bytes may come out (a character can be split over tokens). *text is mem_free'd by the
 * caller, NUL-terminated, *length without the NUL. Bad id: ST_INVALID naming it. */
enum status tokenizer_decode(const struct tokenizer *t, const token_id *ids, uint32_t n,
                             bool special, bool strip_prefix, char **text, size_t *length,
                             struct err *e);

#endif
