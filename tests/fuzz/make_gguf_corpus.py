#!/usr/bin/env python3
"""Makes the seeds of fuzz_gguf: python3 tests/fuzz/make_gguf_corpus.py tests/fuzz/corpus/gguf

Small files, each with one part of the format: every value type, arrays, tensors of several types, a
llama's hyper-parameters, a shard, and a few that are wrong in the way that readers get wrong.
"""
import os
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q",
           I64: "q", F64: "d"}


def text(value):
    value = value.encode()
    return struct.pack("<Q", len(value)) + value


def plain(kind, value):
    return text(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def scalar(key, kind, value):
    return text(key) + struct.pack("<I", kind) + plain(kind, value)


def array(key, kind, values):
    head = text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + b"".join(plain(kind, v) for v in values)


def tensor(name, ne, kind, offset):
    return text(name) + struct.pack("<I%dQIQ" % len(ne), len(ne), *ne, kind, offset)


def model(values=(), tensors=(), data=0, version=3, alignment=32):
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(values))
    head += b"".join(values) + b"".join(tensors)
    return head + bytes(-len(head) % alignment + data if data else 0)


def llama(*extra):
    p = "llama."
    return [scalar("general.architecture", STRING, "llama"), scalar(p + "block_count", U32, 2),
            scalar(p + "context_length", U32, 64), scalar(p + "embedding_length", U32, 32),
            scalar(p + "feed_forward_length", U32, 64), scalar(p + "attention.head_count", U32, 4),
            scalar(p + "attention.layer_norm_rms_epsilon", F32, 1e-5),
            array("tokenizer.ggml.tokens", STRING, ["<unk>", "a"]), *extra]


SEEDS = {
    "empty": model(),
    "version2": model(version=2),
    "big_endian": model(version=3 << 24),
    "scalars": model([scalar("k%d" % k, k, "text" if k == STRING else 1) for k in range(13)
                      if k != ARRAY]),
    "arrays": model([array("a%d" % k, k, ["x", ""] if k == STRING else [0, 1]) for k in range(13)
                     if k != ARRAY]),
    "nested": model([text("n") + struct.pack("<IIQ", ARRAY, ARRAY, 1)]),
    "alignment": model([scalar("general.alignment", U32, 64)], [tensor("t", [4], 0, 64)], 80,
                       alignment=64),
    "dims": model([], [tensor("t", [32, 2, 1, 1], 2, 0)], 36),
    "dtypes": model([], [tensor("f16", [2, 2], 1, 0), tensor("q4_0", [32], 2, 32),
                         tensor("q6_k", [256], 14, 64), tensor("bf16", [3], 30, 288)], 294),
    "overflow": model([], [tensor("t", [1 << 32, 1 << 32], 2, 0)], 32),
    "long_array": model([text("a") + struct.pack("<IIQ", ARRAY, U64, (1 << 61) + 1)]),
    "shard": model([scalar("split.no", U16, 0), scalar("split.count", U16, 2)]),
    "llama": model(llama()),
    "llama_gqa": model(llama(array("llama.attention.head_count_kv", I32, [2, 2]))),
    "llama_yarn": model(llama(scalar("llama.rope.scaling.type", STRING, "yarn"),
                              scalar("llama.rope.scaling.factor", F32, 4))),
    "llama_experts": model(llama(scalar("llama.expert_count", U32, 4),
                                 scalar("llama.expert_used_count", U32, 2))),
}


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, data in SEEDS.items():
        with open(os.path.join(sys.argv[1], name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
