/* Workers, slots and sequences on the fake engine, without HTTP: jobs go in, outputs come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "fake_engine.h"
#include "server/prepare.h"
#include "server/sequence.h"
#include "server/worker.h"

#define WAIT_S 20

struct bench {
    struct hosted_models models;
    struct device_list *devices;
    struct worker *worker;
};

static const struct request_limits limits = {
    .choices = 64, .stop_strings = 16, .deadline_ms = 600000};

/* These tests have no event loop: they look for news by themselves. */
static void notify(void *user)
{
    (void)user;
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static enum worker_state state_of(struct bench *b)
{
    struct worker_status status;
    worker_status(b->worker, &status);
    return status.state;
}

static void open_bench(struct bench *b, uint32_t slots, uint32_t batch)
{
    struct err e;
    char *path = (char *)"fake.gguf";
    *b = (struct bench){0};
    assert_int_equal(hosted_open(&path, 1, 0, &b->models, &e), ST_OK);
    assert_int_equal(device_list_open(0, &b->devices, &e), ST_OK);
    struct worker_options options = {.devices = b->devices,
                                     .load = {.n_slots = slots, .n_batch = batch},
                                     .models = &b->models,
                                     .notify = notify};
    assert_int_equal(worker_open(&options, &b->worker, &e), ST_OK);
    while (state_of(b) == WORKER_LOADING)
        sleep_ms(1);
}

static void close_bench(struct bench *b)
{
    worker_close(b->worker);
    device_list_close(b->devices);
    hosted_close(&b->models);
    assert_int_equal(atomic_load(&fake_counts.sessions), 0);
    assert_int_equal(atomic_load(&fake_counts.models), 0);
    assert_int_equal(atomic_load(&fake_counts.engines), 0);
    assert_int_equal(atomic_load(&fake_counts.files), 0);
}

/* A prepared job of this body, or NULL with the fault. */
static struct job *make_job(struct bench *b, const char *body, struct fault *f)
{
    struct job *j = job_open(JOB_COMPLETION);
    if (j == NULL) {
        fault_set(f, FAULT_MEMORY, NULL, "out of memory");
        return NULL;
    }
    j->timings.arrived_ns = clock_now_ns();
    if (prepare_job(j, body, strlen(body), &b->models, &limits) != ST_OK) {
        *f = j->fault;
        job_close(j);
        return NULL;
    }
    return j;
}

static struct job *submit(struct bench *b, const char *body)
{
    struct fault f;
    struct job *j = make_job(b, body, &f);
    assert_non_null(j);
    worker_submit(b->worker, j);
    return j;
}

static void mark_done(void *user, struct job *j, bool done)
{
    (void)user;
    if (done)
        j->state = JOB_DONE;
}

/* Collects until all of them are done. */
static void finish(struct bench *b, struct job *const *jobs, size_t n)
{
    uint64_t end_ns = clock_now_ns() + WAIT_S * UINT64_C(1000000000);
    for (size_t i = 0; i < n; i++) {
        while (jobs[i]->state != JOB_DONE) {
            assert_true(clock_now_ns() < end_ns);
            worker_collect(b->worker, mark_done, NULL);
            sleep_ms(1);
        }
    }
}

/* Checks the text of a sequence of a job that is done. */
static void expect_text(struct job *j, uint32_t sequence, const char *text, enum finish reason)
{
    struct output o;
    output_init(&o);
    assert_false(j->failed);
    assert_true(outbox_take(&j->outbox, sequence, &o));
    assert_string_equal(strbuf_text(&o.text), text);
    assert_int_equal(o.finish, reason);
    output_free(&o);
}

static void one_job(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 2, 64);
    struct job *j = submit(&b, "{\"prompt\":\"<hello$|\",\"temperature\":0,\"max_tokens\":30}");
    finish(&b, &j, 1);
    expect_text(j, 0, "hello", FINISH_STOP);
    assert_int_equal(j->timings.prompt_tokens, 9);
    assert_int_equal(j->timings.predicted_tokens, 6);
    assert_true(j->timings.ended_ns - j->timings.started_ns >=
                j->timings.prompt_ns + j->timings.predicted_ns);
    assert_string_equal(j->timings.device, "fake 0");
    job_close(j);
    close_bench(&b);
}

