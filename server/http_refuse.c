/* Requests that are refused before they are handled: by us, at the headers or in the middle of a
 * body, or by libmicrohttpd, which answers what it cannot read by itself and in HTML. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "engine/base/log.h"
#include "server/http_internal.h"

/* ---- past libmicrohttpd ---- */

/* Writes past MHD: what fits into the socket's buffer, through TLS where it is in use. */
static void send_directly(struct connection *c, const struct strbuf *text)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    ssize_t sent = info != NULL && info->tls_session != NULL
                       ? gnutls_record_send(info->tls_session, strbuf_text(text), text->length)
                       : send(c->fd, strbuf_text(text), text->length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
        log_debug("a refusal could not be sent error=%zd", sent);
}

/* Refuses past MHD; nothing else was written for this request, and nothing will be. x NULL: there
 * is none yet. */
static void refuse_directly(struct connection *c, struct exchange *x, enum http_refusal kind,
                            const char *detail)
{
    const struct http_handlers *handlers = &c->http->handlers;
    struct strbuf text, reply;
    strbuf_init(&text, 4096);
    strbuf_init(&reply, 8192);
    unsigned status = handlers->refusal(handlers->user, x, kind, detail, &text);
    strbuf_printf(&reply,
                  "HTTP/1.1 %u %s\r\nConnection: close\r\n"
                  "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                  status, MHD_get_reason_phrase_for(status), text.length, strbuf_text(&text));
    send_directly(c, &reply);
    shutdown(c->fd, SHUT_WR);
    c->refused = true;
    strbuf_free(&text);
    strbuf_free(&reply);
}

/* ---- what libmicrohttpd would answer ---- */

static struct exchange *find_exchange(const struct connection *c)
{
    struct exchange *x = c->http->exchanges;
    while (x != NULL && x->connection != c)
        x = x->next;
    return x;
}

/* What it is that a reply of MHD's own refuses. */
static enum http_refusal refusal_of(unsigned status)
{
    switch (status) {
    case MHD_HTTP_CONTENT_TOO_LARGE: return HTTP_REFUSE_BODY;
    case MHD_HTTP_URI_TOO_LONG: return HTTP_REFUSE_LINE;
    case MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE: return HTTP_REFUSE_HEADERS;
    case MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED: return HTTP_REFUSE_VERSION;
    default: return HTTP_REFUSE_SYNTAX;
    }
}

queue_function http__find_queue(void)
{
    queue_function queue;
    *(void **)&queue = dlsym(RTLD_NEXT, "MHD_queue_response");
    return queue;
}

/* Stands in the library's place: the program's symbol comes before that of a shared library, which
 * hands all its replies through this function, ours and its own. Where it makes one, ours is
 * written past it; then it may go on with its own, which does not come through any more. (It sends
 * some of them twice, and reads freed memory when one is not queued.) */
enum MHD_Result MHD_queue_response(struct MHD_Connection *mhd, unsigned status,
                                   struct MHD_Response *response)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct connection *c = info != NULL ? info->socket_context : NULL;
    if (c == NULL)
        return MHD_NO; /* there was no memory for it */
    if (!c->replying && !c->refused)
        refuse_directly(c, find_exchange(c), refusal_of(status), NULL);
    return c->http->queue(mhd, status, response);
}

/* ---- what we refuse ---- */

/* What the headers say of where the body ends. */
struct framing {
    const char *length, *coding;
    char *problem; /* [HTTP_FRAMING_BYTES] "": none yet */
};

static enum MHD_Result see_framing(void *user, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    struct framing *f = user;
    (void)kind;
    value = value != NULL ? value : "";
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        if (f->length != NULL && strcmp(f->length, value) != 0)
            snprintf(f->problem, HTTP_FRAMING_BYTES, "Content-Length is given as %.24s and %.24s",
                     f->length, value);
        f->length = value;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        if (f->coding != NULL || strcasecmp(value, "chunked") != 0)
            snprintf(f->problem, HTTP_FRAMING_BYTES,
                     "Transfer-Encoding is \"%.40s\", expected chunked, once", value);
        f->coding = value;
    }
    return MHD_YES;
}

/* Whether the headers leave no doubt where the body ends. A proxy in front that reads doubtful ones
 * otherwise would take one client's bytes for another's request (RFC 9112, 6.1 and 6.3). */
bool http__framing_is_plain(const struct exchange *x, char *problem)
{
    struct framing f = {.problem = problem};
    problem[0] = '\0';
    MHD_get_connection_values(x->connection->mhd, MHD_HEADER_KIND, see_framing, &f);
    if (problem[0] == '\0' && f.length != NULL && f.coding != NULL)
        snprintf(problem, HTTP_FRAMING_BYTES,
                 "Content-Length and Transfer-Encoding are both given, expected one of them");
    return problem[0] == '\0';
}

/* MHD cannot queue a response in the middle of a body, and closing a socket with unread data would
 * destroy the answer on its way: a bounded rest of the body is read and thrown away. */
void http__refuse_body(struct exchange *x, const char *framing)
{
    refuse_directly(x->connection, x, framing != NULL ? HTTP_REFUSE_SYNTAX : HTTP_REFUSE_BODY,
                    framing);
    x->refused = true;
    strbuf_free(&x->body);
}

/* Refuses at the headers. A client that waits for 100 Continue gets an ordinary reply. */
void http__refuse(struct exchange *x, const char *framing, bool waits_for_100)
{
    struct strbuf text;
    if (!waits_for_100) {
        http__refuse_body(x, framing);
        return;
    }
    if (x->reply != REPLY_NONE)
        return;
    strbuf_init(&text, 4096);
    unsigned status = x->http->handlers.refusal(
        x->http->handlers.user, x, framing != NULL ? HTTP_REFUSE_SYNTAX : HTTP_REFUSE_BODY, framing,
        &text);
    exchange_reply(x, status, "application/json", NULL, 0, &text);
}
