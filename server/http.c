/* Exchanges over libmicrohttpd 0.9.75, which runs in external epoll mode: its epoll descriptor is a
 * uv_poll, its time-out a uv_timer, and MHD_run is only called from those two.
 *
 * Traps that this file is shaped by: a suspended connection notices neither its client leaving nor
 * time passing (so the socket is watched by a uv_poll of our own, and the sweep looks at the
 * clock); suspended connections must all be resumed before the daemon stops; there is no body
 * limit; a response may be queued at the headers or after the body, but not in the middle of it;
 * what it cannot read it answers by itself (http_refuse.c).
 */
#include "server/http.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "server/http_internal.h"

#define STREAM_BLOCK_BYTES ((size_t)16 * 1024)
#define LINGER_BYTES       ((size_t)1024 * 1024) /* read and thrown away after a 413 */
#define SWEEP_MS           250
#define FIRST_REQUEST_NS   UINT64_C(500000000) /* clients send at once, or connect ahead of time */
#define TLS_PRIORITIES     "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1" /* in GnuTLS's words: 1.2 and later */
#define CLOSE_TURNS        16  /* MHD_run calls that let resumed connections end */
#define ARGUMENT_BYTES     64u /* what MHD keeps of each argument of a URL, besides its text */

/* ---- driving the daemon ---- */

static void on_timer(uv_timer_t *timer)
{
    struct http *h = timer->data;
    MHD_UNSIGNED_LONG_LONG wait_ms;
    MHD_run(h->daemon);
    if (MHD_get_timeout(h->daemon, &wait_ms) == MHD_YES)
        uv_timer_start(&h->timer, on_timer, wait_ms, 0);
    else
        uv_timer_stop(&h->timer);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct http *h = poll->data;
    on_timer(&h->timer);
}

/* Has the daemon run in this turn of the loop: something was resumed. */
static void kick(struct http *h)
{
    if (!h->closing)
        uv_timer_start(&h->timer, on_timer, 0, 0);
}

/* ---- suspended exchanges ---- */

static void resume(struct exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    if (x->watching)
        uv_poll_stop(&x->watch);
    MHD_resume_connection(x->connection->mhd);
    kick(x->http);
}

/* The client's side of a suspended connection was closed or reset. */
static void on_disconnect(uv_poll_t *watch, int status, int events)
{
    struct exchange *x = watch->data;
    if (status < 0 || (events & UV_DISCONNECT))
        exchange_abort(x);
}

static void suspend(struct exchange *x)
{
    MHD_suspend_connection(x->connection->mhd);
    x->suspended = true;
    if (!x->watching && uv_poll_init(x->http->loop, &x->watch, x->connection->fd) == 0) {
        x->watching = true;
        x->watch.data = x;
    }
    if (x->watching)
        uv_poll_start(&x->watch, UV_DISCONNECT, on_disconnect);
}

void exchange_abort(struct exchange *x)
{
    x->aborted = true;
    resume(x);
}

/* ---- the life of an exchange ---- */

/* The path of a request target; an absolute one (http://host/path), which clients send to proxies,
 * is the same here as its path (RFC 9112, 3.2.2). */
static const char *skip_authority(const char *target)
{
    if (strncasecmp(target, "http://", 7) != 0 && strncasecmp(target, "https://", 8) != 0)
        return target;
    const char *path = strchr(strstr(target, "//") + 2, '/');
    return path != NULL ? path : "/";
}

static struct exchange *open_exchange(struct http *h, struct connection *c, const char *method,
                                      const char *path)
{
    struct exchange *x = mem_zalloc(sizeof *x);
    if (x == NULL)
        return NULL;
    x->http = h;
    x->connection = c;
    snprintf(x->method, sizeof x->method, "%s", method);
    x->path = mem_strdup(skip_authority(path));
    if (x->path == NULL) {
        mem_free(x);
        return NULL;
    }
    strbuf_init(&x->body, h->options.body_bytes);
    strbuf_init(&x->unsent, SIZE_MAX / 4);
    x->next = h->exchanges;
    if (x->next != NULL)
        x->next->previous = x;
    h->exchanges = x;
    return x;
}

