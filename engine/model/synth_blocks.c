/* Random weights, written directly as blocks of their dtype: nothing is quantised.
 *
 * A block is filled with random bits; then its scales are set so that the values have the asked
 * spread. With a scale of 1 random quants have a root mean square that depends on the dtype only
 * (`unit` below). Each tensor has its own stream of random numbers (splitmix64, seeded by a hash of
 * its name), so that its bytes depend on nothing else.
 */
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/mem.h"
#include "engine/model/synth_internal.h"
#include "engine/tensor/quant.h"
#include "kernels/quant.h"

#define CHUNK_BYTES ((size_t)1 << 20)

struct stream {
    uint64_t state;
};

static uint64_t next_bits(struct stream *s)
{
    uint64_t z = s->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Uniform in [0, 1). */
static float next_unit(struct stream *s)
{
    return (float)(next_bits(s) >> 40) * 0x1p-24f;
}

/* A scale within a quarter of `scale`, so that blocks differ. */
static float vary(struct stream *s, float scale)
{
    return scale * (0.75f + 0.5f * next_unit(s));
}

/* The same with a random sign: for types whose quants reach lower than they reach up. */
static float vary_sign(struct stream *s, float scale)
{
    return (next_bits(s) & 1) != 0 ? vary(s, scale) : -vary(s, scale);
}

static void set_q4_0(void *at, struct stream *s, float scale)
{
    struct block_q4_0 *block = at;
    block->d = float_to_half(vary_sign(s, scale));
}

static void set_q4_1(void *at, struct stream *s, float scale)
{
    struct block_q4_1 *block = at;
    float d = vary(s, scale);
    block->d = float_to_half(d);
    block->m = float_to_half(-7.5f * d);
}

static void set_q5_0(void *at, struct stream *s, float scale)
{
    struct block_q5_0 *block = at;
    block->d = float_to_half(vary_sign(s, scale));
}

static void set_q5_1(void *at, struct stream *s, float scale)
{
    struct block_q5_1 *block = at;
    float d = vary(s, scale);
    block->d = float_to_half(d);
    block->m = float_to_half(-15.5f * d);
}

static void set_q8_0(void *at, struct stream *s, float scale)
{
    struct block_q8_0 *block = at;
    block->d = float_to_half(vary(s, scale));
    for (int i = 0; i < QUANT_BLOCK; i++)
        if (block->qs[i] == -128) /* no quantiser makes it */
            block->qs[i] = 127;
}

/* Makes the min of each group equal to its scale: with dmin = centre * d values are centred. */
static void mirror_scales(uint8_t *packed)
{
    for (int j = 0; j < 4; j++) {
        packed[j + 4] = packed[j];
        packed[j + 8] = (uint8_t)((packed[j + 8] & 15) * 17);
    }
}

static void set_q4_k(void *at, struct stream *s, float scale)
{
    struct block_q4_k *block = at;
    float d = vary(s, scale);
    block->d = float_to_half(d);
    block->dmin = float_to_half(7.5f * d);
    mirror_scales(block->scales);
}

static void set_q5_k(void *at, struct stream *s, float scale)
{
    struct block_q5_k *block = at;
    float d = vary(s, scale);
    block->d = float_to_half(d);
    block->dmin = float_to_half(15.5f * d);
    mirror_scales(block->scales);
}

static void set_q6_k(void *at, struct stream *s, float scale)
{
    struct block_q6_k *block = at;
    block->d = float_to_half(vary_sign(s, scale));
}

/* unit: root mean square of random quants at scale 1. Uniform integers 0..n-1 deviate by
 * sqrt((n^2 - 1) / 12); six-bit scales add a factor of 36.5, signed bytes one of 73.9. */
static const struct maker {
    float unit;
    void (*set)(void *block, struct stream *s, float scale);
} makers[DT_COUNT] = {
    [DT_Q4_0] = {4.64f, set_q4_0},  [DT_Q4_1] = {4.61f, set_q4_1},   [DT_Q5_0] = {9.25f, set_q5_0},
    [DT_Q5_1] = {9.23f, set_q5_1},  [DT_Q8_0] = {73.9f, set_q8_0},   [DT_Q4_K] = {168.0f, set_q4_k},
    [DT_Q5_K] = {337.0f, set_q5_k}, [DT_Q6_K] = {1365.0f, set_q6_k},
};

/* n_blocks random blocks of a quantised dtype. */
static void fill_blocks(const struct synth_weights *weights, struct stream *s, unsigned char *out,
                        uint64_t n_blocks)
{
    const struct maker *maker = &makers[weights->dtype];
    size_t size = dtype_info((uint32_t)weights->dtype)->block_bytes;
    size_t n = (size_t)n_blocks * size;
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t bits = next_bits(s);
        memcpy(out + i, &bits, n - i < sizeof bits ? n - i : sizeof bits);
    }
    for (uint64_t b = 0; b < n_blocks; b++)
        maker->set(out + b * size, s, weights->spread / maker->unit);
}

/* n values of F32, F16 or BF16, uniform around the mean. */
static enum status fill_plain(const struct synth_weights *weights, struct stream *s,
                              unsigned char *out, uint64_t n, struct err *e)
{
    enum { PIECE = 1024 };
    float values[PIECE];
    size_t size = dtype_info((uint32_t)weights->dtype)->block_bytes;
    for (uint64_t done = 0; done < n; done += PIECE) {
        uint64_t count = n - done < PIECE ? n - done : PIECE;
        for (uint64_t i = 0; i < count; i++)
            values[i] =
                weights->mean + weights->spread * sqrtf(3.0f) * (2.0f * next_unit(s) - 1.0f);
        enum status status = quant_from_f32(weights->dtype, values, out + done * size, count, e);
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

enum status synth__write_weights(struct gguf_writer *w, const struct synth_weights *weights,
                                 struct err *e)
{
    const struct dtype_info *info = dtype_info((uint32_t)weights->dtype);
    unsigned char *chunk = mem_alloc(CHUNK_BYTES);
    if (chunk == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory for a chunk of %zu bytes", CHUNK_BYTES);
    struct stream s = {XXH3_64bits_withSeed(weights->name, strlen(weights->name), weights->seed)};
    const uint64_t chunk_blocks = CHUNK_BYTES / info->block_bytes & ~(uint64_t)1;
    enum status status = ST_OK;
    uint64_t left = weights->n / info->block;
    while (left > 0 && status == ST_OK) {
        uint64_t n_blocks = left < chunk_blocks ? left : chunk_blocks;
        if (makers[weights->dtype].set != NULL)
            fill_blocks(weights, &s, chunk, n_blocks);
        else
            status = fill_plain(weights, &s, chunk, n_blocks, e);
        if (status == ST_OK)
            status = gguf_writer_data(w, chunk, (size_t)n_blocks * info->block_bytes, e);
        left -= n_blocks;
    }
    mem_free(chunk);
    return status;
}
