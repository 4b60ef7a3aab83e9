/* What http.c and http_refuse.c share: connections and exchanges as they lie in memory. Loop thread
 * only. */
#ifndef OINFER_SERVER_HTTP_INTERNAL_H
#define OINFER_SERVER_HTTP_INTERNAL_H

#include <microhttpd.h>

#include "server/http.h"

#define HTTP_FRAMING_BYTES 96u

/* A client's connection, for the limits in time. */
struct connection {
    struct connection *next, *previous;
    struct http *http;
    struct MHD_Connection *mhd;
    int fd;
    bool refused;      /* what it was refused with was written past libmicrohttpd */
    bool served;       /* has had a request: may be idle between two */
    uint64_t since_ns; /* start of the current wait for headers or a body; 0: none */
    bool in_body;
};

enum reply_kind { REPLY_NONE, REPLY_WHOLE, REPLY_STREAM };

struct exchange {
    struct http *http;
    struct connection *connection;
    struct MHD_Response *response; /* made, not queued yet */
    struct exchange *next, *previous;
    char method[16];
    char *path;
    struct strbuf body;   /* of the request */
    struct strbuf unsent; /* of a stream */
    uint64_t received_bytes, arrived_ns;
    void *data;
    enum reply_kind reply;
    unsigned status;
    bool body_complete, suspended, queued, ended, aborted;
    bool announced; /* `headers` was called for it, so `finished` will be */
    bool refused;   /* answered past MHD: what still comes is thrown away */
    bool was_full;  /* the stream was not writable when last asked */
    bool watching;  /* `watch` is initialised */
    uv_poll_t watch;
};

struct http {
    uv_loop_t *loop;
    uv_poll_t poll;
    uv_timer_t timer, sweep;
    struct MHD_Daemon *daemon;
    struct http_options options;
    struct http_handlers handlers;
    struct connection *connections;
    struct exchange *exchanges;
    uint32_t n_connections;
    uint32_t open_handles; /* of poll, timer, sweep, once closing */
    bool quiesced, closing;
};

/* Whether the headers leave no doubt where the body ends; else `problem` [HTTP_FRAMING_BYTES] says
 * what is wrong. A proxy in front that reads doubtful ones otherwise would take one client's bytes
 * for another's request (RFC 9112, 6.1 and 6.3). */
bool http__framing_is_plain(const struct exchange *x, char *problem);
/* Refuses at the headers: framing is the problem with them, or NULL: the body will be over the
 * limit. A client that waits for 100 Continue gets an ordinary reply. */
void http__refuse(struct exchange *x, const char *framing, bool waits_for_100);
/* Refuses a request that has no exchange yet; what still comes has to be thrown away. */
void http__refuse_connection(struct connection *c, enum http_refusal kind);
/* Refuses while the body is coming. */
void http__refuse_body(struct exchange *x, const char *framing);
/* Errors that libmicrohttpd answers by itself on this thread become refusals of h's from now on.
 * NULL: not any more. */
void http__watch_replies(struct http *h);

#endif
