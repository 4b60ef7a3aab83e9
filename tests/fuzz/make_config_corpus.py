#!/usr/bin/env python3
"""Writes the corpora of fuzz_config and fuzz_http, whose first bytes say where and how the rest comes (see there)."""
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "corpus"

CONFIG = {
    "file": b"\x00[server]\nport = 8080\nhost = ::1\n; comment\n[model]\nmodel = a.gguf\nmodel = b.gguf\n",
    "file_bad": b"\x00port = 1\n[server\nport = 99999999999999999999\nport = -1\n[nothing]\nx\n = y\n[server]\nprot = 1\n",
    "file_long": b"\x00[server]\nhost = " + b"x" * 3000 + b"\n\nport=\x00\xff\n  continued\n",
    "environment": b"\x01OINFER_PORT=80\nOINFER_LOG_LEVEL=debug\nOINFER_MODEL=a:b::c\nOINFER_BODY=1 MiB\nHOME=/\n",
    "arguments": b"\x02--port\n8080\n--body=4MiB\n--drain-time\n1500ms\n--model=a\n--open\n--queue\nx\nfile\n--\n---\n",
    "actions": b"\x02--help\n--version\n--check\n",
    "edges": b"\x02--port=65536\n--ctx=-9223372036854775808\n--body=9223372036854775807GiB\n--drain-time=1e9h\n--kv=q9\n",
}
HTTP = {
    "get": b"\x00GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    "post": b"\x01POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"x\"}",
    "chunked": b"\x02POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
    "pipeline": b"\x03" + b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n" * 6,
    "half": b"\x04POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
    "too_large": b"\x01POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 100,
    "expect": b"\x01POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    "two_lengths": b"\x00POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
    "both": b"\x00POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "old": b"\x05GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "no_host": b"\x00GET / HTTP/1.1\r\n\r\n",
    "version": b"\x00GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    "folded": b"\x00GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\td\r\n: e\r\n\r\n",
    "long_header": b"\x00GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 9000 + b"\r\n\r\n",
    "key": b"\x02POST /x?%00=%zz&a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nContent-Length: 4\r\n\r\nbody",
    "bytes": b"\x00\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


def main():
    for folder, files in (("config", CONFIG), ("http", HTTP)):
        (FOLDER / folder).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (FOLDER / folder / name).write_bytes(data)
        print(f"{len(files)} files in {FOLDER / folder}")


if __name__ == "__main__":
    main()
