/* HTTP on one event loop: libmicrohttpd driven by libuv, seen as exchanges.
 *
 * An exchange is one request and its reply. It appears when the headers are there, collects the
 * body up to a ceiling, waits without a thread while others work on the answer, and ends in one
 * call of `finished`, whether the reply went out or the client left. While it waits its socket is
 * watched, so a client that leaves is noticed at once. Slow clients are bounded in time (headers,
 * body, silence) and in memory (header pool, body ceiling, unsent part of a stream). Everything
 * here belongs to the loop's thread. Nothing here knows routes, JSON or jobs.
 */
#ifndef OINFER_SERVER_HTTP_H
#define OINFER_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "engine/base/err.h"
#include "engine/base/strbuf.h"

struct http;
struct exchange;

struct http_header {
    const char *name, *value;
};

/* What of a request is refused before, or instead of, handling it. */
enum http_refusal {
    HTTP_REFUSE_SYNTAX,  /* it is not HTTP, or leaves doubt where its body ends */
    HTTP_REFUSE_BODY,    /* the body is, or will be, over the limit */
    HTTP_REFUSE_LINE,    /* the request line is over the limit of headers */
    HTTP_REFUSE_HEADERS, /* the headers are over their limit */
    HTTP_REFUSE_VERSION  /* neither HTTP/1.0 nor 1.1 */
};

/* What the owner does. `user` is passed back. */
struct http_handlers {
    void *user;
    /* The headers are there. May reply (an error, say): the body is then still read, within its
     * limit, and thrown away, so that the connection can go on. */
    void (*headers)(void *user, struct exchange *x);
    /* The body is complete, and no reply was given yet: reply now or later. */
    void (*request)(void *user, struct exchange *x);
    /* Room was made in a stream that had none. */
    void (*writable)(void *user, struct exchange *x);
    /* The last call for x, which is freed afterwards. complete: the whole reply was handed to the
     * kernel. Called exactly once for each exchange that `headers` was called for. */
    void (*finished)(void *user, struct exchange *x, bool complete);
    /* Appends the JSON text of a refusal and returns its HTTP status. x NULL: its headers could not
     * be read. detail: what is wrong, where more is known than the kind; else NULL. */
    unsigned (*refusal)(void *user, struct exchange *x, enum http_refusal kind, const char *detail,
                        struct strbuf *text);
};

struct http_options {
    uint64_t body_bytes;
    size_t header_bytes;
    uint32_t connections, connections_per_address; /* per address: 0 no limit of its own */
    uint32_t header_time_ms, body_time_ms, idle_time_ms;
    const char *tls_cert, *tls_key; /* PEM texts, borrowed until close; NULL: plain HTTP */
};

/* Starts serving on a listening socket, which it takes over also when it fails. */
enum status http_open(uv_loop_t *loop, int listen_fd, const struct http_options *options,
                      const struct http_handlers *handlers, struct http **out, struct err *e);
/* Takes over what may change while it runs: body_bytes, header_time_ms, body_time_ms. */
void http_set_limits(struct http *h, const struct http_options *options);
/* Stops accepting; open connections go on, and are closed after their reply. */
void http_quiesce(struct http *h);
/* Ends every exchange (finished is called with complete false) and frees all but the handles, which
 * the loop closes in its next turn; h must not be used afterwards. Accepts NULL. */
void http_close(struct http *h);
uint32_t http_connections(const struct http *h);
uint32_t http_exchanges(const struct http *h); /* requests not yet answered completely */
/* Whether a client that has connected a moment ago is still about to send its first request. */
bool http_expects_request(const struct http *h);

/* ---- the request; borrowed until finished returns ---- */
const char *exchange_method(const struct exchange *x);
const char *exchange_path(const struct exchange *x);
/* First header of that name (any case) or NULL. */
const char *exchange_header(const struct exchange *x, const char *name);
/* Moves the body to *out, which is initialised by it. */
void exchange_take_body(struct exchange *x, struct strbuf *out);
uint64_t exchange_arrived_ns(const struct exchange *x); /* end of the body; 0 before */
/* One pointer of the owner's. */
void exchange_set_data(struct exchange *x, void *data);
void *exchange_data(const struct exchange *x);

/* ---- the reply: once, either whole or as a stream ---- */
bool exchange_has_reply(const struct exchange *x);
/* Takes the content of *body (left empty). Out of memory closes the connection. */
void exchange_reply(struct exchange *x, unsigned status, const char *type,
                    const struct http_header *headers, uint32_t n_headers, struct strbuf *body);
/* Sends the status line and headers now. */
void exchange_stream(struct exchange *x, unsigned status, const char *type,
                     const struct http_header *headers, uint32_t n_headers);
/* Appends to a stream. False: out of memory, and the exchange is being closed. */
bool exchange_write(struct exchange *x, const void *bytes, size_t n);
/* Whether more should be written now: less than HTTP_STREAM_BYTES wait to be sent. After a false,
 * `writable` is called when that has changed. */
bool exchange_writable(struct exchange *x);
void exchange_end(struct exchange *x); /* the stream is complete */
/* Ends the exchange without a (further) reply. */
void exchange_abort(struct exchange *x);

#define HTTP_STREAM_BYTES ((size_t)64 * 1024)

#endif
