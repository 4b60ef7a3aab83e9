/* The vocabulary of a GGUF file, checked, as a tokenizer. */
#ifndef OINFER_MODEL_VOCAB_H
#define OINFER_MODEL_VOCAB_H

#include "engine/base/err.h"
#include "engine/model/gguf.h"
#include "engine/text/tokenizer.h"

/* Opens the tokenizer of `g`, which may be closed afterwards. Checks the type and length of every
 * array, every special id against the number of tokens, and the rows of token_embd.weight, where
 * the file has it, against it. ST_FORMAT, ST_UNSUPPORTED, ST_NO_MEMORY. */
enum status vocab_open(const struct gguf *g, struct tokenizer **out, struct err *e);

#endif
