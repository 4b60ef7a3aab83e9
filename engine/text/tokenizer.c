/* The tokenizer: building it from a vocabulary, its small questions, and encoding, which cuts out
 * special tokens and hands the text between to the kind's encoder. Decoding is in detok.c. */
#include "engine/text/tokenizer.h"

#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/tokenizer_internal.h"

#define MAX_TOKENS (1u << 24)

/* Tokens that plain text may become. Control and unknown tokens are not among them, so that no
 * text turns into one by merging; nor are byte tokens, whose text is not what they mean. */
static bool is_plain(uint8_t type)
{
    return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED || type == TOKEN_UNUSED;
}

static bool text_is(struct vocab_text text, const char *word)
{
    return text.length == strlen(word) && memcmp(text.data, word, text.length) == 0;
}

static enum status parse_kind(const char *model, enum tokenizer_kind *kind, struct err *e)
{
    static const struct {
        const char *name;
        enum tokenizer_kind kind;
    } kinds[] = {{"llama", TOKENIZER_SPM}, {"gpt2", TOKENIZER_BPE}, {"bert", TOKENIZER_WPM}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, model) == 0) {
            *kind = kinds[i].kind;
            return ST_OK;
        }
    }
    return err_set(e, ST_UNSUPPORTED, "tokenizer model \"%.64s\" is not one of llama, gpt2, bert",
                   model);
}

/* Bytes the pool needs: tokens, then merges (their space is one byte more than is used). */
static enum status pool_bytes(const struct vocab_source *s, size_t *tokens, size_t *all,
                              struct err *e)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_tokens; i++)
        sum += s->tokens[i].length;
    uint64_t with_merges = sum;
    for (uint32_t i = 0; i < s->n_merges; i++)
        with_merges += s->merges[i].length;
    if (with_merges >= UINT32_MAX)
        return err_set(e, ST_FORMAT, "tokenizer: %llu bytes of texts, at most 4 GiB",
                       (unsigned long long)with_merges);
    *tokens = (size_t)sum;
    *all = (size_t)with_merges;
    return ST_OK;
}

/* Copies texts and types; types are checked. */
static enum status copy_tokens(struct tokenizer *t, const struct vocab_source *s, struct err *e)
{
    char *at = t->pool;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        struct vocab_text text = s->tokens[id];
        if (text.length > 0)
            memcpy(at, text.data, text.length);
        t->texts[id] = (struct vocab_text){at, text.length};
        at += text.length;
        int32_t type = s->types != NULL ? s->types[id] : TOKEN_NORMAL;
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return err_set(e, ST_FORMAT, "tokenizer: token %u has type %d, expected 1..6", id,
                           type);
        t->types[id] = (uint8_t)type;
        if (type == TOKEN_BYTE && spm_byte_of(t->texts[id]) < 0)
            return err_set(e, ST_FORMAT, "tokenizer: byte token %u \"%.*s\" is not <0xNN>", id,
                           text.length < 32 ? (int)text.length : 32, t->texts[id].data);
    }
    return ST_OK;
}

/* Ids given by the file, checked; then those known by their text. A token known as an end of
 * generation is a control token whatever its type says. */
