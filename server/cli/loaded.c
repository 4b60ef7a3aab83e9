/* Opening what a command runs a model with. */
#include "server/cli/loaded.h"

#include "server/tune_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024

const char *loaded_cache_folder(char *buffer, size_t n)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (base && base[0] == '/')
        length = snprintf(buffer, n, "%s/oinfer", base);
    else if (home && home[0] == '/')
        length = snprintf(buffer, n, "%s/.cache/oinfer", home);
    return length > 0 && (size_t)length < n ? buffer : NULL;
}

static enum status parse_kv(const char *text, enum kv_dtype *kv, struct err *e)
{
    if (strcmp(text, "f16") == 0)
        *kv = KV_F16;
    else if (strcmp(text, "f32") == 0)
        *kv = KV_F32;
    else if (strcmp(text, "q8_0") == 0)
        *kv = KV_Q8_0;
    else
        return err_set(e, ST_INVALID, "KV cache \"%s\", known: f16 f32 q8_0", text);
    return ST_OK;
}

enum status loaded_open(const struct loaded_options *o, struct loaded *l, struct err *e)
{
    *l = (struct loaded){0};
    char cache[PATH_BYTES];
    struct tune_store *tuned = NULL;
    struct engine_options engine = {
        .device = {.cache_dir = loaded_cache_folder(cache, sizeof cache),
                   .memory_limit_bytes = o->memory_limit_bytes,
                   .trial_command = "/proc/self/exe"},
        .n_threads = o->n_threads,
        .stepwise = o->stepwise,
        .force = o->force,
    };
    struct load_options load = {.n_ctx = o->n_ctx, .n_batch = o->n_batch, .n_slots = o->n_slots};
    uint32_t index, n = 1;
    enum status status = parse_kv(o->kv, &load.kv, e);
    if (status == ST_OK)
        status = store_open(&tuned, e);
    if (status == ST_OK) {
        char path[PATH_BYTES];
        if (tune_file_path(engine.device.cache_dir, path, sizeof path))
            tune_file_load(path, tuned);
        engine.tuned = tuned;
    }
    if (status == ST_OK)
        status = device_list_cache_dir(engine.device.cache_dir, e);
    if (status == ST_OK)
        status = model_file_open(o->path, &l->file, e);
    if (status == ST_OK)
        status = device_list_open(o->n_threads, &l->devices, e);
    if (status == ST_OK)
        status = device_select(l->devices, o->device, &index, &n, e);
    if (status == ST_OK)
        status = engine_open(l->devices, index, &engine, &l->engine, e);
    if (status == ST_OK)
        status = model_load(l->engine, l->file, &load, &l->model, e);
    if (status == ST_OK)
        status = session_open(l->model, &l->session, e);
    store_close(tuned);
    if (status != ST_OK)
        loaded_close(l);
    return status;
}

void loaded_close(struct loaded *l)
{
    session_close(l->session);
    model_close(l->model);
    engine_close(l->engine);
    model_file_close(l->file);
    device_list_close(l->devices);
    *l = (struct loaded){0};
}

enum status loaded_feed(struct loaded *l, struct session *session, const token_id *tokens,
                        uint32_t n, enum step_want want, struct step_item *last, struct err *e)
{
    uint32_t n_batch = model_n_batch(l->model);
    struct step_item item = {0};
    enum status status = ST_OK;
    for (uint32_t done = 0; done < n && status == ST_OK;) {
        uint32_t count = n - done < n_batch ? n - done : n_batch;
        item = (struct step_item){.session = session,
                                  .tokens = tokens + done,
                                  .n_tokens = count,
                                  .want = done + count == n ? want : STEP_NOTHING,
                                  .n_greedy = 1};
        status = model_step(l->model, &item, 1, e);
        done += count;
    }
    if (last)
        *last = item;
    return status;
}
