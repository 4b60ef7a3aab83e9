"""The units of systemd: no warning of its checker, little exposure, and limits that fit the daemon's own."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OINFER_BUILD", ROOT / "build/dev"))
ANALYZE = shutil.which("systemd-analyze")
needs_analyze = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed (package systemd)")


@pytest.fixture
def units(tmp_path):
    """The service as it was configured, but with programs that are there before anything is installed, and the socket."""
    text = (BUILD / "deploy/oinferd.service").read_text()
    text = re.sub(r"=\S+/oinferd ", f"={BUILD}/oinferd ", text)
    text = re.sub(r"=\S+/backoff\.sh", f"={ROOT}/deploy/backoff.sh", text)
    (tmp_path / "oinferd.service").write_text(text)
    shutil.copy(ROOT / "deploy/oinferd.socket", tmp_path)
    return tmp_path


def analyze(folder, *arguments):
    return subprocess.run([ANALYZE, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)


def settings(path):
    pairs = re.findall(r"^(\w+)=(.*)$", path.read_text(), re.M)
    return {key: [value for name, value in pairs if name == key] for key, _ in pairs}


@needs_analyze
def test_no_warnings(units):
    done = analyze(units, "verify", "--man=no", "oinferd.service", "oinferd.socket")
    assert done.returncode == 0 and done.stdout + done.stderr == ""
    text = (units / "oinferd.service").read_text()
    (units / "oinferd.service").write_text(text.replace("NoNewPrivileges=yes", "NoNewPrivilege=yes"))
    assert "Unknown key" in analyze(units, "verify", "--man=no", "oinferd.service").stderr  # the check sees faults


@needs_analyze
def test_exposure(units):
    """At most 3.0, and the check tells a unit without protection from ours."""
    arguments = ("security", "--offline=yes", "--threshold=30", "--no-pager", "oinferd.service")
    done = analyze(units, *arguments)
    assert done.returncode == 0, done.stdout[-300:]
    text = (units / "oinferd.service").read_text()
    (units / "oinferd.service").write_text(re.sub(r"^(Protect|Restrict|System|Private).*\n", "", text, flags=re.M))
    assert analyze(units, *arguments).returncode != 0


def test_limits_fit(units):
    service = settings(units / "oinferd.service")
    assert service["Type"] == ["notify"] and service["Restart"] == ["on-failure"] and service["NotifyAccess"] == ["main"]
    assert service["ExecStartPre"][0].endswith("--check") and "-HUP" in service["ExecReload"][0]
    drain = re.search(r'"drain-time", \w+, DURATION, "(\d+)s"', (ROOT / "config/options.def").read_text())
    assert int(service["TimeoutStopSec"][0]) > int(drain.group(1)) + 10
    assert service["StartLimitIntervalSec"] == ["0"] and service["WatchdogSec"] == ["3min"]
    for folder in ("StateDirectory", "CacheDirectory", "ConfigurationDirectory", "RuntimeDirectory"):
        assert service[folder] == ["oinfer"]
    assert set(service["SupplementaryGroups"][0].split()) == {"render", "video"}
    allowed = " ".join(service["DeviceAllow"])
    for node in ("char-drm", "char-kfd", "char-nvidia*", "/dev/mali0"):
        assert f"{node} rw" in allowed
    # What drivers need is not taken away by accident.
    for key in ("PrivateDevices", "MemoryDenyWriteExecute", "NoExecPaths", "PrivateNetwork", "ProcSubset"):
        assert key not in service


def test_the_socket_listens_where_the_daemon_would(units):
    options = (ROOT / "config/options.def").read_text()
    host = re.search(r'"host", host, TEXT, "([^"]+)"', options).group(1)
    port = re.search(r'"port", port, NUMBER, "(\d+)"', options).group(1)
    assert settings(units / "oinferd.socket")["ListenStream"] == [f"{host}:{port}"]


def test_the_user_is_in_the_groups_of_gpus():
    lines = (ROOT / "deploy/oinferd.sysusers").read_text().splitlines()
    assert "m oinfer render" in lines and "m oinfer video" in lines


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed (package systemd)")
def test_sysusers_makes_the_user(tmp_path):
    (tmp_path / "etc").mkdir()
    folder = tmp_path / "usr/lib/sysusers.d"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "deploy/oinferd.sysusers", folder / "oinferd.conf")
    done = subprocess.run(["systemd-sysusers", f"--root={tmp_path}"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^oinfer:[^:]*:\d+:\d+:OInfer inference daemon:/var/lib/oinfer:", (tmp_path / "etc/passwd").read_text(), re.M)
    groups = (tmp_path / "etc/group").read_text()
    assert re.search(r"^render:.*:oinfer$", groups, re.M) and re.search(r"^video:.*:oinfer$", groups, re.M)
