/* Small vocabularies of the three kinds for tests and fuzzing, filled into static arrays. */
#ifndef OINFER_TESTS_SMALL_VOCAB_H
#define OINFER_TESTS_SMALL_VOCAB_H

#include <stdio.h>
#include <string.h>

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_internal.h"

#define SMALL_MAX_TOKENS 400
#define SMALL_TEXT_BYTES 16

struct small_vocab {
    struct vocab_source source;
    struct vocab_text tokens[SMALL_MAX_TOKENS], merges[64];
    float scores[SMALL_MAX_TOKENS];
    int32_t types[SMALL_MAX_TOKENS];
    char texts[256][SMALL_TEXT_BYTES];
};

static inline token_id small_add(struct small_vocab *v, const char *text, float score, int type)
{
    uint32_t id = v->source.n_tokens++;
    v->tokens[id] = (struct vocab_text){text, (uint32_t)strlen(text)};
    v->scores[id] = score;
    v->types[id] = type;
    return (token_id)id;
}

static inline void small_merge(struct small_vocab *v, const char *text)
{
    v->merges[v->source.n_merges++] = (struct vocab_text){text, (uint32_t)strlen(text)};
}

static inline void small_begin(struct small_vocab *v, const char *model)
{
    memset(v, 0, sizeof *v);
    v->source = (struct vocab_source){.model = model,
                                      .tokens = v->tokens,
                                      .types = v->types,
                                      .bos = TOKEN_NONE,
                                      .eos = TOKEN_NONE,
                                      .unk = TOKEN_NONE,
                                      .sep = TOKEN_NONE,
                                      .pad = TOKEN_NONE,
                                      .cls = TOKEN_NONE,
                                      .mask = TOKEN_NONE,
                                      .eot = TOKEN_NONE,
                                      .eom = TOKEN_NONE,
                                      .fim_prefix = TOKEN_NONE,
                                      .fim_suffix = TOKEN_NONE,
                                      .fim_middle = TOKEN_NONE,
                                      .add_bos = -1,
                                      .add_eos = -1,
                                      .add_space_prefix = -1,
                                      .remove_extra_whitespaces = -1,
                                      .ignore_merges = -1};
}

/* 0 <unk> 1 <s> 2 </s> 3..258 bytes, then the words below. */
static inline void small_spm(struct small_vocab *v)
{
    static const struct {
        const char *text;
        float score;
    } words[] = {
        {SPACE_MARK, -1},     {"h", -20},    {"e", -20},
        {"l", -20},           {"o", -20},    {"w", -20},
        {"a", -20},           {"he", -5},    {"ll", -4},
        {"hell", -6},         {"hello", -7}, {"lo", -13},
        {"aa", -8},           {"aaaa", -9},  {"\xC3\xA9", -10},
        {SPACE_MARK "h", -9}, {"lw", -2},    {"ow", -2},
        {"1", -20},           {"11", -11},   {SPACE_MARK SPACE_MARK, -12},
    };
    small_begin(v, "llama");
    v->source.unk = small_add(v, "<unk>", 0, TOKEN_UNKNOWN);
    v->source.bos = small_add(v, "<s>", 0, TOKEN_CONTROL);
    v->source.eos = small_add(v, "</s>", 0, TOKEN_CONTROL);
    for (int b = 0; b < 256; b++) {
        snprintf(v->texts[b], SMALL_TEXT_BYTES, "<0x%02X>", (unsigned int)b);
        small_add(v, v->texts[b], 0, TOKEN_BYTE);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        small_add(v, words[i].text, words[i].score, TOKEN_NORMAL);
    small_add(v, "<tool>", 0, TOKEN_USER_DEFINED);
    v->source.scores = v->scores;
}

/* 0..255 bytes, then the merged tokens, then 3 control and 2 user-defined tokens. */
static inline void small_bpe(struct small_vocab *v)
{
    static const char *const merges[] = {"h e", "l l", "he ll", "hell o", "\xC4\xA0 w",
                                         "l o", "a a", "aa aa", "1 1",    "\xC4\xA0 \xC4\xA0",
                                         "o w"};
    static const char *const words[] = {"he", "ll",   "hell", "hello", "\xC4\xA0w",
                                        "lo", "aa",   "aaaa", "11",    "\xC4\xA0\xC4\xA0",
                                        "ow", "whole"};
    small_begin(v, "gpt2");
    v->source.pre = "gpt-2";
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        v->texts[b][bpe_map_bytes(&byte, 1, v->texts[b])] = '\0';
        small_add(v, v->texts[b], 0, TOKEN_NORMAL);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        small_add(v, words[i], 0, TOKEN_NORMAL);
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++)
        small_merge(v, merges[i]);
    v->source.bos = small_add(v, "<|im_start|>", 0, TOKEN_CONTROL);
    v->source.eos = small_add(v, "<|im_end|>", 0, TOKEN_CONTROL);
    small_add(v, "<|im|>", 0, TOKEN_CONTROL);
    small_add(v, "<tool>", 0, TOKEN_USER_DEFINED);
    small_add(v, "<tool>s", 0, TOKEN_USER_DEFINED);
    v->source.merges = v->merges;
}

/* 0 [PAD] 1 [UNK] 2 [CLS] 3 [SEP], then words. */
static inline void small_wpm(struct small_vocab *v)
{
    static const char *const words[] = {SPACE_MARK "hello",
                                        SPACE_MARK "he",
                                        "llo",
                                        SPACE_MARK ",",
                                        SPACE_MARK "cafe",
                                        "s",
                                        SPACE_MARK "a",
                                        "a",
                                        SPACE_MARK "1",
                                        "1",
                                        SPACE_MARK "\xE4\xB8\x96"};
    small_begin(v, "bert");
    v->source.pad = small_add(v, "[PAD]", 0, TOKEN_CONTROL);
    v->source.unk = small_add(v, "[UNK]", 0, TOKEN_CONTROL);
    v->source.cls = small_add(v, "[CLS]", 0, TOKEN_CONTROL);
    v->source.sep = small_add(v, "[SEP]", 0, TOKEN_CONTROL);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        small_add(v, words[i], 0, TOKEN_NORMAL);
}

#endif
