/* The gate, the table and the replies. What a route needs to know of its exchange again (the row,
 * the key) is found again from the exchange: nothing is kept beside it. */
#include "server/route.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/base/log.h"
#include "server/completion.h"
#include "server/info.h"
#include "server/reply.h"
#include "server/service.h"
#include "server/tune.h"

struct route {
    const char *method, *path;
    bool needs_key;
    void (*handle)(struct service *s, struct exchange *x);
};

static const struct route routes[] = {
#define ROUTE(method, path, key, handler) {method, path, key, handler},
#include "server/routes.def"
#undef ROUTE
};
#define ROUTE_COUNT (sizeof routes / sizeof routes[0])

_Static_assert(ROUTE_COUNT < METRICS_NO_ROUTE, "METRICS_ROUTES is too small");

static bool method_fits(const struct route *route, const char *method)
{
    return strcmp(route->method, method) == 0 ||
           (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* A pattern's {name} at the end stands for one segment. */
static bool path_fits(const char *pattern, const char *path)
{
    const size_t n = strcspn(pattern, "{");
    if (pattern[n] == '\0')
        return strcmp(pattern, path) == 0;
    return strncmp(pattern, path, n) == 0 && path[n] != '\0' && strchr(path + n, '/') == NULL;
}

/* The route of an exchange; another one of its path where the method does not fit; NULL: there is
 * none of the path. */
static const struct route *find_route(const struct exchange *x)
{
    const struct route *other = NULL;
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (!path_fits(routes[i].path, exchange_path(x)))
            continue;
        if (method_fits(&routes[i], exchange_method(x)))
            return &routes[i];
        other = other != NULL ? other : &routes[i];
    }
    return other;
}

/* "GET, HEAD, DELETE": all methods of an exchange's path. */
static const char *allowed_methods(const struct exchange *x, char *out, size_t n)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < ROUTE_COUNT && used < n; i++)
        if (path_fits(routes[i].path, exchange_path(x)))
            used += (size_t)snprintf(out + used, n - used, "%s%s", used > 0 ? ", " : "",
                                     strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD"
                                                                          : routes[i].method);
    return out;
}

/* ---- replies ---- */

void route_count(struct service *s, struct exchange *x, unsigned status)
{
    uint32_t i = 0; /* the first of its path counts for all of them */
    while (i < ROUTE_COUNT && !path_fits(routes[i].path, exchange_path(x)))
        i++;
    metrics_count_request(&s->metrics, i < ROUTE_COUNT ? i : METRICS_NO_ROUTE, status);
}

void route_reply(struct service *s, struct exchange *x, unsigned status, const char *type,
                 const struct http_header *headers, uint32_t n_headers, struct strbuf *body)
{
    route_count(s, x, status);
    exchange_reply(x, status, type, headers, n_headers, body);
    strbuf_free(body);
}

void route_fault(struct service *s, struct exchange *x, const struct fault *f)
{
    char seconds[16], allowed[64];
    struct http_header header = {NULL, NULL};
    if (f->kind == FAULT_QUEUE || f->kind == FAULT_LOADING) {
        snprintf(seconds, sizeof seconds, "%u", scheduler_retry_after_s(s->scheduler));
        header = (struct http_header){"Retry-After", seconds};
    } else if (f->kind == FAULT_KEY) {
        header = (struct http_header){"WWW-Authenticate", "Bearer"};
    } else if (f->kind == FAULT_METHOD) {
        header.name = "Allow";
        header.value = allowed_methods(x, allowed, sizeof allowed);
    }
    struct strbuf body;
    strbuf_init(&body, REPLY_CEILING_BYTES);
    reply_fault(&body, f);
    route_reply(s, x, fault_http_status(f->kind), ROUTE_JSON, &header, header.name != NULL, &body);
}

/* ---- the gate ---- */

/* The key of "Authorization: Bearer KEY" or "X-Api-Key: KEY"; "" for none. */
static const char *presented_key(const struct exchange *x)
{
    static const char scheme[] = "Bearer ";
    const char *value = exchange_header(x, "Authorization");
    if (value != NULL && strncasecmp(value, scheme, sizeof scheme - 1) == 0) {
        value += sizeof scheme - 1;
        return value + strspn(value, " ");
    }
    value = exchange_header(x, "X-Api-Key");
    return value != NULL ? value : "";
}

uint32_t route_key(struct service *s, struct exchange *x)
{
    int key = s->options.keys != NULL ? keys_find(s->options.keys, presented_key(x)) : 0;
    return key > 0 ? (uint32_t)key : 0;
}

/* Whether the body may be JSON: it says so, says nothing, or is what `curl -d` calls it; for
 * operators also parts. */