static enum status assign_roles(struct tokenizer *t, const struct vocab_source *s, struct err *e)
{
    bool wpm = t->kind == TOKENIZER_WPM;
    const struct {
        const char *name;
        token_id id;
        int role; /* -1: only checked */
    } given[] = {
        {"bos", s->bos, ROLE_BOS},
        {"eos", s->eos, ROLE_EOS},
        {"unknown", s->unk, ROLE_UNK},
        {"cls", s->cls, wpm ? ROLE_BOS : -1},
        {"separator", s->sep, wpm ? ROLE_EOS : -1},
        {"padding", s->pad, -1},
        {"mask", s->mask, -1},
        {"eot", s->eot, ROLE_EOG},
        {"eom", s->eom, ROLE_EOG},
        {"fim_prefix", s->fim_prefix, ROLE_FIM_PREFIX},
        {"fim_suffix", s->fim_suffix, ROLE_FIM_SUFFIX},
        {"fim_middle", s->fim_middle, ROLE_FIM_MIDDLE},
    };
    static const struct {
        enum token_role role;
        struct vocab_text text;
    } known[] = {
#define ROLE(role, text) {role, {text, sizeof(text) - 1}},
#include "engine/text/roles.def"
#undef ROLE
    };
    for (size_t i = 0; i < ROLE_COUNT; i++)
        t->roles[i] = TOKEN_NONE;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        token_id id = given[i].id;
        if (id == TOKEN_NONE)
            continue;
        if (id < 0 || (uint32_t)id >= t->n_tokens)
            return err_set(e, ST_FORMAT, "tokenizer: %s token id %d, vocabulary has %u tokens",
                           given[i].name, id, t->n_tokens);
        if (given[i].role >= 0)
            t->roles[given[i].role] = id;
        if (given[i].role == ROLE_EOG || given[i].role == ROLE_EOS)
            t->eog[id] = true;
    }
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            if (t->texts[id].length != known[i].text.length ||
                memcmp(t->texts[id].data, known[i].text.data, known[i].text.length) != 0)
                continue;
            if (known[i].role == ROLE_EOG) {
                t->eog[id] = true;
                t->types[id] = TOKEN_CONTROL;
            } else if (t->roles[known[i].role] == TOKEN_NONE) {
                t->roles[known[i].role] = (token_id)id;
            }
        }
    }
    return ST_OK;
}

/* The defaults of each kind where the file leaves something out. */
static void assign_defaults(struct tokenizer *t, const struct vocab_source *s)
{
    bool spm = t->kind == TOKENIZER_SPM, wpm = t->kind == TOKENIZER_WPM;
    const struct {
        enum token_role role;
        const char *text;
    } usual[] = {
        {ROLE_BOS, wpm ? "[CLS]" : "<s>"},
        {ROLE_EOS, wpm ? "[SEP]" : "</s>"},
        {ROLE_UNK, wpm ? "[UNK]" : "<unk>"},
    };
    for (size_t i = 0; (spm || wpm) && i < sizeof usual / sizeof usual[0]; i++)
        for (uint32_t id = 0; id < t->n_tokens && t->roles[usual[i].role] == TOKEN_NONE; id++)
            if (text_is(t->texts[id], usual[i].text))
                t->roles[usual[i].role] = (token_id)id;
    bool bos = spm || (t->pretok != NULL && pretok_adds_bos(t->pretok));
    t->add_bos = s->add_bos >= 0 ? s->add_bos != 0 : bos;
    t->add_eos = s->add_eos >= 0 ? s->add_eos != 0 : wpm;
    t->add_space_prefix = s->add_space_prefix >= 0 ? s->add_space_prefix != 0 : spm;
}

static enum status index_words(struct tokenizer *t, struct err *e)
{
    if (!text_map_open(&t->words, t->n_tokens))
        return err_set(e, ST_NO_MEMORY, "tokenizer: %u tokens: out of memory", t->n_tokens);
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (is_plain(t->types[id]) && t->texts[id].length > 0)
            text_map_put(&t->words, t->texts[id].data, t->texts[id].length, 0, id, true);
    return ST_OK;
}

static enum status build(struct tokenizer *t, const struct vocab_source *s, struct err *e)
{
    size_t token_bytes = 0, all_bytes = 0;
    enum status status = parse_kind(s->model, &t->kind, e);
    if (status != ST_OK || (status = pool_bytes(s, &token_bytes, &all_bytes, e)) != ST_OK)
        return status;
    t->n_tokens = s->n_tokens;
    t->texts = mem_array(t->n_tokens, sizeof *t->texts);
    t->types = mem_array(t->n_tokens, sizeof *t->types);
    t->eog = mem_array(t->n_tokens, sizeof *t->eog);
    t->pool = mem_alloc(all_bytes);
    t->pre_name = mem_strdup(s->pre != NULL ? s->pre : "default");
    if (t->texts == NULL || t->types == NULL || t->eog == NULL || t->pool == NULL ||
        t->pre_name == NULL)
        return err_set(e, ST_NO_MEMORY, "tokenizer: %u tokens: out of memory", t->n_tokens);
    for (size_t b = 0; b < 256; b++)
        t->byte_tokens[b] = TOKEN_NONE;
    status = copy_tokens(t, s, e);
    if (status != ST_OK || (status = assign_roles(t, s, e)) != ST_OK ||
        (status = index_words(t, e)) != ST_OK || (status = special_open(t, e)) != ST_OK)
        return status;
    if (t->kind == TOKENIZER_BPE)
        status = bpe_open(t, s, t->pool + token_bytes, e);
    else if (t->kind == TOKENIZER_WPM)
        status = wpm_open(t, e);
    assign_defaults(t, s);
    if (t->kind == TOKENIZER_SPM)
        status = spm_open(t, s, e);
    return status;
}

