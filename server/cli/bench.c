/* `oinfer bench`: prompt and generation speed, with the meaning of llama-bench's pp and tg.
 *
 * ppN: N tokens of a prompt in batches, from an empty context (or after `depth` tokens). tgN: N
 * tokens one after another. A warm-up comes first and is not counted; the rate of each repetition
 * is N over its wall time, and the table shows mean, standard deviation and median of the rates.
 * With several sequences (tgN x S) each of them generates N tokens, all in the same steps, and the
 * rate counts the tokens of all. --breakdown runs each test once more with every kernel measured,
 * and says how much of a token's time the device was busy; the rest is gaps between kernels and the
 * host's work. Where layers stream (--memory-limit), a line says how fast they did beside the
 * tokens and how fast they do with nothing else to do.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "server/cli/args.h"
#include "server/cli/cli.h"
#include "server/cli/loaded.h"

#define MAX_REPETITIONS 100
#define MAX_SEQUENCES   STEP_MAX_ITEMS
#define TEXT_BYTES      64

struct bench {
    struct loaded_options load;
    uint32_t n_prompt, n_generate, n_repetitions, depth, n_sequences;
    bool breakdown;
    const char *format;
    struct loaded loaded;
    struct session *sessions[MAX_SEQUENCES]; /* the first is that of `loaded` */
    token_id *tokens;                        /* of the prompts: some fixed pseudo-random ids */
    uint32_t n_results;
};

struct result {
    char test[TEXT_BYTES]; /* "pp512", "tg128 @ d2048" */
    double mean, deviation, median;
    /* of a token, of the measured run; 0 without --breakdown */
    double token_us, kernel_us, launches, transfer_us, overlap_us;
    double stream_gb_s; /* of all counted runs; 0 where every layer stays */
};

/* Generates n tokens of each sequence; an end-of-generation token is followed by any other, to go
 * on. */
static enum status generate(struct bench *b, uint32_t n, struct err *e)
{
    const struct tokenizer *tokenizer = model_file_tokenizer(b->loaded.file);
    token_id next[MAX_SEQUENCES];
    uint32_t done[MAX_SEQUENCES] = {0};
    for (uint32_t i = 0; i < b->n_sequences; i++)
        next[i] = b->tokens[i % n];
    for (;;) {
        struct step_item items[MAX_SEQUENCES];
        uint32_t n_items = 0, which[MAX_SEQUENCES];
        for (uint32_t i = 0; i < b->n_sequences; i++) {
            if (done[i] == n)
                continue;
            which[n_items] = i;
            items[n_items++] = (struct step_item){
                .session = b->sessions[i],
                .tokens = &next[i],
                .n_tokens = 1,
                .want = STEP_GREEDY,
                .n_greedy = n - done[i] < STEP_MAX_GREEDY ? n - done[i] : STEP_MAX_GREEDY};
        }
        if (n_items == 0)
            return ST_OK;
        enum status status = model_step(b->loaded.model, items, n_items, e);
        if (status != ST_OK)
            return status;
        for (uint32_t j = 0; j < n_items; j++) {
            const uint32_t i = which[j];
            done[i] += items[j].n_out;
            next[i] = items[j].greedy[items[j].n_out - 1];
            if (tokenizer_is_eog(tokenizer, next[i]))
                next[i] = b->tokens[done[i]];
        }
    }
}

static enum status prompt(struct bench *b, uint32_t n, struct err *e)
{
    struct step_item item;
    return loaded_feed(&b->loaded, b->sessions[0], b->tokens, n, STEP_GREEDY, &item, e);
}

