/* The engine with its OpenCL calls and its allocations failing: for many n, call or allocation
 * number n of a start, a load, a completion and an operator fails once, fails from then on (the
 * device is lost), or comes late. Each time the outcome must be an error with its text, or the
 * right tokens; no OpenCL object may be left; and the completion after it must be right. The same
 * with layers that stream, on a device said to have memory of its own; and on devices with no
 * memory to spare for pinned layers.
 *
 * The first FIRST_ALL numbers are tried and then every few, or with OINFER_FAULTS_ALL=1 all of
 * them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/cl/impl.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "engine/ops/opbench.h"
#include "fake_cl.h"
#include "tests/golden/tiny.h"

#define N_PROMPT  11
#define N_SCORED  3 /* tokens drawn from logits, one step each */
#define N_GREEDY  6
#define N_OUT     (N_SCORED + N_GREEDY)
#define FIRST_ALL 30
#define LOST      (-36)

static char folder[] = "/tmp/engine_faults_XXXXXX";
static char path[64], cache[64];
static token_id expected[N_OUT];
/* How engines are opened: a limit makes layers stream, as they do on devices other than CPUs. */
static uint64_t memory_limit;
static bool as_gpu;
static enum device_kind gpu_kind = DEVICE_DISCRETE_GPU;
static uint64_t gpu_bytes; /* of its memory; 0: what the device says */

/* Everything a completion needs; without a file only what an operator needs. */
struct world {
    struct device_list *list;
    struct engine *engine;
    struct model_file *file;
    struct model *model;
};

/* ---- one start, load and completion ---- */

static enum status open_engine(struct world *w, struct err *e)
{
    const struct engine_options options = {
        .device = {.cache_dir = cache, .memory_limit_bytes = memory_limit}, .stepwise = as_gpu};
    const struct load_options load = {.n_ctx = 64, .n_slots = 2};
    enum status status = engine_open(w->list, 0, &options, &w->engine, e);
    if (status == ST_OK && as_gpu && !device_is_host(w->engine->device)) {
        struct device_info *info = &w->engine->device->info;
        info->kind = gpu_kind;
        info->unified_memory = gpu_kind == DEVICE_INTEGRATED_GPU;
        if (gpu_bytes > 0)
            info->global_bytes = gpu_bytes;
    }
    if (status == ST_OK && w->file != NULL)
        status = model_load(w->engine, w->file, &load, &w->model, e);
    return status;
}

static void close_engine(struct world *w)
{
    model_close(w->model);
    engine_close(w->engine);
    w->model = NULL;
    w->engine = NULL;
}

static enum status open_world(struct world *w, struct err *e)
{
    memset(w, 0, sizeof *w);
    enum status status = device_list_open(0, &w->list, e);
    if (status == ST_OK)
        status = model_file_open(path, &w->file, e);
    if (status == ST_OK)
        status = open_engine(w, e);
    return status;
}

static void close_world(struct world *w)
{
    close_engine(w);
    model_file_close(w->file);
    device_list_close(w->list);
    memset(w, 0, sizeof *w);
}

static token_id largest(const float *logits, uint32_t n)
{
    token_id best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = (token_id)i;
    return best;
}

