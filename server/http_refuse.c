/* Requests that are refused before they are handled: by us, at the headers or in the middle of a
 * body, or by libmicrohttpd, which answers what it cannot read by itself and in HTML. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <gnutls/gnutls.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "engine/base/log.h"
#include "server/http_internal.h"

/* ---- the functions that this file stands in for ---- */

/* The next definition of that name; looked up once. */
static void *next_of(_Atomic(void *) *kept, const char *name)
{
    void *found = atomic_load_explicit(kept, memory_order_relaxed);
    if (found == NULL) {
        found = dlsym(RTLD_NEXT, name);
        atomic_store_explicit(kept, found, memory_order_relaxed);
    }
    return found;
}

static ssize_t send_plain(int fd, const void *data, size_t n, int flags)
{
    static _Atomic(void *) kept;
    ssize_t (*next)(int, const void *, size_t, int);
    *(void **)&next = next_of(&kept, "send");
    return next(fd, data, n, flags);
}

static ssize_t send_parts(int fd, const struct msghdr *message, int flags)
{
    static _Atomic(void *) kept;
    ssize_t (*next)(int, const struct msghdr *, int);
    *(void **)&next = next_of(&kept, "sendmsg");
    return next(fd, message, flags);
}

static ssize_t send_record(gnutls_session_t session, const void *data, size_t n)
{
    static _Atomic(void *) kept;
    ssize_t (*next)(gnutls_session_t, const void *, size_t);
    *(void **)&next = next_of(&kept, "gnutls_record_send");
    return next(session, data, n);
}

/* ---- past libmicrohttpd ---- */

/* Writes past MHD: what fits into the socket's buffer, through TLS where it is in use. */
static void send_directly(struct connection *c, const struct strbuf *text)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    ssize_t sent =
        info != NULL && info->tls_session != NULL
            ? send_record(info->tls_session, strbuf_text(text), text->length)
            : send_plain(c->fd, strbuf_text(text), text->length, MSG_NOSIGNAL | MSG_DONTWAIT);
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

/* The server whose libmicrohttpd runs on this thread. */
static _Thread_local struct http *here;

void http__watch_replies(struct http *h)
{
    here = h;
}

/* The status if `text` begins a reply that is an error; else 0. */
static unsigned error_status(const char *text, size_t n)
{
    static const char form[] = "HTTP/1.1 404";
    unsigned status = 0;
    if (n < sizeof form - 1 || memcmp(text, form, 7) != 0)
        return 0;
    for (const char *at = text + 9; at < text + sizeof form - 1; at++)
        status = 10 * status + (unsigned)(*at - '0');
    return status >= 400 && status < 600 ? status : 0;
}

/* Puts a reply of ours in the place of one that libmicrohttpd begins to send by itself. False: the
 * reply is ours already. */
static bool replace_reply(struct connection *c, unsigned status)
{
    struct exchange *x = find_exchange(c);
    if (x != NULL && x->queued)
        return false;
    if (!c->refused)
        refuse_directly(c, x, refusal_of(status), NULL);
    return true;
}

static struct connection *find_connection(int fd)
{
    struct connection *c = here->connections;
    while (c != NULL && c->fd != fd)
        c = c->next;
    return c;
}

/* These stand in the places of libc's and GnuTLS's functions: the program's symbols come before
 * those of shared libraries. That libmicrohttpd sends a reply of its own can be seen nowhere else:
 * where it is linked with -Bsymbolic-functions, as in Ubuntu, its calls of itself cannot be stood
 * in for. What was replaced counts as sent: the connection ends as it does after any error. */
ssize_t send(int fd, const void *data, size_t n, int flags)
{
    const unsigned status = here != NULL ? error_status(data, n) : 0;
    struct connection *c = status != 0 ? find_connection(fd) : NULL;
    return c != NULL && replace_reply(c, status) ? (ssize_t)n : send_plain(fd, data, n, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    size_t n = 0;
    const unsigned status =
        here != NULL && message->msg_iovlen > 0
            ? error_status(message->msg_iov[0].iov_base, message->msg_iov[0].iov_len)
            : 0;
    struct connection *c = status != 0 ? find_connection(fd) : NULL;
    if (c == NULL || !replace_reply(c, status))
        return send_parts(fd, message, flags);
    for (size_t i = 0; i < message->msg_iovlen; i++)
        n += message->msg_iov[i].iov_len;
    return (ssize_t)n;
}

ssize_t gnutls_record_send(gnutls_session_t session, const void *data, size_t n)
{
    const unsigned status = here != NULL ? error_status(data, n) : 0;
    struct connection *c = status != 0 ? find_connection(gnutls_transport_get_int(session)) : NULL;
    return c != NULL && replace_reply(c, status) ? (ssize_t)n : send_record(session, data, n);
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

void http__refuse_connection(struct connection *c, enum http_refusal kind)
{
    refuse_directly(c, NULL, kind, NULL);
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
