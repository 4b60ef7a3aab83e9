/* The forward pass of architecture llama in double, over the dequantised weights of a GGUF: what
 * the engine's logits are compared with. Plain loops, nothing shared with engine/model but the
 * reader of the file: it is an executable specification. */
#ifndef OINFER_TESTS_GOLDEN_REFERENCE_H
#define OINFER_TESTS_GOLDEN_REFERENCE_H

#include <stdint.h>

/* Logits after each of n tokens of one sequence: [n][n_vocab], to be freed with free(). NULL when
 * the file cannot be read or memory is short. */
double *reference_logits(const char *path, const int32_t *tokens, uint32_t n, uint32_t *n_vocab);

#endif
