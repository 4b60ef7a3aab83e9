/* Frames of server-sent events. */
#include "server/stream.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "server/reply.h"
#include "server/route.h"
#include "server/service.h"

struct stream {
    bool started;         /* the status line is out */
    uint64_t written_ns;  /* last sign of life; the job's arrival before the first */
    uint32_t n_finished;  /* sequences whose finish reason has come */
    uint32_t last;        /* the last of them: its finish goes out with the timings */
    struct output output; /* of the sequence being sent */
    enum finish last_finish;
};

struct stream *stream_open(struct job *j)
{
    struct stream *t = mem_zalloc(sizeof *t);
    if (t == NULL)
        return NULL;
    t->written_ns = j->timings.arrived_ns;
    output_init(&t->output);
    return t;
}

void stream_close(struct stream *t)
{
    if (t == NULL)
        return;
    output_free(&t->output);
    mem_free(t);
}

bool stream_started(const struct stream *t)
{
    return t->started;
}

static void start(struct service *s, struct job *j)
{
    struct http_header headers[] = {{"Cache-Control", "no-cache"},
                                    {"X-Accel-Buffering", "no"},
                                    {"X-OInfer-Ignored", j->request->ignored}};
    uint32_t n = j->request->ignored[0] != '\0' ? 3 : 2;
    j->stream->started = true;
    route_count(s, j->exchange, 200);
    exchange_stream(j->exchange, 200, "text/event-stream", headers, n);
}

/* Sends one frame, and the status line before the first. Frees `frame`. */
static void send_frame(struct service *s, struct job *j, struct strbuf *frame)
{
    if (!j->stream->started)
        start(s, j);
    j->stream->written_ns = clock_now_ns();
    if (frame->failed)
        exchange_abort(j->exchange);
    else
        exchange_write(j->exchange, frame->data, frame->length);
    strbuf_free(frame);
}

static void begin_frame(struct strbuf *frame)
{
    strbuf_init(frame, REPLY_CEILING_BYTES);
    strbuf_puts(frame, "data: ");
}

static void send_chunk(struct service *s, struct job *j, uint32_t index, const struct output *part,
                       bool last)
{
    struct strbuf frame;
    begin_frame(&frame);
    reply_chunk(&frame, j, index, part, last);
    strbuf_puts(&frame, "\n\n");
    send_frame(s, j, &frame);
}

/* Sends what a sequence has; the finish of the job's last one is kept for stream_finish. */
static void send_output(struct service *s, struct job *j, uint32_t index)
{
    struct stream *t = j->stream;
    struct output *o = &t->output;
    if (!outbox_take(&j->outbox, index, o)) {
        exchange_abort(j->exchange);
        return;
    }
    if (o->finish != FINISH_NONE && ++t->n_finished == j->n_sequences) {
        t->last = index;
        t->last_finish = o->finish;
        o->finish = FINISH_NONE;
    }
    if (o->text.length > 0 || o->records.count > 0 || o->finish != FINISH_NONE)
        send_chunk(s, j, index, o, false);
    strbuf_clear(&o->text);
    o->records.count = 0;
    o->finish = FINISH_NONE;
}

void stream_feed(struct service *s, struct job *j, bool all)
{
    for (uint32_t i = 0; i < j->n_sequences; i++)
        if (all || !stream_started(j->stream) || exchange_writable(j->exchange))
            send_output(s, j, i);
}

static void send_text(struct service *s, struct job *j, const char *text)
{
    struct strbuf frame;
    strbuf_init(&frame, REPLY_CEILING_BYTES);
    strbuf_puts(&frame, text);
    send_frame(s, j, &frame);
}

static void send_fault(struct service *s, struct job *j)
{
    struct strbuf frame;
    begin_frame(&frame);
    reply_fault(&frame, &j->fault);
    strbuf_puts(&frame, "\n\n");
    send_frame(s, j, &frame);
}

void stream_finish(struct service *s, struct job *j)
{
    struct stream *t = j->stream;
    stream_feed(s, j, true);
    if (j->failed) {
        send_fault(s, j);
        exchange_end(j->exchange);
        return;
    }
    t->output.finish = t->last_finish;
    send_chunk(s, j, t->last, &t->output, !j->request->stream_options.include_usage);
    if (j->request->stream_options.include_usage) {
        struct strbuf frame;
        begin_frame(&frame);
        reply_usage_chunk(&frame, j);
        strbuf_puts(&frame, "\n\n");
        send_frame(s, j, &frame);
    }
    send_text(s, j, "data: [DONE]\n\n");
    exchange_end(j->exchange);
}

void stream_ping(struct service *s, struct job *j, uint64_t now_ns, uint64_t ping_ns)
{
    if (now_ns - j->stream->written_ns >= ping_ns && now_ns > j->stream->written_ns)
        send_text(s, j, ":\n\n");
}
