"""Every way to be refused: the error table, and bodies made to break parsers. On the fake engine."""
import json
import re

import pytest
import requests

from daemon import raw_request, read_reply


def check_error(reply, status, kind, code=None, param=None):
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"} and error["message"]
    assert error["type"] == kind
    assert error["code"] == code and error["param"] == param, error


def send(daemon, body, **options):
    data = body if isinstance(body, bytes) else body.encode()
    return daemon.post("/v1/completions", data=data, headers={"Content-Type": "application/json"}, **options)


def test_route_and_method(fake):
    check_error(fake.get("/nope"), 404, "invalid_request_error", "not_found")
    check_error(fake.post("/v1/models/"), 404, "invalid_request_error", "not_found")
    reply = fake.get("/v1/completions")
    check_error(reply, 405, "invalid_request_error", "method_not_allowed")
    assert reply.headers["Allow"] == "POST"
    reply = fake.session.delete(fake.url + "/health")
    check_error(reply, 405, "invalid_request_error", "method_not_allowed")
    assert reply.headers["Allow"] == "GET, HEAD"
    head = fake.session.head(fake.url + "/health")
    assert head.status_code == 200 and head.content == b""


def test_cors_is_off(fake):
    reply = fake.session.options(fake.url + "/v1/completions", headers={"Origin": "http://elsewhere.example"})
    assert reply.status_code == 405 and "Access-Control-Allow-Origin" not in reply.headers
    reply = fake.get("/health", headers={"Origin": "http://elsewhere.example"})
    assert "Access-Control-Allow-Origin" not in reply.headers


def test_media_type(fake):
    for kind in ("text/xml", "multipart/form-data; boundary=x", "application/jsonp"):
        reply = fake.post("/v1/completions", data=b'{"prompt":"x"}', headers={"Content-Type": kind})
        check_error(reply, 415, "invalid_request_error", "unsupported_media_type")
    for kind in ("application/json; charset=utf-8", "application/x-www-form-urlencoded", ""):
        reply = fake.post("/v1/completions", data=b'{"prompt":"x"}', headers={"Content-Type": kind})
        assert reply.status_code == 200, kind


def test_model_unknown(fake):
    check_error(fake.post("/v1/completions", {"prompt": "x", "model": "other"}), 404, "invalid_request_error",
                "model_not_found", "model")
    for name in ("fake", "Fake Model", ""):
        assert fake.complete(prompt="x", model=name)["model"] == "fake"