static void free_exchange(uv_handle_t *watch)
{
    mem_free(watch->data);
}

/* Takes x off the list and frees it; its uv_poll_t lives until the loop's next turn. */
static void close_exchange(struct exchange *x)
{
    if (x->response != NULL)
        MHD_destroy_response(x->response);
    strbuf_free(&x->body);
    strbuf_free(&x->unsent);
    mem_free(x->path);
    if (x->previous != NULL)
        x->previous->next = x->next;
    else
        x->http->exchanges = x->next;
    if (x->next != NULL)
        x->next->previous = x->previous;
    if (x->watching)
        uv_close((uv_handle_t *)&x->watch, free_exchange);
    else
        mem_free(x);
}

/* ---- replies ---- */

static void free_body(void *body)
{
    mem_free(body);
}

/* Gives MHD the next bytes of a stream; suspends while there are none. */
static ssize_t read_stream(void *user, uint64_t position, char *buffer, size_t size)
{
    (void)position;
    struct exchange *x = user;
    if (x->aborted)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (x->unsent.length == 0) {
        if (x->ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        suspend(x);
        return 0;
    }
    size_t n = x->unsent.length < size ? x->unsent.length : size;
    memcpy(buffer, x->unsent.data, n);
    strbuf_consume(&x->unsent, n);
    if (x->was_full && exchange_writable(x))
        x->http->handlers.writable(x->http->handlers.user, x);
    return (ssize_t)n;
}

static void set_response(struct exchange *x, struct MHD_Response *response, unsigned status,
                         enum reply_kind kind, const char *type, const struct http_header *headers,
                         uint32_t n_headers)
{
    bool ok = response != NULL &&
              MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES;
    for (uint32_t i = 0; i < n_headers && ok; i++)
        ok = MHD_add_response_header(response, headers[i].name, headers[i].value) == MHD_YES;
    if (ok && x->http->quiesced)
        ok = MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES;
    if (!ok) {
        if (response != NULL)
            MHD_destroy_response(response);
        exchange_abort(x);
        return;
    }
    x->response = response;
    x->status = status;
    x->reply = kind;
    resume(x);
}

void exchange_reply(struct exchange *x, unsigned status, const char *type,
                    const struct http_header *headers, uint32_t n_headers, struct strbuf *body)
{
    ASSERT(x->reply == REPLY_NONE);
    size_t n = body->length;
    char *bytes = body->failed ? NULL : strbuf_take(body);
    struct MHD_Response *response =
        bytes == NULL ? NULL
                      : MHD_create_response_from_buffer_with_free_callback(n, bytes, free_body);
    if (bytes != NULL && response == NULL)
        mem_free(bytes);
    set_response(x, response, status, REPLY_WHOLE, type, headers, n_headers);
}

void exchange_stream(struct exchange *x, unsigned status, const char *type,
                     const struct http_header *headers, uint32_t n_headers)
{
    ASSERT(x->reply == REPLY_NONE);
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, x, NULL);
    set_response(x, response, status, REPLY_STREAM, type, headers, n_headers);
}

bool exchange_write(struct exchange *x, const void *bytes, size_t n)
{
    if (!strbuf_append(&x->unsent, bytes, n)) {
        exchange_abort(x);
        return false;
    }
    if (x->queued)
        resume(x);
    return true;
}

bool exchange_writable(struct exchange *x)
{
    x->was_full = x->unsent.length >= HTTP_STREAM_BYTES;
    return !x->was_full;
}

void exchange_end(struct exchange *x)
{
    x->ended = true;
    if (x->queued)
        resume(x);
}

