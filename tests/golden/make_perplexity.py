#!/usr/bin/env python3
"""Writes golden/perplexity.txt: llama.cpp's perplexity of golden/text.txt under a model.

    python tests/golden/make_perplexity.py [--float] MODEL.gguf     (needs llama-cpp-python==0.3.36; --float: gguf==0.19.0)

--float writes perplexity_float.txt: llama.cpp runs the model's weights dequantised to F32, for which it does not round
activations to int8 as it does for quantised weights on a CPU.

As llama.cpp's perplexity tool counts: the text is cut into chunks of N_CTX tokens (a rest is dropped); where the vocabulary
asks for BOS it replaces the first token of each chunk; each chunk starts with an empty cache; the tokens after the chunk's
first half are scored. The KV cache is f16.
"""
import contextlib
import math
import pathlib
import sys
import tempfile

import llama_cpp
import numpy

N_CTX = 512
HERE = pathlib.Path(__file__).parent


def log_probabilities(logits):
    """Log softmax of each row, in float64."""
    logits = logits.astype(numpy.float64)
    top = logits.max(axis=1, keepdims=True)
    return logits - top - numpy.log(numpy.exp(logits - top).sum(axis=1, keepdims=True))


@contextlib.contextmanager
def dequantised(path):
    """The path of a copy of the model with all its tensors in F32."""
    import gguf
    from gguf.quants import dequantize

    reader = gguf.GGUFReader(path)
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / pathlib.Path(path).name
        writer = gguf.GGUFWriter(copy, reader.fields["general.architecture"].contents())
        for field in reader.fields.values():
            if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
                continue
            kind, items = field.types[0], field.types[-1]
            writer.add_key_value(field.name, field.contents(), kind, items if kind == gguf.GGUFValueType.ARRAY else None)
        for tensor in reader.tensors:
            writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        yield copy


def main():
    if sys.argv[1] == "--float":
        with dequantised(sys.argv[2]) as path:
            write(path, "perplexity_float.txt")
    else:
        write(sys.argv[1], "perplexity.txt")


def write(path, name):
    model = llama_cpp.Llama(str(path), n_ctx=N_CTX, n_batch=N_CTX, n_threads=2, logits_all=True, verbose=False)
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
    lines = [f"model {pathlib.Path(path).name}", f"tokens {len(tokens)}", f"n_ctx {N_CTX}", f"chunks {chunks}",
             f"scored {chunks * (N_CTX - 1 - first)}", f"perplexity {math.exp(sum(losses) / chunks):.5f}"]
    lines += [f"chunk {i} {math.exp(loss):.5f}" for i, loss in enumerate(losses)]
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