static int compare_rates(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(double *rates, uint32_t n, struct result *r)
{
    double sum = 0.0, squares = 0.0;
    for (uint32_t i = 0; i < n; i++)
        sum += rates[i];
    r->mean = sum / n;
    for (uint32_t i = 0; i < n; i++)
        squares += (rates[i] - r->mean) * (rates[i] - r->mean);
    r->deviation = n > 1 ? sqrt(squares / (n - 1)) : 0.0;
    qsort(rates, n, sizeof *rates, compare_rates);
    r->median = n % 2 ? rates[n / 2] : (rates[n / 2 - 1] + rates[n / 2]) / 2.0;
}

/* One of the two tests. */
struct test {
    const char *name;
    uint32_t n, n_sequences;
    enum status (*work)(struct bench *b, uint32_t n, struct err *e);
};

/* Runs a test once; *seconds is its wall time, *streamed the bytes of layers that came for it. */
static enum status run_once(struct bench *b, const struct test *test, double *seconds,
                            uint64_t *streamed, struct err *e)
{
    for (uint32_t s = 0; s < test->n_sequences; s++) {
        session_rewind(b->sessions[s], 0);
        enum status status = ST_OK;
        if (b->depth > 0)
            status =
                loaded_feed(&b->loaded, b->sessions[s], b->tokens, b->depth, STEP_NOTHING, NULL, e);
        if (status != ST_OK)
            return status;
    }
    const uint64_t start_ns = clock_now_ns(), before = model_streamed_bytes(b->loaded.model);
    enum status status = test->work(b, test->n, e);
    *seconds = (double)(clock_now_ns() - start_ns) / 1e9;
    *streamed = model_streamed_bytes(b->loaded.model) - before;
    return status;
}

/* One more run, in which every kernel is measured. */
static enum status break_down(struct bench *b, const struct test *test, struct result *r,
                              struct err *e)
{
    struct prof_report *report = mem_zalloc(sizeof *report);
    if (!report)
        return err_set(e, ST_NO_MEMORY, "bench: a report of %zu bytes", sizeof *report);
    double seconds = 0;
    uint64_t streamed;
    enum status status = engine_profile(b->loaded.engine, true, e);
    if (status == ST_OK)
        status = run_once(b, test, &seconds, &streamed, e);
    if (status == ST_OK)
        status = engine_collect(b->loaded.engine, report, e);
    if (status == ST_OK)
        status = engine_profile(b->loaded.engine, false, e);
    const double n_tokens = (double)test->n * test->n_sequences;
    r->token_us = seconds * 1e6 / n_tokens;
    r->kernel_us = (double)report->compute_busy_ns / 1e3 / n_tokens;
    r->launches = (double)report->launches / n_tokens;
    r->transfer_us = (double)report->transfer_busy_ns / 1e3 / n_tokens;
    r->overlap_us = (double)report->overlap_ns / 1e3 / n_tokens;
    mem_free(report);
    return status;
}

/* Runs one test: the first of the runs is the warm-up. */
static enum status measure(struct bench *b, const struct test *test, struct result *r,
                           struct err *e)
{
    double rates[MAX_REPETITIONS];
    char sequences[16] = "", depth[24] = "";
    *r = (struct result){0};
    if (test->n_sequences > 1)
        snprintf(sequences, sizeof sequences, " x %u", test->n_sequences);
    if (b->depth > 0)
        snprintf(depth, sizeof depth, " @ d%u", b->depth);
    snprintf(r->test, sizeof r->test, "%s%u%s%s", test->name, test->n, sequences, depth);
    double all_seconds = 0;
    uint64_t streamed = 0;
    for (uint32_t i = 0; i <= b->n_repetitions; i++) {
        double seconds = 0;
        uint64_t bytes = 0;
        const enum status status = run_once(b, test, &seconds, &bytes, e);
        if (status != ST_OK)
            return status;
        if (i == 0)
            continue;
        rates[i - 1] = (double)test->n * test->n_sequences / seconds;
        all_seconds += seconds;
        streamed += bytes;
    }
    r->stream_gb_s = (double)streamed / all_seconds / 1e9;
    summarise(rates, b->n_repetitions, r);
    return b->breakdown ? break_down(b, test, r, e) : ST_OK;
}

/* ---- output ---- */

/* Threads of a CPU device, as given or else all that it has; 0 on other devices. */
static unsigned n_threads(const struct bench *b)
{
    const struct device_info *info = device_info(engine_device(b->loaded.engine));
    return b->load.n_threads > 0 || info->kind != DEVICE_CPU ? b->load.n_threads
                                                             : info->compute_units;
}

static void print_md(struct bench *b, const struct result *r)
{
    const struct model_file_info *info = model_file_info(b->loaded.file);
    if (b->n_results == 0) {
        printf(
            "| model | dtype | size MiB | params M | device | threads | test | t/s | median |\n");
        printf("|---|---|---:|---:|---|---:|---|---:|---:|\n");
    }
    printf("| %s | %s | %.2f | %.2f | %s | %u | %s | %.2f ± %.2f | %.2f |\n", info->name,
           info->quantisation, (double)info->weight_bytes / (1 << 20), (double)info->n_params / 1e6,
           device_info(engine_device(b->loaded.engine))->name, n_threads(b), r->test, r->mean,
           r->deviation, r->median);
    if (b->breakdown)
        printf("| | | | | | | %s: %.1f us a token | kernels %.1f us | gaps and host %.1f %%, %.2f "
               "launches |\n",
               r->test, r->token_us, r->kernel_us, 100.0 * (1.0 - r->kernel_us / r->token_us),
               r->launches);
    const struct load_report *load = model_load_report(b->loaded.model);
    if (load->n_streamed > 0 && b->breakdown)
        printf("| | | | | | | %s: transfers %.1f us a token | beside kernels %.1f us | |\n",
               r->test, r->transfer_us, r->overlap_us);
    if (load->n_streamed > 0)
        printf("| | | | | | | %s: %u of %u layers stream, %.1f MB a run | %.2f GB/s | %.1f %% of "
               "%.2f GB/s, %u pinned, %u staged |\n",
               r->test, load->n_streamed, load->n_layer, (double)load->stream_bytes / 1e6,
               r->stream_gb_s, 100.0 * r->stream_gb_s / load->stream_gb_s, load->stream_gb_s,
               load->n_pinned, load->n_staged);
}

/* A field of CSV or JSON text: quotes and backslashes escaped as the format asks. */
static void print_quoted(const char *text, const char *quote_as, const char *backslash_as)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            fputs(quote_as, stdout);
        else if (*text == '\\')
            fputs(backslash_as, stdout);
        else if ((unsigned char)*text >= 0x20)
            putchar(*text);
    }
    putchar('"');
}

