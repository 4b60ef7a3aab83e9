/* What the files of the tokenizer share: its struct, the scratch of one encode call, and the parts.
 *
 * struct tokenizer is filled by tokenizer_open and constant afterwards. struct encode_scratch
 * lives for one encode call on the caller's thread.
 */
#ifndef OINFER_TEXT_TOKENIZER_INTERNAL_H
#define OINFER_TEXT_TOKENIZER_INTERNAL_H

#include "engine/text/merge.h"
#include "engine/text/pretok.h"
#include "engine/text/text_map.h"
#include "engine/text/tokenizer.h"

/* Text of one encode call, so that all offsets and symbol counts fit 31 bits. */
#define TOKENIZER_MAX_TEXT_BYTES (256u << 20)

#define SPACE_MARK       "\xE2\x96\x81" /* U+2581, what SPM and WPM vocabularies have for a space */
#define SPACE_MARK_BYTES 3u

enum token_role {
    ROLE_BOS,
    ROLE_EOS,
    ROLE_UNK,
    ROLE_FIM_PREFIX,
    ROLE_FIM_SUFFIX,
    ROLE_FIM_MIDDLE,
    ROLE_EOG, /* a set, not one id: struct tokenizer's `eog` */
    ROLE_COUNT
};

struct tokenizer {
    enum tokenizer_kind kind;
    uint32_t n_tokens;
    struct vocab_text *texts; /* [n_tokens], in pool */
    uint8_t *types;           /* [n_tokens], enum token_type */
    bool *eog;                /* [n_tokens] */
    char *pool;               /* bytes of all tokens and merges */
    struct text_map words;    /* tokens that plain text may become -> id (the last of equals) */
    token_id roles[ROLE_COUNT];
    bool add_bos, add_eos, add_space_prefix;
    char *pre_name;

    token_id *specials;         /* tokens cut out before anything else, sorted by their bytes */
    uint32_t *specials_by_size; /* [n_specials] indices into specials, longest first */
    uint32_t n_specials;
    uint32_t special_first[257]; /* specials whose first byte is b: [first[b], first[b + 1]) */

    uint32_t *ranks;           /* SPM: [n_tokens], lower = higher score */
    bool marks_only_lead;      /* SPM: no token has a space mark behind another character */
    token_id byte_tokens[256]; /* SPM: TOKEN_NONE where there is none */

    struct text_map merges; /* BPE: (left + right, length of left) -> rank */
    struct pretok *pretok;  /* BPE and WPM: how text is cut into words */
    bool ignore_merges;     /* BPE: a word that is a token needs no merges */
};

struct byte_buffer {
    char *data;
    size_t capacity;
};

struct encode_scratch {
    struct merge_work merge;
    struct byte_buffer text, word;
    struct pretok_pieces pieces;
};

/* Grows to at least n bytes; the old content is lost. False when out of memory. */
bool byte_buffer_reserve(struct byte_buffer *b, size_t n);

/* The encoders of a fragment without special tokens: append to *out. ST_NO_MEMORY, or
 * ST_UNSUPPORTED where the vocabulary has no token for a byte and no unknown token.
 * spm: `prefix` puts the model's space in front. */
enum status spm_encode(const struct tokenizer *t, struct encode_scratch *scratch, const char *text,
                       size_t n, bool prefix, struct token_list *out, struct err *e);
enum status bpe_encode(const struct tokenizer *t, struct encode_scratch *scratch, const char *text,
                       size_t n, struct token_list *out, struct err *e);
enum status wpm_encode(const struct tokenizer *t, struct encode_scratch *scratch, const char *text,
                       size_t n, struct token_list *out, struct err *e);

/* What each kind adds to the common part at open: ranks; merges and pre-tokeniser; word cutter. */
enum status spm_open(struct tokenizer *t, const struct vocab_source *source, struct err *e);
enum status bpe_open(struct tokenizer *t, const struct vocab_source *source, char *pool,
                     struct err *e);
enum status wpm_open(struct tokenizer *t, struct err *e);

/* Byte-level BPE's alphabet: the bytes of `text` as characters; out holds 2 n bytes. */
size_t bpe_map_bytes(const char *text, size_t n, char *out);
/* Back: the byte that code point cp stands for, or -1. */
int bpe_byte_of(uint32_t cp);
/* Byte of a token text "<0xNN>", or -1. */
int spm_byte_of(struct vocab_text text);

/* Text between special tokens, or (special != TOKEN_NONE) one of them. */
struct fragment {
    uint32_t start, length;
    token_id special;
};
struct fragment_list {
    struct fragment *items;
    uint32_t count, capacity;
};
enum status special_open(struct tokenizer *t, struct err *e);
/* Cuts n bytes into fragments (*out starts empty; the caller frees items). Longer specials first,
 * each from the left. */
enum status special_split(const struct tokenizer *t, const char *text, size_t n, bool parse_special,
                          struct fragment_list *out, struct err *e);

#endif
