#!/usr/bin/env python3
"""Prints the perplexity of golden/text.txt under a llama GGUF without any rounding of activations: EXACT in test_perplexity.c.

    python tests/golden/make_exact_perplexity.py MODEL.gguf     (needs llama-cpp-python==0.3.36, gguf==0.19.0, numpy)

The weights are dequantised by the gguf package, the matrix products are float32, K and V pass through float16 as in the
cache. The text is cut and scored as in make_perplexity.py; the vocabulary must not ask for BOS.
"""
import math
import pathlib
import sys

import gguf
import llama_cpp
import numpy as np
from gguf.quants import dequantize

N_CTX = 512
HERE = pathlib.Path(__file__).parent


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        key = lambda name: reader.fields[f"llama.{name}"].contents()
        self.w = {t.name: np.ascontiguousarray(dequantize(t.data, t.tensor_type), np.float32) for t in reader.tensors}
        self.n_layer, self.n_head = key("block_count"), key("attention.head_count")
        self.n_head_kv, self.eps = key("attention.head_count_kv"), np.float32(key("attention.layer_norm_rms_epsilon"))
        self.head_dim = key("embedding_length") // self.n_head
        angles = np.arange(N_CTX)[:, None] * key("rope.freq_base") ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        self.cos, self.sin = np.cos(angles).astype(np.float32)[:, None], np.sin(angles).astype(np.float32)[:, None]
        self.mask = np.where(np.tril(np.ones((N_CTX, N_CTX))) > 0, 0, -np.inf).astype(np.float32)

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name + ".weight"]

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T

    def rope(self, x):
        x = x.reshape(N_CTX, -1, self.head_dim)
        a, b, out = x[..., 0::2], x[..., 1::2], np.empty_like(x)
        out[..., 0::2], out[..., 1::2] = a * self.cos - b * self.sin, a * self.sin + b * self.cos
        return out

    def attention(self, q, k, v):
        out = np.empty_like(q)
        for h in range(self.n_head):
            kv = h // (self.n_head // self.n_head_kv)
            p = q[:, h] @ k[:, kv].T / np.float32(math.sqrt(self.head_dim)) + self.mask
            p = np.exp(p - p.max(-1, keepdims=True))
            out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, kv]
        return out.reshape(N_CTX, -1)

    def logits(self, ids):
        cached = lambda x: x.astype(np.float16).astype(np.float32)
        x = self.w["token_embd.weight"][ids]
        for i in range(self.n_layer):
            blk = f"blk.{i}."
            h = self.norm(x, blk + "attn_norm")
            q, k = self.rope(self.linear(h, blk + "attn_q")), cached(self.rope(self.linear(h, blk + "attn_k")))
            v = cached(self.linear(h, blk + "attn_v").reshape(N_CTX, -1, self.head_dim))
            x = x + self.linear(self.attention(q, k, v), blk + "attn_output")
            h = self.norm(x, blk + "ffn_norm")
            gate = self.linear(h, blk + "ffn_gate")
            x = x + self.linear(gate / (1 + np.exp(-gate)) * self.linear(h, blk + "ffn_up"), blk + "ffn_down")
        return self.linear(self.norm(x, "output_norm"), "output" if "output.weight" in self.w else "token_embd")


def main():
    vocab = llama_cpp.Llama(sys.argv[1], vocab_only=True, verbose=False)
    tokens = vocab.tokenize((HERE / "text.txt").read_bytes(), add_bos=False, special=False)
    model, losses, half = Model(sys.argv[1]), [], N_CTX // 2
    for i in range(len(tokens) // N_CTX):
        ids = tokens[i * N_CTX:(i + 1) * N_CTX]
        scores = model.logits(ids)[half:-1].astype(np.float64)
        scores -= scores.max(-1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(-1, keepdims=True))
        losses.append(-scores[np.arange(len(scores)), ids[half + 1:]].mean())
    print(f"{math.exp(sum(losses) / len(losses)):.5f}")


if __name__ == "__main__":
    main()