static void print_csv(struct bench *b, const struct result *r)
{
    const struct model_file_info *info = model_file_info(b->loaded.file);
    if (b->n_results == 0)
        printf("model,dtype,size_bytes,n_params,device,n_threads,test,avg_ts,stddev_ts,median_ts,"
               "load_ms,peak_rss_bytes,token_us,kernel_us,launches_per_token,layers_streamed,"
               "stream_bytes,stream_gb_s,bus_gb_s\n");
    print_quoted(info->name, "\"\"", "\\");
    printf(",%s,%llu,%llu,", info->quantisation, (unsigned long long)info->weight_bytes,
           (unsigned long long)info->n_params);
    print_quoted(device_info(engine_device(b->loaded.engine))->name, "\"\"", "\\");
    const struct load_report *load = model_load_report(b->loaded.model);
    printf(",%u,%s,%.4f,%.4f,%.4f,%.1f,%llu,%.2f,%.2f,%.3f,%u,%llu,%.3f,%.3f\n", n_threads(b),
           r->test, r->mean, r->deviation, r->median, load->load_ms,
           (unsigned long long)mem_peak_resident_bytes(), r->token_us, r->kernel_us, r->launches,
           load->n_streamed, (unsigned long long)load->stream_bytes, r->stream_gb_s,
           load->stream_gb_s);
}

