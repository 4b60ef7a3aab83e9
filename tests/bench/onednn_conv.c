/* oneDNN's f32 convolution on the CPU, in the layouts it chooses for itself: source, weights and
 * result are laid out before the clock starts. Prints GFLOP/s, the median of the runs of a second.
 *
 *   onednn_conv C H O K STRIDE PAD GROUPS     (batch 1, square)
 *
 * Built by vs_cpu_libraries.py: cc -O2 -ldnnl (Debian's libdnnl-dev, oneDNN 2.6). */
#define _POSIX_C_SOURCE 200809L
#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_RUNS 4096
#define RUN_NS   1000000000u

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "oneDNN: %s: status %d\n", what, (int)status);
    exit(1);
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static dnnl_memory_desc_t any_layout(int n, const dnnl_dim_t *dims)
{
    dnnl_memory_desc_t desc;
    check(dnnl_memory_desc_init_by_tag(&desc, n, dims, dnnl_f32, dnnl_format_tag_any), "layout");
    return desc;
}

/* Memory in the layout that the primitive wants, full of small numbers. */
static dnnl_memory_t fill(const_dnnl_primitive_desc_t p, dnnl_query_t what, dnnl_engine_t engine)
{
    const dnnl_memory_desc_t *desc = dnnl_primitive_desc_query_md(p, what, 0);
    dnnl_memory_t memory;
    void *data;
    check(dnnl_memory_create(&memory, desc, engine, DNNL_MEMORY_ALLOCATE), "memory");
    check(dnnl_memory_get_data_handle(memory, &data), "memory");
    for (size_t i = 0; i < dnnl_memory_desc_get_size(desc) / sizeof(float); i++)
        ((float *)data)[i] = (float)(i * 2654435761u >> 8 & 0xFFFF) / 65536.0f - 0.5f;
    return memory;
}

int main(int argc, char **argv)
{
    long v[7];
    if (argc != 8) {
        fprintf(stderr, "usage: onednn_conv C H O K STRIDE PAD GROUPS\n");
        return 2;
    }
    for (int i = 0; i < 7; i++)
        v[i] = strtol(argv[i + 1], NULL, 10);
    const dnnl_dim_t c = v[0], h = v[1], o = v[2], k = v[3], g = v[6],
                     p = (h + 2 * v[5] - k) / v[4] + 1;
    const dnnl_dim_t source_dims[] = {1, c, h, h}, result_dims[] = {1, o, p, p};
    const dnnl_dim_t grouped[] = {g, o / g, c / g, k, k};
    const dnnl_dim_t strides[] = {v[4], v[4]}, padding[] = {v[5], v[5]};
    const dnnl_memory_desc_t source = any_layout(4, source_dims),
                             result = any_layout(4, result_dims);
    const dnnl_memory_desc_t weights = g > 1 ? any_layout(5, grouped) : any_layout(4, grouped + 1);
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t primitive_desc;
    dnnl_primitive_t primitive;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
    check(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_inference, dnnl_convolution_auto,
                                             &source, &weights, NULL, &result, strides, padding,
                                             padding),
          "convolution");
    check(dnnl_primitive_desc_create(&primitive_desc, &desc, NULL, engine, NULL), "primitive");
    check(dnnl_primitive_create(&primitive, primitive_desc), "primitive");
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, fill(primitive_desc, dnnl_query_src_md, engine)},
        {DNNL_ARG_WEIGHTS, fill(primitive_desc, dnnl_query_weights_md, engine)},
        {DNNL_ARG_DST, fill(primitive_desc, dnnl_query_dst_md, engine)}};
    static uint64_t runs[MAX_RUNS];
    int n = 0;
    for (uint64_t start = now_ns(); n < MAX_RUNS && now_ns() - start < RUN_NS; n++) {
        const uint64_t before = now_ns();
        check(dnnl_primitive_execute(primitive, stream, 3, arguments), "run");
        check(dnnl_stream_wait(stream), "run");
        runs[n] = now_ns() - before;
    }
    qsort(runs, (size_t)n, sizeof runs[0], compare);
    const double flops = 2.0 * (double)(p * p * o * (c / g) * k * k);
    printf("%.2f\n", flops / (double)runs[n / 2]);
    return 0;
}
