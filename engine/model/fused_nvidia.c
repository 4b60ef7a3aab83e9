/* The one-launch executor for NVIDIA GPUs: the decode plan as a persistent kernel.
 *
 * open reads the plan's steps into a table of places (fused_nvidia_read.c, kernels/nvidia/decode.h)
 * and builds up to three kernels for the model's shape: decode_ring.cl, or decode.cl where the
 * device lacks what it needs, for one sequence; decode_rows.cl for a few, and for weights of many
 * dtypes, and once more for many: as many as the model has seats for. run launches one of them for
 * up to DECODE_AHEAD tokens of each sequence, or one token of sequences whose logits are read;
 * where kernels are measured, phases get rows of their own. What they cannot do (biases, other
 * layouts, caches other than half) is ST_UNSUPPORTED at open, and the plan goes on stepwise. The
 * kernels need all their groups resident: there are never more of them than compute units, each
 * kernel has met once before it is used, and spins are capped (ST_TIMEOUT). Belongs to the device's
 * thread; the plan, its weights and its cache outlive it.
 */
#include "engine/model/fused_nvidia.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"

#define MAX_THREADS   384 /* of a group; 256 where registers are too few */
#define FEW_ROWS      8   /* sequences */
#define MANY_TEAM     4   /* warps for one head of one sequence, when there are many */
#define MIN_SLICE     512 /* columns of a slice of decode_rows.cl */
#define RING_THREADS  256 /* of decode_ring.cl, and as many feeders beside them */
#define TILE_ROWS     16
#define SMALL_LOCAL   (47u << 10) /* bytes of local memory that any kernel may name */
#define LOCAL_REST    1024        /* of it for small things */
#define NO_TYPE       255         /* TYPE_B and TYPE_C of the kernels when unused */
#define DEFINES_BYTES 1024
#define RESULT_WORDS  DECODE_BEST /* of the control buffer, that the host reads and clears */

/* One of the kernels; NULL where the model or the device does not allow it. */
struct program {
    struct kernel *kernel;
    uint32_t items, max_rows; /* items of a group */
};

struct fused_plan {
    struct device *device;
    struct program one, few, many;
    struct buffer *table, *work, *control, *results;
    uint32_t *result;            /* pinned [RESULT_WORDS]: what a launch left in `control` */
    struct decode_params params; /* of the next launch; arrivals go on from launch to launch */
    bool unsure; /* a launch failed: arrivals on the device may not be those of params */
    uint32_t n_groups, n_phases; /* phases of one token */
    uint32_t n_layer, n_vocab, max_rows;
    uint64_t logits_at;                  /* in `work`: float [max_rows][n_vocab] */
    uint64_t phase_bytes[DECODE_PHASES]; /* weights read for one token, of all layers */
    uint64_t cell_bytes;                 /* of one position in the cache, of all layers */
};

