/* The fake engine. Knobs are set by tests, or by the environment (FAKE_STEP_MS, FAKE_LOAD_MS,
 * FAKE_LOAD_FAILS, FAKE_CTX, FAKE_FAILED_REOPENS) when the whole daemon is built on it. */
#include "fake_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/engine.h"

#define MAX_SLOTS   64
#define N_DEVICES   2
#define DEFAULT_CTX 512
#define HANG_MS     3600000

struct fake_counts fake_counts;
atomic_uint fake_step_ms, fake_load_ms;
atomic_bool fake_load_fails;
atomic_uint fake_failed_opens;

struct model_file {
    struct model_file_info info;
    struct tokenizer *tokenizer;
    char *path;
};
struct device_list {
    struct device_info devices[N_DEVICES];
};
struct device {
    struct device_info info;
    bool dead;
    unsigned n_glitches;
};
struct engine {
    struct device device;
    bool profiling;
    struct prof_report report;
};
struct session {
    struct model *model;
    bool open;
    uint32_t length;
    token_id *tokens;
};
struct model {
    struct engine *engine;
    const struct model_file *file;
    struct load_report report;
    uint32_t n_ctx, n_slots, n_batch;
    struct session sessions[MAX_SLOTS];
    float *logits; /* [STEP_MAX_LOGITS][FAKE_VOCAB] */
};

static void sleep_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    if (ms > 0)
        nanosleep(&t, NULL);
}

static unsigned number_of(const char *name, unsigned fallback)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

unsigned fake_sleep_ms(void)
{
    return atomic_load(&fake_step_ms) + number_of("FAKE_STEP_MS", 0);
}

/* ---- files ---- */

static enum status open_tokenizer(struct model_file *f, struct err *e)
{
    static char texts[256][8];
    struct vocab_text tokens[FAKE_VOCAB] = {{"<unk>", 5}, {"<s>", 3}, {"</s>", 4}};
    float scores[FAKE_VOCAB] = {0};
    int32_t types[FAKE_VOCAB] = {TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_CONTROL};
    for (int b = 0; b < 256; b++) {
        snprintf(texts[b], sizeof texts[b], "<0x%02X>", b);
        tokens[FAKE_BYTE(b)] = (struct vocab_text){texts[b], 6};
        types[FAKE_BYTE(b)] = TOKEN_BYTE;
    }
    tokens[FAKE_SPACE] = (struct vocab_text){"\xE2\x96\x81", 3};
    types[FAKE_SPACE] = TOKEN_NORMAL;
    struct vocab_source source = {.model = "llama",
                                  .n_tokens = FAKE_VOCAB,
                                  .tokens = tokens,
                                  .scores = scores,
                                  .types = types,
                                  .bos = FAKE_BOS,
                                  .eos = FAKE_EOS,
                                  .unk = 0,
                                  .sep = TOKEN_NONE,
                                  .pad = TOKEN_NONE,
                                  .cls = TOKEN_NONE,
                                  .mask = TOKEN_NONE,
                                  .eot = TOKEN_NONE,
                                  .eom = TOKEN_NONE,
                                  .fim_prefix = TOKEN_NONE,
                                  .fim_suffix = TOKEN_NONE,
                                  .fim_middle = TOKEN_NONE,
                                  .add_bos = 1,
                                  .add_eos = 0,
                                  .add_space_prefix = 0,
                                  .remove_extra_whitespaces = 0,
                                  .ignore_merges = 0};
    return tokenizer_open(&source, &f->tokenizer, e);
}

