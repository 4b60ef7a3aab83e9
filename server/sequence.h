/* A sequence: one choice of a job, from its prompt's first token to its finish reason.
 *
 * It says what it wants of the next step, takes what the step gave, samples, filters for stop
 * strings and puts text into the job's outbox. It knows no queue, no thread and no HTTP. It belongs
 * to the thread that owns its job.
 */
#ifndef OINFER_SERVER_SEQUENCE_H
#define OINFER_SERVER_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "engine/text/sampler.h"
#include "engine/text/stop.h"
#include "server/hosted.h"
#include "server/job.h"

/* Greedy tokens that one step may decode ahead: bounds how late a cancel or a stop is seen. */
#define SEQUENCE_GREEDY_AHEAD 8

struct sequence {
    struct job *job;
    uint32_t index;         /* in the job */
    const token_id *prompt; /* [n_prompt] borrowed from the job */
    uint32_t n_prompt;
    const char *echo_text; /* NULL: no echo */
    char *echo_owned;      /* what echo_text points to, when it is ours */
    size_t echo_length;

    struct session *session; /* NULL: has no slot; borrowed from it */
    struct sampler *sampler;
    struct stop_filter *stop;
    uint32_t n_cached;    /* prompt tokens that were in the session already */
    uint32_t n_evaluated; /* prompt tokens in the session now, n_cached included */
    uint32_t n_predicted; /* tokens generated */
    token_id pending;     /* the last one, not in the session yet; TOKEN_NONE */
    double sum_logprob;   /* over the generated tokens */
    bool redraws;         /* greedy, and the next step gives logits in place of a banned token */
    token_id *banned;     /* [n_eog + stop ids] owned; NULL: nothing is ever banned */
    uint32_t n_banned;
    bool greedy;  /* arg-max on the device gives the same */
    bool scoring; /* log probabilities of the prompt are wanted too */
    bool finished;

    struct output output;      /* not yet in the outbox */
    struct token_records held; /* records whose text is still held back */
    uint32_t n_text;           /* bytes of generated text that the filter was given */
    uint32_t n_emitted;        /* bytes of generated text that it gave out */
    uint32_t n_characters;     /* of the choice's text up to n_text, the echo included */
};

/* Prepares a sequence over a prompt that fits the context; everything it points to stays with the
 * job. `seed` is this choice's own. */
enum status sequence_open(struct sequence *s, struct job *job, uint32_t index,
                          const struct token_list *prompt, uint64_t seed, struct fault *f);
void sequence_close(struct sequence *s); /* frees what sequence_open made; twice is allowed */

/* How many tokens at the start of the session's timeline this sequence could go on from. */
uint32_t sequence_reusable(const struct sequence *s, const struct session *session);
/* Takes the slot: rewinds the session to what is reusable (nothing if `may_reuse` is false). */
enum status sequence_start(struct sequence *s, struct session *session, bool may_reuse,
                           struct fault *f);

bool sequence_is_prefill(const struct sequence *s);
/* Fills *item with what the sequence wants next: at most n_tokens tokens and n_rows rows of logits
 * (both >= 1). Returns the rows it will get. */
uint32_t sequence_want(struct sequence *s, uint32_t n_tokens, uint32_t n_rows,
                       struct step_item *item);
/* Takes the results of a successful step. Sets s->finished with the last token. Its text is in the
 * job's outbox afterwards. */
enum status sequence_take(struct sequence *s, const struct step_item *item, struct fault *f);
/* Ends it early: what was held back goes out, with the given reason. */
enum status sequence_finish(struct sequence *s, enum finish finish, struct fault *f);

#endif