/* Hands the response over to MHD, which holds its own reference. */
static enum MHD_Result queue_response(struct exchange *x)
{
    enum MHD_Result result = MHD_queue_response(x->connection->mhd, x->status, x->response);
    MHD_destroy_response(x->response);
    x->response = NULL;
    x->queued = true;
    return result;
}

/* ---- what libmicrohttpd calls ---- */

/* Content-Length; 0 when there is none (MHD has refused malformed ones). */
static uint64_t announced_bytes(const struct exchange *x)
{
    const char *text = exchange_header(x, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

static enum MHD_Result begin_exchange(struct http *h, struct exchange *x)
{
    struct connection *c = x->connection;
    char problem[HTTP_FRAMING_BYTES];
    c->served = true;
    c->in_body = true;
    c->since_ns = clock_now_ns();
    bool waits_for_100 = exchange_header(x, MHD_HTTP_HEADER_EXPECT) != NULL;
    if (!http__framing_is_plain(x, problem)) {
        http__refuse(x, problem, waits_for_100);
    } else {
        x->announced = true;
        h->handlers.headers(h->handlers.user, x);
        if (announced_bytes(x) > h->options.body_bytes)
            http__refuse(x, NULL, waits_for_100);
    }
    if (x->aborted)
        return MHD_NO;
    /* A client that waits for 100 Continue gets its refusal instead. */
    return x->reply != REPLY_NONE && waits_for_100 ? queue_response(x) : MHD_YES;
}

static enum MHD_Result take_body(struct exchange *x, const char *bytes, size_t n)
{
    uint64_t limit = x->http->options.body_bytes;
    x->received_bytes += n;
    if (x->refused)
        return x->received_bytes > limit + LINGER_BYTES ? MHD_NO : MHD_YES;
    if (x->received_bytes > limit) {
        http__refuse_body(x, NULL);
        return MHD_YES;
    }
    if (x->reply == REPLY_NONE && !strbuf_append(&x->body, bytes, n))
        return MHD_NO;
    return MHD_YES;
}

static enum MHD_Result on_access(void *user, struct MHD_Connection *mhd, const char *url,
                                 const char *method, const char *version, const char *bytes,
                                 size_t *n, void **request)
{
    (void)version;
    struct http *h = user;
    struct exchange *x = *request;
    if (x == NULL) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        if (info == NULL || info->socket_context == NULL || h->closing)
            return MHD_NO;
        if (((struct connection *)info->socket_context)->refused)
            return MHD_NO;
        x = open_exchange(h, info->socket_context, method, url);
        *request = x;
        return x != NULL ? begin_exchange(h, x) : MHD_NO;
    }
    if (*n > 0) {
        enum MHD_Result result = take_body(x, bytes, *n);
        *n = 0;
        return result;
    }
    if (x->refused || x->aborted)
        return MHD_NO;
    if (!x->body_complete) {
        x->body_complete = true;
        x->connection->since_ns = 0;
        x->arrived_ns = clock_now_ns();
        if (x->reply == REPLY_NONE)
            h->handlers.request(h->handlers.user, x);
    }
    if (x->aborted)
        return MHD_NO;
    if (x->reply != REPLY_NONE)
        return queue_response(x);
    suspend(x);
    return MHD_YES;
}

static void on_completed(void *user, struct MHD_Connection *mhd, void **request,
                         enum MHD_RequestTerminationCode code)
{
    (void)mhd;
    struct http *h = user;
    struct exchange *x = *request;
    if (x == NULL)
        return;
    *request = NULL;
    x->connection->in_body = false;
    x->connection->since_ns = clock_now_ns();
    if (x->announced)
        h->handlers.finished(h->handlers.user, x, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    close_exchange(x);
}

static void on_connection(void *user, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *h = user;
    struct connection *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (c == NULL)
            return;
        if (c->previous != NULL)
            c->previous->next = c->next;
        else
            h->connections = c->next;
        if (c->next != NULL)
            c->next->previous = c->previous;
        h->n_connections--;
        mem_free(c);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    c = info != NULL ? mem_zalloc(sizeof *c) : NULL;
    *context = c;
    if (c == NULL)
        return;
    c->http = h;
    c->mhd = mhd;
    c->fd = info->connect_fd;
    c->since_ns = clock_now_ns();
    c->next = h->connections;
    if (c->next != NULL)
        c->next->previous = c;
    h->connections = c;
    h->n_connections++;
}

static void on_log(void *user, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void on_log(void *user, const char *format, va_list args)
{
    (void)user;
    char text[256], quoted[512];
    vsnprintf(text, sizeof text, format, args);
    log_debug("http text=%s", log_quote(quoted, sizeof quoted, text));
}

/* Whether the client has closed its side and everything it sent was read. MHD misses an end that
 * comes together with the last bytes. */
static bool is_at_end(const struct connection *c)
{
    char byte;
    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Shuts connections down whose client is too slow with its headers or its body, or will not send
 * the rest; MHD sees that and closes them. A connection that has been served may be idle first. */
static void on_sweep(uv_timer_t *sweep)
{
    struct http *h = sweep->data;
    uint64_t now_ns = clock_now_ns();
    for (struct connection *c = h->connections; c != NULL; c = c->next) {
        uint64_t allowed_ms = c->in_body ? h->options.body_time_ms
                                         : (uint64_t)h->options.header_time_ms +
                                               (c->served ? h->options.idle_time_ms : 0);
        if (c->since_ns == 0)
            continue;
        bool half_sent = c->in_body || !c->served;
        if (now_ns - c->since_ns > allowed_ms * 1000000u || (half_sent && is_at_end(c)))
            shutdown(c->fd, SHUT_RDWR);
    }
    /* At its connection limit MHD stops listening, and begins again only when it is run after
     * connections were closed: no event may be left that would do so. */
    kick(h);
}

/* ---- open and close ---- */

static void free_http(uv_handle_t *handle)
{
    struct http *h = handle->data;
    if (--h->open_handles == 0)
        mem_free(h);
}

static void close_handles(struct http *h)
{
    uv_close((uv_handle_t *)&h->poll, free_http);
    uv_close((uv_handle_t *)&h->timer, free_http);
    uv_close((uv_handle_t *)&h->sweep, free_http);
}

/* Leaves a part of the URL with %00 as it is: decoded, it would end there and be another path. */
static size_t unescape(void *user, struct MHD_Connection *mhd, char *text)
{
    (void)user;
    (void)mhd;
    return strstr(text, "%00") != NULL ? strlen(text) : MHD_http_unescape(text);
}

/* Before MHD makes a header of each of the URL's arguments: some versions close the connection
 * without a word, or worse, when there is no room for them. The rest is thrown away at on_access.
 */
static void *on_target(void *user, const char *target, struct MHD_Connection *mhd)
{
    const struct http *h = user;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    size_t n = 0;
    for (const char *at = strchr(target, '?'); at != NULL; at = strchr(at + 1, '&'))
        n++;
    if (n > h->options.header_bytes / 2 / ARGUMENT_BYTES && info != NULL &&
        info->socket_context != NULL)
        http__refuse_connection(info->socket_context, HTTP_REFUSE_HEADERS);
    return NULL;
}

static struct MHD_Daemon *start_daemon(struct http *h, int listen_fd)
{
    bool tls = h->options.tls_cert != NULL;
    const struct MHD_OptionItem pair[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)h->options.tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)h->options.tls_key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (tls ? MHD_USE_TLS : 0), 0,
        NULL, NULL, on_access, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, h, MHD_OPTION_LISTEN_SOCKET,
        listen_fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, h, MHD_OPTION_CONNECTION_MEMORY_LIMIT, h->options.header_bytes,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->options.connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)h->options.connections_per_address,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)((h->options.idle_time_ms + 999) / 1000),
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, h, MHD_OPTION_ARRAY, tls ? pair : pair + 3,
        MHD_OPTION_END);
}