enum status model_file_open(const char *path, struct model_file **out, struct err *e)
{
    if (strstr(path, "missing") != NULL)
        return err_set(e, ST_IO, "%s: No such file or directory", path);
    struct model_file *f = mem_zalloc(sizeof *f);
    if (f == NULL)
        return err_set(e, ST_NO_MEMORY, "fake: out of memory");
    f->path = mem_strdup(path);
    enum status status =
        f->path != NULL ? open_tokenizer(f, e) : err_set(e, ST_NO_MEMORY, "fake: out of memory");
    atomic_fetch_add(&fake_counts.files, 1);
    if (status != ST_OK) {
        model_file_close(f);
        return status;
    }
    f->info = (struct model_file_info){.name = "Fake Model",
                                       .architecture = "fake",
                                       .quantisation = "f32",
                                       .path = f->path,
                                       .n_ctx_train = number_of("FAKE_CTX", DEFAULT_CTX),
                                       .n_vocab = FAKE_VOCAB,
                                       .n_embd = 1,
                                       .n_layer = 1,
                                       .n_head = 1,
                                       .n_head_kv = 1,
                                       .n_params = 1,
                                       .file_bytes = 1000,
                                       .weight_bytes = 1000,
                                       .identity = 0x1234};
    *out = f;
    return ST_OK;
}

void model_file_close(struct model_file *f)
{
    tokenizer_close(f->tokenizer);
    mem_free(f->path);
    mem_free(f);
    atomic_fetch_sub(&fake_counts.files, 1);
}

const struct model_file_info *model_file_info(const struct model_file *f)
{
    return &f->info;
}

const struct tokenizer *model_file_tokenizer(const struct model_file *f)
{
    return f->tokenizer;
}

/* ---- devices ---- */

enum status device_list_cache_dir(const char *cache_dir, struct err *e)
{
    (void)cache_dir;
    (void)e;
    return ST_OK;
}

/* The fake builds nothing, so nothing is tried in a child. */
int engine_child_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return -1;
}

enum status device_list_open(uint32_t n_threads, struct device_list **out, struct err *e)
{
    (void)n_threads;
    struct device_list *l = mem_zalloc(sizeof *l);
    if (l == NULL)
        return err_set(e, ST_NO_MEMORY, "fake: out of memory");
    for (uint32_t i = 0; i < N_DEVICES; i++) {
        l->devices[i] = (struct device_info){
            .index = i, .kind = i == 0 ? DEVICE_DISCRETE_GPU : DEVICE_HOST, .available = true};
        snprintf(l->devices[i].name, sizeof l->devices[i].name, "fake %u", i);
        snprintf(l->devices[i].driver, sizeof l->devices[i].driver, "1");
    }
    *out = l;
    return ST_OK;
}

void device_list_close(struct device_list *l)
{
    mem_free(l);
}

uint32_t device_list_count(const struct device_list *l)
{
    (void)l;
    return N_DEVICES;
}

const struct device_info *device_list_at(const struct device_list *l, uint32_t i)
{
    return &l->devices[i];
}

const char *device_list_hint(const struct device_list *l)
{
    (void)l;
    return "";
}

enum status device_select(const struct device_list *l, const char *wanted, uint32_t *indices,
                          uint32_t *n, struct err *e)
{
    (void)l;
    if (strcmp(wanted, "0") == 0 || strcmp(wanted, "1") == 0) {
        *n = 1;
        indices[0] = (uint32_t)(wanted[0] - '0');
        return ST_OK;
    }
    if (strcmp(wanted, "") != 0 && strcmp(wanted, "all") != 0)
        return err_set(e, ST_NOT_FOUND, "device \"%s\": there are fake 0, fake 1", wanted);
    *n = strcmp(wanted, "all") == 0 ? 2 : 1;
    for (uint32_t i = 0; i < *n; i++)
        indices[i] = i;
    return ST_OK;
}

const char *device_kind_name(enum device_kind kind)
{
    return kind == DEVICE_HOST ? "host" : "discrete";
}

const char *device_cap_name(enum device_cap cap)
{
    return cap == CAP_GPU ? "gpu" : NULL;
}

const struct device_info *device_info(const struct device *d)
{
    return &d->info;
}

uint32_t device_caps(const struct device *d)
{
    (void)d;
    return CAP_GPU;
}

