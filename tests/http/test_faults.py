"""The daemon with its OpenCL calls, its files and its own life failing. On the real engine with a tiny model."""
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
import requests

from daemon import Daemon, poll, run_to_end

BODY = {"prompt": "once upon a time", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
SANITIZED = bool(os.environ.get("OINFER_SANITIZE"))


STOP_S = 300  # a compiler that has begun is waited for, and the machine may be busy


def text_of(daemon):
    return daemon.complete(**BODY)["choices"][0]["text"]


def cache_files(folder):
    return sorted(p for part in ("programs", "selftest") for p in pathlib.Path(folder, part).glob("*.bin"))


def run_once(binary, model, folder, env=None):
    """The text that a daemon with this cache gives; it is started and stopped."""
    daemon = Daemon(binary, "--model", model, "--cache-dir", folder, env=env)
    text = text_of(daemon)
    daemon.stop(STOP_S)
    return text


@pytest.fixture(scope="module")
def cache(real_binary, tiny_model, tmp_path_factory):
    """A cache with what this model needs and nothing else, shared where a test does not spoil it."""
    folder = tmp_path_factory.mktemp("cache")
    run_once(real_binary, tiny_model, folder)
    return folder


@pytest.fixture(scope="module")
def expected(real_binary, tiny_model, cache):
    text = run_once(real_binary, tiny_model, cache)
    assert len(text) > 0 and len(cache_files(cache)) > 5
    return text


@pytest.fixture
def cache_copy(cache, expected, tmp_path):
    """A cache of one's own, with what the driver keeps there."""
    return shutil.copytree(cache, tmp_path / "copy", symlinks=True)


@pytest.fixture(scope="module")
def tiny_f16(tmp_path_factory):
    """A model whose weights every device on a CPU reads where the file is mapped."""
    path = tmp_path_factory.mktemp("f16") / "f16.gguf"
    subprocess.run([os.environ["OINFER"], "mkmodel", "--shape",
                    "n_layer=2,n_embd=64,n_ff=128,n_head=4,n_head_kv=2,n_vocab=512,n_ctx=512", "--dtype", "f16",
                    "-o", str(path)], check=True, capture_output=True)
    return path


class Notices:
    """What a daemon tells the service manager: read all the time, as the daemon would wait for it."""

    def __init__(self, folder):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.alive = time.monotonic()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        while (text := self.socket.recv(4096)) != b"":
            if b"WATCHDOG=1" in text:
                self.alive = time.monotonic()

    def until_silent(self, seconds=1, limit=30):
        """Whether there comes a time of so many seconds without a sign of life."""
        return poll(lambda: time.monotonic() - self.alive > seconds, limit)

    def close(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self.path)
        self.thread.join()
        self.socket.close()


def preload(name):
    library = os.environ.get(name, "")
    if SANITIZED or not os.path.exists(library):
        pytest.skip(f"{name} names no library, or a sanitizer wants to be the first one")
    return {"LD_PRELOAD": library}


# ---- a device that fails ----

@pytest.fixture
def faulty(real_binary, tiny_model, cache, expected, tmp_path):
    """A daemon whose OpenCL calls fail as `rules` says from then on."""
    rules, report = tmp_path / "rules", tmp_path / "report"
    rules.write_text("")
    env = {**preload("FAKE_CL"), "OINFER_FAULT_FILE": str(rules), "OINFER_FAULT_REPORT": str(report)}
    daemon = Daemon(real_binary, "--model", tiny_model, "--cache-dir", cache, env=env)
    daemon.rules, daemon.report = rules, report
    assert text_of(daemon) == expected
    yield daemon
    if daemon.process.poll() is None:
        daemon.stop(STOP_S)


def test_a_call_that_fails_once_is_not_noticed(faulty, expected):
    for rule in ("clEnqueueNDRangeKernel:2:-5", "clEnqueueReadBuffer:1:-5", "clEnqueueWriteBuffer:1:-5"):
        faulty.rules.write_text(rule)
        assert text_of(faulty) == expected


@pytest.mark.parametrize("rule", ["*:1+:-36", "*:10+:-2", "*:5+:-5", "clEnqueueNDRangeKernel:2+:-9999"])
def test_a_lost_device_comes_back_without_a_new_process(faulty, expected, rule):
    """D32: 503 with the device's name, /health degraded, and when the device can be had again all is as before."""
    for _ in range(2):
        faulty.rules.write_text(rule)
        reply = faulty.post("/v1/completions", BODY)
        assert reply.status_code == 503 and reply.json()["error"]["code"] == "device_lost", reply.text
        name = faulty.get("/v1/devices").json()["data"][0]["name"]
        assert name in reply.json()["error"]["message"]
        health = faulty.until_health(lambda h: h["status"] == "degraded" and h["devices"][0]["status"] == "lost")
        assert health["devices"][0]["error"]
        assert faulty.post("/v1/completions", BODY).status_code == 503
        faulty.rules.write_text("")
        faulty.until_health(lambda h: h["status"] == "ok")
        assert text_of(faulty) == expected
    faulty.stop(STOP_S)
    counts = dict(pair.split("=") for pair in faulty.report.read_text().split())
    assert {k: v for k, v in counts.items() if k not in ("calls", "failed") and v != "0"} == {}


def test_a_slow_device_only_delays(faulty, expected):
    faulty.rules.write_text("clWaitForEvents:1:sleep=1500,clEnqueueNDRangeKernel:4:sleep=500")
    start = time.monotonic()
    assert text_of(faulty) == expected
    assert time.monotonic() - start > 1


# ---- files that fail ----

@pytest.mark.parametrize("fault", [
    "open:programs/:1+:13", "open:programs/:2:24", "write:programs/:2:28", "write:programs/:1+:28", "write:programs/:1+:short",
    "close:programs/:1:5", "rename:programs/:1+:30", "read:programs/:1+:5", "read:programs/:1+:short", "stat:programs/:1+:5",
    "write:selftest/:1+:28", "read:selftest/:1+:5", "open:selftest/:1+:13"])
def test_a_cache_that_fails_is_done_without(real_binary, tiny_model, cache_copy, expected, fault):
    """No space, no permission, errors, short transfers: it is as if there were no cache, and none is left broken."""
    for path in cache_files(cache_copy)[::4]:
        path.unlink()
    env = {**preload("FAKE_FILE"), "OINFER_FILE_FAULT": fault}
    assert run_once(real_binary, tiny_model, cache_copy, env) == expected
    assert run_once(real_binary, tiny_model, cache_copy) == expected


@pytest.mark.parametrize("fault,reason", [
    ("open:tiny.gguf:1+:13", "Permission denied"), ("open:tiny.gguf:1+:5", "Input/output error"),
    ("stat:tiny.gguf:1+:5", "Input/output error"), ("map:tiny.gguf:1+:12", "Cannot allocate memory"),
    ("open:keys:1+:5", "Input/output error"), ("read:keys:1+:5", "Input/output error"),
    ("open:oinferd.conf:1+:13", "Permission denied"), ("read:oinferd.conf:1+:5", "Input/output error")])
def test_a_file_that_cannot_be_read_is_one_sentence(real_binary, tiny_model, fault, reason, tmp_path, monkeypatch):
    (tmp_path / "keys").write_text("secret\n")
    (tmp_path / "keys").chmod(0o600)
    (tmp_path / "oinferd.conf").write_text("[server]\nport = 0\n")
    for name, value in {**preload("FAKE_FILE"), "OINFER_FILE_FAULT": fault}.items():
        monkeypatch.setenv(name, value)
    code, out, err = run_to_end(real_binary, "--config", tmp_path / "oinferd.conf", "--model", tiny_model,
                                "--api-key-file", tmp_path / "keys")
    assert code in (1, 2) and out == "" and reason in err and len(err.strip().splitlines()) == 1, err


@pytest.mark.parametrize("device, left", [("auto", 0), ("host", 0.5), ("auto", 1)])
def test_s43_a_model_file_that_is_cut_while_in_use(real_binary, tiny_f16, cache, tmp_path, device, left):
    """S43: no SIGBUS: its requests get 503 with the file's name, /health says so, and a new start helps once it is whole."""
    path = shutil.copy(tiny_f16, tmp_path / "cut.gguf")
    whole = path.read_bytes()
    notices = Notices(tmp_path)
    daemon = Daemon(real_binary, "--model", path, "--cache-dir", cache, "--device", device,
                    env={"NOTIFY_SOCKET": notices.path, "WATCHDOG_USEC": "300000"})
    assert daemon.get("/props").json()["memory"][0]["loads"]["cut"]["in_place_bytes"] > 0
    text = text_of(daemon)
    os.truncate(path, min(int(len(whole) * left), len(whole) - 1))
    for _ in range(2):
        reply = daemon.post("/v1/completions", BODY)
        error = reply.json()["error"]
        assert reply.status_code == 503 and error["code"] == "model_file_damaged" and "cut.gguf" in error["message"], error
    health = daemon.until_health(lambda h: h["status"] == "degraded")
    assert "cut.gguf" in health["devices"][0]["error"]
    assert daemon.post("/v1/ops/softmax", {"rows": 2, "len": 3, "iterations": 1, "warmup": 0}).status_code == 200
    assert notices.until_silent(), "a daemon without its model says that it is alive"
    daemon.stop(STOP_S)
    notices.close()
    assert run_to_end(real_binary, "--model", path, "--port", 0)[0] == 1
    path.write_bytes(whole)
    again = Daemon(real_binary, "--model", path, "--cache-dir", cache, "--device", device)
    assert text_of(again) == text
    again.stop(STOP_S)


def test_a_full_disk_under_the_log(real_binary, tiny_model, cache, expected, tmp_path):
    """Log lines that cannot be written are lost, and nothing else."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with open("/dev/full", "w") as full:
        process = subprocess.Popen([real_binary, "--model", tiny_model, "--cache-dir", cache, "--port", str(port)],
                                   stderr=full, stdout=full)
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            if requests.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                break
        except requests.exceptions.ConnectionError:
            time.sleep(0.05)
    reply = requests.post(f"http://127.0.0.1:{port}/v1/completions", json=BODY, timeout=60)
    assert reply.json()["choices"][0]["text"] == expected
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_S) == 0


@pytest.mark.parametrize("kind", ["file", "below a file", "closed"])
def test_a_cache_folder_that_is_none(real_binary, tiny_model, expected, tmp_path, kind):
    """A warning, and no cache."""
    folder = tmp_path / "cache"
    if kind == "closed":
        if os.geteuid() == 0:
            pytest.skip("root may write everywhere")
        folder.mkdir(mode=0o500)
    else:
        folder.write_text("not a folder")
    daemon = Daemon(real_binary, "--model", tiny_model, "--device", "host",
                    "--cache-dir", folder / "more" if kind == "below a file" else folder)
    assert "warn no cache folder=" in daemon.log() and daemon.complete(prompt="x", max_tokens=2)
    daemon.stop(STOP_S)


def test_variables_that_are_set_but_empty(real_binary, tiny_model, cache, expected):
    """They are not set: PoCL ends the process over an empty POCL_CACHE_DIR."""
    names = ("POCL_CACHE_DIR", "POCL_DEVICES", "XDG_CACHE_HOME", "CACHE_DIRECTORY", "OINFER_PORT", "OINFER_DEVICE", "OINFER_MODEL",
             "OINFER_QUEUE", "OINFER_LOG_LEVEL", "OINFER_CONFIG", "OINFER_CACHE_DIR")
    daemon = Daemon(real_binary, "--model", tiny_model, "--cache-dir", cache, env=dict.fromkeys(names, ""))
    assert text_of(daemon) == expected and "warn" not in daemon.log()
    daemon.stop(STOP_S)


# ---- kill -9, and what it may leave ----

def kill_at_random(binary, model, folder, seconds, dice, times):
    """Starts the daemon and kills it within so many seconds, again and again. Its children may live a little longer."""
    for _ in range(times):
        process = subprocess.Popen([binary, "--model", model, "--cache-dir", folder, "--port", "0"], stderr=subprocess.DEVNULL)
        time.sleep(dice.random() * seconds)
        process.kill()
        process.wait()


def test_killed_at_random_moments_of_a_first_start(real_binary, tiny_model, expected, tmp_path):
    """Killed while everything is built and written for the first time; the start after that is right."""
    kill_at_random(real_binary, tiny_model, tmp_path, 5, random.Random(7), 10)
    assert run_once(real_binary, tiny_model, tmp_path) == expected


def test_killed_at_random_moments_of_start_and_load(real_binary, tiny_model, cache_copy, expected):
    """Killed in starts that find most of what they need, completions and the writing of what was missing."""
    dice = random.Random(8)
    for _ in range(2):
        for path in cache_files(cache_copy)[::3]:
            path.unlink()
        kill_at_random(real_binary, tiny_model, cache_copy, 1.5, dice, 5)
        daemon = Daemon(real_binary, "--model", tiny_model, "--cache-dir", cache_copy)
        assert text_of(daemon) == expected
        time.sleep(dice.random())
        daemon.kill()
    assert run_once(real_binary, tiny_model, cache_copy) == expected


RECORD = {"op": "linear", "variant": "rows", "dtype": "q4_0", "shape": {"m": 256, "k": 256, "n_tokens": 1}, "device": "Some device",
          "driver": "1", "source": "0123456789abcdef", "tuner": 1, "settings": {"ROWS": 2, "LWS": 64}, "ns": 5000, "standard_ns": 6000,
          "work": 131072}
MOMENTS = ("open", "write", "sync", "close", "rename")


def tune(*arguments, env=None):
    return subprocess.run([os.environ["OINFER"], "tune", *map(str, arguments)], capture_output=True, text=True, timeout=600,
                          env={**os.environ, **(env or {})})


def tune_killed(moment, path, *arguments):
    """`oinfer tune` killed at a call on the file that it writes aside of `path`, or at its renaming."""
    part = path.name + ("" if moment == "rename" else ".")
    done = tune(*arguments, env={**preload("FAKE_FILE"), "OINFER_FILE_FAULT": f"{moment}:{part}:1:kill"})
    assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)


def records_of(path):
    return json.loads(path.read_text())["records"]


@pytest.fixture
def tune_store(tmp_path):
    path = tmp_path / "tune.json"
    path.write_text(json.dumps({"format": "oinfer.tune", "version": 1, "records": [RECORD]}))
    return path


def test_killed_while_the_tune_store_is_written(tune_store):
    """At each of the calls that write it the store stays what it was; the next search adds to it."""
    search = ("--op", "softmax", "--shape", "rows=16,len=100", "--variant", "online", "--budget", 1, "--file", tune_store)
    if "no variant online" in tune(*search[:-1], tune_store.parent / "other.json").stderr:
        pytest.skip("there is no OpenCL device")
    before = tune_store.read_bytes()
    for moment in MOMENTS:
        tune_killed(moment, tune_store, *search)
        assert tune_store.read_bytes() == before, moment
    done = tune(*search)
    assert done.returncode == 0, done.stderr
    assert [r["op"] for r in records_of(tune_store)] == ["linear", "softmax"]


def test_killed_while_values_are_embedded(tune_store, tmp_path):
    """The model's file stays what it was, and is whole; the next try embeds them."""
    model = tmp_path / "m.gguf"
    subprocess.run([os.environ["OINFER"], "mkmodel", "--shape", "tiny", "--dtype", "q4_0", "-o", model], check=True, capture_output=True)
    embed, before = ("--embed", model, "--file", tune_store), model.read_bytes()
    for moment in MOMENTS:
        tune_killed(moment, model, *embed)
        assert model.read_bytes() == before, moment
    done = tune(*embed)
    assert (done.returncode, done.stdout) == (0, f"{model}: 1 tuned values\n"), done.stderr
    assert model.read_bytes() != before


def truncate(data, dice):
    return data[:dice.randrange(len(data))]


def flip(data, dice):
    at = dice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1:]


def nothing(data, dice):
    return b""


def grown(data, dice):
    return data + b"\0"


@pytest.mark.parametrize("spoil", [truncate, flip, nothing, grown])
def test_spoilt_cache_files_are_made_again(real_binary, tiny_model, cache_copy, expected, spoil):
    dice = random.Random(11)
    files = cache_files(cache_copy)
    spoilt = {path: spoil(path.read_bytes(), dice) for path in files}
    for path, data in spoilt.items():
        path.write_bytes(data)
    assert run_once(real_binary, tiny_model, cache_copy) == expected
    # programs are stored by a child that goes on in the background
    assert poll(lambda: sum(path.read_bytes() != data for path, data in spoilt.items()) > len(files) // 2, 120)