/* Every chunking of a prompt and both ways of decoding give the same text. */
static void batch_size_does_not_matter(void **state)
{
    (void)state;
    for (uint32_t batch = 1; batch <= 20; batch += 3) {
        struct bench b;
        open_bench(&b, 2, batch);
        struct job *jobs[] = {
            submit(&b, "{\"prompt\":\"<one two$|\",\"temperature\":0}"),
            submit(&b, "{\"prompt\":\"<one two$|\",\"temperature\":1}"),
            submit(&b,
                   "{\"prompt\":\"<one two$|\",\"temperature\":0,\"echo\":true,\"logprobs\":1}")};
        finish(&b, jobs, 3);
        expect_text(jobs[0], 0, "one two", FINISH_STOP);
        expect_text(jobs[1], 0, "one two", FINISH_STOP);
        expect_text(jobs[2], 0, "<one two$|one two", FINISH_STOP);
        for (size_t i = 0; i < 3; i++)
            job_close(jobs[i]);
        close_bench(&b);
    }
}

static void many_jobs_share_steps(void **state)
{
    (void)state;
    enum { N = 40 };
    struct bench b;
    struct job *jobs[N];
    open_bench(&b, 8, 128);
    atomic_store(&fake_counts.widest, 0);
    atomic_store(&fake_step_ms, 1);
    for (int i = 0; i < N; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\":\"<job%d$|\",\"max_tokens\":40,\"n\":%d}", i,
                 1 + i % 3);
        jobs[i] = submit(&b, body);
    }
    finish(&b, jobs, N);
    atomic_store(&fake_step_ms, 0);
    assert_int_equal(atomic_load(&fake_counts.widest), 8);
    for (int i = 0; i < N; i++) {
        char text[16];
        snprintf(text, sizeof text, "job%d", i);
        for (uint32_t k = 0; k < jobs[i]->n_sequences; k++)
            expect_text(jobs[i], k, text, FINISH_STOP);
        job_close(jobs[i]);
    }
    close_bench(&b);
}

/* S11, S12 */
static void cancelled_jobs_come_back(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 2, 4);
    atomic_store(&fake_step_ms, 5);
    char body[512];
    snprintf(body, sizeof body,
             "{\"prompt\":\"%0300d\",\"max_tokens\":400,\"temperature\":1,\"n\":3}", 0);
    struct job *jobs[] = {submit(&b, body), submit(&b, "{\"prompt\":\"x\",\"max_tokens\":400}"),
                          submit(&b, "{\"prompt\":\"y\",\"max_tokens\":400}")};
    sleep_ms(50);
    uint64_t start_ns = clock_now_ns();
    for (size_t i = 0; i < 3; i++)
        job_cancel(jobs[i]);
    worker_wake(b.worker);
    finish(&b, jobs, 3);
    assert_true(clock_now_ns() - start_ns < UINT64_C(500000000));
    atomic_store(&fake_step_ms, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_true(jobs[i]->failed);
        job_close(jobs[i]);
    }
    struct slot_status slots[8];
    assert_int_equal(worker_slots(b.worker, slots, 8), 2);
    close_bench(&b);
}

static void a_fault_hits_one_job(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 4, 64);
    struct job *jobs[] = {submit(&b, "{\"prompt\":\"<a b c|\",\"max_tokens\":50}"),
                          submit(&b, "{\"prompt\":\"bad!\",\"n\":2}"),
                          submit(&b, "{\"prompt\":\"~~\"}"), submit(&b, "{\"prompt\":\"<ok$|\"}")};
    finish(&b, jobs, 4);
    assert_int_equal(jobs[1]->fault.kind, FAULT_NUMERIC);
    assert_int_equal(jobs[2]->fault.kind, FAULT_ENGINE);
    expect_text(jobs[0], 0, "a b ca b ca b ca b ca b ca b ca b ca b ca b ca b c", FINISH_LENGTH);
    expect_text(jobs[3], 0, "ok", FINISH_STOP);
    for (size_t i = 0; i < 4; i++)
        job_close(jobs[i]);
    close_bench(&b);
}

static void a_lost_device_fails_all(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 1, 64);
    atomic_store(&fake_failed_opens, 1000); /* it stays lost */
    struct job *jobs[] = {submit(&b, "{\"prompt\":\"^^\"}"), submit(&b, "{\"prompt\":\"x\"}"),
                          submit(&b, "{\"prompt\":\"y\",\"n\":3}")};
    finish(&b, jobs, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(jobs[i]->fault.kind, FAULT_DEVICE_LOST);
        job_close(jobs[i]);
    }
    close_bench(&b);
    atomic_store(&fake_failed_opens, 0);
}

