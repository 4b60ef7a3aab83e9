/* A tensor: a plain value that says where numbers lie. Owns nothing. */
#ifndef OINFER_TENSOR_TENSOR_H
#define OINFER_TENSOR_TENSOR_H

#include "engine/tensor/dtype.h"

struct buffer;

struct tensor {
    struct buffer *buffer; /* borrowed */
    uint64_t offset;       /* bytes into the buffer */
    uint64_t bytes;        /* length there */
    enum dtype dtype;
    uint32_t layout; /* enum weight_layout, ACT_* or KV_*, as the op says; 0: plain row-major */
    uint64_t ne[4];  /* elements per dimension, ne[0] contiguous */
};

#endif
