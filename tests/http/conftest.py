"""Fixtures: the daemon on the fake engine, and on the real one with a tiny synthetic model and with SmolLM2."""
import os
import pathlib
import subprocess

import pytest

from daemon import Daemon


def _path(variable):
    value = os.environ.get(variable, "")
    if not value or not os.path.exists(value):
        pytest.skip(f"{variable} names no file")
    return value


@pytest.fixture(scope="session")
def fake_binary():
    return _path("OINFERD_FAKE")


@pytest.fixture(scope="session")
def real_binary():
    return _path("OINFERD")


@pytest.fixture(scope="module")
def fake(fake_binary):
    """A daemon on the fake engine, shared by a module: 4 slots, a context of 512 byte tokens."""
    daemon = Daemon(fake_binary, "--model", "fake.gguf", "--queue", "8", "--ping-interval", "200ms")
    yield daemon
    daemon.stop()


@pytest.fixture
def start_fake(fake_binary):
    """Starts daemons on the fake engine with options of their own; what a test leaves running is stopped."""
    daemons = []

    def start(*arguments, **options):
        daemons.append(Daemon(fake_binary, "--model", "fake.gguf", *arguments, **options))
        return daemons[-1]
    yield start
    for daemon in daemons:
        if daemon.process.poll() is None:
            daemon.stop()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A synthetic model of the real engine, small enough for every device and sanitizer."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    subprocess.run([_path("OINFER"), "mkmodel", "--shape",
                    "n_layer=2,n_embd=64,n_ff=128,n_head=4,n_head_kv=2,n_vocab=512,n_ctx=512", "--dtype", "q8_0",
                    "-o", str(path)], check=True, capture_output=True)
    return path


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory):
    """A cache folder that test runs share where OINFER_TEST_CACHE names one: building all kernels takes a minute."""
    folder = os.environ.get("OINFER_TEST_CACHE", "")
    if not folder:
        return tmp_path_factory.mktemp("cache")
    pathlib.Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M-Instruct Q4_1, where somebody has put it."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    path = pathlib.Path(os.environ.get("OINFER_SMOLLM2", f"{cache}/oinfer/SmolLM2-135M-Instruct.Q4_1.gguf"))
    if not path.is_file():
        pytest.skip("SmolLM2 is not here: set OINFER_SMOLLM2")
    return path
