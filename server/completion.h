/* Jobs on the loop: from a request's body to its reply. Loop thread. */
#ifndef OINFER_SERVER_COMPLETION_H
#define OINFER_SERVER_COMPLETION_H

#include <stdbool.h>
#include <stdint.h>

#include "server/http.h"
#include "server/job.h"

struct service;

/* Handlers of routes.def: take the body and see to it that a reply is given. */
void completion_start(struct service *s, struct exchange *x);
void completion_tokenize(struct service *s, struct exchange *x);
void completion_detokenize(struct service *s, struct exchange *x);
void completion_operator(struct service *s, struct exchange *x);

/* A worker has news of a job; with done it is the loop's again. */
void completion_news(struct service *s, struct job *j, bool done);
/* The stream of a job has room again. */
void completion_writable(struct service *s, struct job *j);
/* The client left, or its reply is complete: x is about to die. */
void completion_gone(struct service *s, struct job *j);
/* Ends a job that is in no queue and on no worker. */
void completion_fail(struct service *s, struct job *j, const struct fault *f);
/* Pings, and queued jobs that are over their deadline. */
void completion_tick(struct service *s, uint64_t now_ns);

#endif
