/* A small program of engine/cl that the fault tests run with calls failing: it goes through every
 * part of the layer once, checks what it computes, and closes everything whatever happens.
 *
 *   cl_exercise CACHE_DIR [gpu]     `gpu`: the device is treated as a GPU (staging ring, polling)
 * Exit status: 0 done and right; 1 a clean error (its text on standard output); 3 a wrong result.
 */
#include <stdio.h>
#include <string.h>

#include "engine/cl/impl.h"

#define N_BYTES 70000u

static unsigned char source[N_BYTES], target[N_BYTES];

/* Adds one to every byte: a kernel made from text, launched with timings on. */
static enum status add_one(struct device *d, struct buffer *b, struct err *e)
{
    static const char text[] = "__kernel void add_one(__global uchar *x, uint n)\n"
                               "{\n"
                               "    for (uint i = (uint)get_global_id(0); i < n;\n"
                               "         i += (uint)get_global_size(0))\n"
                               "        x[i] += 1;\n"
                               "}\n";
    struct kernel *k = NULL;
    uint32_t n = N_BYTES;
    enum status status = kernel_open_source(d, "exercise.cl", text, "", "add_one", &k, e);
    if (status == ST_OK)
        status = kernel_set_buffer(k, 0, b, e);
    if (status == ST_OK)
        status = kernel_set_bytes(k, 1, &n, sizeof n, e);
    if (status == ST_OK)
        status = kernel_launch(k, (const size_t[]){4, 1, 1}, (const size_t[]){1, 1, 1}, "add_one",
                               "plain", N_BYTES, 0, e);
    kernel_close(k);
    return status;
}

static enum status use_buffers(struct device *d, struct buffer *a, struct buffer *b, struct err *e)
{
    struct prof_report report;
    memset(&report, 0, sizeof report);
    enum status status = staging_upload(d, a, 0, source, N_BYTES, "upload", e);
    if (status == ST_OK)
        status = queue_order(d, QUEUE_TRANSFER, QUEUE_COMPUTE, e);
    if (status == ST_OK)
        status = add_one(d, a, e);
    if (status == ST_OK)
        status = queue_fill(d, QUEUE_COMPUTE, b, 3, 40, 7, "fill", e);
    if (status == ST_OK)
        status = queue_copy(d, QUEUE_COMPUTE, a, 0, b, 0, N_BYTES, "copy", e);
    if (status == ST_OK)
        status = prof_enable(d, true, e);
    if (status == ST_OK)
        status = add_one(d, b, e);
    if (status == ST_OK)
        status = queue_read(d, QUEUE_COMPUTE, b, 0, target, N_BYTES, "read", e);
    if (status == ST_OK)
        status = prof_collect(d, &report, e);
    if (status == ST_OK && report.launches != 1)
        return err_set(e, ST_INTERNAL, "%llu launches were timed, expected 1",
                       (unsigned long long)report.launches);
    return status;
}

static enum status exercise(struct device *d, struct err *e)
{
    struct buffer *a = NULL, *b = NULL;
    enum status status = buffer_open(d, N_BYTES, BUFFER_IO, "a", &a, e);
    if (status == ST_OK)
        status = buffer_open(d, N_BYTES, BUFFER_IO, "b", &b, e);
    if (status == ST_OK)
        status = use_buffers(d, a, b, e);
    buffer_close(a);
    buffer_close(b);
    return status;
}

int main(int argc, char **argv)
{
    struct device_list *list = NULL;
    struct device *d = NULL;
    struct err e = {0};
    for (uint32_t i = 0; i < N_BYTES; i++)
        source[i] = (unsigned char)(i * 7u);
    struct device_options options = {.cache_dir = argc > 1 ? argv[1] : NULL};
    enum status status = device_list_open(0, &list, &e);
    if (status == ST_OK)
        status = device_open(list, 0, &options, &d, &e);
    bool host = status == ST_OK && device_is_host(d);
    if (status == ST_OK && !host && argc > 2)
        d->info.kind = DEVICE_DISCRETE_GPU;
    if (status == ST_OK && !host)
        status = exercise(d, &e);
    device_close(d);
    device_list_close(list);
    if (status != ST_OK) {
        printf("%s: %s\n", status_name(status), e.text);
        return e.text[0] == '\0' || e.status != status ? 3 : 1;
    }
    for (uint32_t i = 0; i < N_BYTES && !host; i++)
        if (target[i] != (unsigned char)(source[i] + 2))
            return 3;
    printf("%s\n", host ? "host only" : "ok");
    return 0;
}
