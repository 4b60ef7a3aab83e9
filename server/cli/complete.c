/* `oinfer complete`: continues a text, printing it as it comes. */
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/text/sampler.h"
#include "engine/text/stop.h"
#include "server/cli/args.h"
#include "server/cli/cli.h"
#include "server/cli/loaded.h"

#define GREEDY_STEP  8 /* tokens decoded between two pieces of output */
#define OUTPUT_BYTES (1u << 20)

struct completion {
    struct loaded_options load;
    const char *prompt;
    uint32_t n_predict;
    float temperature, top_p, min_p, repeat_penalty;
    uint32_t top_k;
    uint64_t seed;
    bool timings, verbose;
};

/* One run: what has been generated, and where it goes. */
struct run {
    struct loaded loaded;
    struct sampler *sampler; /* NULL: greedy on the device */
    struct stop_filter *filter;
    struct strbuf text;
    uint32_t n_prompt, n_generated;
    uint64_t prompt_ns, decode_ns;
};

/* Prints the text of one token, as far as it is whole characters. */
static enum status print_token(struct run *r, token_id id, struct err *e)
{
    char piece[512];
    const struct tokenizer *t = model_file_tokenizer(r->loaded.file);
    size_t n = tokenizer_piece(t, id, false, piece, sizeof piece);
    bool hit;
    r->n_generated++;
    strbuf_clear(&r->text);
    enum status status =
        stop_filter_feed(r->filter, piece, n < sizeof piece ? n : sizeof piece, &r->text, &hit, e);
    fwrite(strbuf_text(&r->text), 1, r->text.length, stdout);
    fflush(stdout);
    return status;
}

/* Tokens after the prompt's, several per step, as the device's arg-max gives them. */
static enum status continue_greedy(struct run *r, uint32_t n_predict, token_id first, struct err *e)
{
    const struct tokenizer *t = model_file_tokenizer(r->loaded.file);
    token_id next = first;
    for (;;) {
        if (tokenizer_is_eog(t, next))
            return ST_OK;
        enum status status = print_token(r, next, e);
        if (status != ST_OK || r->n_generated == n_predict)
            return status;
        uint32_t left = n_predict - r->n_generated;
        struct step_item item = {.session = r->loaded.session,
                                 .tokens = &next,
                                 .n_tokens = 1,
                                 .want = STEP_GREEDY,
                                 .n_greedy = left < GREEDY_STEP ? left : GREEDY_STEP};
        uint32_t room = model_n_ctx(r->loaded.model) - session_length(r->loaded.session);
        if (room == 0)
            return ST_OK;
        if (item.n_greedy > room)
            item.n_greedy = room;
        status = model_step(r->loaded.model, &item, 1, e);
        if (status != ST_OK)
            return status;
        for (uint32_t i = 0; i + 1 < item.n_out; i++) {
            status = print_token(r, item.greedy[i], e);
            if (status != ST_OK)
                return status;
        }
        next = item.greedy[item.n_out - 1];
    }
}

static enum status continue_sampled(struct run *r, uint32_t n_predict, const float *logits,
                                    struct err *e)
{
    const struct tokenizer *t = model_file_tokenizer(r->loaded.file);
    while (r->n_generated < n_predict) {
        struct sample sample;
        enum status status =
            sampler_draw(r->sampler, logits, NULL, 0, SAMPLER_NO_LOGPROBS, &sample, e);
        if (status != ST_OK)
            return status;
        if (tokenizer_is_eog(t, sample.id))
            return ST_OK;
        sampler_accept(r->sampler, sample.id);
        status = print_token(r, sample.id, e);
        if (status != ST_OK || session_length(r->loaded.session) == model_n_ctx(r->loaded.model))
            return status;
        struct step_item item;
        status = loaded_feed(&r->loaded, r->loaded.session, &sample.id, 1, STEP_LOGITS, &item, e);
        if (status != ST_OK)
            return status;
        logits = item.logits;
    }
    return ST_OK;
}

