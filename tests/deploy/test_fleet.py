"""Several boxes and what watches them: HAProxy before two daemons of which one dies, Prometheus, Grafana, Kubernetes."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import requests
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
sys.path.insert(0, str(ROOT / "tests/http"))
from daemon import Daemon  # noqa: E402

FAKE = os.environ.get("OINFERD_FAKE", "")


def needs(tool, package):
    path = shutil.which(tool) or shutil.which(tool, path="/usr/sbin:/sbin")
    return pytest.mark.skipif(path is None, reason=f"{tool} is not installed (package {package})")


@pytest.fixture
def boxes():
    if not os.path.exists(FAKE):
        pytest.skip("OINFERD_FAKE names no file")
    daemons = [Daemon(FAKE, "--model", "fake.gguf", "--queue", "64", env={"FAKE_STEP_MS": "5"}) for _ in range(2)]
    yield daemons
    for daemon in daemons:
        daemon.kill()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def proxy(boxes, tmp_path):
    """HAProxy with the shipped configuration; only addresses are other ones."""
    port = free_port()
    text = (DEPLOY / "haproxy.cfg").read_text()
    text, bound = re.subn(r"bind :8080$", f"bind 127.0.0.1:{port}", text, flags=re.M)
    for number, box in enumerate(boxes, 1):
        text, named = re.subn(rf"(server box{number}) \S+", rf"\1 127.0.0.1:{box.port}", text)
        assert named == 1
    assert bound == 1
    (tmp_path / "haproxy.cfg").write_text(text)
    haproxy = shutil.which("haproxy") or "/usr/sbin/haproxy"
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([haproxy, "-db", "-f", tmp_path / "haproxy.cfg"], stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if requests.get(url + "/health", timeout=5).status_code == 200:
                break
        except requests.exceptions.RequestException:
            pass
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.05)
    else:
        pytest.fail((tmp_path / "log").read_text())
    yield url
    process.terminate()
    process.wait(30)


def ask(url, **body):
    """A new connection for each request, as a new client has."""
    return requests.post(url + "/v1/completions", json={"prompt": "x", "max_tokens": 20, "temperature": 1, **body}, timeout=120,
                         headers={"Connection": "close"})


class Load:
    """Clients that ask without end; (time asked, status or error) of each request."""

    def __init__(self, url, clients):
        self.stop, self.answers, self.lock = threading.Event(), [], threading.Lock()
        self.pool = concurrent.futures.ThreadPoolExecutor(clients)
        for _ in range(clients):
            self.pool.submit(self._ask, url)

    def _ask(self, url):
        while not self.stop.is_set():
            asked = time.monotonic()
            try:
                result = ask(url).status_code
            except requests.exceptions.RequestException as error:
                result = repr(error)
            with self.lock:
                self.answers.append((asked, result))

    def wait(self, count, seconds=120):
        with self.lock:
            wanted = len(self.answers) + count
        end = time.monotonic() + seconds
        while len(self.answers) < wanted:
            assert time.monotonic() < end, "no answers"
            time.sleep(0.02)

    def end(self):
        self.stop.set()
        self.pool.shutdown()
        return self.answers


def steps(box):
    return int(re.search(r'oinfer_device_steps_total\{device="0"\} (\d+)', box.get("/metrics").text).group(1))


@needs("haproxy", "haproxy")
def test_haproxy_one_of_two_is_killed_under_load(proxy, boxes):
    load = Load(proxy, 8)
    load.wait(40)
    assert all(steps(box) > 0 for box in boxes)
    boxes[0].process.send_signal(signal.SIGKILL)
    boxes[0].process.wait()
    killed = time.monotonic()
    load.wait(60)
    answers = load.end()
    late = [result for asked, result in answers if asked > killed]
    assert len(late) >= 40 and set(late) == {200}, late
    # What the dead one was working on is sent again, or, if its connection was reset, answered with 502: never silence.
    assert {result for _, result in answers} <= {200, 502}


@needs("haproxy", "haproxy")
def test_haproxy_one_of_two_drains_under_load(proxy, boxes):
    load = Load(proxy, 8)
    load.wait(40)
    boxes[1].signal(signal.SIGTERM)
    assert boxes[1].wait(60) == 0
    load.wait(40)
    assert {result for _, result in load.end()} == {200}


@needs("haproxy", "haproxy")
def test_haproxy_prefers_the_box_with_fewer_requests(proxy, boxes):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(ask, proxy, max_tokens=300) for _ in range(4)]
        end = time.monotonic() + 60
        while sum(box.busy_slots() for box in boxes) < 4:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert [box.busy_slots() for box in boxes] == [2, 2]
        assert all(f.result().status_code == 200 for f in slow)


@needs("haproxy", "haproxy")
def test_haproxy_streams(proxy):
    reply = ask(proxy, stream=True, max_tokens=50)
    assert reply.status_code == 200 and reply.text.endswith("data: [DONE]\n\n") and reply.text.count("data: {") >= 50


# ---- monitoring ----

@needs("promtool", "prometheus")
def test_prometheus_files(tmp_path):
    for name in ("prometheus.yml", "oinfer-alerts.yml"):
        shutil.copy(DEPLOY / "monitoring" / name, tmp_path)
    shutil.copy(ROOT / "tests/deploy/alerts_test.yml", tmp_path)
    for arguments in (("check", "config", "prometheus.yml"), ("check", "rules", "oinfer-alerts.yml"), ("test", "rules", "alerts_test.yml")):
        done = subprocess.run(["promtool", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    broken = (tmp_path / "oinfer-alerts.yml").read_text().replace("== 0", "== 1")
    (tmp_path / "oinfer-alerts.yml").write_text(broken)
    assert subprocess.run(["promtool", "test", "rules", "alerts_test.yml"], cwd=tmp_path, capture_output=True, timeout=60).returncode != 0


def expressions():
    rules = yaml.safe_load((DEPLOY / "monitoring/oinfer-alerts.yml").read_text())
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])
    board = json.loads((DEPLOY / "monitoring/grafana-dashboard.json").read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    yield from (v["query"] for v in board["templating"]["list"])


def test_alerts_and_panels_ask_for_what_there_is(boxes):
    """Every metric and label of every expression is one that the daemon has."""
    boxes[0].complete(prompt="x")
    text = boxes[0].get("/metrics").text
    names = set(re.findall(r"^(oinfer_\w+)", text, re.M))
    labels = set(re.findall(r'[{,](\w+)="', text)) | {"instance", "job", "le"}
    used = set()
    for expression in expressions():
        used |= set(re.findall(r"oinfer_\w+", expression))
        for wanted in re.findall(r"(?:by|on) \(([^)]*)\)", expression) + re.findall(r"[{,](\w+)=", expression):
            assert set(re.split(r"[ ,]+", wanted)) <= labels, expression
    assert used <= names, used - names
    assert len(used) > 12


def test_the_dashboard_is_sound():
    board = json.loads((DEPLOY / "monitoring/grafana-dashboard.json").read_text())
    panels = board["panels"]
    assert len({p["id"] for p in panels}) == len(panels) > 8 and board["title"] and board["schemaVersion"] >= 30
    cells = [(x, y) for p in panels for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"])
             for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


# ---- Kubernetes ----

def test_kubernetes_manifest(boxes):
    """What fits together inside, and that its variables are options which the daemon takes."""
    parts = {part["kind"]: part for part in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
    pod = parts["Deployment"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    labels = pod["metadata"]["labels"]
    assert parts["Deployment"]["spec"]["selector"]["matchLabels"] == labels == parts["Service"]["spec"]["selector"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert parts["Service"]["spec"]["ports"][0]["targetPort"] in ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container[probe]["httpGet"]
        assert get["port"] in ports and boxes[0].get(get["path"]).status_code == 200
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    assert {m["name"] for m in container["volumeMounts"]} == set(volumes)
    assert volumes["keys"]["secret"]["secretName"] == parts["Secret"]["metadata"]["name"]
    assert volumes["keys"]["secret"]["defaultMode"] & 0o027 == 0  # else the daemon refuses the file
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == parts["PersistentVolumeClaim"]["metadata"]["name"]
    assert any("gpu" in name for name in container["resources"]["limits"])
    options = (ROOT / "config/options.def").read_text()
    env = {e["name"]: e["value"] for e in container["env"]}
    for name in (n for n in env if n.startswith("OINFER_")):
        assert f'"{name[7:].lower().replace("_", "-")}"' in options, name
    mounts = [m["mountPath"] for m in container["volumeMounts"]]
    for name in ("OINFER_MODEL", "OINFER_API_KEY_FILE", "OINFER_CACHE_DIR"):
        assert any(env[name].startswith(m) for m in mounts), name
    drain = int(re.search(r'"drain-time", \w+, DURATION, "(\d+)s"', options).group(1))
    assert pod["spec"]["terminationGracePeriodSeconds"] > drain + 10
