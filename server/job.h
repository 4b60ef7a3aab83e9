/* A job: one request from its arrival to its reply, with the sequences it is made of.
 *
 * Exactly one thread owns a job at a time and may touch its fields: the loop (arriving, queued,
 * replying), a pool thread (preparing), a worker (running). It is handed over, never shared, but
 * for two things: the `cancelled` flag, which anybody may raise, and the outbox, through which a
 * running job's text gets to the loop under the outbox's own lock.
 */
#ifndef OINFER_SERVER_JOB_H
#define OINFER_SERVER_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "engine/base/strbuf.h"
#include "engine/cl/prof.h"
#include "engine/text/sampler.h"
#include "engine/text/tokenizer.h"
#include "server/fault.h"
#include "server/request.h"

struct exchange;
struct hosted_model;
struct job;
struct op_job;
struct sequence;
struct service;
struct stream;

enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH };
const char *finish_name(enum finish finish); /* "stop", "length"; NULL for FINISH_NONE */

/* Log probabilities of one token of the text. */
struct token_record {
    struct sample sample; /* id, logprob, the best ones */
    uint32_t text_offset; /* in characters from the start of the choice's text */
    uint32_t start_bytes; /* in bytes from the start of the generated text */
    bool has_logprob;     /* the first token of a prompt has none */
};
struct token_records {
    struct token_record *items; /* owned */
    uint32_t count, capacity;
};
/* Appends a copy; false when out of memory. */
bool token_records_push(struct token_records *list, const struct token_record *record);
void token_records_drop(struct token_records *list, uint32_t n); /* the first n */
void token_records_free(struct token_records *list);

/* What a sequence gave since it was last looked at, or, added up, all of it. */
struct output {
    struct strbuf text;           /* valid UTF-8 */
    struct token_records records; /* empty unless logprobs were asked for */
    enum finish finish;
};
void output_init(struct output *o);
void output_free(struct output *o);
/* Moves what `from` holds to the end of `into`; false when out of memory (into is as before). */
bool output_move(struct output *into, struct output *from);

/* Most bytes that wait in a job's outbox before its sequences pause. */
#define OUTBOX_BYTES ((size_t)64 * 1024)

struct outbox {
    uv_mutex_t lock;
    struct output *outputs; /* [n] one for each sequence */
    uint32_t n;
    size_t bytes;
};
/* Worker: adds to sequence i's output, which empties *from. False when out of memory. */
bool outbox_put(struct outbox *o, uint32_t i, struct output *from);
/* Loop: moves sequence i's output to *into. False when out of memory. */
bool outbox_take(struct outbox *o, uint32_t i, struct output *into);
bool outbox_is_full(struct outbox *o);

struct job_timings {
    uint64_t arrived_ns, started_ns, ended_ns; /* monotonic; 0: not yet */
    uint64_t prompt_ns, predicted_ns;          /* share of started..ended */
    uint64_t cached_tokens, prompt_tokens; /* prompt_tokens: evaluated, without the cached ones */
    uint64_t predicted_tokens;
    bool deadline_passed;
    struct prof_report *report; /* kernels; NULL unless asked for; owned */
    char device[128];
};

enum job_kind { JOB_COMPLETION, JOB_TOKENIZE, JOB_DETOKENIZE, JOB_OPERATOR };
#define JOB_ANY_WORKER UINT32_MAX
enum job_state { JOB_ARRIVED, JOB_PREPARING, JOB_QUEUED, JOB_RUNNING, JOB_DONE };

struct job {
    uint64_t id;
    char public_id[40]; /* "cmpl-..." */
    int64_t created_s;
    enum job_kind kind;
    enum job_state state;
    atomic_bool cancelled;
    uint32_t key; /* which API key; prompt caches are not shared between keys */
    uint64_t seed;
    uint64_t deadline_ns; /* 0 none */

    struct request *request;
    const struct hosted_model *model; /* borrowed for ever; NULL: JOB_OPERATOR */
    struct op_job *op;                /* owned; NULL unless JOB_OPERATOR, which has no request */
    uint32_t wanted_worker;           /* or JOB_ANY_WORKER */
    struct sequence
        *sequences; /* [n_sequences], prompt-major: choice c of prompt p is p*best_of + c */
    uint32_t n_sequences, n_finished;
    uint64_t usage_prompt_tokens; /* each prompt once */
    struct token_list *prompts;   /* [request->prompt.count] or, tokenize and detokenize, [1] */
    struct strbuf text;           /* detokenize */
    struct outbox outbox;
    struct job_timings timings;
    bool failed;
    struct fault fault;

    /* of the loop */
    struct service *service;
    struct exchange *exchange;    /* NULL: the client is gone */
    struct strbuf body;           /* until it is prepared */
    struct request_limits limits; /* as they were when it came */
    struct output *results;       /* [n_sequences] what came so far, unless it is streamed */
    bool results_lost;            /* memory was short for them */
    struct stream *stream;        /* NULL unless it is streamed */
    struct job *live_next, *live_previous; /* all jobs of the service */
    uint32_t worker;                       /* where it runs */
    uv_work_t work;
    struct job *next; /* in the queue, a worker's inbox, or among those that wait for a slot */

    /* of the worker */
    uint32_t next_sequence; /* the first one that has no slot yet */
    uint64_t mark_ns;       /* up to here time is shared out over prompt_ns and predicted_ns */
    bool in_step, decodes;  /* takes part in the step being run; with more than prompt tokens */

    /* under the worker's lock */
    struct job *outgoing_next;
    bool listed, done; /* in the outgoing list; complete */
};

/* A job in state JOB_ARRIVED with a fresh id; NULL when out of memory. */
struct job *job_open(enum job_kind kind);
void job_close(struct job *j);  /* accepts NULL */
void job_cancel(struct job *j); /* any thread */
bool job_is_cancelled(const struct job *j);
/* Makes the outbox for n sequences. ST_NO_MEMORY. */
enum status job_open_outbox(struct job *j, uint32_t n);
/* Marks the job as failed, unless it already is. */
void job_fail(struct job *j, const struct fault *f);

#endif
