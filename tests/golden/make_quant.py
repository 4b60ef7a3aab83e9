#!/usr/bin/env python3
"""Makes quant.txt, the golden file of tests/unit/tensor/test_quant.c.

    python3 tests/golden/make_quant.py > tests/golden/quant.txt

Needs numpy, gguf 0.19.0 (the reference dequantiser and the reference quantisers of the simple
blocks) and llama-cpp-python 0.3.36 (its ggml library holds the reference quantisers of the K types).
Lines:
    source <f32 in hex> ...                      the values that are quantised
    dtype <name> <block bytes in hex> <f32 in hex> ...   blocks of random bits and their values
    rmse <name> <number>                         of the reference quantiser over `source`
Every f32 is 8 hex digits, most significant first.
"""
import ctypes
import glob
import os
import sys

import gguf
import llama_cpp
import numpy as np

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}  # where the half scales of a block are
N_SOURCE = 1024


def hex_floats(values):
    return " ".join("%08x" % v for v in np.asarray(values, np.float32).view(np.uint32))


def random_blocks(rng, name, block, size):
    """256 elements in blocks of random bits whose scales are finite and of both signs."""
    n = 256 // block
    if name == "F32":
        return rng.normal(0, 3, 256).astype(np.float32).view(np.uint8)
    if name in ("F16", "BF16"):
        bits = rng.integers(0, 1 << 16, 256, dtype=np.uint16)
        exponent = 0x7C00 if name == "F16" else 0x7F80
        bits[(bits & exponent) == exponent] ^= 0x4000  # no infinities, no NaN
        return bits.view(np.uint8)
    data = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in HALVES[name]:
        scales = rng.normal(0, 0.02, n).astype(np.float16)
        data[:, at:at + 2] = scales.view(np.uint8).reshape(n, 2)
    return data.reshape(-1)


def ggml_quantize(values, qtype, n_bytes):
    pattern = os.path.join(os.path.dirname(llama_cpp.__file__), "lib", "libggml-base.so*")
    library = ctypes.CDLL(sorted(glob.glob(pattern))[0])
    function = library.ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                         ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    out = np.zeros(n_bytes, np.uint8)
    function(int(qtype), values.ctypes.data, out.ctypes.data, 0, 1, len(values), None)
    return out


def main():
    rng = np.random.default_rng(20)
    spread = np.repeat(np.exp(rng.normal(-3, 1, N_SOURCE // 16)), 16)
    source = (rng.normal(0, 1, N_SOURCE) * spread + 0.01).astype(np.float32)
    print("source", hex_floats(source))
    for name in TYPES:
        qtype = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[qtype]
        data = random_blocks(rng, name, block, size)
        values = gguf.quants.dequantize(data, qtype)
        print("dtype", name.lower(), data.tobytes().hex(), hex_floats(values.reshape(-1)))
        try:
            packed = gguf.quants.quantize(source, qtype)
        except NotImplementedError:
            packed = ggml_quantize(source, qtype, N_SOURCE // block * size)
        back = gguf.quants.dequantize(packed.view(np.uint8), qtype).reshape(-1)
        error = np.sqrt(np.mean((back.astype(np.float64) - source) ** 2))
        print("rmse", name.lower(), "%.9g" % error)


if __name__ == "__main__":
    sys.exit(main())
