"""tests/fault/soak.py for two minutes; by hand it runs for half an hour."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "fault" / "soak.py"


def test_a_short_soak(real_binary, tiny_model, warm_cache):
    if os.environ.get("OINFER_SANITIZE"):
        pytest.skip("a sanitizer's memory grows")
    done = subprocess.run([sys.executable, SCRIPT, "--daemon", real_binary, "--model", tiny_model, "--seconds", "120",
                           "--cache-dir", warm_cache], capture_output=True, text=True, timeout=900)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    for what in ("/v1/completions 200", "stream 200", "left", "/v1/ops/matmul 200", "tuning done"):
        assert re.search(rf"[1-9]\d* {what}$", done.stdout, re.M), what
