/* Fuzz target: what a client sends, on a real socket. The first byte says how it comes: in how many
 * pieces, and whether the client stops sending at the end. The rest goes to the server as it is, a
 * few exchanges are answered at once, early, as a stream or not at all. Whatever comes, each
 * exchange ends exactly once, what comes back begins like HTTP and is never one of the library's
 * own pages, and the connection goes when the client does. */
#define _GNU_SOURCE /* memmem */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http.h"

#define TURNS         64   /* of the loop without news after which nothing more is expected */
#define END_TURNS     4000 /* within which a connection must end */
#define CONNECT_TRIES 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uv_loop_t loop;
static struct http *http;
static struct sockaddr_in address = {.sin_family = AF_INET};
static uint32_t n_open, n_seen;

static void reply(struct exchange *x, unsigned status)
{
    struct strbuf body;
    strbuf_init(&body, 4096);
    strbuf_printf(&body, "%zu %zu", strlen(exchange_method(x)), strlen(exchange_path(x)));
    exchange_reply(x, status, "text/plain", NULL, 0, &body);
}

static void on_headers(void *user, struct exchange *x)
{
    (void)user;
    n_open++;
    if (++n_seen % 5 == 4 || exchange_header(x, "authorization") != NULL)
        reply(x, 401);
}

static void on_request(void *user, struct exchange *x)
{
    struct strbuf body;
    (void)user;
    exchange_take_body(x, &body);
    strbuf_free(&body);
    if (n_seen % 5 == 3)
        return; /* waits for ever, until the client leaves */
    if (n_seen % 5 != 2) {
        reply(x, 200);
        return;
    }
    exchange_stream(x, 200, "text/event-stream", NULL, 0);
    if (exchange_write(x, "data: x\n\n", 9))
        exchange_end(x);
}

static void on_writable(void *user, struct exchange *x)
{
    (void)user;
    (void)x;
}

static void on_finished(void *user, struct exchange *x, bool complete)
{
    (void)user;
    (void)x;
    (void)complete;
    if (n_open-- == 0)
        abort();
}

static unsigned on_refusal(void *user, struct exchange *x, enum http_refusal kind,
                           const char *detail, struct strbuf *text)
{
    static const unsigned statuses[] = {400, 413, 414, 431, 400};
    (void)user;
    (void)x;
    (void)detail;
    strbuf_puts(text, "{}");
    return statuses[kind];
}

static void open_server(void)
{
    static const struct http_handlers handlers = {.headers = on_headers,
                                                  .request = on_request,
                                                  .writable = on_writable,
                                                  .finished = on_finished,
                                                  .refusal = on_refusal};
    static const struct http_options options = {.body_bytes = 4096,
                                                .header_bytes = 8192,
                                                .connections = 16,
                                                .header_time_ms = 60000,
                                                .body_time_ms = 60000,
                                                .idle_time_ms = 60000};
    socklen_t n = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    signal(SIGPIPE, SIG_IGN); /* as in the daemon */
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, 16) != 0 || getsockname(fd, (struct sockaddr *)&address, &n) != 0 ||
        uv_loop_init(&loop) != 0 || http_open(&loop, fd, &options, &handlers, &http, NULL) != ST_OK)
        abort();
}

static int open_client(void)
{
    static const struct linger at_once = {.l_onoff = 1}; /* no port waits afterwards */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), tries = 0;
    while (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        if (errno != EADDRNOTAVAIL || ++tries == CONNECT_TRIES) /* all ports are in use */
            abort();
        usleep(10000);
    }
    if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) != 0)
        abort();
    return fd;
}

/* Lets the server work and reads what it says; false when it has closed. */
static bool listen_to(int fd, size_t *n_received)
{
    char block[4096];
    for (int quiet = 0; quiet < TURNS; quiet++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        ssize_t n = recv(fd, block, sizeof block, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        if (n > 0 && *n_received == 0 && (n < 5 || memcmp(block, "HTTP/", 5) != 0))
            abort();
        if (n > 0 && memmem(block, (size_t)n, "<html", 5) != NULL)
            abort();
        if (n > 0) {
            *n_received += (size_t)n;
            quiet = 0;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n_received = 0, at = 1;
    if (size < 2)
        return 0;
    if (http == NULL)
        open_server();
    int fd = open_client();
    const size_t n_pieces = 1 + (data[0] & 3), piece = (size - 1) / n_pieces + 1;
    bool open = true;
    for (; at < size && open; at += piece) {
        const size_t n = size - at < piece ? size - at : piece;
        open =
            send(fd, data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 && listen_to(fd, &n_received);
    }
    if (open && (data[0] & 4) != 0) {
        shutdown(fd, SHUT_WR);
        listen_to(fd, &n_received);
    }
    close(fd);
    for (int turn = 0; n_open > 0 || http_connections(http) > 0; turn++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        if (turn > END_TURNS)
            abort();
        if (turn > TURNS)
            usleep(1000);
    }
    return 0;
}