static struct worker_status wait_for_state(struct bench *b, enum worker_state state,
                                           uint32_t n_losses)
{
    uint64_t end_ns = clock_now_ns() + WAIT_S * UINT64_C(1000000000);
    struct worker_status status;
    do {
        assert_true(clock_now_ns() < end_ns);
        sleep_ms(1);
        worker_status(b->worker, &status);
    } while (status.state != state || status.n_losses != n_losses);
    return status;
}

/* What a job gets between the loss and the opening names the device; afterwards all is as before.
 */
static void a_lost_device_is_opened_again(void **state)
{
    (void)state;
    struct bench b;
    struct worker_status status;
    open_bench(&b, 1, 64);
    for (uint32_t loss = 1; loss <= 3; loss++) {
        atomic_store(&fake_failed_opens, loss == 1 ? 0 : 1);
        struct job *job =
            submit(&b, loss == 3 ? "{\"prompt\":\"\\u007f\\u007f\"}" : "{\"prompt\":\"^^\"}");
        finish(&b, &job, 1);
        assert_int_equal(job->fault.kind, FAULT_DEVICE_LOST);
        assert_non_null(strstr(job->fault.message, "fake 0"));
        job_close(job);
        if (loss > 1) { /* the second opening is a second later */
            wait_for_state(&b, WORKER_LOST, loss);
            job = submit(&b, "{\"prompt\":\"z\"}");
            finish(&b, &job, 1);
            assert_int_equal(job->fault.kind, FAULT_DEVICE_LOST);
            assert_non_null(strstr(job->fault.message, "fake 0"));
            job_close(job);
        }
        status = wait_for_state(&b, WORKER_READY, loss);
        assert_int_equal(status.n_failed_openings, 0);
        assert_int_equal(status.error.text[0], '\0');
        job = submit(&b, "{\"prompt\":\"<ok$|\"}");
        finish(&b, &job, 1);
        expect_text(job, 0, "ok", FINISH_STOP);
        job_close(job);
        assert_int_equal(atomic_load(&fake_counts.engines), 1);
        assert_int_equal(atomic_load(&fake_counts.models), 1);
    }
    close_bench(&b);
}

/* A call that fails once is made again and nobody hears of it. */
static void a_failed_step_is_tried_again(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 1, 64);
    struct job *job = submit(&b, "{\"prompt\":\"`<ok$|\"}");
    finish(&b, &job, 1);
    expect_text(job, 0, "ok", FINISH_STOP);
    job_close(job);
    close_bench(&b);
}

/* A reader that does not take its text makes the sequence pause, and nothing else. */
static void a_full_outbox_pauses(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 2, 512);
    struct job *slow = submit(&b, "{\"prompt\":\"x\",\"max_tokens\":480,\"logprobs\":20,\"n\":4}");
    uint64_t end_ns = clock_now_ns() + WAIT_S * UINT64_C(1000000000);
    while (!outbox_is_full(&slow->outbox)) {
        assert_true(clock_now_ns() < end_ns);
        sleep_ms(1);
    }
    unsigned before = atomic_load(&fake_counts.steps);
    sleep_ms(200);
    assert_true(atomic_load(&fake_counts.steps) - before < 3);
    struct output o[4];
    for (int i = 0; i < 4; i++)
        output_init(&o[i]);
    while (slow->state != JOB_DONE) {
        assert_true(clock_now_ns() < end_ns);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(outbox_take(&slow->outbox, i, &o[i]));
        worker_wake(b.worker);
        worker_collect(b.worker, mark_done, NULL);
        sleep_ms(1);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(outbox_take(&slow->outbox, i, &o[i]));
        assert_int_equal(o[i].text.length, 480);
        assert_int_equal(o[i].records.count, 480);
        output_free(&o[i]);
    }
    job_close(slow);
    close_bench(&b);
}

static void kernels_are_measured_on_request(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 2, 64);
    unsigned before = atomic_load(&fake_counts.profile_switches);
    struct job *plain = submit(&b, "{\"prompt\":\"x\"}");
    finish(&b, &plain, 1);
    assert_int_equal(atomic_load(&fake_counts.profile_switches), before);
    assert_null(plain->timings.report);
    struct job *measured = submit(&b, "{\"prompt\":\"x\",\"timings\":\"kernels\"}");
    finish(&b, &measured, 1);
    assert_int_equal(atomic_load(&fake_counts.profile_switches), before + 1);
    assert_int_equal(measured->timings.report->n_rows, 1);
    assert_true(measured->timings.report->rows[0].calls >= 3);
    job_close(plain);
    job_close(measured);
    close_bench(&b);
}

