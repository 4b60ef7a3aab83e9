"""HTTPS: certificate and key as options, what is refused at the start, and the same service through TLS. Fake engine."""
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import time

import pytest

from daemon import Daemon, run_to_end

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed, which makes the certificate")


def make_pair(folder, name):
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key),
                    "-out", str(cert)], check=True, capture_output=True, timeout=60)
    key.chmod(0o600)
    return cert, key


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return make_pair(tmp_path_factory.mktemp("tls"), "server")


@pytest.fixture(scope="module")
def secure(fake_binary, pair):
    daemon = Daemon(fake_binary, "--model", "fake.gguf", "--tls-cert", pair[0], "--tls-key", pair[1], "--body", "64KiB",
                    "--header-time", "1s", wait=False)
    daemon._until("ready", 60, lambda: "ready address" in daemon.log())
    yield daemon
    daemon.stop()


def connect(daemon, pair):
    """A connection whose certificate is verified."""
    return http.client.HTTPSConnection("127.0.0.1", daemon.port, timeout=60, context=ssl.create_default_context(cafile=pair[0]))


def test_completions_and_streams(secure, pair):
    c = connect(secure, pair)
    for _ in range(20):  # on one connection
        c.request("POST", "/v1/completions", json.dumps({"prompt": "<ok$|"}))
        reply = c.getresponse()
        assert reply.status == 200 and json.loads(reply.read())["choices"][0]["text"] == "ok"
    c.request("POST", "/v1/completions", json.dumps({"prompt": "x" * 400, "max_tokens": 100, "temperature": 1, "stream": True}))
    text = c.getresponse().read().decode()
    chunks = [json.loads(frame[6:]) for frame in text.split("\n\n") if frame.startswith("data: {")]
    assert sum(len(chunk["choices"][0]["text"]) for chunk in chunks) == 100 and text.endswith("data: [DONE]\n\n")
    c.close()
    assert "tls=yes" in secure.log()


def test_body_limits(secure, pair):
    """413 reaches the client through TLS too, announced or not."""
    c = connect(secure, pair)
    c.request("POST", "/v1/completions", b"", headers={"Content-Length": "1000000"})
    reply = c.getresponse()
    assert reply.status == 413 and json.loads(reply.read())["error"]["code"] == "body_too_large"
    c.close()
    context = ssl.create_default_context(cafile=pair[0])
    with context.wrap_socket(socket.create_connection(("127.0.0.1", secure.port), timeout=60), server_hostname="localhost") as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        received = b""
        try:
            for _ in range(5):
                s.sendall(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        except OSError:
            pass
        try:
            while more := s.recv(65536):
                received += more
                if b"body_too_large" in received:
                    break
        except OSError:
            pass
    assert received.startswith(b"HTTP/1.1 413") and b"body_too_large" in received


@pytest.mark.parametrize("data, status", [
    (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 400), (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: five\r\n\r\n", 400),
    (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", 414)])
def test_what_is_not_http_gets_json_too(secure, pair, data, status):
    context = ssl.create_default_context(cafile=pair[0])
    with context.wrap_socket(secure.connect(), server_hostname="localhost") as s:
        received = b""
        try:
            s.sendall(data)
            while more := s.recv(65536):
                received += more
        except OSError:
            pass
    head, _, body = received.partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status and json.loads(body)["error"]["type"] == "invalid_request_error"


def test_a_client_that_leaves_frees_its_slot(secure, pair):
    c = connect(secure, pair)
    c.request("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 400, "temperature": 1, "stream": True}))
    assert c.getresponse().read(10)
    c.close()
    c = connect(secure, pair)
    end = time.monotonic() + 30
    while True:
        c.request("GET", "/slots")
        if not any(slot["is_processing"] for slot in json.loads(c.getresponse().read())):
            break
        assert time.monotonic() < end, "the slot is still busy"
        time.sleep(0.05)
    c.close()


def test_plain_http_and_silence_get_nothing(secure):
    with secure.connect() as s:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            assert not s.recv(65536).startswith(b"HTTP")
        except ConnectionResetError:
            pass
    with secure.connect() as s:  # a handshake that never comes is a header that never comes
        s.settimeout(20)
        assert s.recv(1) == b""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_older_protocols_are_refused(secure):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with secure.connect() as s, pytest.raises((ssl.SSLError, ConnectionResetError)):
        context.wrap_socket(s)


def test_pairs_that_are_refused(fake_binary, pair, tmp_path):
    cert, key = pair
    other_cert, other_key = make_pair(tmp_path, "other")
    text = tmp_path / "text"
    text.write_text("no PEM\n")
    text.chmod(0o600)
    large = tmp_path / "large"
    large.write_bytes(b"x" * (1 << 20))
    shown = tmp_path / "shown"
    shutil.copy(key, shown)
    shown.chmod(0o644)
    cases = ((("--tls-cert", cert), "tls-key is missing"), (("--tls-key", key), "tls-cert is missing"),
             (("--tls-cert", cert, "--tls-key", other_key), "other.key"), (("--tls-cert", other_cert, "--tls-key", key), "other.pem"),
             (("--tls-cert", text, "--tls-key", key), "text"), (("--tls-cert", cert, "--tls-key", text), "text"),
             (("--tls-cert", large, "--tls-key", key), "large"), (("--tls-cert", cert, "--tls-key", shown), "mode 644"),
             (("--tls-cert", tmp_path / "missing", "--tls-key", key), "No such file"))
    for arguments, wanted in cases:
        for more in ((), ("--check",)):
            code, _, err = run_to_end(fake_binary, "--model", "fake.gguf", "--port", 0, *arguments, *more)
            assert code == 1 and wanted in err and len(err.strip().splitlines()) == 1, (arguments, err)


def test_tls_does_not_stand_for_keys(fake_binary, pair):
    code, _, err = run_to_end(fake_binary, "--model", "fake.gguf", "--port", 0, "--host", "0.0.0.0", "--tls-cert", pair[0],
                              "--tls-key", pair[1])
    assert code == 1 and "--api-key-file" in err
