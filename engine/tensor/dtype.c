/* The dtype table and the 16-bit float conversions. Pure functions. */
#include "engine/tensor/dtype.h"

#include <string.h>
#include <strings.h>

static const struct dtype_info table[DT_COUNT] = {
#define X(id, number, name, block, bytes, compute) [number] = {name, block, bytes, compute},
#include "engine/tensor/dtype.def"
#undef X
};

const struct dtype_info *dtype_info(uint32_t id)
{
    return id < DT_COUNT && table[id].name != NULL ? &table[id] : NULL;
}

const char *dtype_name(uint32_t id)
{
    const struct dtype_info *info = dtype_info(id);
    return info != NULL ? info->name : "unknown";
}

bool dtype_parse(const char *name, enum dtype *out)
{
    for (uint32_t i = 0; i < DT_COUNT; i++) {
        if (table[i].name != NULL && strcasecmp(name, table[i].name) == 0) {
            *out = (enum dtype)i;
            return true;
        }
    }
    return false;
}

bool dtype_row_bytes(enum dtype dtype, uint64_t ne, uint64_t *bytes)
{
    const struct dtype_info *info = dtype_info((uint32_t)dtype);
    if (info == NULL || ne % info->block != 0)
        return false;
    return !__builtin_mul_overflow(ne / info->block, info->block_bytes, bytes);
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 0x1F;
    uint32_t mantissa = h & 0x3FF;
    if (exponent == 0x1F)
        return float_of(sign | 0x7F800000 | mantissa << 13);
    if (exponent != 0)
        return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f; /* subnormal or zero */
    return sign != 0 ? -magnitude : magnitude;
}

uint16_t float_to_half(float f)
{
    uint32_t bits = bits_of(f);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000)
        return (uint16_t)(sign | 0x7E00);
    if (magnitude >= 0x477FF000) /* rounds to 65536 or more: infinity */
        return (uint16_t)(sign | 0x7C00);
    if (magnitude < 0x38800000) {                  /* below 2^-14: subnormal, spacing 2^-24 */
        float scaled = float_of(magnitude) + 0.5f; /* 0.5 has an ulp of 2^-24: rounds to even */
        return (uint16_t)(sign | (bits_of(scaled) - 0x3F000000));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude + 0xFFF + odd - 0x38000000) >> 13);
}

float bf16_to_float(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t float_to_bf16(float f)
{
    uint32_t bits = bits_of(f);
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
