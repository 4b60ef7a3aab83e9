/* Requests: the JSON of a body as a typed, bounded struct. request.def is the list of fields.
 *
 * Parsing is the only place that sees the client's JSON; what comes out is checked: every number
 * finite and in range, every text valid UTF-8 without NULs, every list within its limit. Fields
 * that the table lacks are collected by name. A request is immutable after parsing and owned by its
 * job.
 */
#ifndef OINFER_SERVER_REQUEST_H
#define OINFER_SERVER_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/strbuf.h"
#include "engine/text/sampler.h"
#include "engine/text/stop.h"
#include "engine/text/tokenizer.h"
#include "server/fault.h"

#define REQUEST_MAX_INTEGER ((double)(1LL << 53)) /* whole numbers that a double holds */

/* Which body it is: bits of request.def's routes column. */
enum request_route {
    REQUEST_COMPLETION = 1 << 0,
    REQUEST_TOKENIZE = 1 << 1,
    REQUEST_DETOKENIZE = 1 << 2,
    REQUEST_ALL = (1 << 3) - 1
};

enum request_timings { TIMINGS_NONE, TIMINGS_SUMMARY, TIMINGS_KERNELS };

struct request_text {
    const char *data; /* NULL: absent; NUL-terminated */
    size_t length;
};
struct request_texts {
    struct request_text *items;
    uint32_t count;
};
struct request_ids {
    token_id *ids; /* >= 0; not yet compared with a vocabulary */
    uint32_t count;
    bool present;
};
struct request_prompt {
    struct request_text text; /* or, when text.data is NULL: */
    struct request_ids ids;
};
struct request_prompts {
    struct request_prompt *items;
    uint32_t count; /* 0: absent; an empty list is one empty prompt */
    bool many;      /* the client gave a list of prompts */
};
struct request_biases {
    struct logit_bias *items; /* rising ids, no two the same */
    uint32_t count;
};
struct request_stream_options {
    bool include_usage;
};

#define REQUEST_DECLARE_SWITCH(name)  bool name;
#define REQUEST_DECLARE_INTEGER(name) int64_t name;
#define REQUEST_DECLARE_REAL(name)    double name;
#define REQUEST_DECLARE_CHOICE(name)  int name;
#define REQUEST_DECLARE_TEXT(name)    struct request_text name;
#define REQUEST_DECLARE_TEXTS(name)   struct request_texts name;
#define REQUEST_DECLARE_IDS(name)     struct request_ids name;
#define REQUEST_DECLARE_PROMPTS(name) struct request_prompts name;
#define REQUEST_DECLARE_BIAS(name)    struct request_biases name;
#define REQUEST_DECLARE_OPTIONS(name) struct request_stream_options name;
#define REQUEST_DECLARE_REFUSED(name) bool name; /* stays false */

struct request {
#define FIELD(name, kind, routes, fallback, min, max, detail) REQUEST_DECLARE_##kind(name)
#include "server/request.def"
#undef FIELD
    char ignored[256];   /* names of unknown fields, comma-separated, printable ASCII; "" */
    struct arena *arena; /* what the pointers above point into */
};

/* Limits that come from the configuration rather than from the table. */
struct request_limits {
    uint32_t choices; /* most n, best_of, and prompts */
    uint32_t stop_strings;
    uint32_t max_tokens; /* most max_tokens; 0: no limit of its own */
    uint64_t deadline_ms;
    uint64_t matrix_bytes; /* most bytes of the tensors of an operator or a tuning */
};

/* Has the JSON parser take its memory from engine/base/mem.h. Once, before any thread parses. */
void request_init(void);

/* Parses a body. On failure *out is NULL and *f says why, naming the field. Any thread. */
enum status request_parse(enum request_route route, const char *body, size_t n,
                          const struct request_limits *limits, struct request **out,
                          struct fault *f);
void request_close(struct request *r); /* accepts NULL */

#endif