enum status tokenizer_open(const struct vocab_source *source, struct tokenizer **out, struct err *e)
{
    *out = NULL;
    if (source->n_tokens == 0 || source->n_tokens > MAX_TOKENS || source->n_merges > MAX_TOKENS)
        return err_set(e, ST_FORMAT, "tokenizer: %u tokens and %u merges, expected 1..%u tokens",
                       source->n_tokens, source->n_merges, MAX_TOKENS);
    struct tokenizer *t = mem_zalloc(sizeof *t);
    if (t == NULL)
        return err_set(e, ST_NO_MEMORY, "tokenizer: out of memory");
    enum status status = build(t, source, e);
    if (status != ST_OK) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return ST_OK;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t == NULL)
        return;
    pretok_close(t->pretok);
    text_map_close(&t->merges);
    text_map_close(&t->words);
    mem_free(t->ranks);
    mem_free(t->specials_by_size);
    mem_free(t->specials);
    mem_free(t->pre_name);
    mem_free(t->pool);
    mem_free(t->eog);
    mem_free(t->types);
    mem_free(t->texts);
    mem_free(t);
}

enum tokenizer_kind tokenizer_kind_of(const struct tokenizer *t)
{
    return t->kind;
}

const char *tokenizer_pre(const struct tokenizer *t)
{
    return t->pre_name;
}

uint32_t tokenizer_n_tokens(const struct tokenizer *t)
{
    return t->n_tokens;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->add_bos && t->roles[ROLE_BOS] != TOKEN_NONE;
}

bool tokenizer_adds_eos(const struct tokenizer *t)
{
    return t->add_eos && t->roles[ROLE_EOS] != TOKEN_NONE;
}

token_id tokenizer_bos(const struct tokenizer *t)
{
    return t->roles[ROLE_BOS];
}

token_id tokenizer_eos(const struct tokenizer *t)
{
    return t->roles[ROLE_EOS];
}

bool tokenizer_has_infill(const struct tokenizer *t)
{
    return t->roles[ROLE_FIM_PREFIX] != TOKEN_NONE && t->roles[ROLE_FIM_SUFFIX] != TOKEN_NONE &&
           t->roles[ROLE_FIM_MIDDLE] != TOKEN_NONE;
}

void tokenizer_infill(const struct tokenizer *t, token_id *prefix, token_id *suffix,
                      token_id *middle)
{
    *prefix = t->roles[ROLE_FIM_PREFIX];
    *suffix = t->roles[ROLE_FIM_SUFFIX];
    *middle = t->roles[ROLE_FIM_MIDDLE];
}

static bool is_id(const struct tokenizer *t, token_id id)
{
    return id >= 0 && (uint32_t)id < t->n_tokens;
}

bool tokenizer_is_eog(const struct tokenizer *t, token_id id)
{
    return is_id(t, id) && t->eog[id];
}

bool tokenizer_is_control(const struct tokenizer *t, token_id id)
{
    return is_id(t, id) && t->types[id] == TOKEN_CONTROL;
}

enum token_type tokenizer_type(const struct tokenizer *t, token_id id)
{
    return is_id(t, id) ? (enum token_type)t->types[id] : TOKEN_UNKNOWN;
}

