"""oinferd under a service manager: readiness, signs of life, restarts, the passed socket, reloading. On the fake engine."""
import concurrent.futures
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import requests

from manager import Manager

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))
from daemon import Daemon, run_to_end  # noqa: E402

FAKE = os.environ.get("OINFERD_FAKE", "")
DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
LOSE = "^^"  # a prompt that the fake engine loses its device on


@pytest.fixture
def fake():
    if not os.path.exists(FAKE):
        pytest.skip("OINFERD_FAKE names no file")
    return FAKE


@pytest.fixture
def start(tmp_path, fake):
    managers = []

    def run(*arguments, **options):
        managers.append(Manager(FAKE, "--model", "fake.gguf", *arguments, folder=tmp_path, **options))
        return managers[-1]
    yield run
    for manager in managers:
        manager.close()


def complete(manager, prompt="<ok$|", timeout=60, **options):
    return requests.post(f"http://127.0.0.1:{manager.port}/v1/completions", json={"prompt": prompt}, timeout=timeout, **options)


def test_ready_comes_after_loading(start):
    manager = start(env={"FAKE_LOAD_MS": "60"})
    manager.wait_ready(1)
    states = manager.seen(1)
    ready = next(i for i, state in enumerate(states) if "READY" in state)
    loading = states[:ready]
    assert loading and all(s["STATUS"].startswith("loading") and int(s["EXTEND_TIMEOUT_USEC"]) > 1e6 for s in loading)
    assert complete(manager).json()["choices"][0]["text"] == "ok"
    assert manager.stop() == 0
    stopping = next(s for s in manager.seen(1) if s.get("STOPPING") == "1")
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 30e6  # the default drain-time
    assert manager.starts == 1


def test_a_load_that_fails_says_why(start):
    manager = start(env={"FAKE_LOAD_FAILS": "1"})
    manager.until("a second start", lambda: manager.starts >= 2)
    assert manager.results[0] == 1
    assert any("weights 1000" in s.get("STATUS", "") for s in manager.seen(1))