struct device_memory device_memory(const struct device *d)
{
    (void)d;
    return (struct device_memory){.used_bytes = 1000, .peak_bytes = 2000};
}

enum status device_measure_peaks(struct device *d, struct device_peaks *out, struct err *e)
{
    (void)d;
    (void)e;
    *out = (struct device_peaks){.read_gb_s = 1, .copy_gb_s = 2, .f32_gflop_s = 3};
    return ST_OK;
}

enum status device_check(struct device *d, struct err *e)
{
    return d->dead ? err_set(e, ST_DEVICE_LOST, "%s does not answer", d->info.name) : ST_OK;
}

bool kernel_save_next(struct device *d)
{
    (void)d;
    return false;
}

/* ---- engines and models ---- */

enum status engine_open(const struct device_list *devices, uint32_t index,
                        const struct engine_options *options, struct engine **out, struct err *e)
{
    static atomic_uint n_opened[N_DEVICES];
    if (atomic_fetch_add(&n_opened[index], 1) == 1)
        atomic_fetch_add(&fake_failed_opens, number_of("FAKE_FAILED_REOPENS", 0));
    if (atomic_load(&fake_failed_opens) > 0) {
        atomic_fetch_sub(&fake_failed_opens, 1);
        return err_set(e, ST_DEVICE_LOST, "%s cannot be opened", devices->devices[index].name);
    }
    struct engine *g = mem_zalloc(sizeof *g);
    if (g == NULL)
        return err_set(e, ST_NO_MEMORY, "fake: out of memory");
    g->device.info = devices->devices[index];
    g->profiling = options->device.profiling;
    atomic_fetch_add(&fake_counts.engines, 1);
    *out = g;
    return ST_OK;
}

void engine_close(struct engine *g)
{
    if (g == NULL)
        return;
    mem_free(g);
    atomic_fetch_sub(&fake_counts.engines, 1);
}

struct device *engine_device(struct engine *g)
{
    return &g->device;
}

enum status engine_profile(struct engine *g, bool on, struct err *e)
{
    (void)e;
    g->profiling = on;
    atomic_fetch_add(&fake_counts.profile_switches, 1);
    return ST_OK;
}

enum status engine_collect(struct engine *g, struct prof_report *report, struct err *e)
{
    (void)e;
    prof_merge(report, &g->report);
    g->report = (struct prof_report){0};
    return ST_OK;
}

void prof_merge(struct prof_report *into, const struct prof_report *from)
{
    if (from->n_rows == 0)
        return;
    into->n_rows = 1;
    into->rows[0].name = "fake";
    into->rows[0].variant = "plain";
    into->rows[0].calls += from->rows[0].calls;
    into->rows[0].total_ns += from->rows[0].total_ns;
    into->compute_busy_ns += from->compute_busy_ns;
}

static enum status load_parts(const struct load_options *options, struct err *e)
{
    unsigned part_ms = atomic_load(&fake_load_ms) + number_of("FAKE_LOAD_MS", 0);
    for (uint64_t part = 1; part <= 10; part++) {
        sleep_ms(part_ms);
        if (!options->progress(options->user, part * 100, 1000, (uint32_t)part))
            return err_set(e, ST_CANCELLED, "loading was cancelled");
    }
    if (atomic_load(&fake_load_fails) || number_of("FAKE_LOAD_FAILS", 0) != 0)
        return err_set(e, ST_NO_DEVICE_MEMORY, "weights 1000, KV 10, scratch 10; 500 available");
    return ST_OK;
}