static void print_json(struct bench *b, const struct result *r)
{
    const struct model_file_info *info = model_file_info(b->loaded.file);
    printf("%s{\"model\":", b->n_results == 0 ? "[" : ",\n ");
    print_quoted(info->name, "\\\"", "\\\\");
    printf(
        ",\"dtype\":\"%s\",\"size_bytes\":%llu,\"n_params\":%llu,\"device\":", info->quantisation,
        (unsigned long long)info->weight_bytes, (unsigned long long)info->n_params);
    print_quoted(device_info(engine_device(b->loaded.engine))->name, "\\\"", "\\\\");
    const struct load_report *load = model_load_report(b->loaded.model);
    printf(
        ",\"n_threads\":%u,\"test\":\"%s\",\"avg_ts\":%.4f,\"stddev_ts\":%.4f,\"median_ts\":%.4f,"
        "\"load_ms\":%.1f,\"weights_bytes\":%llu,\"kv_bytes\":%llu,\"scratch_bytes\":%llu,"
        "\"peak_rss_bytes\":%llu",
        n_threads(b), r->test, r->mean, r->deviation, r->median, load->load_ms,
        (unsigned long long)load->weights_bytes, (unsigned long long)load->kv_bytes,
        (unsigned long long)load->scratch_bytes, (unsigned long long)mem_peak_resident_bytes());
    if (b->breakdown)
        printf(",\"token_us\":%.2f,\"kernel_us\":%.2f,\"launches_per_token\":%.3f,"
               "\"transfer_us\":%.2f,\"overlap_us\":%.2f",
               r->token_us, r->kernel_us, r->launches, r->transfer_us, r->overlap_us);
    if (load->n_streamed > 0)
        printf(",\"layers\":%u,\"layers_streamed\":%u,\"stream_bytes\":%llu,\"stream_gb_s\":%.3f,"
               "\"bus_gb_s\":%.3f,\"layers_pinned\":%u,\"layers_staged\":%u",
               load->n_layer, load->n_streamed, (unsigned long long)load->stream_bytes,
               r->stream_gb_s, load->stream_gb_s, load->n_pinned, load->n_staged);
    printf("}");
}

static const struct format {
    const char *name;
    void (*print)(struct bench *b, const struct result *r);
} formats[] = {{"md", print_md}, {"csv", print_csv}, {"json", print_json}};

static const struct format *find_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

/* ---- the whole ---- */

static enum status make_tokens(struct bench *b, uint32_t n, struct err *e)
{
    uint32_t n_vocab = model_file_info(b->loaded.file)->n_vocab, state = 1;
    b->tokens = mem_array(n, sizeof *b->tokens);
    if (!b->tokens)
        return err_set(e, ST_NO_MEMORY, "bench: %u tokens", n);
    for (uint32_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator */
        b->tokens[i] = (token_id)((state >> 8) % n_vocab);
    }
    return ST_OK;
}

static enum status open_sessions(struct bench *b, struct err *e)
{
    enum status status = ST_OK;
    b->sessions[0] = b->loaded.session;
    for (uint32_t i = 1; i < b->n_sequences && status == ST_OK; i++)
        status = session_open(b->loaded.model, &b->sessions[i], e);
    return status;
}

static void close_all(struct bench *b)
{
    for (uint32_t i = 1; i < b->n_sequences; i++)
        session_close(b->sessions[i]);
    mem_free(b->tokens);
    loaded_close(&b->loaded);
}

static enum status bench(struct bench *b, struct err *e)
{
    const struct format *format = find_format(b->format);
    uint32_t longest = b->n_prompt > b->n_generate ? b->n_prompt : b->n_generate;
    if (!b->load.n_ctx)
        b->load.n_ctx = b->depth + longest + 1;
    b->load.n_slots = b->n_sequences;
    enum status status = loaded_open(&b->load, &b->loaded, e);
    if (status == ST_OK)
        status = open_sessions(b, e);
    if (status == ST_OK)
        status = make_tokens(b, b->depth + longest + 1, e);
    const struct test tests[] = {{"pp", b->n_prompt, 1, prompt},
                                 {"tg", b->n_generate, b->n_sequences, generate}};
    for (size_t i = 0; i < sizeof tests / sizeof tests[0] && status == ST_OK; i++) {
        struct result result;
        if (tests[i].n == 0)
            continue;
        status = measure(b, &tests[i], &result, e);
        if (status != ST_OK)
            break;
        format->print(b, &result);
        fflush(stdout);
        b->n_results++;
    }
    if (b->n_results > 0 && format->print == print_json)
        printf("]\n");
    if (status == ST_OK && format->print == print_md)
        printf("\nload %.0f ms, peak resident %.1f MiB\n",
               model_load_report(b->loaded.model)->load_ms,
               (double)mem_peak_resident_bytes() / (1 << 20));
    close_all(b);
    return status;
}

