/* From a body to a runnable job: parsing, finding the model, tokenising, checking against the
 * context.
 *
 * All work that grows with the client's bytes is here, so that it runs on a pool thread and neither
 * the loop nor a worker ever waits for it. The job belongs to that thread meanwhile.
 */
#ifndef OINFER_SERVER_PREPARE_H
#define OINFER_SERVER_PREPARE_H

#include "server/hosted.h"
#include "server/job.h"

/* Makes j->request from the n bytes of the body, and from that: for a completion the sequences, for
 * /tokenize the ids (j->prompts[0]), for /detokenize the text (j->text). On failure j->fault says
 * why. Any thread that owns j. */
enum status prepare_job(struct job *j, const char *body, size_t n,
                        const struct hosted_models *models, const struct request_limits *limits);

#endif