enum status http_open(uv_loop_t *loop, int listen_fd, const struct http_options *options,
                      const struct http_handlers *handlers, struct http **out, struct err *e)
{
    struct http *h = mem_zalloc(sizeof *h);
    if (h == NULL) {
        close(listen_fd);
        return err_set(e, ST_NO_MEMORY, "HTTP server: out of memory");
    }
    h->loop = loop;
    h->options = *options;
    h->handlers = *handlers;
    h->poll.data = h->timer.data = h->sweep.data = h;
    h->open_handles = 3;
    http__watch_replies(h);
    h->daemon = start_daemon(h, listen_fd);
    if (h->daemon == NULL) {
        close(listen_fd);
        mem_free(h);
        return err_set(e, ST_IO, "the HTTP server could not be started");
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int status = info != NULL ? uv_poll_init(loop, &h->poll, info->epoll_fd) : UV_EINVAL;
    if (status != 0) {
        MHD_stop_daemon(h->daemon);
        http__watch_replies(NULL);
        mem_free(h);
        return err_set(e, ST_IO, "the HTTP server cannot be polled: %s", uv_strerror(status));
    }
    uv_timer_init(loop, &h->timer);
    uv_timer_init(loop, &h->sweep);
    uv_timer_start(&h->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    uv_poll_start(&h->poll, UV_READABLE, on_poll);
    *out = h;
    return ST_OK;
}

void http_set_limits(struct http *h, const struct http_options *options)
{
    h->options.body_bytes = options->body_bytes;
    h->options.header_time_ms = options->header_time_ms;
    h->options.body_time_ms = options->body_time_ms;
}

void http_quiesce(struct http *h)
{
    if (h->quiesced)
        return;
    h->quiesced = true;
    MHD_socket fd = MHD_quiesce_daemon(h->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
}

void http_close(struct http *h)
{
    if (h == NULL)
        return;
    http_quiesce(h);
    h->closing = true;
    for (struct exchange *x = h->exchanges; x != NULL; x = x->next)
        exchange_abort(x);
    for (int i = 0; i < CLOSE_TURNS && h->exchanges != NULL; i++)
        MHD_run(h->daemon);
    uv_poll_stop(&h->poll);
    MHD_stop_daemon(h->daemon);
    http__watch_replies(NULL);
    close_handles(h);
}

uint32_t http_connections(const struct http *h)
{
    return h->n_connections;
}

bool http_expects_request(const struct http *h)
{
    uint64_t now_ns = clock_now_ns();
    for (const struct connection *c = h->connections; c != NULL; c = c->next)
        if (!c->served && now_ns - c->since_ns < FIRST_REQUEST_NS)
            return true;
    return false;
}

uint32_t http_exchanges(const struct http *h)
{
    uint32_t n = 0;
    for (const struct exchange *x = h->exchanges; x != NULL; x = x->next)
        n++;
    return n;
}

/* ---- accessors ---- */

const char *exchange_method(const struct exchange *x)
{
    return x->method;
}

const char *exchange_path(const struct exchange *x)
{
    return x->path;
}

const char *exchange_header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection->mhd, MHD_HEADER_KIND, name);
}

void exchange_take_body(struct exchange *x, struct strbuf *out)
{
    *out = x->body;
    strbuf_init(&x->body, x->http->options.body_bytes);
}

uint64_t exchange_arrived_ns(const struct exchange *x)
{
    return x->arrived_ns;
}

void exchange_set_data(struct exchange *x, void *data)
{
    x->data = data;
}

void *exchange_data(const struct exchange *x)
{
    return x->data;
}

bool exchange_has_reply(const struct exchange *x)
{
    return x->reply != REPLY_NONE || x->aborted || x->refused;
}