static enum status refuse(struct err *e, const char *why)
{
    return err_set(e, ST_UNSUPPORTED, "one-launch decoding: %s", why);
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* ---- sizes ---- */

/* Row groups of one group in its largest phase, and a slot for each of its warps: MAX_SLOTS of
 * decode.cl and decode_ring.cl. */
static uint32_t row_group_slots(const struct decode_shape *s, uint32_t n_groups)
{
    const uint32_t qkv = (s->n_head + 2 * s->n_head_kv) * s->head_dim;
    uint32_t row_groups = most(most(qkv, s->n_embd), s->n_vocab + 3) / 4 / n_groups + 1;
    row_groups = most(row_groups, (s->n_ff / 4 / n_groups + 1) * 2);
    return row_groups + MAX_THREADS / 32;
}

/* Tiles of one group in its largest phase. */
static uint32_t largest_tiles(const struct decode_shape *s, uint32_t n_groups)
{
    const uint32_t qkv = (s->n_head + 2 * s->n_head_kv) * s->head_dim;
    uint32_t tiles = most(qkv, s->n_embd) / TILE_ROWS;
    tiles = most(tiles, s->n_ff / 8);
    return most(tiles, s->n_vocab / TILE_ROWS + 1) / n_groups + 1;
}

static uint32_t slots_of(const struct decode_shape *s, uint32_t n_groups)
{
    return largest_tiles(s, n_groups) + MAX_THREADS / 32;
}

static uint32_t splits_of(const struct decode_shape *s, uint32_t n_groups)
{
    return most(n_groups / s->n_head, 1);
}

static uint32_t padded(uint32_t k)
{
    return (k + 255) / 256 * 256;
}

/* Columns of n sequences' vectors that fit into `local` bytes beside their sums. */
static uint32_t slice_in_local(const struct decode_shape *s, uint32_t n_groups, uint32_t n,
                               uint32_t local)
{
    const uint32_t sums = slots_of(s, n_groups) * TILE_ROWS * 4 + padded(s->n_embd) / 64 + 16;
    if (n * sums + LOCAL_REST >= local)
        return 0;
    const uint32_t columns = (local - LOCAL_REST - n * sums) / (n * 2) / 256 * 256;
    return columns < padded(s->max_k) ? columns : padded(s->max_k);
}

/* Byte offsets in the work buffer, of arrays with a row for each of DECODE_ROWS sequences. */
struct work_layout {
    uint64_t x, numbers, q, att, parts, h, squares; /* numbers, att and h are of 2 bytes each */
    uint64_t logits; /* the last; of as many sequences as there are seats */
};

static struct work_layout lay_out_work(const struct decode_shape *s, uint32_t n_groups)
{
    const uint64_t q_rows = (uint64_t)s->n_head * s->head_dim, n = DECODE_ROWS;
    struct work_layout w = {.x = 0};
    w.numbers = w.x + n * s->n_embd * 4;
    w.q = w.numbers + n * s->n_embd * 2;
    w.att = w.q + n * q_rows * 4;
    w.parts = w.att + n * q_rows * 2;
    w.h = w.parts + n * s->n_head * splits_of(s, n_groups) * (s->head_dim + 4) * 4;
    w.squares = w.h + n * s->n_ff * 2;
    w.logits = w.squares + n * DECODE_GROUPS * 4;
    return w;
}

/* ---- building ---- */

/* What both kernels are built with; `more` are the options of one of them. */
static void print_defines(const struct fused_plan *f, const struct decode_shape *s,
                          uint32_t threads, const char *more, char out[DEFINES_BYTES])
{
    const struct work_layout w = lay_out_work(s, f->n_groups);
    snprintf(
        out, DEFINES_BYTES,
        "-DTHREADS=%u -DN_LAYER=%u -DN_EMBD=%u -DN_FF=%u -DN_HEAD=%u -DN_HEAD_KV=%u "
        "-DHEAD_DIM=%u -DN_ROT=%u -DN_CTX=%u -DN_VOCAB=%u -DN_GROUPS=%u -DMAX_K=%u -DMAX_SPLITS=%u "
        "-DTYPE_A=%u -DTYPE_B=%u -DTYPE_C=%u -DOP_DTYPE=%d -DAT_X=%llu -DAT_XB=%llu "
        "-DAT_Q=%llu -DAT_ATT=%llu -DAT_PARTS=%llu -DAT_H=%llu -DAT_SQUARES=%llu -DAT_LOGITS=%llu "
        "%s",
        threads, s->n_layer, s->n_embd, s->n_ff, s->n_head, s->n_head_kv, s->head_dim, s->n_rot,
        s->n_ctx, s->n_vocab, f->n_groups, s->max_k, splits_of(s, f->n_groups), s->types[0],
        s->n_types > 1 ? s->types[1] : NO_TYPE, s->n_types > 2 ? s->types[2] : NO_TYPE,
        (int)s->embed_type, (unsigned long long)w.x, (unsigned long long)w.numbers,
        (unsigned long long)w.q, (unsigned long long)w.att, (unsigned long long)w.parts,
        (unsigned long long)w.h, (unsigned long long)w.squares, (unsigned long long)w.logits, more);
}

/* For groups of `items`, `threads` of which do the phases. ST_UNSUPPORTED: it does not build. */
static enum status build_for(struct fused_plan *f, const struct decode_shape *s, const char *file,
                             const char *entry, uint32_t threads, uint32_t items, const char *more,
                             struct program *p, struct err *e)
{
    char defines[DEFINES_BYTES];
    print_defines(f, s, threads, more, defines);
    struct err why = {0};
    enum status status = kernel_open(f->device, file, defines, entry, &p->kernel, &why);
    if (status != ST_OK)
        return err_set(e, status == ST_BUILD ? ST_UNSUPPORTED : status, "%s", why.text);
    p->items = items;
    return ST_OK;
}

/* For MAX_THREADS to a group, or 256 where the device says that its registers do not hold them. */
static enum status build(struct fused_plan *f, const struct decode_shape *s, const char *file,
                         const char *entry, const char *more, struct program *p, struct err *e)
{
    for (uint32_t threads = MAX_THREADS; threads >= 256; threads -= 128) {
        enum status status = build_for(f, s, file, entry, threads, threads, more, p, e);
        if (status != ST_OK || kernel_max_work_group(p->kernel) >= threads)
            return status;
        kernel_close(p->kernel);
        p->kernel = NULL;
    }
    return refuse(e, "the device's work-groups are too small for it");
}

static enum status set_arguments(const struct fused_plan *f, const struct decode_model *m,
                                 struct kernel *k, struct err *e)
{
    enum status status = ST_OK;
    uint32_t n = 0;
    for (uint32_t i = 0; i < DECODE_ARENAS && status == ST_OK; i++)
        status = kernel_set_buffer(k, n++, m->weights[i] ? m->weights[i] : m->weights[0], e);
    for (uint32_t i = 0; i < DECODE_ARENAS && status == ST_OK; i++)
        status = kernel_set_buffer(k, n++, m->cells[i] ? m->cells[i] : m->cells[0], e);
    if (status == ST_OK)
        status = kernel_set_buffer(k, n++, f->table, e);
    if (status == ST_OK)
        status = kernel_set_buffer(k, n++, m->rope.buffer, e);
    if (status == ST_OK)
        status = kernel_set_bytes(k, n++, &m->rope.offset, sizeof m->rope.offset, e);
    if (status == ST_OK)
        status = kernel_set_buffer(k, n++, f->work, e);
    if (status == ST_OK)
        status = kernel_set_buffer(k, n, f->control, e);
    return status;
}

static const uint32_t no_control[RESULT_WORDS];

static enum status upload(struct fused_plan *f, const struct decode_model *m, struct err *e)
{
    const struct work_layout w = lay_out_work(&m->shape, f->n_groups);
    struct device *d = f->device;
    void *result = NULL;
    f->logits_at = w.logits;
    enum status status =
        buffer_open(d, m->table_bytes, BUFFER_SCRATCH, "one-launch table", &f->table, e);
    if (status == ST_OK)
        status = buffer_open(d, w.logits + f->max_rows * m->shape.n_vocab * sizeof(float),
                             BUFFER_SCRATCH, "one-launch vectors", &f->work, e);
    if (status == ST_OK)
        status = buffer_open(d, DECODE_CONTROL * sizeof(uint32_t), BUFFER_SCRATCH,
                             "one-launch control", &f->control, e);
    if (status == ST_OK)
        status = buffer_open_pinned(d, RESULT_WORDS * sizeof(uint32_t), "one-launch results",
                                    &f->results, &result, e);
    f->result = result;
    if (status == ST_OK)
        status = queue_write(d, QUEUE_COMPUTE, f->table, 0, m->head, m->table_bytes, "table", e);
    if (status == ST_OK)
        status =
            queue_write(d, QUEUE_COMPUTE, f->control, 0, no_control, sizeof no_control, "table", e);
    enum status waited = queue_wait(d, QUEUE_COMPUTE, status == ST_OK ? e : NULL);
    return status == ST_OK ? waited : status;
}

/* ---- running ---- */

#define ARGUMENT_PARAMS (2 * DECODE_ARENAS + 5)

/* Weights, and cells, that the launch of f->params reads in one kind of phase. */
static uint64_t bytes_of(const struct fused_plan *f, enum decode_phase phase)
{
    const struct decode_params *p = &f->params;
    const uint32_t window = p->settings.window;
    if (phase != DECODE_ATTENTION)
        return f->phase_bytes[phase] * p->n_tokens;
    uint64_t n_cells = 0;
    for (uint32_t r = 0; r < p->n_rows; r++)
        for (uint32_t t = 1; t <= p->n_tokens; t++)
            n_cells += window > 0 && p->position[r] + t > window ? window : p->position[r] + t;
    return n_cells * f->cell_bytes;
}

static uint64_t launch_bytes(const struct fused_plan *f)
{
    uint64_t bytes = 0;
    for (int i = 0; i < DECODE_PHASES; i++)
        bytes += bytes_of(f, (enum decode_phase)i);
    return bytes;
}

/* Rows for the phases of the launch that was just timed. */
static void divide_launch(struct fused_plan *f)
{
    static const char *const names[DECODE_PHASES] = {
        [DECODE_QKV] = "qkv",         [DECODE_ATTENTION] = "attention", [DECODE_O] = "o",
        [DECODE_GATE_UP] = "gate_up", [DECODE_DOWN] = "down",           [DECODE_OUTPUT] = "head"};
    struct decode_times times;
    struct prof_row rows[DECODE_PHASES];
    uint64_t cycles = 0;
    memcpy(&times, f->result + DECODE_TIMES, sizeof times);
    for (int i = 0; i < DECODE_PHASES; i++)
        cycles += times.phases[i].total;
    if (cycles == 0 || times.end_ns <= times.start_ns)
        return; /* the device's clocks do not run */
    const double ns = (double)(times.end_ns - times.start_ns) / (double)cycles; /* of a cycle */
    for (int i = 0; i < DECODE_PHASES; i++)
        rows[i] = (struct prof_row){.name = names[i],
                                    .variant = "one_launch",
                                    .calls = (uint64_t)f->params.n_tokens *
                                             (i == DECODE_OUTPUT ? 1 : f->n_layer),
                                    .total_ns = (uint64_t)((double)times.phases[i].total * ns),
                                    .min_ns = (uint64_t)(times.phases[i].least * ns),
                                    .max_ns = (uint64_t)(times.phases[i].most * ns),
                                    .bytes = bytes_of(f, (enum decode_phase)i)};
    prof_divide(f->device, rows, DECODE_PHASES);
}

/* Launches f->params and waits; f->result is what it left. Reads the logits of call (may be NULL).
 */
static enum status launch(struct fused_plan *f, const struct program *program,
                          const struct fused_call *call, struct err *e)
{
    struct device *d = f->device;
    struct decode_params *p = &f->params;
    const size_t gws[3] = {(size_t)f->n_groups * program->items, 1, 1};
    const size_t lws[3] = {program->items, 1, 1};
    enum status status = ST_OK;
    if (f->unsure) { /* both sides count arrivals from zero again */
        p->arrivals = 0;
        status =
            queue_write(d, QUEUE_COMPUTE, f->control, 0, no_control, sizeof no_control, "table", e);
    }
    f->unsure = true;
    p->timed = p->n_tokens > 0 && prof_enabled(d);
    if (status == ST_OK)
        status = kernel_set_bytes(program->kernel, ARGUMENT_PARAMS, p, sizeof *p, e);
    if (status == ST_OK)
        status =
            kernel_launch(program->kernel, gws, lws, "decode", "one_launch", launch_bytes(f), 0, e);
    if (status == ST_OK)
        status = queue_read(d, QUEUE_COMPUTE, f->control, 0, f->result,
                            RESULT_WORDS * sizeof *f->result, "arg-max", e);
    const uint64_t row_bytes = f->n_vocab * sizeof(float);
    if (status == ST_OK && call && call->n_logits > 0)
        status = queue_read(d, QUEUE_COMPUTE, f->work,
                            f->logits_at + (call->n_rows - call->n_logits) * row_bytes,
                            call->logits, call->n_logits * row_bytes, "logits", e);
    enum status waited = queue_wait(d, QUEUE_COMPUTE, status == ST_OK ? e : NULL);
    if (status == ST_OK)
        status = waited;
    if (status != ST_OK)
        return status;
    if (f->result[DECODE_DEAD] != 0)
        return err_set(e, ST_TIMEOUT, "%u groups of %u items did not meet", f->n_groups,
                       program->items);
    p->arrivals += f->n_groups * (p->n_tokens > 0 ? p->n_tokens * f->n_phases : 1);
    f->unsure = false;
    if (p->timed)
        divide_launch(f);
    return ST_OK;
}

/* The smallest program that does so many sequences; NULL: none does. */
static const struct program *program_for(const struct fused_plan *f, uint32_t n_rows)
{
    const struct program *programs[] = {&f->one, &f->few, &f->many};
    for (uint32_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (programs[i]->kernel && n_rows <= programs[i]->max_rows)
            return programs[i];
    return NULL;
}

static enum status run_nvidia(struct fused_plan *f, const struct fused_call *call, struct err *e)
{
    const struct program *program = program_for(f, call->n_rows);
    struct decode_params *p = &f->params;
    if (!program || call->n_rows > f->max_rows)
        return refuse(e, "too many sequences at once");
    p->n_rows = call->n_rows;
    p->n_tokens = call->n_tokens;
    for (uint32_t r = 0; r < call->n_rows; r++) {
        p->first[r] = (uint32_t)call->first[r];
        p->position[r] = call->positions[r];
        p->slot[r] = call->slots[r];
    }
    enum status status = launch(f, program, call, e);
    for (uint32_t r = 0; r < call->n_rows && status == ST_OK; r++) {
        for (uint32_t t = 0; t < call->n_tokens; t++) {
            const uint32_t at = r * DECODE_AHEAD + t;
            call->out[r * call->n_tokens + t] = (token_id)f->result[DECODE_TOKENS + at];
            memcpy(&call->found[r * call->n_tokens + t], &f->result[DECODE_FOUND + at],
                   sizeof(float));
        }
    }
    return status;
}

/* ---- opening ---- */

/* Arguments, and one meeting of the groups; a kernel whose groups do not meet is given up. */
static enum status try_program(struct fused_plan *f, const struct decode_model *m,
                               struct program *p, struct err *e)
{
    f->params.n_rows = 1;
    f->params.n_tokens = 0;
    enum status status = set_arguments(f, m, p->kernel, e);
    if (status == ST_OK)
        status = launch(f, p, NULL, e);
    return status == ST_TIMEOUT ? refuse(e, "its work-groups did not meet") : status;
}

/* For up to n sequences, with `local` bytes of local memory; attention by teams of `team` warps. */
static enum status open_rows_in(struct fused_plan *f, const struct decode_model *m, uint32_t n,
                                uint32_t team, uint32_t local, struct program *p, struct err *e)
{
    const uint32_t slice = slice_in_local(&m->shape, f->n_groups, n, local);
    char more[96];
    if (slice < MIN_SLICE && slice < padded(m->shape.max_k))
        return refuse(e, "the device has too little local memory for several sequences");
    snprintf(more, sizeof more, "-DMAX_ROWS=%u -DMAX_SLOTS=%u -DMAX_SLICE=%u -DTEAM=%u", n,
             slots_of(&m->shape, f->n_groups), slice, team);
    enum status status = build(f, &m->shape, "nvidia/decode_rows.cl", "decode_rows", more, p, e);
    p->max_rows = n;
    return status == ST_OK ? try_program(f, m, p, e) : status;
}

/* Closes a program that could not be opened for want of support; other failures pass. */
static enum status do_without(struct program *p, enum status status)
{
    if (status != ST_UNSUPPORTED)
        return status;
    kernel_close(p->kernel);
    *p = (struct program){0};
    return ST_OK;
}

/* With the most local memory that a kernel can be built for; p stays empty when none is enough. */
static enum status open_rows(struct fused_plan *f, const struct decode_model *m, uint32_t n,
                             uint32_t team, struct program *p, struct err *e)
{
    static const uint32_t sizes[] = {222u << 10, 160u << 10, 96u << 10, SMALL_LOCAL};
    const uint32_t caps = device_caps(f->device);
    enum status status = ST_OK;
    if (!m->tiles || !(caps & CAP_PTX_MMA)) {
        refuse(e, "its rows do not divide into tiles, or the device lacks matrix units");
        return ST_OK;
    }
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes && status == ST_OK && !p->kernel; i++)
        if (sizes[i] == SMALL_LOCAL || caps & CAP_BIG_LOCAL)
            status = do_without(p, open_rows_in(f, m, n, team, sizes[i], p, e));
    return status;
}

/* Whether decode_ring.cl does the model, and was measured to be the faster kernel for what most of
 * its weights are. */
static bool ring_pays(const struct fused_plan *f, const struct decode_model *m)
{
    const uint32_t needs = CAP_BIG_LOCAL | CAP_PTX_WGMMA, type = m->shape.types[0];
    return (device_caps(f->device) & needs) == needs &&
           (m->dots ? type == DT_Q4_0 || type == DT_Q8_0
                    : m->float_dots && m->shape.n_types == 1 && type == DT_F16);
}

/* With a ring in as much local memory as a kernel can be built for. */
static enum status open_ring(struct fused_plan *f, const struct decode_model *m, struct err *e)
{
    static const uint32_t sizes[] = {222u << 10, 160u << 10, 96u << 10};
    enum status status = ST_OK;
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes && status == ST_OK && !f->one.kernel;
         i++) {
        char more[96];
        snprintf(more, sizeof more, "-DTEAM=0 -DMAX_SLOTS=%u -DLOCAL_BYTES=%u",
                 row_group_slots(&m->shape, f->n_groups), sizes[i]);
        status = build_for(f, &m->shape, "nvidia/decode_ring.cl", "decode_ring", RING_THREADS,
                           2 * RING_THREADS, more, &f->one, e);
        if (status == ST_OK) {
            /* it requires, and has, all its items, whatever less the driver says it may have */
            kernel_expect_work_group(f->one.kernel, f->one.items);
            status = try_program(f, m, &f->one, e);
        }
        status = do_without(&f->one, status);
    }
    return status;
}

