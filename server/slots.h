/* Slots: the seats of one model on one worker, and the steps that its sequences take together.
 *
 * A slot is a session of the model that stays open and keeps its tokens, so that a later sequence
 * with the same beginning goes on from there (never across API keys). Each step gathers what every
 * seated sequence wants: first the decoding ones, then as much of the prompts as the batch holds,
 * beginning at another slot each time. Belongs to the worker's thread.
 */
#ifndef OINFER_SERVER_SLOTS_H
#define OINFER_SERVER_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/job.h"
#include "server/sequence.h"

#define SLOTS_MAX STEP_MAX_ITEMS

/* What a slot does, for GET /slots; a plain value. */
struct slot_status {
    uint32_t model, slot;
    bool busy;
    uint64_t job; /* last or current one; 0 none */
    uint32_t n_prompt, n_evaluated, n_cached, n_predicted;
    uint32_t n_timeline; /* tokens in the session */
};

/* What the worker gives to its slots. */
struct slots_host {
    void *user;
    struct engine *engine;
    bool always_profile;
    /* The job has new output, or, with done, will not be touched here again. */
    void (*deliver)(void *user, struct job *j, bool done);
    /* Around each step of the engine. */
    void (*step_begins)(void *user);
    void (*step_ended)(void *user);
    /* The model's file cannot be read any more: no step of it will succeed. */
    void (*damaged)(void *user, const struct err *e);
};

struct slots;
/* Opens n sessions of the model. Everything given is borrowed until close. */
enum status slots_open(const struct slots_host *host, struct model *model,
                       const struct hosted_model *hosted, uint32_t n, struct slots **out,
                       struct err *e);
void slots_close(struct slots *s); /* accepts NULL; jobs must be gone (slots_fail_all) */
/* Takes a prepared job of this model; its sequences are seated as slots become free. */
void slots_add(struct slots *s, struct job *j);
enum slots_result {
    SLOTS_IDLE,       /* no job */
    SLOTS_WAITING,    /* jobs, but all of them wait for their readers */
    SLOTS_STEPPED,    /* a step was run */
    SLOTS_DEVICE_LOST /* *e says why; the jobs are still here: slots_fail_all */
};
/* Drops cancelled and late jobs, seats waiting ones and runs one step. */
enum slots_result slots_step(struct slots *s, struct err *e);
/* Ends every job with this fault. */
void slots_fail_all(struct slots *s, const struct fault *f);
/* Fills out[0..n) (n <= capacity); returns n. */
uint32_t slots_describe(const struct slots *s, struct slot_status *out, uint32_t capacity);

#endif
