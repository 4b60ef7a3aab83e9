/* The fake engine's operators: two variants of matmul, whose runs sleep as steps do and ask whether
 * to go on. Seed 13 loses the device, 14 gives no memory; m over 1500 of matmul is over any
 * deadline. */
#include <string.h>
#include <time.h>

#include "engine/base/mem.h"
#include "engine/engine.h"
#include "fake_engine.h"

enum status opbench_run(struct device *d, const struct opbench_request *r,
                        struct opbench_result *out, struct err *e)
{
    static const char *const variants[] = {"naive", "quick"};
    (void)d;
    *out = (struct opbench_result){.estimate_ns = 1e6};
    if (r->data.seed == 13)
        return err_set(e, ST_DEVICE_LOST, "fake: the device is lost");
    if (r->data.seed == 14)
        return err_set(e, ST_NO_DEVICE_MEMORY, "fake: no memory");
    if (r->op == OP_MATMUL && r->params.matmul.m > 1500)
        return err_set(e, ST_TIMEOUT, "fake: would take about 9 ms, the deadline is 8 ms");
    for (uint32_t i = 0; i < r->iterations; i++) {
        const struct timespec t = {.tv_nsec = (long)(fake_sleep_ms() % 1000) * 1000000};
        nanosleep(&t, NULL);
        if (r->proceed && !r->proceed(r->user, 1e6))
            return err_set(e, ST_CANCELLED, "fake: cancelled");
    }
    atomic_fetch_add(&fake_counts.operators, 1);
    for (uint32_t i = 0; i < 2; i++)
        if (!r->variant || strcmp(r->variant, "all") == 0 || strcmp(r->variant, variants[i]) == 0)
            out->rows[out->n_rows++] = (struct opbench_row){.variant = variants[i],
                                                            .settings = "LWS=64",
                                                            .kernel = {1, 2, 3, 2, 1},
                                                            .host = {2, 3, 4, 3, 1},
                                                            .speedup = 1 + i};
    return out->n_rows > 0 ? ST_OK
                           : err_set(e, ST_NOT_FOUND, "matmul: no variant \"%s\"", r->variant);
}

void opbench_close(struct opbench_result *r)
{
    mem_free(r->output);
    r->output = NULL;
}

const char *op_name(enum op_id op)
{
    static const char *const names[] = {
#define X(id, name, params, n, ...) [id] = name,
#include "engine/ops/ops.def"
#undef X
    };
    return names[op];
}

bool catalogue_at(uint32_t i, struct catalogue_row *out)
{
    if (i >= 2)
        return false;
    *out = (struct catalogue_row){
        .variant = i ? "quick" : "naive",
        .op = OP_MATMUL,
        .dtype = DT_F32,
        .needs = i ? CAP_HALF : 0,
        .n_tunables = 1,
        .tunables = {{.name = "LWS", .n_values = 1, .values = {64}, .standard = 64}}};
    return true;
}

bool catalogue_runs_on(const struct catalogue_row *row, bool host, uint32_t caps)
{
    (void)host;
    return (row->needs & ~caps) == 0;
}