def test_no_request_names_a_file(fake, tmp_path):
    """A model is one of those served, by its name alone, whatever file a client would like."""
    (tmp_path / "fake.gguf").write_bytes(b"GGUF")
    for name in ("fake.gguf", "./fake", "../fake", "x/../fake", "/etc/passwd", "../../../etc/passwd", f"{tmp_path}/fake.gguf", "fake/", "FAKE"):
        for path, body in (("/v1/completions", {"prompt": "x"}), ("/tokenize", {"content": "x"}), ("/detokenize", {"tokens": [5]}),
                           ("/v1/tune", {})):
            check_error(fake.post(path, {**body, "model": name}), 404, "invalid_request_error", "model_not_found", "model")
    for path in (b"/../../../../etc/passwd", b"//etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/v1/tune/../../etc/passwd"):
        status, _, body = raw_request(fake, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert status == 404 and b"root:" not in body, path


@pytest.mark.parametrize("body", [
    "", " ", "{", "[", "nul", "{}x", '{"prompt":"x"} {}', '{"prompt":"x",}', "{'prompt':'x'}", '{"prompt" "x"}',
    '{"prompt":"x" "n":1}', '{"prompt":01}', '{"prompt":+1}', '{"prompt":.5}', '{"prompt":1.}', '{"prompt":1e}',
    '{"prompt":"\t"}', '{"prompt":"\n"}', '{"prompt":"\\x"}', '{"prompt":"\\u12"}', '{"prompt":"\\ud800"}',
    '{"prompt":"\\udc00\\ud800"}', '{"prompt":"a\\u0000b"}', '{"prompt":"x}', "\ufeff{}", "NaN", "Infinity",
    '{"prompt":"x","seed":Infinity}', '"just text"', "[]", "12", "null",
])
def test_malformed_json(fake, body):
    check_error(send(fake, body), 400, "invalid_request_error")


@pytest.mark.parametrize("text", [b"\xff", b"\xc0\x80", b"\xe2\x82", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80"])
def test_bad_utf8(fake, text):
    check_error(send(fake, b'{"prompt":"' + text + b'"}'), 400, "invalid_request_error")


def test_s17_deep_json(fake):
    """S17: depth is limited, and checked without recursion."""
    for text in ("[" * 100000, "[" * 100000 + "]" * 100000, '{"a":' * 100000, '{"prompt":' + "[" * 64 + "]" * 64 + "}"):
        check_error(send(fake, text), 400, "invalid_request_error")
    # 63 levels below the object are deep enough for anybody, and are of the wrong type only.
    check_error(send(fake, '{"prompt":' + "[" * 63 + "]" * 63 + "}"), 400, "invalid_request_error", None, "prompt")
    assert send(fake, '{"prompt":"x","other":' + "[" * 63 + "]" * 63 + "}").status_code == 200


def test_duplicates(fake):
    check_error(send(fake, '{"prompt":"x","prompt":"y"}'), 400, "invalid_request_error", None, "prompt")
    check_error(send(fake, '{"prompt":"x","logit_bias":{"5":1,"05":2}}'), 400, "invalid_request_error", None, "logit_bias")
    # Names are compared exactly: this is another field, and the prompt is missing.
    check_error(send(fake, '{"Prompt":"x"}'), 400, "invalid_request_error", None, "prompt")


def test_too_many_values(fake):
    check_error(send(fake, '{"prompt":"x","other":[' + "1," * 600000 + "1]}"), 400, "invalid_request_error")
    many = json.dumps({"prompt": "x", **{f"f{i}": 1 for i in range(300)}})
    check_error(send(fake, many), 400, "invalid_request_error")


NUMBERS = ("max_tokens", "n", "best_of", "logprobs", "presence_penalty", "frequency_penalty", "repeat_penalty",
           "repeat_last_n", "temperature", "top_k", "top_p", "min_p", "typical_p", "mirostat", "mirostat_tau",
           "mirostat_eta", "seed", "min_tokens", "deadline_ms")
OTHERS = ("prompt", "echo", "suffix", "stop", "stop_token_ids", "logit_bias", "ignore_eos", "cache_prompt", "stream",
          "stream_options", "timings", "user", "model", "grammar", "json_schema", "response_format")
VALUES = ("-1", "0", "1", "2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808",
          "1e308", "1e999", "-1e999", "0.5", "-0", '"x"', "null", "[]", "{}", "true", "[null]", '[[[]]]', '{"a":1}')


def test_s14_every_field_with_every_value(fake):
    """S14: each field of the table with values made to overflow; never a 5xx, and the daemon lives."""
    for field in NUMBERS + OTHERS:
        for value in VALUES:
            body = f'{{"prompt":"x","max_tokens":2,"{field}":{value}}}'
            if field in ("prompt", "max_tokens"):
                body = f'{{"{field}":{value}' + ("}" if field == "prompt" else ',"prompt":"x"}')
            reply = send(fake, body)
            assert reply.status_code in (200, 400, 404) or (field == "deadline_ms" and reply.status_code == 503), \
                (body, reply.status_code, reply.text)
            if reply.status_code == 400 and "error" in reply.json():
                assert reply.json()["error"]["type"] in ("invalid_request_error", "exceed_context_size_error")
    assert fake.complete(prompt="<ok$|")["choices"][0]["text"] == "ok"


@pytest.mark.parametrize("field,value,allowed", [
    ("max_tokens", -1, False), ("max_tokens", 2**31 - 1, True), ("max_tokens", 2**31, False), ("max_tokens", 1.5, False),
    ("n", 0, False), ("n", 17, False), ("best_of", 0, False), ("temperature", -0.1, False), ("temperature", 100.5, False),
    ("top_p", 1.1, False), ("top_p", 0, True), ("logprobs", 21, False), ("logprobs", 20, True), ("presence_penalty", 2.1, False),
    ("frequency_penalty", -2, True), ("repeat_penalty", 0, False), ("repeat_last_n", -2, False), ("repeat_last_n", -1, True),
    ("mirostat", 3, False), ("mirostat", 2, True), ("seed", -1, False), ("seed", 2**53, True), ("seed", 2**53 + 2, False),
    ("stop", ["a"] * 17, False), ("stop", ["a"] * 16, True), ("stop", "", False), ("stop", ["a", 1], False),
    ("stop_token_ids", [260], False), ("stop_token_ids", [259], True), ("logit_bias", {"260": 1}, False),
    ("logit_bias", {"259": 1}, True), ("logit_bias", {"5": 101}, False), ("logit_bias", {"x": 1}, False),
    ("logit_bias", {"-1": 1}, False), ("logit_bias", {"": 1}, False), ("timings", "all", False), ("deadline_ms", 0, False),
    ("deadline_ms", 600001, False), ("echo", "yes", False), ("stream", 1, False), ("user", "x" * 1025, False),
    ("stream_options", {"include_usage": 1}, False), ("suffix", "x", False), ("prompt", [260], False), ("prompt", [-1], False),
    ("prompt", [1.5], False), ("prompt", ["a", 1], False), ("prompt", {}, False), ("prompt", 5, False),
    ("prompt", ["x"] * 17, False), ("response_format", {"type": "json_object"}, False), ("grammar", "root ::= x", False),
    ("json_schema", {"$ref": "#"}, False),
])
def test_limits_of_fields(fake, field, value, allowed):
    reply = fake.post("/v1/completions", {"prompt": "x", "max_tokens": 1, field: value})
    if allowed:
        assert reply.status_code == 200, reply.text
    else:
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["param"] == field, reply.text


def test_a_bias_that_bans_every_token_is_named(fake):
    bias = {str(i): -100 for i in range(260)}
    check_error(fake.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "logit_bias": bias}), 400, "invalid_request_error",
                None, "logit_bias")


def test_fields_that_contradict(fake):
    check_error(fake.post("/v1/completions", {"prompt": "x", "n": 3, "best_of": 2}), 400, "invalid_request_error", None, "best_of")
    check_error(fake.post("/v1/completions", {"prompt": "x", "best_of": 2, "stream": True}), 400, "invalid_request_error",
                None, "best_of")
    check_error(fake.post("/v1/completions", {"prompt": ["x"] * 9, "n": 2}), 400, "invalid_request_error", None, "n")
    check_error(fake.post("/v1/completions", {}), 400, "invalid_request_error", None, "prompt")
    check_error(fake.post("/v1/completions", {"prompt": None}), 400, "invalid_request_error", None, "prompt")
    check_error(fake.post("/tokenize", {}), 400, "invalid_request_error", None, "content")
    check_error(fake.post("/detokenize", {}), 400, "invalid_request_error", None, "tokens")


def test_s18_not_supported_yet_is_said(fake):
    """S18: schemas and grammars, good or bad, are refused by name."""
    for field in ("grammar", "json_schema", "response_format"):
        reply = fake.post("/v1/completions", {"prompt": "x", field: {"$ref": "#"}})
        check_error(reply, 400, "invalid_request_error", "unsupported", field)
        assert "not supported yet" in reply.json()["error"]["message"]
        assert fake.post("/v1/completions", {"prompt": "x", field: None}).status_code == 200


def test_s19_empty_prompts(fake):
    """S19: an empty prompt is the model's first token."""
    for prompt in ("", [], [[]], [""]):
        answer = fake.complete(prompt=prompt, max_tokens=1)
        assert answer["usage"]["prompt_tokens"] == 1, prompt


# ---- bodies over the limit ----

def test_s15_sizes(start_fake):
    """S15: from 1 KB to over the limit: an answer or a refusal, never a dead daemon."""
    daemon = start_fake("--body", "1MiB")
    for kib in (1, 64, 512, 1000):
        reply = send(daemon, json.dumps({"prompt": "x" * (kib * 1024)}))
        assert reply.status_code == 400 and reply.json()["error"]["type"] == "exceed_context_size_error"
    for mib in (2, 16, 64):
        try:
            assert send(daemon, json.dumps({"prompt": "x" * (mib << 20)})).status_code == 413
        except requests.exceptions.ConnectionError:
            pass  # refused while this client was still sending, and it did not look at the answer
    assert daemon.complete(prompt="<ok$|")["choices"][0]["text"] == "ok"


def test_s16_refused_before_it_is_read(fake):
    """S16: 413 at once for what says it is too large, and for a chunked body without an end."""
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    status, text, body = raw_request(fake, (head + "Content-Length: 1000000000000\r\n\r\n").encode())
    assert status == 413 and json.loads(body)["error"]["code"] == "body_too_large"
    status, text, body = raw_request(fake, (head + "Expect: 100-continue\r\nContent-Length: 1000000000000\r\n\r\n").encode())
    assert status == 413 and json.loads(body)["error"]["type"] == "invalid_request_error"
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    status, text, body = raw_request(fake, (head + "Transfer-Encoding: chunked\r\n\r\n").encode() + chunk * 140)
    assert status == 413 and json.loads(body)["error"]["code"] == "body_too_large"
    assert fake.complete(prompt="<ok$|")["choices"][0]["text"] == "ok"


@pytest.mark.parametrize("headers, named", [
    ("Content-Length: 14\r\nContent-Length: 5\r\n", "Content-Length is given as 14 and 5"),
    ("Content-Length: 5\r\nContent-Length: 14\r\n", "Content-Length is given as 5 and 14"),
    ("Content-Length: 14\r\nTransfer-Encoding: chunked\r\n", "both given"),
    ("Transfer-Encoding: chunked\r\nContent-Length: 14\r\n", "both given"),
    ("Transfer-Encoding: gzip\r\n", 'Transfer-Encoding is "gzip", expected chunked'),
    ("Transfer-Encoding: gzip, chunked\r\n", 'Transfer-Encoding is "gzip, chunked"'),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "expected chunked, once"),
    ("Expect: 100-continue\r\nContent-Length: 14\r\nTransfer-Encoding: chunked\r\n", "both given"),
])
def test_a_doubtful_end_of_the_body_is_refused(fake, headers, named):
    """The connection is closed after it: what follows could be the body or another request."""
    with fake.connect() as s:
        s.settimeout(60)
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode() + b'{"prompt":"x"}')
        status, head, body = read_reply(s)
        error = json.loads(body)["error"]
        assert status == 400 and error["type"] == "invalid_request_error" and named in error["message"]
        assert s.recv(1) == b""


