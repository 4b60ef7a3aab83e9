/* Replies: JSON texts of what jobs gave and of what went wrong. All functions append to `out`,
 * allocate nothing else, and touch only the job they are given (which the caller owns). */
#ifndef OINFER_SERVER_REPLY_H
#define OINFER_SERVER_REPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/strbuf.h"
#include "server/fault.h"
#include "server/job.h"

#define REPLY_CEILING_BYTES ((size_t)1 << 30)

/* {"error":{...}} */
void reply_fault(struct strbuf *out, const struct fault *f);

/* The whole answer to a completion. results: [n_sequences] everything that the sequences gave. */
void reply_completion(struct strbuf *out, const struct job *j, const struct output *results);
/* One chunk of a stream, without SSE framing: what sequence `index` gave. last: with the timings.
 */
void reply_chunk(struct strbuf *out, const struct job *j, uint32_t index, const struct output *part,
                 bool last);
/* The chunk without choices that include_usage asks for. */
void reply_usage_chunk(struct strbuf *out, const struct job *j);

void reply_tokens(struct strbuf *out, const struct job *j); /* /tokenize */
void reply_text(struct strbuf *out, const struct job *j);   /* /detokenize */

#endif
