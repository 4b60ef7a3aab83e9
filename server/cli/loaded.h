/* A model file, the device and the model on it, opened and closed together: what the commands that
 * run a model share. One thread. */
#ifndef OINFER_SERVER_CLI_LOADED_H
#define OINFER_SERVER_CLI_LOADED_H

#include "engine/engine.h"

struct loaded_options {
    const char *path, *device; /* device: "" for the best one */
    const char *force;         /* engine_options.force */
    const char *kv;            /* "f16" "f32" "q8_0" */
    uint32_t n_threads, n_ctx, n_batch;
    uint32_t n_slots;            /* sessions that the caller may open; 0: one */
    uint64_t memory_limit_bytes; /* of the device; 0: what it says */
    bool stepwise;
};

struct loaded {
    struct device_list *devices;
    struct engine *engine;
    struct model_file *file;
    struct model *model;
    struct session *session; /* the first; the caller opens and closes more */
};

/* The user's cache folder for compiled kernels ($XDG_CACHE_HOME/oinfer or ~/.cache/oinfer), in
 * buffer[n]; NULL when the environment names none. */
const char *loaded_cache_folder(char *buffer, size_t n);
/* On failure everything is closed again. */
enum status loaded_open(const struct loaded_options *o, struct loaded *l, struct err *e);
void loaded_close(struct loaded *l);
/* Appends tokens to a session in steps of at most n_batch; the last one wants `want` (greedy: one
 * token). *last, if not NULL, is that step's item. */
enum status loaded_feed(struct loaded *l, struct session *session, const token_id *tokens,
                        uint32_t n, enum step_want want, struct step_item *last, struct err *e);

#endif