enum status model_load(struct engine *g, const struct model_file *f,
                       const struct load_options *options, struct model **out, struct err *e)
{
    enum status status = load_parts(options, e);
    if (status != ST_OK)
        return status;
    struct model *m = mem_zalloc(sizeof *m);
    if (m == NULL)
        return err_set(e, ST_NO_MEMORY, "fake: out of memory");
    atomic_fetch_add(&fake_counts.models, 1);
    m->engine = g;
    m->file = f;
    m->n_ctx = options->n_ctx;
    m->n_slots = options->n_slots < MAX_SLOTS ? options->n_slots : MAX_SLOTS;
    m->n_batch = options->n_batch;
    m->logits = mem_array(STEP_MAX_LOGITS * FAKE_VOCAB, sizeof *m->logits);
    for (uint32_t i = 0; i < m->n_slots; i++)
        m->sessions[i] = (struct session){.model = m, .tokens = mem_array(m->n_ctx, 4)};
    *out = m;
    return ST_OK;
}

void model_close(struct model *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->n_slots; i++)
        mem_free(m->sessions[i].tokens);
    mem_free(m->logits);
    mem_free(m);
    atomic_fetch_sub(&fake_counts.models, 1);
}

const struct model_file *model_file_of(const struct model *m)
{
    return m->file;
}

const struct load_report *model_load_report(const struct model *m)
{
    return &m->report;
}

uint32_t model_n_ctx(const struct model *m)
{
    return m->n_ctx;
}

uint32_t model_n_slots(const struct model *m)
{
    return m->n_slots;
}

uint32_t model_n_batch(const struct model *m)
{
    return m->n_batch;
}

bool model_plan_line(const struct model *m, uint32_t n_tokens, uint32_t i, char *line, size_t n)
{
    (void)m;
    snprintf(line, n, "fake step of %u", n_tokens);
    return i == 0;
}

/* ---- sessions ---- */

enum status session_open(struct model *m, struct session **out, struct err *e)
{
    for (uint32_t i = 0; i < m->n_slots; i++) {
        if (!m->sessions[i].open) {
            m->sessions[i].open = true;
            m->sessions[i].length = 0;
            atomic_fetch_add(&fake_counts.sessions, 1);
            *out = &m->sessions[i];
            return ST_OK;
        }
    }
    return err_set(e, ST_BUSY, "no free slot");
}

void session_close(struct session *s)
{
    if (s == NULL)
        return;
    s->open = false;
    atomic_fetch_sub(&fake_counts.sessions, 1);
}

uint32_t session_length(const struct session *s)
{
    return s->length;
}

const token_id *session_tokens(const struct session *s)
{
    return s->tokens;
}

void session_rewind(struct session *s, uint32_t n_keep)
{
    ASSERT(n_keep <= s->length);
    s->length = n_keep;
}

/* ---- steps ---- */

/* What comes after the first n tokens: the script at the prompt's end, or the alphabet. */
static token_id next_token(const token_id *tokens, uint32_t n)
{
    uint32_t start = 0, end = 0;
    for (uint32_t i = 0; i < n && end == 0; i++) {
        if (tokens[i] == FAKE_BYTE('<'))
            start = i + 1;
        else if (tokens[i] == FAKE_BYTE('|') && start > 0)
            end = i;
    }
    if (end <= start)
        return (token_id)FAKE_BYTE('a' + (int)(n % 26));
    token_id id = tokens[start + (n - end - 1) % (end - start)];
    return id == FAKE_BYTE('$') ? FAKE_EOS : id;
}

static void fill_logits(float *row, const token_id *tokens, uint32_t n)
{
    for (int id = 0; id < FAKE_VOCAB; id++)
        row[id] = (float)((id * 7 + (int)n) % 13) * 0.1f;
    row[next_token(tokens, n)] = 40; /* certain at temperature 1, not at 10 */
}

