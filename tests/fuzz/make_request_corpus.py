#!/usr/bin/env python3
"""Writes the corpus of fuzz_request: one file a body, the first byte chooses the route (0 completions, 1 tokenize,
2 detokenize). Run without arguments; files that are there already stay."""
import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "corpus" / "request"

COMPLETIONS = {
    "plain": {"prompt": "Hello"},
    "lists": {"prompt": [[1, 2], [3]], "stop": ["a", "\n\n"], "stop_token_ids": [0, 5], "n": 2, "best_of": 3},
    "sampling": {"prompt": ["a", "b"], "temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.9,
                 "repeat_penalty": 1.1, "repeat_last_n": -1, "presence_penalty": -2, "frequency_penalty": 2, "mirostat": 2,
                 "mirostat_tau": 5, "mirostat_eta": 0.1, "seed": 9007199254740992},
    "rest": {"prompt": [1], "model": "m", "max_tokens": 0, "echo": True, "suffix": "x", "logprobs": 20,
             "logit_bias": {"0": -100, "2147483647": 100}, "ignore_eos": True, "min_tokens": 3, "cache_prompt": False,
             "stream": True, "stream_options": {"include_usage": True, "x": 1}, "deadline_ms": 600000, "timings": "kernels",
             "user": "u", "unknown": [{"deep": [[]]}]},
    "refused": {"prompt": "x", "grammar": "root ::= x", "json_schema": {"$ref": "#"}, "response_format": {"type": "text"}},
    "nulls": {"prompt": "x", "stop": None, "n": None, "logit_bias": None, "stream_options": None},
    "empty": {"prompt": [[]]},
    "unicode": {"prompt": "é漢🙂\u0001\u2028"},
}
RAW = {
    "escapes": b'\x00{"prompt":"\\ud83d\\ude42\\u00e9\\b\\f\\/\\\\"}',
    "nul": b'\x00{"prompt":"a\\u0000b"}',
    "surrogate": b'\x00{"prompt":"\\ud800"}',
    "bom": b"\x00\xef\xbb\xbf{}",
    "duplicate": b'\x00{"prompt":"x","prompt":"y"}',
    "overflow": b'\x00{"prompt":"x","max_tokens":1e999,"seed":-1e-999}',
    "deep": b'\x00{"prompt":' + b"[" * 70 + b"]" * 70 + b"}",
    "utf8": b'\x00{"prompt":"\xc0\x80\xed\xa0\x80\xff"}',
    "tokenize": b'\x01{"content":"hello","add_special":true,"parse_special":false,"with_pieces":true}',
    "detokenize": b'\x02{"tokens":[0,1,2147483647]}',
}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, body in COMPLETIONS.items():
        (FOLDER / name).write_bytes(b"\x00" + json.dumps(body, ensure_ascii=False).encode())
    for name, data in RAW.items():
        (FOLDER / name).write_bytes(data)
    print(f"{len(COMPLETIONS) + len(RAW)} files in {FOLDER}")


if __name__ == "__main__":
    main()
