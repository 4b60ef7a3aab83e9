#!/usr/bin/env python3
"""Writes golden/perplexity.txt: llama.cpp's perplexity of golden/text.txt under a model.

    python tests/golden/make_perplexity.py MODEL.gguf        (needs llama-cpp-python==0.3.36)

As llama.cpp's perplexity tool counts: the text is cut into chunks of N_CTX tokens (a rest is dropped); where the vocabulary
asks for BOS it replaces the first token of each chunk; each chunk starts with an empty cache; the tokens after the chunk's
first half are scored. The KV cache is f16.
"""
import math
import pathlib
import sys

import llama_cpp
import numpy

N_CTX = 512
HERE = pathlib.Path(__file__).parent


def log_probabilities(logits):
    """Log softmax of each row, in float64."""
    logits = logits.astype(numpy.float64)
    top = logits.max(axis=1, keepdims=True)
    return logits - top - numpy.log(numpy.exp(logits - top).sum(axis=1, keepdims=True))


def main():
    model = llama_cpp.Llama(sys.argv[1], n_ctx=N_CTX, n_batch=N_CTX, n_threads=2, logits_all=True, verbose=False)
    vocab = llama_cpp.llama_model_get_vocab(model.model)
    add_bos = llama_cpp.llama_vocab_get_add_bos(vocab)
    tokens = model.tokenize((HERE / "text.txt").read_bytes(), add_bos=add_bos, special=False)
    chunks = len(tokens) // N_CTX
    first = N_CTX // 2
    losses = []
    for i in range(chunks):
        chunk = tokens[i * N_CTX:(i + 1) * N_CTX]
        if add_bos:
            chunk[0] = model.token_bos()
        model.reset()
        model.eval(chunk)
        scores = log_probabilities(model.scores[first:N_CTX - 1])
        losses.append(-scores[numpy.arange(len(scores)), chunk[first + 1:]].mean())
    lines = [f"model {pathlib.Path(sys.argv[1]).name}", f"tokens {len(tokens)}", f"n_ctx {N_CTX}", f"chunks {chunks}",
             f"scored {chunks * (N_CTX - 1 - first)}", f"perplexity {math.exp(sum(losses) / chunks):.5f}"]
    lines += [f"chunk {i} {math.exp(loss):.5f}" for i, loss in enumerate(losses)]
    (HERE / "perplexity.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