def test_lengths_that_agree_are_plain(fake):
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    for coding, body in (("Content-Length: 14\r\nContent-Length: 14", b'{"prompt":"x"}'),
                         ("Transfer-Encoding: Chunked", b'e\r\n{"prompt":"x"}\r\n0\r\n\r\n')):
        assert raw_request(fake, f"{head}{coding}\r\n\r\n".encode() + body)[0] == 200


def test_a_compressed_body_is_refused(fake):
    for coding, status in (("gzip", 415), ("br", 415), ("identity", 200)):
        reply = fake.post("/v1/completions", data=b'{"prompt":"x"}',
                          headers={"Content-Type": "application/json", "Content-Encoding": coding})
        assert reply.status_code == status and (status == 200 or f'"{coding}"' in reply.json()["error"]["message"])


def test_a_nul_in_the_path_ends_nothing(fake):
    status, _, body = raw_request(fake, b"GET /health%00x HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status == 404 and "/health%00x" in json.loads(body)["error"]["message"]


def test_an_error_leaves_the_connection_usable(fake):
    with fake.connect() as s:
        for _ in range(3):
            for path, status in (("/nope", 404), ("/v1/completions", 400)):
                s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde".encode())
                assert read_reply(s)[0] == status


POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
BROKEN = [
    (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 400, "http_version"),
    (b"GET / HTTP/0.9\r\nHost: x\r\n\r\n", 400, "http_version"),
    (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400, None),
    (POST + b"Content-Length: -5\r\n\r\n", 400, None), (POST + b"Content-Length: five\r\n\r\n", 400, None),
    (POST + b"Content-Length: 99999999999999999999\r\n\r\n", 413, "body_too_large"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, None),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefghij\r\n", 400, None),
    (POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 413, "body_too_large"),
    (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "request_line_too_long"),
    (b"GET /health?" + b"a&" * 10000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431, "headers_too_large"),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100000 + b"\r\n\r\n", 431, "headers_too_large"),
    (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 20000 + b"\r\n", 431, "headers_too_large")]


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["first", "after_another"])
@pytest.mark.parametrize("data, status, code", BROKEN, ids=range(len(BROKEN)))
def test_what_is_not_http_gets_json_too(fake, data, status, code, before):
    """Whatever a client sends, an error has the form of all errors; then the connection is closed."""
    with fake.connect() as s:
        s.settimeout(60)
        try:
            s.sendall(before + data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        if before:
            assert read_reply(s)[0] == 200
        got, head, body = read_reply(s)
        error = json.loads(body)["error"]
        assert got == status and "application/json" in head and "connection: close" in head.lower(), (head, body)
        assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, None) and error["message"]
        try:
            assert s.recv(1) == b""
        except ConnectionResetError:
            pass
    assert fake.get("/health").status_code == 200