static enum status generate(struct run *r, const struct completion *c,
                            const struct token_list *prompt, struct err *e)
{
    struct step_item item;
    enum step_want want = c->n_predict == 0 ? STEP_NOTHING : r->sampler ? STEP_LOGITS : STEP_GREEDY;
    uint64_t start_ns = clock_now_ns();
    enum status status =
        loaded_feed(&r->loaded, r->loaded.session, prompt->ids, prompt->count, want, &item, e);
    r->prompt_ns = clock_now_ns() - start_ns;
    if (status != ST_OK || c->n_predict == 0)
        return status;
    start_ns = clock_now_ns();
    status = r->sampler ? continue_sampled(r, c->n_predict, item.logits, e)
                        : continue_greedy(r, c->n_predict, item.greedy[0], e);
    r->decode_ns = clock_now_ns() - start_ns;
    strbuf_clear(&r->text);
    if (status == ST_OK)
        status = stop_filter_flush(r->filter, &r->text, e);
    fwrite(strbuf_text(&r->text), 1, r->text.length, stdout);
    putchar('\n');
    fflush(stdout); /* before what follows on stderr */
    return status;
}

static double per_second(uint32_t n, uint64_t ns)
{
    return ns > 0 ? n * 1e9 / (double)ns : 0.0;
}

/* The kernel table, on stderr: the text itself is all of stdout. */
static enum status print_timings(struct run *r, struct err *e)
{
    struct prof_report *report = mem_zalloc(sizeof *report);
    if (!report)
        return err_set(e, ST_NO_MEMORY, "timings: %zu bytes", sizeof *report);
    enum status status = engine_collect(r->loaded.engine, report, e);
    fprintf(stderr, "prompt:   %5u tokens  %9.2f ms  %9.2f tokens/s\n", r->n_prompt,
            (double)r->prompt_ns / 1e6, per_second(r->n_prompt, r->prompt_ns));
    fprintf(stderr, "decode:   %5u tokens  %9.2f ms  %9.2f tokens/s\n", r->n_generated,
            (double)r->decode_ns / 1e6, per_second(r->n_generated, r->decode_ns));
    fprintf(stderr, "queues:   compute busy %.2f ms, transfer busy %.2f ms, overlap %.2f ms\n",
            (double)report->compute_busy_ns / 1e6, (double)report->transfer_busy_ns / 1e6,
            (double)report->overlap_ns / 1e6);
    fprintf(stderr, "%-12s %-20s %8s %10s %10s %10s %8s %9s\n", "kernel", "variant", "calls",
            "total ms", "min us", "max us", "GB/s", "GFLOP/s");
    for (uint32_t i = 0; i < report->n_rows && status == ST_OK; i++) {
        const struct prof_row *row = &report->rows[i];
        double ns = row->total_ns > 0 ? (double)row->total_ns : 1.0;
        fprintf(stderr, "%-12s %-20s %8llu %10.3f %10.2f %10.2f %8.2f %9.2f\n", row->name,
                row->variant, (unsigned long long)row->calls, ns / 1e6, (double)row->min_ns / 1e3,
                (double)row->max_ns / 1e3, (double)row->bytes / ns, (double)row->flops / ns);
    }
    mem_free(report);
    return status;
}

static enum status open_sampler(const struct completion *c, struct run *r, struct err *e)
{
    struct sampler_params p;
    sampler_params_default(&p);
    p.temperature = c->temperature;
    p.top_k = (int32_t)c->top_k;
    p.top_p = c->top_p;
    p.min_p = c->min_p;
    p.repeat_penalty = c->repeat_penalty;
    p.repeat_last_n = 64;
    p.seed = c->seed;
    if (sampler_is_greedy(&p))
        return ST_OK;
    return sampler_open(&p, model_file_info(r->loaded.file)->n_vocab, &r->sampler, e);
}

