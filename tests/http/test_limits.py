"""Every option of [limits]: honoured by the daemon, and named where the limits are documented."""
import concurrent.futures
import json
import pathlib
import re
import time

import pytest

from daemon import Daemon, raw_request

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMITS = re.findall(r'^OPTION(?:_LIVE)?\(limits, "([^"]*)"', (ROOT / "config/options.def").read_text(), re.M)
GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


def refused(reply, param, status=400):
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["param"] == param, error
    return error


def is_closed(s, seconds):
    """Whether the server closes within this time."""
    s.settimeout(seconds)
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def served(daemon, n):
    """How many of n connections that are open at the same time get an answer."""
    sockets, count = [daemon.connect() for _ in range(n)], 0
    for s in sockets:
        s.settimeout(1)
        try:
            s.sendall(GET)
            count += s.recv(100).startswith(b"HTTP/1.1 200")
        except (OSError, TimeoutError):
            pass
    for s in sockets:
        s.close()
    return count


def check_queue(start):
    daemon = start("--queue", "1", "--slots", "1", env={"FAKE_STEP_MS": "200"})
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: raw_request(daemon, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                                      b"Content-Length: 29\r\n\r\n" + b'{"prompt":"x","max_tokens":9}'),
                                range(4)))
    statuses = sorted(reply[0] for reply in replies)
    assert set(statuses) == {200, 429} and 1 <= statuses.count(200) <= 2


def check_body(start):
    daemon = start("--body", "1KiB")
    body = json.dumps({"prompt": "x"})
    for n, status in ((1024, 200), (1025, 413)):
        assert daemon.post("/v1/completions", data=body + " " * (n - len(body))).status_code == status


def check_header(start):
    daemon = start("--header", "4KiB")
    for n, status in ((1000, 200), (5000, 431)):
        assert raw_request(daemon, b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * n + b"\r\n\r\n")[0] == status


def check_connections(start):
    daemon = start("--connections", "4")
    daemon.session.close()
    assert 1 <= served(daemon, 7) <= 4


def check_connections_per_address(start):
    daemon = start("--connections-per-address", "3")
    daemon.session.close()
    assert 1 <= served(daemon, 6) <= 3


def check_header_time(start):
    daemon = start("--header-time", "300ms")
    with daemon.connect() as s:
        s.sendall(GET[:-2])
        assert is_closed(s, 10)


def check_body_time(start):
    daemon = start("--body-time", "300ms")
    with daemon.connect() as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert is_closed(s, 10)


def check_idle_time(start):
    daemon = start("--idle-time", "1s", "--header-time", "100ms")
    with daemon.connect() as s:
        s.sendall(GET)
        assert s.recv(65536).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        assert is_closed(s, 20) and time.monotonic() - began > 0.5


def check_max_tokens(start):
    daemon = start("--max-tokens", "5")
    assert daemon.complete(prompt="x", max_tokens=5)["usage"]["completion_tokens"] == 5
    refused(daemon.post("/v1/completions", {"prompt": "x", "max_tokens": 6}), "max_tokens")


def check_deadline(start):
    daemon = start("--deadline", "1s", env={"FAKE_STEP_MS": "100"})
    refused(daemon.post("/v1/completions", {"prompt": "x", "deadline_ms": 1001}), "deadline_ms")
    answer = daemon.complete(prompt="x", max_tokens=100, temperature=1)
    assert answer["timings"]["deadline_passed"] and answer["usage"]["completion_tokens"] < 100


def check_stop_strings(start):
    daemon = start("--stop-strings", "2")
    assert daemon.complete(prompt="x", stop=["a", "b"])
    refused(daemon.post("/v1/completions", {"prompt": "x", "stop": ["a", "b", "c"]}), "stop")


def check_choices(start):
    daemon = start("--choices", "2")
    assert len(daemon.complete(prompt="x", n=2)["choices"]) == 2
    for body, param in (({"n": 3}, "n"), ({"best_of": 3}, "best_of"), ({"prompt": ["x"] * 3}, "prompt")):
        refused(daemon.post("/v1/completions", {"prompt": "x", **body}), param)


def check_matrix(start):
    daemon = start.real("--matrix", "48KiB")
    shape = {"m": 64, "n": 64, "k": 64}  # three matrices of 16 KiB
    quick = {"iterations": 1, "warmup": 0}
    assert daemon.post("/v1/ops/matmul", {**shape, **quick}).status_code == 200
    error = refused(daemon.post("/v1/ops/matmul", {**shape, "k": 65, **quick}), None)
    assert error["code"] == "too_large"
    assert "49664 bytes" in error["message"] and "the limit is 49152" in error["message"], error


class Start:
    """Starts daemons on the fake engine, or without a model on the real one's plain C."""

    def __init__(self, fake, real_binary, folder):
        self.fake, self.real_binary, self.folder, self.daemons = fake, real_binary, folder, []

    def __call__(self, *arguments, **options):
        return self.fake(*arguments, **options)

    def real(self, *arguments):
        self.daemons.append(Daemon(self.real_binary, "--device", "host", "--cache-dir", self.folder, *arguments))
        return self.daemons[-1]


@pytest.fixture
def start(start_fake, real_binary, tmp_path):
    s = Start(start_fake, real_binary, tmp_path)
    yield s
    for daemon in s.daemons:
        daemon.stop()


@pytest.mark.parametrize("name", LIMITS)
def test_limit(start, name):
    """A new option of the section needs a check of its own here."""
    globals()["check_" + name.replace("-", "_")](start)


def test_every_limit_is_documented():
    text = (ROOT / "deploy/README.md").read_text()
    section = text[text.index("## Limits"):].split("\n## ")[0]
    assert [name for name in LIMITS if f"`{name}`" not in section] == []
