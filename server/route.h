/* From an exchange to its handler: one gate for keys, then the table of routes; and the way back.
 * Loop thread. */
#ifndef OINFER_SERVER_ROUTE_H
#define OINFER_SERVER_ROUTE_H

#include "engine/base/strbuf.h"
#include "server/fault.h"
#include "server/http.h"

struct service;

/* The handlers to open the HTTP side with. */
struct http_handlers route_handlers(struct service *s);

/* Replies with JSON (or `type`) and counts the reply. `body` is emptied. */
void route_reply(struct service *s, struct exchange *x, unsigned status, const char *type,
                 const struct http_header *headers, uint32_t n_headers, struct strbuf *body);
/* Replies with {"error":...} and the headers that its kind asks for. */
void route_fault(struct service *s, struct exchange *x, const struct fault *f);
/* Counts a reply that is being streamed. */
void route_count(struct service *s, struct exchange *x, unsigned status);
/* Number of the API key that the request came with; 0 where none is asked for. */
uint32_t route_key(struct service *s, struct exchange *x);

#define ROUTE_JSON "application/json"

#endif