def test_a_stalled_engine_is_restarted(start):
    """The loop answers all the while: what stays out are the signs of life, and they come from the engine."""
    manager = start(watchdog_s=4, env={"FAKE_STEP_MS": "20"})
    manager.wait_ready(1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # a long answer is progress: no restart
        assert pool.submit(requests.post, f"http://127.0.0.1:{manager.port}/v1/completions", timeout=60,
                           json={"prompt": "x", "max_tokens": 250, "temperature": 1}).result().status_code == 200
    time.sleep(5)  # and so is having nothing to do
    assert manager.starts == 1
    with socket.create_connection(("127.0.0.1", manager.port)) as stuck:
        body = b'{"prompt":"\\u0007\\u0007"}'  # two: the first token is there from before
        stuck.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        answered = 0
        while manager.starts == 1:
            try:
                answered += requests.get(f"http://127.0.0.1:{manager.port}/health", timeout=5).status_code == 200
            except requests.exceptions.ConnectionError:
                break  # killed while it answered
            time.sleep(0.05)
    manager.wait_ready(2)
    assert answered > 5 and manager.results == [-signal.SIGABRT]
    assert complete(manager).json()["choices"][0]["text"] == "ok"
    assert manager.stop() == 0


def test_a_device_that_hangs_is_left_by_a_new_process(tmp_path):
    """D32, on the real engine: a kernel never ends, the driver cannot be asked to give up, and the watchdog ends the process."""
    binary, tool, library = (os.environ.get(name, "") for name in ("OINFERD", "OINFER", "FAKE_CL"))
    if not all(map(os.path.exists, (binary, tool, library))):
        pytest.skip("OINFERD, OINFER or FAKE_CL names no file")
    rules, model = tmp_path / "rules", tmp_path / "tiny.gguf"
    rules.write_text("")
    subprocess.run([tool, "mkmodel", "--shape", "n_layer=2,n_embd=64,n_ff=128,n_head=4,n_head_kv=2,n_vocab=512,n_ctx=512", "--dtype",
                    "q8_0", "-o", str(model)], check=True, capture_output=True)
    body = {"prompt": "once upon a time", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    manager = Manager(binary, "--model", model, folder=tmp_path, watchdog_s=15,
                      env={"LD_PRELOAD": library, "OINFER_FAULT_FILE": str(rules)})
    url = f"http://127.0.0.1:{manager.port}"
    try:
        manager.until("ready", lambda: manager.ready, 240)
        if requests.get(url + "/v1/devices", timeout=60).json()["data"][0]["kind"] == "host":
            pytest.skip("there is no OpenCL device")
        text = requests.post(url + "/v1/completions", json=body, timeout=60).json()["choices"][0]["text"]
        rules.write_text("clWaitForEvents:1+:sleep=3600000,clFinish:1+:sleep=3600000")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            stuck = pool.submit(requests.post, url + "/v1/completions", json=body, timeout=120)
            health = manager.until("the device hangs", lambda: (lambda h: h if h["devices"][0]["in_step"] and
                                   h["devices"][0]["step_age_ms"] > 2000 else None)(requests.get(url + "/health", timeout=5).json()))
            assert health["running"] == 1 and manager.starts == 1
            rules.write_text("")  # for the next process: the call that sleeps goes on sleeping
            with pytest.raises(requests.exceptions.ConnectionError):
                stuck.result()
        manager.until("a new process is ready", lambda: manager.starts == 2 and manager.ready, 240)
        assert manager.results == [-signal.SIGABRT]
        assert requests.post(url + "/v1/completions", json=body, timeout=60).json()["choices"][0]["text"] == text
    finally:
        manager.close()


def test_a_daemon_without_devices_is_restarted(start):
    manager = start(watchdog_s=3, env={"FAKE_FAILED_REOPENS": "1000"})
    manager.wait_ready(1)
    assert complete(manager, LOSE).status_code == 503
    manager.wait_ready(2)
    assert manager.results == [-signal.SIGABRT]
    assert complete(manager).json()["choices"][0]["text"] == "ok"


def test_kill_9_is_survived_and_nobody_is_refused(start):
    manager = start(env={"FAKE_LOAD_MS": "20"})
    manager.wait_ready(1)
    manager.process.kill()
    manager.process.wait()
    waiting = [socket.create_connection(("127.0.0.1", manager.port), timeout=60) for _ in range(20)]
    for s in waiting:
        s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    for s in waiting:
        assert s.recv(65536).startswith(b"HTTP/1.1 200")
        s.close()
    manager.wait_ready(2)
    assert manager.results == [-signal.SIGKILL]
    assert complete(manager).json()["choices"][0]["text"] == "ok"


def test_restarts_under_load_refuse_no_connection(start):
    """Eight stops and starts while clients come: every connection is accepted, every request answered."""
    manager = start(env={"FAKE_STEP_MS": "1"})
    manager.wait_ready(1)
    stop, codes, failures = threading.Event(), [], []

    def ask():
        while not stop.is_set():
            try:
                codes.append(complete(manager).status_code)
            except requests.exceptions.RequestException as error:
                failures.append(error)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(ask)
        for restart in range(8):
            manager.wait_ready(restart + 1)
            done = len(codes)
            manager.until("answers", lambda: codes[done:].count(200) >= 3)
            manager.stopping = False
            process = manager.process
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            manager.until("the end", lambda: manager.ended)
            manager.thread.join()
            manager.ended = False
            manager._start()
            manager.thread = threading.Thread(target=manager._run, daemon=True)
            manager.thread.start()
        manager.wait_ready(9)
        stop.set()
    assert not failures, failures[:3]
    assert set(codes) <= {200, 503} and manager.results == [0] * 8


def test_sockets_that_do_not_fit_are_refused(tmp_path, fake):
    def run(prepare, count=1):
        return subprocess.run(["bash", "-c", f'{prepare} LISTEN_FDS={count} LISTEN_PID=$$ exec "$0" "$@"', FAKE,
                               "--model", "fake.gguf"], capture_output=True, text=True, timeout=60)
    done = run(f"exec 3<{tmp_path};")
    assert done.returncode == 1 and "descriptor 3 was passed to listen on" in done.stderr
    with socket.socket() as plain:  # bound to nothing, listening on nothing
        done = subprocess.run(["bash", "-c", f'exec 3<&{plain.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"', FAKE,
                               "--model", "fake.gguf"], capture_output=True, text=True, timeout=60, pass_fds=(plain.fileno(),))
        assert done.returncode == 1 and "no listening stream socket" in done.stderr
    done = run(f"exec 3<{tmp_path} 4<{tmp_path};", count=2)
    assert done.returncode == 1 and "2 sockets were passed" in done.stderr


def test_a_passed_address_needs_keys_too(fake):
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        done = subprocess.run(["bash", "-c", f'exec 3<&{everywhere.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"', FAKE,
                               "--model", "fake.gguf"], capture_output=True, text=True, timeout=60,
                              pass_fds=(everywhere.fileno(),))
    assert done.returncode == 1 and "0.0.0.0 is not a loopback address" in done.stderr


# ---- reloading ----

def test_reload_takes_over_what_it_can(start, tmp_path):
    config, keys = tmp_path / "oinferd.conf", tmp_path / "keys"
    keys.write_text("one\n")
    keys.chmod(0o600)
    config.write_text(f"[server]\napi-key-file = {keys}\n[limits]\nmax-tokens = 5\nbody = 2048\n[model]\nslots = 1\n")
    manager = start("--config", config)
    manager.wait_ready(1)
    url = f"http://127.0.0.1:{manager.port}/v1/completions"

    def ask(key, size=1, **body):
        return requests.post(url, json={"prompt": "x" * size, "max_tokens": 1, **body}, timeout=60, headers={"X-Api-Key": key})

    def reload(answer):
        count = manager.log().count(answer)
        done = sum("READY" in s for s in manager.seen())
        manager.process.send_signal(signal.SIGHUP)
        manager.until(answer, lambda: manager.log().count(answer) > count)
        manager.until("READY again", lambda: sum("READY" in s for s in manager.seen()) > done)
    assert ask("one").status_code == 200 and ask("two").status_code == 401
    assert ask("one", max_tokens=6).status_code == 400 and ask("one", 3000).status_code == 413
    assert ask("one").json()["timings"]["cache_n"] > 0

    keys.write_text("zero\ntwo\n")  # in the place of the first one stands another key
    config.write_text(f"[server]\napi-key-file = {keys}\nport = 1\n[limits]\nmax-tokens = 6\nbody = 8192\n[model]\nslots = 2\n")
    reload("reloaded keys=2 changed=body,max-tokens needs_restart=slots,port")
    assert any(s.get("RELOADING") == "1" and int(s["MONOTONIC_USEC"]) > 0 for s in manager.seen())
    assert ask("one").status_code == 401
    assert ask("zero", max_tokens=6).json()["timings"]["cache_n"] == 0  # not the one's cache
    assert ask("two", 3000).status_code == 400  # too long for the context, not for the body

    for text, reason in (("[limits]\nmax-tokens = many\n", "many"), ("", "keys can be taken away by a restart only"),
                         (f"[server]\napi-key-file = {keys}.missing\n", "No such file"), ("[serve", "oinferd.conf:1")):
        config.write_text(text)
        reload("not reloaded reason=")
        assert reason in manager.log()
        assert ask("two", max_tokens=6).status_code == 200 and ask("one").status_code == 401
    assert manager.stop() == 0


def test_a_reload_while_a_body_comes(start, tmp_path):
    """A key that is taken away while its request arrives does not pass any more."""
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    keys.chmod(0o600)
    manager = start("--api-key-file", keys)
    manager.wait_ready(1)
    body = b'{"prompt":"x"}'
    with socket.create_connection(("127.0.0.1", manager.port), timeout=60) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Api-Key: one\r\nContent-Length: %d\r\n\r\n{" % len(body))
        manager.until("the request", lambda: requests.get(f"http://127.0.0.1:{manager.port}/health", timeout=5).ok)
        keys.write_text("two\n")
        manager.process.send_signal(signal.SIGHUP)
        manager.until("the reload", lambda: "reloaded" in manager.log())
        s.sendall(body[1:])
        assert s.recv(65536).startswith(b"HTTP/1.1 401")


# ---- what the unit runs besides ----

def test_a_manager_that_stops_reading_stops_nothing(tmp_path, fake):
    """Its queue is full, so that sending would wait for ever; when it reads again it is told again."""
    path = str(tmp_path / "notify")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(path)
    filler = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    filler.connect(path)
    filler.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            filler.send(b"FILLER=1")
    daemon = Daemon(fake, "--model", "fake.gguf", env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"})
    try:
        for _ in range(3):
            assert daemon.complete(prompt="<ok$|")["choices"][0]["text"] == "ok"
            time.sleep(0.3)
        assert daemon.log().count("does not read its socket") == 1
        manager.settimeout(10)
        while manager.recv(4096) != b"WATCHDOG=1":
            pass
        daemon.stop()
    finally:
        daemon.kill()
        manager.close()
        filler.close()


def test_check_knows_the_exposure(fake):
    code, _, err = run_to_end(FAKE, "--model", "fake.gguf", "--host", "0.0.0.0", "--check")
    assert code == 1 and "--api-key-file" in err
    code, _, err = run_to_end(FAKE, "--model", "fake.gguf", "--host", "no such host", "--check")
    assert code == 1 and 'host "no such host"' in err
    assert run_to_end(FAKE, "--model", "fake.gguf", "--host", "0.0.0.0", "--open", "--check")[0] == 0


def test_back_off(tmp_path):
    """The delays of failures that follow each other; a stop or ten quiet minutes begin again."""
    (tmp_path / "sleep").write_text('#!/bin/sh\necho "slept $1"\n')
    (tmp_path / "sleep").chmod(0o755)
    count = tmp_path / "failures"

    def fail(result):
        done = subprocess.run([DEPLOY / "backoff.sh"], capture_output=True, text=True, check=True,
                              env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNTIME_DIRECTORY": str(tmp_path),
                                   "SERVICE_RESULT": result})
        return int(done.stdout.split("slept ")[1]) if "slept" in done.stdout else 0
    assert [fail("watchdog") for _ in range(9)] == [0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert fail("success") == 0 and not count.exists()
    assert [fail("signal") for _ in range(3)] == [0, 1, 2]
    old = time.time() - 700
    os.utime(count, (old, old))
    assert [fail("signal") for _ in range(3)] == [0, 1, 2]
    count.write_text("nonsense")
    assert fail("signal") == 0 and fail("signal") == 1
