/* `oinfer perplexity`: how well a model predicts a text, by the method of llama.cpp's tool of the
 * same name: the tokens are cut in chunks of n_ctx, each chunk's first token is replaced by BOS
 * where the model adds one, and the second half of every chunk is scored given what is before it.
 */
#include <math.h>
#include <stdio.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/text/sampler.h"
#include "server/cli/args.h"
#include "server/cli/cli.h"
#include "server/cli/loaded.h"

#define TEXT_MAX_BYTES (64u << 20)
#define DEFAULT_CTX    512

struct perplexity {
    struct loaded_options load;
    const char *path;
    struct loaded loaded;
    double sum; /* of negative log probabilities */
    uint64_t n_scored;
};

static enum status read_text(const char *path, char **text, size_t *n, struct err *e)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return err_set(e, ST_IO, "%s cannot be opened", path);
    *text = mem_alloc(TEXT_MAX_BYTES);
    *n = *text ? fread(*text, 1, TEXT_MAX_BYTES, f) : 0;
    enum status status = ST_OK;
    if (!*text)
        status = err_set(e, ST_NO_MEMORY, "%s: %u bytes", path, TEXT_MAX_BYTES);
    else if (ferror(f) || *n == TEXT_MAX_BYTES)
        status =
            err_set(e, ST_IO, "%s cannot be read, or has %u bytes or more", path, TEXT_MAX_BYTES);
    fclose(f);
    return status;
}

/* Scores tokens[first + 1 .. n) of a chunk, which follow its positions first .. n - 2. */
static enum status score_chunk(struct perplexity *p, const token_id *tokens, uint32_t n,
                               struct err *e)
{
    uint32_t first = n / 2, n_vocab = model_file_info(p->loaded.file)->n_vocab;
    session_rewind(p->loaded.session, 0);
    enum status status =
        loaded_feed(&p->loaded, p->loaded.session, tokens, first, STEP_NOTHING, NULL, e);
    uint32_t most = model_n_batch(p->loaded.model);
    if (most > STEP_MAX_LOGITS)
        most = STEP_MAX_LOGITS;
    for (uint32_t at = first; at + 1 < n && status == ST_OK;) {
        uint32_t count = n - 1 - at < most ? n - 1 - at : most;
        struct step_item item = {.session = p->loaded.session,
                                 .tokens = tokens + at,
                                 .n_tokens = count,
                                 .want = STEP_ALL_LOGITS};
        status = model_step(p->loaded.model, &item, 1, e);
        for (uint32_t i = 0; i < count && status == ST_OK; i++) {
            struct sample sample;
            status = logprobs_of(item.logits + (size_t)i * n_vocab, n_vocab, tokens[at + i + 1], 0,
                                 &sample, e);
            p->sum -= sample.logprob;
        }
        p->n_scored += count;
        at += count;
    }
    return status;
}

static enum status score(struct perplexity *p, struct token_list *tokens, struct err *e)
{
    uint32_t n_ctx = p->load.n_ctx;
    const struct tokenizer *t = model_file_tokenizer(p->loaded.file);
    if (tokens->count < 2 * n_ctx)
        return err_set(e, ST_INVALID, "%s: %u tokens, at least %u are needed", p->path,
                       tokens->count, 2 * n_ctx);
    for (uint32_t chunk = 0; chunk < tokens->count / n_ctx; chunk++) {
        token_id *ids = tokens->ids + (size_t)chunk * n_ctx;
        token_id own = ids[0];
        if (tokenizer_adds_bos(t))
            ids[0] = tokenizer_bos(t);
        enum status status = score_chunk(p, ids, n_ctx, e);
        ids[0] = own;
        if (status != ST_OK)
            return status;
        printf("[%u]%.4f,", chunk + 1, exp(p->sum / (double)p->n_scored));
        fflush(stdout);
    }
    printf("\nperplexity = %.4f over %llu tokens\n", exp(p->sum / (double)p->n_scored),
           (unsigned long long)p->n_scored);
    return ST_OK;
}

static enum status perplexity(struct perplexity *p, struct err *e)
{
    char *text = NULL;
    size_t n = 0;
    struct token_list tokens = {0};
    enum status status = read_text(p->path, &text, &n, e);
    if (status == ST_OK)
        status = loaded_open(&p->load, &p->loaded, e);
    if (status == ST_OK) {
        const struct tokenize_options options = {.add_special = true};
        status =
            tokenizer_encode(model_file_tokenizer(p->loaded.file), text, n, &options, &tokens, e);
    }
    if (status == ST_OK)
        status = score(p, &tokens, e);
    token_list_free(&tokens);
    mem_free(text);
    loaded_close(&p->loaded);
    return status;
}

int cli_perplexity(int argc, char **argv)
{
    struct perplexity p = {.load = {.device = "", .kv = "f16", .n_ctx = DEFAULT_CTX}};
    const struct arg args[] = {
        {"-m", "--model", "FILE", ARG_TEXT, &p.load.path, true, "GGUF file"},
        {"-f", "--file", "TEXTFILE", ARG_TEXT, &p.path, true, "the text"},
        {"--ctx", "-c", "N", ARG_COUNT, &p.load.n_ctx, false, "tokens of a chunk (512)"},
        {"--device", "-d", "NAME", ARG_TEXT, &p.load.device, false, "index, part of a name, host"},
        {"--threads", "-t", "N", ARG_COUNT, &p.load.n_threads, false, "of CPU devices (all)"},
        {"--kv", NULL, "DTYPE", ARG_TEXT, &p.load.kv, false, "KV cache: f16, f32, q8_0"},
        {"--force", NULL, "OP=V,..", ARG_TEXT, &p.load.force, false, "kernel variants to use"},
    };
    int done = args_parse("perplexity", "Scores the second half of every chunk of a text.", args,
                          sizeof args / sizeof args[0], argc, argv);
    if (done >= 0)
        return done;
    if (p.load.n_ctx < 4) {
        fprintf(stderr, "oinfer perplexity: --ctx is at least 4\n");
        return CLI_USAGE;
    }
    log_init(LOG_WARN, 0);
    struct err e = {0};
    if (perplexity(&p, &e) != ST_OK) {
        fprintf(stderr, "oinfer perplexity: %s\n", e.text);
        return CLI_FAILED;
    }
    return 0;
}