static enum status check_item(const struct step_item *item, struct err *e)
{
    const struct session *s = item->session;
    struct device *d = &s->model->engine->device;
    uint32_t extra = item->want == STEP_GREEDY ? item->n_greedy - 1 : 0;
    if (item->n_tokens == 0 || s->length + item->n_tokens + extra > s->model->n_ctx)
        return err_set(e, ST_CONTEXT_FULL, "%u + %u + %u tokens, the context holds %u", s->length,
                       item->n_tokens, extra, s->model->n_ctx);
    /* Faults are written in prompts: a single token is one that was generated. */
    for (uint32_t i = 0; i < item->n_tokens && item->n_tokens > 1; i++) {
        switch (item->tokens[i]) {
        case FAKE_BYTE('!'): return err_set(e, ST_NUMERIC, "NaN in the logits of step \"fake\"");
        case FAKE_BYTE('^'): return err_set(e, ST_DEVICE_LOST, "%s is lost", d->info.name);
        case FAKE_BYTE(7): sleep_ms(HANG_MS); break;
        case FAKE_BYTE('~'): return err_set(e, ST_DEVICE, "the fake call failed");
        case FAKE_BYTE('`'):
            if (d->n_glitches++ % 2 == 0)
                return err_set(e, ST_DEVICE, "the fake call failed once");
            break;
        case FAKE_BYTE(0x7F): d->dead = true; return err_set(e, ST_DEVICE, "the fake call failed");
        default:
            if (item->tokens[i] < 0 || item->tokens[i] >= FAKE_VOCAB)
                return err_set(e, ST_INVALID, "token id %d", (int)item->tokens[i]);
        }
    }
    return ST_OK;
}

static void run_greedy(struct session *s, struct step_item *item)
{
    for (item->n_out = 0; item->n_out < item->n_greedy;) {
        token_id id = next_token(s->tokens, s->length);
        item->greedy[item->n_out++] = id;
        if (id == FAKE_EOS || item->n_out == item->n_greedy)
            break;
        s->tokens[s->length++] = id;
    }
}

static void run_item(struct model *m, struct step_item *item, uint32_t *n_rows)
{
    struct session *s = item->session;
    item->n_out = 0;
    item->logits = m->logits + (size_t)*n_rows * FAKE_VOCAB;
    for (uint32_t i = 0; i < item->n_tokens; i++) {
        s->tokens[s->length++] = item->tokens[i];
        bool last = i + 1 == item->n_tokens;
        if (item->want == STEP_ALL_LOGITS || (item->want == STEP_LOGITS && last)) {
            ASSERT(*n_rows < STEP_MAX_LOGITS);
            fill_logits(m->logits + (size_t)(*n_rows)++ * FAKE_VOCAB, s->tokens, s->length);
            item->n_out++;
        }
    }
    if (item->want == STEP_GREEDY)
        run_greedy(s, item);
}

enum status model_step(struct model *m, struct step_item *items, uint32_t n_items, struct err *e)
{
    uint32_t n_tokens = 0, n_rows = 0;
    uint64_t start_ns = clock_now_ns();
    ASSERT(n_items >= 1 && n_items <= STEP_MAX_ITEMS);
    sleep_ms(fake_sleep_ms());
    for (uint32_t i = 0; i < n_items; i++) {
        n_tokens += items[i].n_tokens;
        for (uint32_t k = 0; k < i; k++)
            ASSERT(items[k].session != items[i].session);
        enum status status = check_item(&items[i], e);
        if (status != ST_OK)
            return status;
    }
    ASSERT(n_tokens <= m->n_batch);
    for (uint32_t i = 0; i < n_items; i++)
        run_item(m, &items[i], &n_rows);
    atomic_fetch_add(&fake_counts.steps, 1);
    atomic_fetch_add(&fake_counts.items, n_items);
    if (atomic_load(&fake_counts.widest) < n_items)
        atomic_store(&fake_counts.widest, n_items);
    if (m->engine->profiling) {
        struct prof_report *r = &m->engine->report;
        r->n_rows = 1;
        r->rows[0] = (struct prof_row){"fake", "plain", 1,        clock_now_ns() - start_ns,
                                       1,      1,       n_tokens, n_tokens};
        r->compute_busy_ns = r->rows[0].total_ns;
    }
    return ST_OK;
}
