#!/usr/bin/env python3
"""Writes golden/continuations.txt: llama.cpp's greedy continuations of ten prompts under a model.

    python tests/golden/make_continuations.py MODEL.gguf        (needs llama-cpp-python==0.3.36)

A line per prompt: the prompt as a JSON string, a tab, N_TOKENS ids separated by spaces (fewer where an end-of-generation
token came: it is the last one). The prompt is tokenised as a completion's is: BOS where the model asks for it.

Both engines round activations to int8, each in its own order of sums, and SmolLM2-135M turns that into differences of 0.1 to
0.6 in its logits (llama.cpp's own NMSE to float64 is 1e-4 to 1e-2): a prompt along which two tokens nearly tie says nothing.
So of the candidates those ten are kept whose smallest distance between the two best logits is the largest.
"""
import json
import math
import pathlib
import sys

import llama_cpp
import numpy

N_TOKENS = 64
N_CTX = 512
HERE = pathlib.Path(__file__).parent
QUESTIONS = ["What is 2 + 2?", "Name three colours.", "What is the capital of Italy?", "How many days are in a week?",
             "What colour is the sky?", "List the planets of the solar system.", "What is the opposite of hot?",
             "Spell the word cat.", "What is the first letter of the alphabet?", "Say hello."]
CANDIDATES = [
    "1, 2, 3, 4, 5, 6,", "10, 20, 30, 40, 50,", "100, 99, 98, 97, 96,", "2, 4, 6, 8, 10, 12,", "5, 10, 15, 20, 25, 30,",
    "100, 200, 300, 400, 500,", "1. one\n2. two\n3. three\n4. four\n", "21, 22, 23, 24, 25, 26,", "0, 1, 2, 3, 4, 5,",
    "The alphabet is a b c d e f g", "The capital of France is", "The sun rises in the east and",
    "The sun rises in the east and sets in the west. The sun rises in the east and", "ha ha ha ha ha",
    "for i in range(10):\n    print(", "class Stack:\n    def __init__(self):\n", "def fibonacci(n):\n",
] + [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in QUESTIONS]
N_PROMPTS = 10


def continue_greedily(model, vocab, prompt):
    """The continuation, and the smallest distance of the two best logits along it."""
    tokens = model.tokenize(prompt.encode(), add_bos=llama_cpp.llama_vocab_get_add_bos(vocab), special=True)
    model.reset()
    model.eval(tokens)
    out, margin = [], math.inf
    while len(out) < N_TOKENS:
        logits = model.scores[model.n_tokens - 1]
        second, first = numpy.argsort(logits)[-2:]
        out.append(int(first))
        margin = min(margin, float(logits[first] - logits[second]))
        if llama_cpp.llama_vocab_is_eog(vocab, out[-1]):
            break
        model.eval([out[-1]])
    return out, margin


def main():
    model = llama_cpp.Llama(sys.argv[1], n_ctx=N_CTX, n_batch=N_CTX, n_threads=2, logits_all=True, verbose=False)
    vocab = llama_cpp.llama_model_get_vocab(model.model)
    found = [(p, *continue_greedily(model, vocab, p)) for p in CANDIDATES]
    found.sort(key=lambda row: -row[2])
    lines = [f"{json.dumps(p)}\t{' '.join(map(str, out))}" for p, out, _ in found[:N_PROMPTS]]
    (HERE / "continuations.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for p, out, margin in found:
        print(f"{margin:.3f} {len(out)} {p!r}")


if __name__ == "__main__":
    main()
