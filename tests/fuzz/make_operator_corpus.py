#!/usr/bin/env python3
"""Writes the corpora of fuzz_npy (files of numpy and broken ones) and fuzz_operator (one file a body: the first byte is the
operator's place in fields.def, plus 128 for multipart with the boundary x). Run without arguments."""
import io
import json
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent / "corpus"
OPS = ["matmul", "conv2d", "softmax", "argmax", "gemv", "attention", "sparse_gemv", "norm", "rope", "elementwise"]
BODIES = {
    "matmul": {"m": 2, "n": 2, "k": 2, "batch": 1, "trans_a": True, "alpha": 0.5, "beta": 1, "dtype": "f16", "variant": "naive",
               "params": {"LWS": 64}, "inputs": {"a": [[1, 2], [3, 4]], "b": [[[1, 2], [3, 4]]], "c": [[0, 0], [0, 0]]}},
    "conv2d": {"c": 2, "h": 3, "w": 3, "o": 2, "kh": 2, "kw": 2, "stride": [1, 2], "pad": 1, "dilation": [1, 1], "groups": 2, "bias": True,
               "activation": "silu", "layout": "nhwc", "inputs": {"b": [1, 2]}},
    "softmax": {"rows": 1, "len": 3, "scale": -1, "log": True, "mask": True, "inputs": {"mask": [0, -1e38, 0]}},
    "argmax": {"rows": 2, "len": 3, "top_k": 2, "device": "host", "seed": 4294967295, "deadline_ms": 1000, "unknown": 1},
    "gemv": {"m": 1, "k": 32, "wtype": "q4_0", "warmup": 0, "iterations": 1000, "verify": True, "return_output": True},
    "attention": {"n_head": 4, "n_head_kv": 2, "head_dim": 8, "n_q": 2, "n_kv": 5, "causal": True, "window": 2, "softcap": 1, "kv_dtype": "f32"},
    "sparse_gemv": {"m": 2, "k": 3, "format": "csr", "inputs": {"values": [1, 2], "col_indices": [0, 2], "row_ptr": [0, 1, 2], "x": [1, 2, 3]}},
    "norm": {"rows": 1, "len": 4, "kind": "layer", "eps": 0, "inputs": {"x": [[1, 2, 3, 4]], "weight": [1, 1, 1, 1], "bias": [0, 0, 0, 0]}},
    "rope": {"n_tokens": 2, "n_head": 1, "head_dim": 2, "base": 10, "mode": "neox", "positions": [0, 9]},
    "elementwise": {"fn": "scale", "n": 2, "factor": 1e38, "inputs": {"x": [1, -1e38]}},
}


def npy(array, version=(1, 0)):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version, allow_pickle=False)
    return out.getvalue()


def write(folder, files):
    (FOLDER / folder).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (FOLDER / folder / name).write_bytes(data)
    print(f"{len(files)} files in {FOLDER / folder}")


def main():
    f4 = npy(np.arange(6, dtype=np.float32).reshape(2, 3))
    write("npy", {"f4": f4, "f2_v2": npy(np.arange(3, dtype=np.float16), (2, 0)), "i4": npy(np.int32([[1], [-1]])),
                  "scalar": npy(np.float32(1)), "empty": npy(np.zeros((0, 3), np.float32)), "cut": f4[:-1], "head": f4[:30],
                  "fortran": npy(np.asfortranarray(np.ones((2, 2), np.float32))), "structured": npy(np.zeros(1, [("a", "<f4")])),
                  "compact": b"\x93NUMPY\x01\x00\x36\x00{\"shape\":(2L,),'fortran_order':False,'descr':'<f4'}" + b" " * 5 + b"\n" + b"\0" * 8,
                  "huge": b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + f4[10:], "overflow": f4.replace(b"(2, 3), }", b"(4611686018427387904, 8), }"[:9])})
    bodies = {op: bytes([OPS.index(op)]) + json.dumps(body).encode() for op, body in BODIES.items()}
    part = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    request = part % (b"request", b'{"fn": "add", "n": 3}')
    whole = bytes([128 + 9]) + request + part % (b"x", npy(np.float32([1, 2, 3]))) + part % (b"y", npy(np.float16([1, 2, 3]))) + b"--x--\r\n"
    sparse = part % (b"request", b'{"m": 1, "k": 4, "format": "2:4"}') + part % (b"values", npy(np.ones((1, 2), np.float32))) + \
        part % (b"col_indices", npy(np.int32([[4]]))) + part % (b"x", npy(np.ones(4, np.float32)))
    write("operator", {**bodies, "parts": whole, "sparse_parts": bytes([128 + 6]) + sparse + b"--x--",
                       "preamble": bytes([137]) + b"before\r\n" + request + b"--x--after", "no_end": bytes([137]) + request,
                       "unquoted": bytes([137]) + request.replace(b'"request"', b"request") + b"--x--"})


if __name__ == "__main__":
    main()