/* Stopping with jobs in every place gives all of them back. */
static void stopping_gives_jobs_back(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, 1, 64);
    atomic_store(&fake_step_ms, 5);
    struct job *jobs[] = {submit(&b, "{\"prompt\":\"x\",\"max_tokens\":400,\"temperature\":1}"),
                          submit(&b, "{\"prompt\":\"y\",\"max_tokens\":400,\"n\":2}"),
                          submit(&b, "{\"prompt\":\"z\"}")};
    sleep_ms(30);
    worker_stop(b.worker);
    finish(&b, jobs, 3);
    atomic_store(&fake_step_ms, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(jobs[i]->fault.kind, FAULT_DRAINING);
        job_close(jobs[i]);
    }
    close_bench(&b);
}

static void loading_can_be_broken_off(void **state)
{
    (void)state;
    struct bench b = {0};
    struct err e;
    char *path = (char *)"fake.gguf";
    assert_int_equal(hosted_open(&path, 1, 0, &b.models, &e), ST_OK);
    assert_int_equal(device_list_open(0, &b.devices, &e), ST_OK);
    struct worker_options options = {.devices = b.devices,
                                     .load = {.n_slots = 1, .n_batch = 8},
                                     .models = &b.models,
                                     .notify = notify};
    atomic_store(&fake_load_ms, 50);
    uint64_t start_ns = clock_now_ns();
    assert_int_equal(worker_open(&options, &b.worker, &e), ST_OK);
    close_bench(&b);
    assert_true(clock_now_ns() - start_ns < UINT64_C(400000000));
    atomic_store(&fake_load_ms, 0);
}

static void a_failed_load_is_told(void **state)
{
    (void)state;
    struct bench b;
    struct worker_status status;
    atomic_store(&fake_load_fails, true);
    open_bench(&b, 1, 64);
    atomic_store(&fake_load_fails, false);
    worker_status(b.worker, &status);
    assert_int_equal(status.state, WORKER_FAILED);
    assert_int_equal(status.error.status, ST_NO_DEVICE_MEMORY);
    assert_non_null(strstr(status.error.text, "fake: weights 1000"));
    assert_null(worker_facts(b.worker));
    close_bench(&b);
}

/* Memory that runs out anywhere between the body and the last token fails that job only. */
static void out_of_memory_fails_one_job(void **state)
{
    (void)state;
    static const char body[] =
        "{\"prompt\":[\"<one$|\",[3,4,5]],\"echo\":true,\"logprobs\":2,\"stop\":[\"zzz\"],\"min_"
        "tokens\":1,"
        "\"max_tokens\":9,\"best_of\":2,\"timings\":\"kernels\",\"stop_token_ids\":[200]}";
    struct bench b;
    open_bench(&b, 4, 64);
    bool succeeded = false;
    uint64_t n = 0;
    while (!succeeded && n < 2000) {
        struct fault f = {0};
        mem_fail_at(++n, 0);
        struct job *j = make_job(&b, body, &f);
        if (j != NULL) {
            worker_submit(b.worker, j);
            finish(&b, &j, 1);
            f = j->fault;
            succeeded = !j->failed;
        }
        mem_fail_at(0, 0);
        if (!succeeded)
            assert_int_equal(f.kind, FAULT_MEMORY);
        job_close(j);
    }
    assert_true(succeeded && n > 50);
    struct job *next = submit(&b, "{\"prompt\":\"<ok$|\"}");
    finish(&b, &next, 1);
    expect_text(next, 0, "ok", FINISH_STOP);
    job_close(next);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_job),
        cmocka_unit_test(batch_size_does_not_matter),
        cmocka_unit_test(many_jobs_share_steps),
        cmocka_unit_test(cancelled_jobs_come_back),
        cmocka_unit_test(a_fault_hits_one_job),
        cmocka_unit_test(a_lost_device_fails_all),
        cmocka_unit_test(a_lost_device_is_opened_again),
        cmocka_unit_test(a_failed_step_is_tried_again),
        cmocka_unit_test(a_full_outbox_pauses),
        cmocka_unit_test(kernels_are_measured_on_request),
        cmocka_unit_test(stopping_gives_jobs_back),
        cmocka_unit_test(loading_can_be_broken_off),
        cmocka_unit_test(a_failed_load_is_told),
        cmocka_unit_test(out_of_memory_fails_one_job),
    };
    log_init(LOG_ERROR, 0);
    request_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
