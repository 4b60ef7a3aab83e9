"""A daemon under test: started on a free port, watched until it serves, stopped at the end."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

import requests

START_S = 240  # building kernels under a sanitizer takes its time
SANITIZED = os.environ.get("OINFER_SANITIZE", "")


def environment():
    """What a daemon gets of the tests' own variables: those that are options of it."""
    options = (pathlib.Path(__file__).resolve().parents[2] / "config/options.def").read_text()
    names = {"OINFER_" + name.upper().replace("-", "_") for name in re.findall(r'^OPTION(?:_LIVE)?\(\w+, "([^"]*)"', options, re.M)}
    return {name: value for name, value in os.environ.items() if not name.startswith("OINFER_") or name in names}


class Daemon:
    """oinferd as a child process. Arguments are those of the command line; env is added to the environment."""

    def __init__(self, binary, *arguments, env=None, wait=True):
        self.log_file = tempfile.TemporaryFile()
        command = [binary, "--port", "0", *[str(a) for a in arguments]]
        self.process = subprocess.Popen(command, stderr=self.log_file, env={**environment(), **(env or {})})
        self.port = None
        self.session = requests.Session()
        try:
            self._find_port()
            if wait:
                self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def log(self):
        """Reads without moving the offset: the daemon writes at that same one, and a seek here would lose its lines."""
        number = self.log_file.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode("utf-8", "replace")

    def _until(self, what, seconds, check):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = check()
            if value:
                return value
            if self.process.poll() is not None:
                raise RuntimeError(f"the daemon ended with {self.process.returncode}:\n{self.log()}")
            time.sleep(0.02)
        raise RuntimeError(f"{what}: not within {seconds} s\n{self.log()}")

    def _find_port(self):
        found = self._until("listening", START_S, lambda: re.search(r"listening address=\S+ port=(\d+)", self.log()))
        self.port = int(found.group(1))

    def wait_ready(self):
        self._until("ready", START_S, lambda: self.get("/health").status_code == 200)

    def until_health(self, check, seconds=60):
        """Waits for a state of /health and returns it."""
        return self._until("health", seconds, lambda: (lambda h: h if check(h) else None)(self.get("/health").json()))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def get(self, path, **options):
        return self.session.get(self.url + path, timeout=60, **options)

    def post(self, path, body=None, **options):
        if body is not None:
            options["json"] = body
        return self.session.post(self.url + path, timeout=120, **options)

    def complete(self, **body):
        """POST /v1/completions that must succeed."""
        reply = self.post("/v1/completions", body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def busy_slots(self):
        return sum(slot["is_processing"] for slot in self.get("/slots").json())

    def wait_idle(self, seconds):
        """Waits until no slot is busy and nothing runs or waits; returns how long that took."""
        start = time.monotonic()

        def idle():
            health = self.get("/health").json()
            return self.busy_slots() == 0 and health["running"] == 0 and health["queued"] == 0
        self._until("idle", seconds, idle)
        return time.monotonic() - start

    def wait_quiet(self, seconds=300, window=2):
        """Waits until the daemon takes no processor time: what it does when idle (writing binaries of kernels) is done."""
        def ticks():
            with open(f"/proc/{self.process.pid}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        def quiet():
            before = ticks()
            time.sleep(window)
            return ticks() - before <= 4 * window  # the loop's own tick
        self._until("quiet", seconds, quiet)

    def resident_kib(self):
        """Memory of its own, resident or swapped out (files in memory come and go as the kernel likes); 0 under a sanitizer,
        whose own memory grows."""
        if SANITIZED:
            return 0
        with open(f"/proc/{self.process.pid}/status") as status:
            return sum(int(n) for n in re.findall(r"(?:RssAnon|RssShmem|VmSwap):\s+(\d+)", status.read()))

    def open_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=30):
        return self.process.wait(seconds)

    def stop(self, seconds=60):
        """SIGTERM; the exit status must be 0."""
        self.session.close()
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        code = self.wait(seconds)
        assert code == 0, f"exit status {code}:\n{self.log()}"
        assert "drain time is over" not in self.log(), self.log()

    def kill(self):
        self.session.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def run_to_end(binary, *arguments, seconds=60):
    """Runs the daemon where it is expected to end by itself; returns (exit status, stdout, stderr)."""
    done = subprocess.run([binary, *[str(a) for a in arguments]], capture_output=True, text=True, timeout=seconds)
    return done.returncode, done.stdout, done.stderr


def read_stream(reply):
    """Frames of a server-sent event stream, checked for their form: the parsed chunks, and whether [DONE] came."""
    import json
    text = reply.content.decode("utf-8")
    chunks, done = [], False
    for frame in text.split("\n\n"):
        if frame == "" or frame == ":":
            continue
        assert frame.startswith("data: ") and "\n" not in frame, frame
        assert not done, "a frame after [DONE]"
        if frame == "data: [DONE]":
            done = True
        else:
            chunks.append(json.loads(frame[6:]))
    assert text.endswith("\n\n")
    return chunks, done


def poll(check, seconds=30):
    """Waits until check() holds; whether it did in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.01)
    return False


def counter(daemon, name):
    """A value of /metrics."""
    return int(re.search(rf"^{re.escape(name)} (\d+)$", daemon.get("/metrics").text, re.M).group(1))


def read_reply(s, seconds=60):
    """Reads one whole reply of known length from a socket, and not more; returns (status, head, body)."""
    s.settimeout(seconds)
    with s.makefile("rb", buffering=0) as file:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = file.read(1)
            assert byte, f"the server closed after {head}"
            head += byte
        length, body = int(re.search(rb"(?i)content-length: (\d+)", head).group(1)), b""
        while len(body) < length:
            more = file.read(length - len(body))
            assert more, f"the server closed after {head}{body}"
            body += more
    return int(head.split()[1]), head.decode("latin-1"), body


def raw_request(daemon, data, seconds=30):
    """Sends bytes and reads until the server closes or has sent a whole reply; returns (status, head, body)."""
    with daemon.connect() as s:
        s.settimeout(seconds)
        try:
            s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        received = b""
        while True:
            try:
                more = s.recv(65536)
            except ConnectionResetError:
                break
            received += more
            head, _, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if not more or (length and len(body) >= int(length.group(1))):
                break
    head, _, body = received.partition(b"\r\n\r\n")
    status = int(head.split()[1]) if head else 0
    return status, head.decode("latin-1"), body