static enum status complete(const struct completion *c, struct run *r, struct err *e)
{
    struct token_list prompt = {0};
    enum status status = loaded_open(&c->load, &r->loaded, e);
    if (status == ST_OK)
        status = open_sampler(c, r, e);
    if (status == ST_OK)
        status = stop_filter_open(NULL, NULL, 0, &r->filter, e);
    if (status == ST_OK) {
        const struct tokenize_options options = {
            .add_special = true, .parse_special = true, .max_tokens = model_n_ctx(r->loaded.model)};
        status = tokenizer_encode(model_file_tokenizer(r->loaded.file), c->prompt,
                                  strlen(c->prompt), &options, &prompt, e);
    }
    if (status == ST_OK && prompt.count == 0)
        status = err_set(e, ST_INVALID, "the prompt is empty and the model adds no BOS token");
    for (uint32_t i = 0; r->sampler && i < prompt.count; i++)
        sampler_accept(r->sampler, prompt.ids[i]);
    r->n_prompt = prompt.count;
    if (status == ST_OK && c->timings)
        status = engine_profile(r->loaded.engine, true, e);
    if (status == ST_OK)
        status = generate(r, c, &prompt, e);
    if (status == ST_OK && c->timings)
        status = print_timings(r, e);
    token_list_free(&prompt);
    sampler_close(r->sampler);
    stop_filter_close(r->filter);
    strbuf_free(&r->text);
    loaded_close(&r->loaded);
    return status;
}

int cli_complete(int argc, char **argv)
{
    struct completion c = {.load = {.device = "", .kv = "f16"},
                           .n_predict = 128,
                           .top_p = 1.0f,
                           .repeat_penalty = 1.0f};
    const struct arg args[] = {
        {"-m", "--model", "FILE", ARG_TEXT, &c.load.path, true, "GGUF file"},
        {"-p", "--prompt", "TEXT", ARG_TEXT, &c.prompt, true, "text to continue"},
        {"-n", "--n-predict", "N", ARG_COUNT, &c.n_predict, false, "most tokens (128)"},
        {"--device", "-d", "NAME", ARG_TEXT, &c.load.device, false, "index, part of a name, host"},
        {"--threads", "-t", "N", ARG_COUNT, &c.load.n_threads, false, "of CPU devices (all)"},
        {"--ctx", "-c", "N", ARG_COUNT, &c.load.n_ctx, false, "tokens of context"},
        {"--kv", NULL, "DTYPE", ARG_TEXT, &c.load.kv, false, "KV cache: f16, f32, q8_0"},
        {"--temp", NULL, "X", ARG_REAL, &c.temperature, false, "temperature; 0: greedy (default)"},
        {"--top-k", NULL, "N", ARG_COUNT, &c.top_k, false, "0: off (default)"},
        {"--top-p", NULL, "X", ARG_REAL, &c.top_p, false, "1: off (default)"},
        {"--min-p", NULL, "X", ARG_REAL, &c.min_p, false, "0: off (default)"},
        {"--repeat-penalty", NULL, "X", ARG_REAL, &c.repeat_penalty, false, "1: off (default)"},
        {"--seed", "-s", "N", ARG_SEED, &c.seed, false, "of the sampler (0)"},
        {"--force", NULL, "OP=V,..", ARG_TEXT, &c.load.force, false, "kernel variants to use"},
        {"--stepwise", NULL, NULL, ARG_FLAG, &c.load.stepwise, false, "a launch for every step"},
        {"--timings", NULL, NULL, ARG_FLAG, &c.timings, false, "kernel table after the text"},
        {"--verbose", "-v", NULL, ARG_FLAG, &c.verbose, false, "log what is done"},
    };
    int done =
        args_parse("complete", "Continues a text.", args, sizeof args / sizeof args[0], argc, argv);
    if (done >= 0)
        return done;
    log_init(c.verbose ? LOG_DEBUG : LOG_WARN, 0);
    struct run r = {0};
    struct err e = {0};
    strbuf_init(&r.text, OUTPUT_BYTES);
    if (complete(&c, &r, &e) != ST_OK) {
        fprintf(stderr, "oinfer complete: %s\n", e.text);
        return CLI_FAILED;
    }
    return 0;
}
