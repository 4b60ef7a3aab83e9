/* Engines: a device opened for use by one thread, with the choice of kernels for it. */
#include "engine/engine.h"

#include "engine/base/mem.h"
#include "engine/cl/trial.h"
#include "engine/model/model.h"
#include "engine/model/rehearsal.h"
#include "engine/tune/tuned.h"

enum status engine_open(const struct device_list *devices, uint32_t index,
                        const struct engine_options *options, struct engine **out, struct err *e)
{
    struct engine *g = mem_zalloc(sizeof *g);
    if (!g)
        return err_set(e, ST_NO_MEMORY, "engine: %zu bytes", sizeof *g);
    g->stepwise = options->stepwise;
    g->n_threads = options->n_threads;
    g->memory_limit_bytes = options->device.memory_limit_bytes;
    g->force = options->force ? mem_strdup(options->force) : NULL;
    if (options->force && !g->force) {
        mem_free(g);
        return err_set(e, ST_NO_MEMORY, "engine: out of memory");
    }
    enum status status = device_open(devices, index, &options->device, &g->device, e);
    if (status == ST_OK)
        status = chooser_init(&g->chooser, g->device, options->force, e);
    if (status == ST_OK && options->tuned)
        status = engine_tune(g, options->tuned, NULL, e);
    if (status != ST_OK) {
        engine_close(g);
        return status;
    }
    *out = g;
    return ST_OK;
}

void engine_close(struct engine *g)
{
    if (!g)
        return;
    device_close(g->device);
    mem_free(g->force);
    mem_free(g);
}

int engine_child_main(int argc, char **argv)
{
    int status = trial_build_main(argc, argv);
    return status >= 0 ? status : rehearsal_main(argc, argv);
}

struct device *engine_device(struct engine *g)
{
    return g->device;
}

enum status engine_tune(struct engine *g, const struct tune_store *s, uint32_t *n, struct err *e)
{
    return tuned_apply(g->device, s, false, n, e);
}

enum status engine_profile(struct engine *g, bool on, struct err *e)
{
    return prof_enable(g->device, on, e);
}

enum status engine_collect(struct engine *g, struct prof_report *report, struct err *e)
{
    return prof_collect(g->device, report, e);
}