def test_refused_requests_are_counted(start_fake):
    daemon = start_fake()
    for data, _, _ in BROKEN:
        raw_request(daemon, data)
    text = daemon.get("/metrics").text
    counted = {(route, int(status)): int(n) for route, status, n in
               re.findall(r'oinfer_requests_total\{route="([^"]*)",code="(\d+)"\} (\d+)', text)}
    for status in (400, 413, 414, 431):
        assert sum(n for key, n in counted.items() if key[1] == status) == sum(row[1] == status for row in BROKEN), counted


def test_an_absolute_target_is_its_path(fake):
    for target, status in ((b"http://elsewhere/health", 200), (b"HTTPS://x:1/health", 200), (b"http://elsewhere?/health", 404), (b"http://elsewhere", 404),
                           (b"http:///health", 200), (b"http://elsewhere/nope", 404), (b"ftp://elsewhere/health", 404)):
        assert raw_request(fake, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")[0] == status, target


def test_what_has_no_form_at_all_gets_nothing(start_fake):
    """No line that could be answered: the connection is closed, at once or with the time for headers."""
    daemon = start_fake("--header-time", "1s")
    for data in (b"\r\n\r\n", b"GET\r\n\r\n", b"\x00\xff\x16\x03\x01" * 20 + b"\r\n\r\n"):
        assert raw_request(daemon, data) == (0, "", b"")
    assert daemon.get("/health").status_code == 200