struct vocab_text tokenizer_text(const struct tokenizer *t, token_id id)
{
    return is_id(t, id) ? t->texts[id] : (struct vocab_text){NULL, 0};
}

void token_list_free(struct token_list *list)
{
    mem_free(list->ids);
    *list = (struct token_list){0};
}

bool token_list_push(struct token_list *list, token_id id)
{
    if (list->count == list->capacity) {
        if (list->capacity > UINT32_MAX / 2)
            return false;
        uint32_t capacity = list->capacity > 0 ? 2 * list->capacity : 32;
        void *grown = mem_array_resize(list->ids, capacity, sizeof *list->ids);
        if (grown == NULL)
            return false;
        list->ids = grown;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return true;
}

bool byte_buffer_reserve(struct byte_buffer *b, size_t n)
{
    if (n <= b->capacity && b->data != NULL)
        return true;
    size_t capacity = n > 2 * b->capacity ? n : 2 * b->capacity;
    char *data = mem_alloc(capacity > 64 ? capacity : 64);
    if (data == NULL)
        return false;
    mem_free(b->data);
    b->data = data;
    b->capacity = capacity > 64 ? capacity : 64;
    return true;
}

/* Encodes fragment after fragment. SPM's space goes in front of text that follows nothing or a
 * special token. */
static enum status encode_fragments(const struct tokenizer *t, const char *text,
                                    const struct fragment_list *fragments,
                                    struct encode_scratch *scratch, struct token_list *out,
                                    struct err *e)
{
    enum status status = ST_OK;
    for (uint32_t i = 0; i < fragments->count && status == ST_OK; i++) {
        struct fragment f = fragments->items[i];
        const char *part = text + f.start;
        if (f.special != TOKEN_NONE) {
            if (!token_list_push(out, f.special))
                status = err_set(e, ST_NO_MEMORY, "tokenizer: out of memory");
        } else if (t->kind == TOKENIZER_SPM) {
            status = spm_encode(t, scratch, part, f.length, t->add_space_prefix, out, e);
        } else if (t->kind == TOKENIZER_BPE) {
            status = bpe_encode(t, scratch, part, f.length, out, e);
        } else {
            status = wpm_encode(t, scratch, part, f.length, out, e);
        }
    }
    return status;
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                             const struct tokenize_options *options, struct token_list *out,
                             struct err *e)
{
    if (n > TOKENIZER_MAX_TEXT_BYTES)
        return err_set(e, ST_INVALID, "text: %zu bytes, at most %u can be tokenised", n,
                       TOKENIZER_MAX_TEXT_BYTES);
    uint32_t before = out->count;
    struct fragment_list fragments = {0};
    struct encode_scratch scratch = {0};
    token_id bos = t->roles[ROLE_BOS], eos = t->roles[ROLE_EOS];
    enum status status = special_split(t, text, n, options->parse_special, &fragments, e);
    if (status != ST_OK)
        goto out;
    bool has_bos = fragments.count > 0 && fragments.items[0].special == bos;
    bool has_eos = fragments.count > 0 && fragments.items[fragments.count - 1].special == eos;
    if (options->add_special && tokenizer_adds_bos(t) && !has_bos && !token_list_push(out, bos)) {
        status = err_set(e, ST_NO_MEMORY, "tokenizer: out of memory");
        goto out;
    }
    status = encode_fragments(t, text, &fragments, &scratch, out, e);
    if (status != ST_OK)
        goto out;
    if (options->add_special && tokenizer_adds_eos(t) && !has_eos && !token_list_push(out, eos)) {
        status = err_set(e, ST_NO_MEMORY, "tokenizer: out of memory");
        goto out;
    }
    uint32_t count = out->count - before;
    if (options->max_tokens > 0 && count > options->max_tokens)
        status = err_set(e, ST_CONTEXT_FULL, "text: %u tokens, at most %u fit", count,
                         options->max_tokens);
out:
    if (status != ST_OK)
        out->count = before;
    merge_work_free(&scratch.merge);
    mem_free(scratch.text.data);
    mem_free(scratch.word.data);
    pretok_pieces_free(&scratch.pieces);
    mem_free(fragments.items);
    return status;
}