/* A prompt in two steps, tokens from logits, then greedy ones several at a time. */
static enum status generate(struct session *s, const struct model *m, token_id out[N_OUT],
                            struct err *e)
{
    token_id prompt[N_PROMPT];
    uint32_t n_vocab = model_file_info(model_file_of(m))->n_vocab, n = 0;
    for (uint32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = (token_id)((i * 31 + 5) % n_vocab);
    struct step_item item = {.session = s, .tokens = prompt, .n_tokens = 4, .want = STEP_NOTHING};
    enum status status = model_step((struct model *)(uintptr_t)m, &item, 1, e);
    item.tokens = prompt + 4;
    item.n_tokens = N_PROMPT - 4;
    item.want = STEP_LOGITS;
    while (status == ST_OK && n < N_SCORED) {
        status = model_step((struct model *)(uintptr_t)m, &item, 1, e);
        if (status == ST_OK)
            out[n++] = largest(item.logits, n_vocab);
        item.tokens = &out[n - 1];
        item.n_tokens = 1;
    }
    item.want = STEP_GREEDY;
    while (status == ST_OK && n < N_OUT) {
        item.n_greedy = N_OUT - n < 4 ? N_OUT - n : 4;
        status = model_step((struct model *)(uintptr_t)m, &item, 1, e);
        for (uint32_t i = 0; i < item.n_out && status == ST_OK; i++)
            out[n++] = item.greedy[i];
        item.tokens = &out[n - 1];
    }
    return status;
}

static enum status complete(struct world *w, token_id out[N_OUT], struct err *e)
{
    struct session *s = NULL;
    enum status status = session_open(w->model, &s, e);
    if (status == ST_OK)
        status = generate(s, w->model, out, e);
    session_close(s);
    return status;
}

/* ---- what is checked after a fault ---- */

static void check_error(const char *what, enum status status, const struct err *e)
{
    if (e->status != status || e->text[0] == '\0')
        fail_msg("%s: status %s, but the error says %s: \"%s\"", what, status_name(status),
                 status_name(e->status), e->text);
    if (status == ST_INTERNAL || status == ST_INVALID || status == ST_FORMAT)
        fail_msg("%s: %s is not the kind of error that a fault causes: %s", what,
                 status_name(status), e->text);
}

static void check_tokens(const char *what, const token_id *tokens)
{
    if (memcmp(tokens, expected, sizeof expected) != 0)
        fail_msg("%s: the tokens are wrong", what);
}

static void must_complete(const char *what, struct world *w)
{
    struct err e = {0};
    token_id tokens[N_OUT];
    enum status status = complete(w, tokens, &e);
    if (status != ST_OK)
        fail_msg("the completion after %s: %s: %s", what, status_name(status), e.text);
    check_tokens(what, tokens);
}

/* The numbers to try of `total`: the first ones and then every few. */
static unsigned long next_number(unsigned long n, unsigned long total, unsigned long more)
{
    static const unsigned long primes[] = {1,  2,  3,  5,  7,  11, 13,  17,  19,  23,  29, 31,
                                           37, 43, 53, 67, 83, 97, 127, 163, 211, 307, 499};
    size_t i = 0;
    if (n < FIRST_ALL || total <= FIRST_ALL || getenv("OINFER_FAULTS_ALL") != NULL)
        return n + 1;
    while (i + 1 < sizeof primes / sizeof primes[0] && primes[i] * more < total - FIRST_ALL)
        i++;
    return n + primes[i];
}

/* ---- OpenCL calls of a completion ---- */

/* What a lost device had is closed, and the engine opened anew. */
static void reopen_if_lost(const char *what, struct world *w)
{
    struct err e = {0};
    fake_cl_rules("");
    if (!device_is_lost(engine_device(w->engine)))
        return;
    close_engine(w);
    if (fake_cl_alive() != 0)
        fail_msg("%s: %ld OpenCL objects are left", what, fake_cl_alive());
    if (open_engine(w, &e) != ST_OK)
        fail_msg("opening again after %s: %s", what, e.text);
}

/* After a failed completion the next is right: at once, or with the engine opened anew. */
static void recover(const char *what, struct world *w)
{
    reopen_if_lost(what, w);
    must_complete(what, w);
}

static void try_completion(struct world *w, const char *rule)
{
    struct err e = {0};
    token_id tokens[N_OUT];
    fake_cl_rules(rule);
    enum status status = complete(w, tokens, &e);
    if (status == ST_OK)
        check_tokens(rule, tokens);
    else
        check_error(rule, status, &e);
    recover(rule, w);
}

/* Tries each kind of fault at the numbers of a sequence of `total` calls; `more`: how many after
 * the first FIRST_ALL. */
static unsigned long sweep_calls(struct world *w, void (*attempt)(struct world *w, const char *),
                                 unsigned long total, const unsigned long more[3])
{
    static const char *const ends[] = {":-5", "+:-36", "+:-5"};
    unsigned long tried = 0;
    char rule[64];
    for (size_t r = 0; r < sizeof ends / sizeof ends[0]; r++)
        for (unsigned long n = 1; n <= total; n = next_number(n, total, more[r]), tried++) {
            snprintf(rule, sizeof rule, "*:%lu%s", n, ends[r]);
            attempt(w, rule);
        }
    return tried;
}

/* Tries the first, second and last call of each function, with an error of that function. */
static unsigned long sweep_functions(struct world *w,
                                     void (*attempt)(struct world *w, const char *),
                                     const unsigned long *counts)
{
    unsigned long tried = 0;
    char rule[64];
    for (int call = 0; fake_cl_name(call) != NULL; call++) {
        const char *name = fake_cl_name(call);
        int code = strcmp(name, "clCreateBuffer") == 0    ? -4
                   : strcmp(name, "clBuildProgram") == 0  ? -11
                   : strcmp(name, "clCreateKernel") == 0  ? -46
                   : strcmp(name, "clSetKernelArg") == 0  ? -38
                   : strcmp(name, "clWaitForEvents") == 0 ? -14
                                                          : -6;
        const unsigned long numbers[] = {1, 2, counts[call]};
        for (size_t i = 0; i < 3 && counts[call] > 0; i++) {
            if (numbers[i] > counts[call] || (i == 2 && numbers[i] <= 2))
                continue;
            snprintf(rule, sizeof rule, "%s:%lu:%d", name, numbers[i], code);
            attempt(w, rule);
            tried++;
        }
    }
    return tried;
}

#define CALLS_MAX 64

static void count_calls(unsigned long counts[CALLS_MAX])
{
    memset(counts, 0, CALLS_MAX * sizeof *counts);
    for (int call = 0; fake_cl_name(call) != NULL; call++) {
        assert_true(call < CALLS_MAX);
        counts[call] = fake_cl_calls_of(call);
    }
}

static void calls_of_a_completion_fail(void **state)
{
    (void)state;
    struct world w;
    struct err e = {0};
    unsigned long counts[CALLS_MAX];
    if (open_world(&w, &e) != ST_OK)
        fail_msg("%s", e.text);
    must_complete("nothing", &w);
    fake_cl_rules("");
    must_complete("nothing", &w);
    count_calls(counts);
    unsigned long total = fake_cl_calls();
    assert_true(total > 0);
    unsigned long tried =
        sweep_calls(&w, try_completion, total, (const unsigned long[]){60, 10, 10});
    tried += sweep_functions(&w, try_completion, counts);
    print_message("a completion makes %lu OpenCL calls; %lu faults were tried\n", total, tried);
    close_world(&w);
    assert_int_equal(fake_cl_alive(), 0);
}

/* ---- OpenCL calls of a start and load ---- */

/* Opens device list, file, engine and model with a fault; w->file is not used. */
static void try_load(struct world *w, const char *rule)
{
    struct err e = {0};
    fake_cl_rules(rule);
    enum status status = open_world(w, &e);
    unsigned long failed = fake_cl_failed();
    fake_cl_rules("");
    if (status != ST_OK) {
        check_error(rule, status, &e);
        if (failed == 0)
            fail_msg("%s: no call failed, and yet: %s", rule, e.text);
    } else if (device_is_host(engine_device(w->engine)) == 0) {
        must_complete(rule, w);
    }
    close_world(w);
    if (fake_cl_alive() != 0)
        fail_msg("%s: %ld OpenCL objects are left", rule, fake_cl_alive());
}

static void calls_of_a_load_fail(void **state)
{
    (void)state;
    struct world w;
    struct err e = {0};
    unsigned long counts[CALLS_MAX];
    fake_cl_rules("");
    if (open_world(&w, &e) != ST_OK)
        fail_msg("%s", e.text);
    unsigned long total = fake_cl_calls();
    count_calls(counts);
    close_world(&w);
    unsigned long tried = sweep_calls(&w, try_load, total, (const unsigned long[]){60, 10, 10});
    tried += sweep_functions(&w, try_load, counts);
    print_message("a start and load make %lu OpenCL calls; %lu faults were tried\n", total, tried);
}

/* A driver that has less memory than it says: others use it. */
static void refused_memory_shows_the_bill(void **state)
{
    (void)state;
    struct world w;
    struct err e = {0};
    unsigned long counts[CALLS_MAX];
    char rule[64];
    fake_cl_rules("");
    if (open_world(&w, &e) != ST_OK)
        fail_msg("%s", e.text);
    count_calls(counts);
    close_world(&w);
    for (int call = 0; fake_cl_name(call) != NULL; call++) {
        if (strcmp(fake_cl_name(call), "clCreateBuffer") != 0)
            continue;
        snprintf(rule, sizeof rule, "clCreateBuffer:%lu:-4", counts[call]); /* the model's last */
        fake_cl_rules(rule);
        assert_int_equal(open_world(&w, &e), ST_NO_DEVICE_MEMORY);
        fake_cl_rules("");
        close_world(&w);
        for (const char *const *part = (const char *const[]){"weights", "KV cache", "scratch",
                                                             "available", ", but ", NULL};
             *part != NULL; part++)
            if (strstr(e.text, *part) == NULL)
                fail_msg("no %s in: %s", *part, e.text);
    }
}

/* ---- OpenCL calls of an operator's run ---- */

/* ST_OK: it was measured and is right. The failure of its one variant is in its row. */
static enum status operate(struct world *w, struct err *e)
{
    const struct opbench_request r = {
        .op = OP_MATMUL,
        .params.matmul = {.m = 33, .n = 17, .k = 65, .batch = 1, .alpha = 1},
        .dtype = DT_F32,
        .warmup = 1,
        .iterations = 2,
        .verify = true,
        .return_output = true};
    struct opbench_result *out = mem_zalloc(sizeof *out);
    if (out == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory for the result");
    enum status status = opbench_run(engine_device(w->engine), &r, out, e);
    const struct opbench_row *row = &out->rows[0];
    if (status == ST_OK && row->status != ST_OK)
        status = err_set(e, row->status, "%s", row->reason);
    else if (status == ST_OK && (!row->verified || !row->pass || out->output == NULL))
        fail_msg("a wrong result: %s", row->reason);
    opbench_close(out);
    mem_free(out);
    return status;
}

static void must_operate(const char *what, struct world *w)
{
    struct err e = {0};
    if (operate(w, &e) != ST_OK)
        fail_msg("the operator after %s: %s", what, e.text);
}

static void try_operator(struct world *w, const char *rule)
{
    struct err e = {0};
    fake_cl_rules(rule);
    enum status status = operate(w, &e);
    if (status != ST_OK)
        check_error(rule, status, &e);
    reopen_if_lost(rule, w);
    must_operate(rule, w);
}

static void calls_of_an_operator_fail(void **state)
{
    (void)state;
    struct world w = {0};
    struct err e = {0};
    unsigned long counts[CALLS_MAX];
    if (device_list_open(0, &w.list, &e) != ST_OK || open_engine(&w, &e) != ST_OK)
        fail_msg("%s", e.text);
    must_operate("nothing", &w);
    fake_cl_rules("");
    must_operate("nothing", &w);
    count_calls(counts);
    unsigned long total = fake_cl_calls();
    if (!device_is_host(engine_device(w.engine)))
        assert_true(total > 0);
    unsigned long tried = sweep_calls(&w, try_operator, total, (const unsigned long[]){20, 6, 6});
    tried += sweep_functions(&w, try_operator, counts);
    for (int call = 0; fake_cl_name(call) != NULL; call++)
        for (unsigned long n = 1; n <= counts[call]; n++) { /* few, and what they bind must go */
            char rule[64];
            if (strcmp(fake_cl_name(call), "clSetKernelArg") != 0)
                break;
            snprintf(rule, sizeof rule, "clSetKernelArg:%lu:-38", n);
            try_operator(&w, rule);
            tried++;
        }
    print_message("an operator makes %lu OpenCL calls; %lu faults were tried\n", total, tried);
    close_world(&w);
    assert_int_equal(fake_cl_alive(), 0);
}

/* ---- late calls ---- */

static void late_calls_change_nothing(void **state)
{
    (void)state;
    struct world w;
    struct err e = {0};
    char rule[64];
    if (open_world(&w, &e) != ST_OK)
        fail_msg("%s", e.text);
    fake_cl_rules("");
    must_complete("nothing", &w);
    unsigned long total = fake_cl_calls();
    for (unsigned long n = 1; n <= total; n = next_number(n, total, 40)) {
        snprintf(rule, sizeof rule, "*:%lu:sleep=20", n);
        fake_cl_rules(rule);
        must_complete(rule, &w);
    }
    fake_cl_rules("");
    must_operate("nothing", &w);
    total = fake_cl_calls();
    for (unsigned long n = 1; n <= total; n = next_number(n, total, 10)) {
        snprintf(rule, sizeof rule, "*:%lu:sleep=20", n);
        fake_cl_rules(rule);
        must_operate(rule, &w);
    }
    close_world(&w);
    fake_cl_rules("");
    if (open_world(&w, &e) != ST_OK)
        fail_msg("%s", e.text);
    total = fake_cl_calls();
    close_world(&w);
    for (unsigned long n = 1; n <= total; n += total / 12 + 1) {
        snprintf(rule, sizeof rule, "*:%lu:sleep=20", n);
        fake_cl_rules(rule);
        if (open_world(&w, &e) != ST_OK)
            fail_msg("a load with %s: %s", rule, e.text);
        must_complete(rule, &w);
        close_world(&w);
    }
    fake_cl_rules("");
}

/* ---- allocations ---- */

static void check_memory_error(const char *what, enum status status, const struct err *e)
{
    check_error(what, status, e);
    if (status != ST_NO_MEMORY && status != ST_NO_DEVICE_MEMORY)
        fail_msg("%s: %s: %s", what, status_name(status), e->text);
}

static void allocations_of_a_completion_fail(void **state)
{
    (void)state;
    struct world w;
    struct err e = {0};
    token_id tokens[N_OUT];
    char what[64];
    if (open_world(&w, &e) != ST_OK)
        fail_msg("%s", e.text);
    must_complete("nothing", &w);
    mem_fail_at(0, 0);
    must_complete("nothing", &w);
    uint64_t total = mem_fail_at(0, 0);
    assert_true(total > 0);
    for (unsigned long n = 1; n <= 2 * total; n++) {
        unsigned long at = (n + 1) / 2;
        int sticky = n % 2 == 0;
        snprintf(what, sizeof what, "allocation %lu%s", at, sticky ? " and all after it" : "");
        e = (struct err){0};
        mem_fail_at(at, sticky);
        enum status status = complete(&w, tokens, &e);
        mem_fail_at(0, 0);
        if (status == ST_OK)
            check_tokens(what, tokens);
        else
            check_memory_error(what, status, &e);
        must_complete(what, &w);
    }
    print_message("a completion makes %lu allocations\n", (unsigned long)total);
    close_world(&w);
}

static void allocations_of_a_load_fail(void **state)
{
    (void)state;
    struct world w;
    struct err e = {0};
    char what[64];
    mem_fail_at(0, 0);
    if (open_world(&w, &e) != ST_OK)
        fail_msg("%s", e.text);
    uint64_t total = mem_fail_at(0, 0);
    close_world(&w);
    unsigned long tried = 0;
    for (int sticky = 0; sticky < 2; sticky++)
        for (unsigned long n = 1; n <= total;
             n = next_number(n, (unsigned long)total, sticky ? 10 : 60), tried++) {
            snprintf(what, sizeof what, "allocation %lu%s", n, sticky ? " and all after it" : "");
            e = (struct err){0};
            mem_fail_at(n, sticky);
            enum status status = open_world(&w, &e);
            mem_fail_at(0, 0);
            if (status != ST_OK)
                check_memory_error(what, status, &e);
            else
                must_complete(what, &w);
            close_world(&w);
            if (fake_cl_alive() != 0)
                fail_msg("%s: %ld OpenCL objects are left", what, fake_cl_alive());
        }
    print_message("a start and load make %lu allocations; %lu faults were tried\n",
                  (unsigned long)total, tried);
}

/* ---- cells that nobody may read ---- */

/* A slot's cells are NaN, as a failed request may leave them: the next one does not see them. */
static void nan_in_unused_cells_is_not_seen(void **state)
{
    static const enum kv_dtype kinds[] = {KV_F16, KV_F32, KV_Q8_0};
    (void)state;
    struct world w;
    struct err e = {0};
    for (uint32_t device = 0; device < 2; device++)
        for (size_t k = 0; k < 6; k++) {
            token_id clean[N_OUT], tokens[N_OUT];
            const struct load_options load = {.n_ctx = 64, .n_slots = 2, .kv = kinds[k % 3]};
            const struct engine_options options = {.device = {.cache_dir = cache},
                                                   .stepwise = k >= 3};
            memset(&w, 0, sizeof w);
            if (device_list_open(0, &w.list, &e) != ST_OK ||
                model_file_open(path, &w.file, &e) != ST_OK)
                fail_msg("%s", e.text);
            const uint32_t index = device == 0 ? 0 : device_list_count(w.list) - 1; /* host */
            if (engine_open(w.list, index, &options, &w.engine, &e) != ST_OK ||
                model_load(w.engine, w.file, &load, &w.model, &e) != ST_OK ||
                complete(&w, clean, &e) != ST_OK)
                fail_msg("%s", e.text);
            struct device *d = engine_device(w.engine);
            for (uint32_t b = 0; b < w.model->kv.n_buffers; b++) {
                struct buffer *cells = w.model->kv.buffers[b];
                if (queue_fill(d, QUEUE_COMPUTE, cells, 0, buffer_bytes(cells), 0xff, "spoil",
                               &e) != ST_OK)
                    fail_msg("%s", e.text);
            }
            if (complete(&w, tokens, &e) != ST_OK)
                fail_msg("%s: cache kind %zu: %s", device_info(d)->name, k, e.text);
            assert_memory_equal(tokens, clean, sizeof clean);
            close_world(&w);
        }
}

/* ---- layers that stream ---- */

/* From here on the model has layers that stream; what it says with all of them in place is
 * expected. */
static void begin_streaming(enum device_kind kind)
{
    struct world w;
    struct err e = {0};
    struct tiny t = tiny_default;
    t.n_layer = 4;
    as_gpu = true;
    gpu_kind = kind;
    gpu_bytes = memory_limit = 0;
    fake_cl_rules("");
    if (tiny_write(&t, path, &e) != ST_OK || open_world(&w, &e) != ST_OK ||
        complete(&w, expected, &e) != ST_OK)
        fail_msg("%s", e.text);
    const struct load_report *r = model_load_report(w.model);
    memory_limit = r->weights_bytes + r->kv_bytes + r->scratch_bytes +
                   weights_loading_bytes(w.model->weights) - 1;
    close_world(&w);
    if (open_world(&w, &e) != ST_OK)
        fail_msg("%s", e.text);
    r = model_load_report(w.model);
    assert_in_range(r->n_streamed, 3, 4);
    const bool host = device_is_host(w.engine->device);
    assert_int_equal(r->n_pinned, kind == DEVICE_INTEGRATED_GPU && !host ? r->n_streamed : 0);
    assert_int_equal(r->n_staged, host ? 0 : r->n_streamed - r->n_pinned);
    must_complete("nothing", &w);
    close_world(&w);
}

static void calls_of_a_streaming_completion_fail(void **state)
{
    begin_streaming(DEVICE_DISCRETE_GPU);
    calls_of_a_completion_fail(state);
}

static void calls_of_a_streaming_load_fail(void **state)
{
    begin_streaming(DEVICE_DISCRETE_GPU);
    calls_of_a_load_fail(state);
}

static void allocations_of_a_streaming_load_fail(void **state)
{
    begin_streaming(DEVICE_DISCRETE_GPU);
    allocations_of_a_load_fail(state);
}

/* The driver has no pinned memory for layer n: then that one lies in ordinary memory, and so do
 * those after it. */
static void layers_need_no_pinned_memory(void **state)
{
    (void)state;
    struct world w;
    struct err e = {0};
    begin_streaming(DEVICE_INTEGRATED_GPU);
    for (unsigned long n = 1; n <= 3; n++) {
        char rule[64];
        snprintf(rule, sizeof rule, "clEnqueueMapBuffer:%lu:-12", n);
        fake_cl_rules(rule);
        if (open_world(&w, &e) != ST_OK)
            fail_msg("%s: %s", rule, e.text);
        if (!device_is_host(w.engine->device)) {
            assert_int_equal(fake_cl_failed(), 1);
            const struct load_report *r = model_load_report(w.model);
            assert_int_equal(r->n_pinned, n - 1);
            assert_int_equal(r->n_staged, r->n_streamed - r->n_pinned);
        }
        must_complete(rule, &w);
        close_world(&w);
        assert_int_equal(fake_cl_alive(), 0);
    }
    fake_cl_rules("");
}

/* What a load that streams takes of a driver that counts pinned memory to the device. */
static uint64_t least_bytes(const struct world *w)
{
    const struct device_memory m = device_memory(w->engine->device);
    return m.peak_bytes + (uint64_t)STAGING_SLOTS * STAGING_BYTES;
}

/* A driver keeps a copy of pinned memory on the device, where the model and the ring leave no room:
 * on devices with memory of their own nothing is asked of it for the layers. Where the memory is
 * the host's, what is pinned leaves what loading and later buffers take. */
static void pinning_takes_nothing_that_is_needed(void **state)
{
    (void)state;
    static const enum device_kind kinds[] = {DEVICE_DISCRETE_GPU, DEVICE_INTEGRATED_GPU};
    struct world w;
    struct err e = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        begin_streaming(kinds[i]);
        if (open_world(&w, &e) != ST_OK)
            fail_msg("%s", e.text);
        const uint64_t least = least_bytes(&w);
        const uint64_t layers = model_load_report(w.model)->stream_bytes;
        const bool host = device_is_host(w.engine->device);
        close_world(&w);
        for (unsigned share = 0; share <= 2 && !host; share++) { /* none, half of the layers, all */
            gpu_bytes = least + share * layers / 2;
            gpu_bytes += kinds[i] == DEVICE_INTEGRATED_GPU ? gpu_bytes / 7 + 1 : 0;
            fake_cl_memory(gpu_bytes);
            if (open_world(&w, &e) != ST_OK)
                fail_msg("kind %d, %llu bytes: %s", (int)kinds[i], (unsigned long long)gpu_bytes,
                         e.text);
            const struct load_report *r = model_load_report(w.model);
            const bool pins = kinds[i] == DEVICE_INTEGRATED_GPU;
            assert_int_equal(r->n_pinned, pins ? share * r->n_streamed / 2 : 0);
            assert_int_equal(r->n_staged, r->n_streamed - r->n_pinned);
            must_complete("little memory", &w);
            close_world(&w);
            fake_cl_memory(0);
        }
    }
    gpu_bytes = 0;
}

/* ---- the whole ---- */

static int prepare(void **state)
{
    (void)state;
    struct world w;
    struct err e = {0};
    if (mkdtemp(folder) == NULL)
        return -1;
    log_init(LOG_ERROR, false); /* what goes wrong on purpose is not told */
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    if (tiny_write(&tiny_default, path, &e) != ST_OK || open_world(&w, &e) != ST_OK ||
        complete(&w, expected, &e) != ST_OK) {
        print_error("%s\n", e.text);
        return -1;
    }
    bool host = device_is_host(engine_device(w.engine));
    while (kernel_save_next(engine_device(w.engine))) /* closing would not wait for all of them */
        continue;
    close_world(&w);
    if (host)
        print_message("no OpenCL device: only memory is tested\n");
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_a_completion_fail),
        cmocka_unit_test(calls_of_a_load_fail),
        cmocka_unit_test(refused_memory_shows_the_bill),
        cmocka_unit_test(calls_of_an_operator_fail),
        cmocka_unit_test(late_calls_change_nothing),
        cmocka_unit_test(allocations_of_a_completion_fail),
        cmocka_unit_test(allocations_of_a_load_fail),
        cmocka_unit_test(nan_in_unused_cells_is_not_seen),
        cmocka_unit_test(layers_need_no_pinned_memory),
        cmocka_unit_test(pinning_takes_nothing_that_is_needed),
        cmocka_unit_test(calls_of_a_streaming_completion_fail),
        cmocka_unit_test(calls_of_a_streaming_load_fail),
        cmocka_unit_test(allocations_of_a_streaming_load_fail),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