int cli_bench(int argc, char **argv)
{
    struct bench b = {.load = {.device = "", .kv = "f16"},
                      .n_prompt = 512,
                      .n_generate = 128,
                      .n_repetitions = 5,
                      .n_sequences = 1,
                      .format = "md"};
    const struct arg args[] = {
        {"-m", "--model", "FILE", ARG_TEXT, &b.load.path, true, "GGUF file"},
        {"-p", "--n-prompt", "N", ARG_COUNT, &b.n_prompt, false, "prompt tokens (512); 0: none"},
        {"-n", "--n-gen", "N", ARG_COUNT, &b.n_generate, false, "generated tokens (128); 0: none"},
        {"-r", "--repetitions", "N", ARG_COUNT, &b.n_repetitions, false, "counted runs (5)"},
        {"-d", "--n-depth", "N", ARG_COUNT, &b.depth, false, "tokens in the context before (0)"},
        {"--sequences", NULL, "N", ARG_COUNT, &b.n_sequences, false, "generate N at once (1)"},
        {"--breakdown", NULL, NULL, ARG_FLAG, &b.breakdown, false, "kernel time, gaps, launches"},
        {"--device", NULL, "NAME", ARG_TEXT, &b.load.device, false, "index, part of a name, host"},
        {"--threads", "-t", "N", ARG_COUNT, &b.load.n_threads, false, "of CPU devices (all)"},
        {"--batch", "-b", "N", ARG_COUNT, &b.load.n_batch, false, "prompt tokens per step (512)"},
        {"--kv", NULL, "DTYPE", ARG_TEXT, &b.load.kv, false, "KV cache: f16, f32, q8_0"},
        {"--force", NULL, "OP=V,..", ARG_TEXT, &b.load.force, false, "kernel variants to use"},
        {"--stepwise", NULL, NULL, ARG_FLAG, &b.load.stepwise, false, "a launch for every step"},
        {"--memory-limit", NULL, "BYTES", ARG_SIZE, &b.load.memory_limit_bytes, false,
         "of the device; layers beyond it stream"},
        {"-o", "--output", "FORMAT", ARG_TEXT, &b.format, false, "md, csv or json (md)"},
    };
    if (argc > 1 && strcmp(argv[1], "ops") == 0)
        return cli_bench_ops(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "seeds") == 0)
        return cli_bench_seeds(argc - 1, argv + 1);
    int done = args_parse(
        "bench",
        "Measures prompt (pp) and generation (tg) speed; bench ops: operators; bench seeds: "
        "known claims.",
        args, sizeof args / sizeof args[0], argc, argv);
    if (done >= 0)
        return done;
    if (!find_format(b.format)) {
        fprintf(stderr, "oinfer bench: -o is \"%s\", not md, csv or json\n", b.format);
        return CLI_USAGE;
    }
    if (b.n_repetitions < 1 || b.n_repetitions > MAX_REPETITIONS) {
        fprintf(stderr, "oinfer bench: -r is %u, 1 to %d\n", b.n_repetitions, MAX_REPETITIONS);
        return CLI_USAGE;
    }
    if (b.n_sequences < 1 || b.n_sequences > MAX_SEQUENCES) {
        fprintf(stderr, "oinfer bench: --sequences is %u, 1 to %d\n", b.n_sequences, MAX_SEQUENCES);
        return CLI_USAGE;
    }
    log_init(LOG_WARN, 0);
    struct err e = {0};
    if (bench(&b, &e) != ST_OK) {
        fprintf(stderr, "oinfer bench: %s\n", e.text);
        return CLI_FAILED;
    }
    return 0;
}