static bool type_fits(const struct exchange *x, bool takes_parts)
{
    static const char *const types[] = {"application/json", "application/x-www-form-urlencoded",
                                        "multipart/form-data"};
    const size_t n_types = sizeof types / sizeof types[0] - !takes_parts;
    const char *type = exchange_header(x, "Content-Type");
    if (type == NULL || type[0] == '\0')
        return true;
    size_t n = strcspn(type, "; \t");
    for (size_t i = 0; i < n_types; i++)
        if (strlen(types[i]) == n && strncasecmp(type, types[i], n) == 0)
            return true;
    return false;
}

/* Checks that need no body. ST_OK, or the fault to reply with. */
static enum status check(struct service *s, struct exchange *x, struct fault *f)
{
    const struct route *route = find_route(x);
    char allowed[64];
    bool gated = route == NULL || route->needs_key;
    if (gated && s->options.keys != NULL && keys_find(s->options.keys, presented_key(x)) < 0)
        return fault_set(f, FAULT_KEY, NULL,
                         presented_key(x)[0] != '\0'
                             ? "the API key is not known"
                             : "an API key is needed: Authorization: Bearer");
    if (route == NULL)
        return fault_set(f, FAULT_ROUTE, NULL, "there is no %.200s here", exchange_path(x));
    if (!method_fits(route, exchange_method(x)))
        return fault_set(f, FAULT_METHOD, NULL, "%s answers %s only", route->path,
                         allowed_methods(x, allowed, sizeof allowed));
    const bool takes_parts = route->handle == completion_operator;
    if (strcmp(route->method, "POST") == 0 && !type_fits(x, takes_parts))
        return fault_set(f, FAULT_TYPE, NULL, "Content-Type must be application/json%s",
                         takes_parts ? " or multipart/form-data" : "");
    const char *coding = exchange_header(x, "Content-Encoding");
    if (coding != NULL && strcasecmp(coding, "identity") != 0)
        return fault_set(f, FAULT_TYPE, NULL,
                         "Content-Encoding is \"%.40s\", expected identity: a body as it is",
                         coding);
    return ST_OK;
}

/* ---- what the HTTP side calls ---- */

static void on_headers(void *user, struct exchange *x)
{
    struct service *s = user;
    struct fault f;
    if (check(s, x, &f) != ST_OK)
        route_fault(s, x, &f);
}

static void on_request(void *user, struct exchange *x)
{
    struct fault f;
    if (check(user, x, &f) != ST_OK) /* again: keys may have been reloaded while the body came */
        route_fault(user, x, &f);
    else
        find_route(x)->handle(user, x);
}

static void on_writable(void *user, struct exchange *x)
{
    struct job *j = exchange_data(x);
    if (j != NULL)
        completion_writable(user, j);
}

static void on_finished(void *user, struct exchange *x, bool complete)
{
    struct service *s = user;
    struct job *j = exchange_data(x);
    tune_gone(s, x);
    if (!complete && !exchange_has_reply(x))
        route_count(s, x, METRICS_LEFT_EARLY);
    if (j != NULL)
        completion_gone(s, j);
}

static void set_refusal(const struct service *s, enum http_refusal kind, const char *detail,
                        struct fault *f)
{
    const long long header_bytes = s->config->header_bytes, body_bytes = s->config->body_bytes;
    switch (kind) {
    case HTTP_REFUSE_SYNTAX:
        fault_set(f, FAULT_BAD_REQUEST, NULL, "%s",
                  detail != NULL ? detail
                                 : "this is not HTTP/1.1: the request line, a header, "
                                   "Content-Length or the size of a chunk is wrong");
        break;
    case HTTP_REFUSE_BODY:
        fault_set(f, FAULT_BODY, NULL, "the body is over the limit of %lld bytes", body_bytes);
        break;
    case HTTP_REFUSE_LINE:
        fault_set(f, FAULT_LINE, NULL,
                  "the request line does not fit into the %lld bytes for headers", header_bytes);
        break;
    case HTTP_REFUSE_HEADERS:
        fault_set(f, FAULT_HEADERS, NULL,
                  "the headers and the URL's arguments do not fit into the %lld bytes for them",
                  header_bytes);
        break;
    case HTTP_REFUSE_VERSION:
        fault_set(f, FAULT_VERSION, NULL, "HTTP/1.0 and HTTP/1.1 are spoken here, no other");
        break;
    }
}

static unsigned on_refusal(void *user, struct exchange *x, enum http_refusal kind,
                           const char *detail, struct strbuf *text)
{
    struct service *s = user;
    struct fault f;
    set_refusal(s, kind, detail, &f);
    const unsigned status = fault_http_status(f.kind);
    if (x != NULL)
        route_count(s, x, status);
    else
        metrics_count_request(&s->metrics, METRICS_NO_ROUTE, status);
    reply_fault(text, &f);
    return status;
}

struct http_handlers route_handlers(struct service *s)
{
    return (struct http_handlers){.user = s,
                                  .headers = on_headers,
                                  .request = on_request,
                                  .writable = on_writable,
                                  .finished = on_finished,
                                  .refusal = on_refusal};
}
