/* A completion as server-sent events.
 *
 * Nothing is sent, not even the status line, before the first text or ping: until then an error
 * keeps its own status. While the client reads slowly, text stays in the job's outbox, which is
 * bounded and makes the worker pause. Loop thread.
 */
#ifndef OINFER_SERVER_STREAM_H
#define OINFER_SERVER_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "server/http.h"
#include "server/job.h"

struct service;
struct stream;

struct stream *stream_open(struct job *j); /* NULL: out of memory */
void stream_close(struct stream *t);       /* accepts NULL */
/* Sends what the outbox holds, as far as the client has room; with `all` regardless of that. */
void stream_feed(struct service *s, struct job *j, bool all);
/* Sends the rest and the end of a job that is done: finish, usage, [DONE], or the error. */
void stream_finish(struct service *s, struct job *j);
/* Sends a comment if the stream has been silent for ping_ns. */
void stream_ping(struct service *s, struct job *j, uint64_t now_ns, uint64_t ping_ns);
bool stream_started(const struct stream *t);

#endif