static enum status open_one(struct fused_plan *f, const struct decode_model *m, struct err *e)
{
    enum status status = ring_pays(f, m) ? open_ring(f, m, e) : ST_OK;
    if (status == ST_OK && !f->one.kernel && m->dots) {
        char more[48];
        snprintf(more, sizeof more, "-DTEAM=0 -DMAX_SLOTS=%u",
                 row_group_slots(&m->shape, f->n_groups));
        status = build(f, &m->shape, "nvidia/decode.cl", "decode", more, &f->one, e);
        if (status == ST_OK)
            status = try_program(f, m, &f->one, e);
        status = do_without(&f->one, status);
    }
    f->one.max_rows = 1;
    return status;
}

static void close_nvidia(struct fused_plan *f)
{
    if (!f)
        return;
    kernel_close(f->one.kernel);
    kernel_close(f->few.kernel);
    kernel_close(f->many.kernel);
    buffer_close(f->table);
    buffer_close(f->work);
    buffer_close(f->control);
    buffer_close(f->results);
    mem_free(f);
}

static enum status open_nvidia(const struct plan *plan, struct fused_plan **out, struct err *e)
{
    struct device *d = plan->context->device;
    const uint32_t needs = CAP_PTX_DP4A | CAP_PERSISTENT, n_slots = plan->context->kv->n_slots;
    struct decode_model m;
    if ((device_caps(d) & needs) != needs)
        return refuse(e, "the device lacks dp4a or resident groups");
    struct fused_plan *f = mem_zalloc(sizeof *f);
    if (!f)
        return err_set(e, ST_NO_MEMORY, "one-launch decoding: %zu bytes", sizeof *f);
    enum status status = decode_read_plan(plan, &m, e);
    if (status != ST_OK)
        goto out;
    f->device = d;
    f->n_groups = device_info(d)->compute_units;
    if (f->n_groups > DECODE_GROUPS)
        f->n_groups = DECODE_GROUPS;
    f->n_phases = 5 * m.shape.n_layer + 1;
    f->n_layer = m.shape.n_layer;
    f->n_vocab = m.shape.n_vocab;
    f->max_rows = n_slots < DECODE_ROWS ? n_slots : DECODE_ROWS;
    f->cell_bytes = UINT64_C(4) * m.shape.n_layer * m.shape.n_head_kv * m.shape.head_dim;
    memcpy(f->phase_bytes, m.phase_bytes, sizeof f->phase_bytes);
    f->params.settings = m.settings;
    status = upload(f, &m, e);
    if (status == ST_OK)
        status = open_one(f, &m, e);
    if (status == ST_OK && (n_slots > 1 || !f->one.kernel))
        status = open_rows(f, &m, n_slots > 1 ? FEW_ROWS : 1, 0, &f->few, e);
    if (status == ST_OK && n_slots > FEW_ROWS)
        status = open_rows(f, &m, DECODE_ROWS, MANY_TEAM, &f->many, e);
    if (status == ST_OK && !f->one.kernel && !f->few.kernel && !f->many.kernel)
        status = ST_UNSUPPORTED; /* *e says why */
out:
    mem_free(m.head);
    if (status != ST_OK) {
        close_nvidia(f);
        return status;
    }
    *out = f;
    return ST_OK;
}

const struct fused_executor fused_nvidia = {.name = "one_launch_nvidia",
                                            .max_rows = DECODE_ROWS,
                                            .plan_tokens = 1,
                                            .max_tokens = DECODE_AHEAD,
                                            .open = open_nvidia,
                                            .run = run_nvidia,
                                            .close = close_nvidia};
