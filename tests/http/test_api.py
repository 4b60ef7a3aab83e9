"""Keys, metrics, what the daemon says about itself, and the API description. On the fake engine."""
import pathlib
import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from daemon import poll

SERVER = pathlib.Path(__file__).resolve().parents[2] / "server"
ROUTES = re.findall(r'^ROUTE\("(\w+)", "([^"]+)", (\w+),', (SERVER / "routes.def").read_text(), re.M)
OPERATOR_FIELDS = re.findall(r'^FIELD\((\w+), (\w+), (\w+), ([^,]+), ([^,]+), ([^,]+), "(.*)"\)', (SERVER / "ops/fields.def").read_text(), re.M)
FIELDS = re.findall(r"^FIELD\((\w+), (\w+), (\w+), ([^,]+), ([^,]+), ([^,]+),", (SERVER / "request.def").read_text(), re.M)


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# ours\nfirst-key\nsecond-key\n")
    path.chmod(0o600)
    return path


# ---- keys ----

def test_s35_every_route_but_health_needs_a_key(start_fake, key_file):
    """S35: one gate; the walk of the route table, unknown routes and wrong methods without a key."""
    daemon = start_fake("--api-key-file", key_file)
    assert len(ROUTES) >= 10
    for method, path, needs_key in ROUTES + [("GET", "/nope", "true"), ("DELETE", "/v1/models", "true")]:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "first-key"}, {"X-Api-Key": "first-ke"},
                        {"X-Api-Key": "first-key2"}, {"Authorization": "Bearer "}, {"X-Api-Key": "x" * 400}):
            reply = daemon.session.request(method, daemon.url + path, headers=headers, timeout=30)
            if needs_key == "true":
                assert reply.status_code == 401, (method, path, headers)
                assert reply.json()["error"]["type"] == "authentication_error"
                assert reply.headers["WWW-Authenticate"] == "Bearer"
            else:
                assert reply.status_code == 200
        for headers in ({"Authorization": "Bearer first-key"}, {"authorization": "bearer  second-key"}, {"X-Api-Key": "second-key"}):
            reply = daemon.session.request(method, daemon.url + path, headers=headers, timeout=30)
            assert reply.status_code != 401, (method, path, headers)


def test_the_prompt_cache_is_not_shared_between_keys(start_fake, key_file):
    daemon = start_fake("--api-key-file", key_file, "--slots", "1")
    body = {"prompt": "a secret prompt", "max_tokens": 1}

    def cached(key):
        return daemon.post("/v1/completions", body, headers={"X-Api-Key": key}).json()["timings"]["cache_n"]
    assert cached("first-key") == 0 and cached("first-key") == 15
    assert cached("second-key") == 0 and cached("second-key") == 15


def test_bad_key_files(fake_binary, tmp_path):
    from daemon import run_to_end
    cases = {"none": (None, 0o600, "No such file"), "empty": ("# x\n\n", 0o600, "holds no key"), "open": ("k\n", 0o644, "mode 644"),
             "space": ("a b\n", 0o600, ":1:"), "long": ("k\n" + "x" * 300 + "\n", 0o600, ":2:")}
    for name, (text, mode, wanted) in cases.items():
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
            path.chmod(mode)
        code, _, err = run_to_end(fake_binary, "--api-key-file", path, "--port", 0)
        assert code == 1 and wanted in err and len(err.strip().splitlines()) == 1, (name, err)


# ---- metrics ----

def test_s34_metrics_parse(fake):
    """S34: what Prometheus' own parser reads, with sound histograms, names and types."""
    fake.complete(prompt="<ok$|", max_tokens=5)
    fake.get("/nope")
    reply = fake.get("/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {f.name: f for f in text_string_to_metric_families(reply.text)}
    assert len(families) >= 15
    for family in families.values():
        assert family.name.startswith("oinfer_") and family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram")
        if family.type == "histogram":
            buckets = [(float(s.labels["le"]), s.value) for s in family.samples if s.name.endswith("_bucket")]
            assert buckets == sorted(buckets) and buckets[-1][0] == float("inf")
            assert [b[1] for b in buckets] == sorted(b[1] for b in buckets)
            assert buckets[-1][1] == next(s.value for s in family.samples if s.name.endswith("_count")) >= 1
        if family.type == "counter":
            assert all(s.name.endswith("_total") for s in family.samples)
    requests_ = {(s.labels["route"], s.labels["code"]): s.value for s in families["oinfer_requests"].samples}
    assert requests_["/v1/completions", "200"] >= 1 and requests_["other", "404"] >= 1
    assert families["oinfer_predicted_tokens"].samples[0].value >= 3
    names = re.findall(r"^# TYPE (\S+)", reply.text, re.M)
    assert len(names) == len(set(names))


# ---- what the daemon says about itself ----

def test_models(fake):
    listed = fake.get("/v1/models").json()
    assert listed["object"] == "list" and [m["id"] for m in listed["data"]] == ["fake"]
    assert listed["data"][0]["object"] == "model" and listed["data"][0]["meta"]["n_ctx"] == 512


def test_several_models_and_devices(start_fake):
    daemon = start_fake("--model", "folder/other.GGUF", "--device", "all", "--slots", "2")
    assert [m["id"] for m in daemon.get("/v1/models").json()["data"]] == ["fake", "other"]
    assert daemon.complete(prompt="<ok$|", model="other")["model"] == "other"
    assert len(daemon.get("/slots").json()) == 8
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        futures = [pool.submit(lambda i: daemon.complete(prompt=f"<{i}$|", model=["fake", "other"][i % 2], max_tokens=60), i)
                   for i in range(24)]
        for i, future in enumerate(futures):
            assert future.result()["choices"][0]["text"] == str(i)
    devices = daemon.get("/v1/devices").json()["data"]
    assert [d["in_use"] for d in devices] == [True, True]
    steps = re.findall(r'oinfer_device_steps_total\{device="\d"\} (\d+)', daemon.get("/metrics").text)
    assert len(steps) == 2 and all(int(n) > 0 for n in steps)


def test_two_models_of_one_name(fake_binary):
    from daemon import run_to_end
    code, _, err = run_to_end(fake_binary, "--model", "a/x.gguf", "--model", "b/x.gguf", "--port", 0)
    assert code == 1 and 'two models are called "x"' in err


def test_without_a_model(fake_binary):
    from daemon import Daemon
    daemon = Daemon(fake_binary)
    assert daemon.get("/v1/models").json()["data"] == []
    reply = daemon.post("/v1/completions", {"prompt": "x"})
    assert reply.status_code == 404 and reply.json()["error"]["code"] == "model_not_found"
    daemon.stop()


def test_devices_and_props(start_fake):
    daemon = start_fake("--queue", "7")
    device = daemon.get("/v1/devices").json()["data"][0]
    assert device["caps"] == ["gpu"] and device["status"] == "ready" and device["variants"]["fake"]
    assert poll(lambda: daemon.get("/v1/devices").json()["data"][0]["peaks"])
    assert daemon.get("/v1/devices").json()["data"][0]["peaks"] == {"read_gb_s": 1, "copy_gb_s": 2, "f32_gflop_s": 3}
    assert "caps" not in daemon.get("/v1/devices").json()["data"][1]
    props = daemon.get("/props").json()
    assert props["options"]["queue"] == "7" and props["options"]["ping-interval"] == "10s"
    assert props["models"][0]["n_ctx"] == 512 and props["models"][0]["slots"] == 4
    assert props["memory"][0]["memory"]["used_bytes"] == 1000
    assert "replaced" in props["memory"][0]["loads"]["fake"]


def test_slots_show_prompts_only_when_told(start_fake):
    import threading
    import time
    for option, shown in (((), False), (("--show-prompts",), True)):
        daemon = start_fake(*option, "--log-level", "debug", env={"FAKE_STEP_MS": "100"})
        thread = threading.Thread(target=daemon.complete, kwargs={"prompt": "secret", "max_tokens": 20, "temperature": 1})
        thread.start()
        texts = ""
        while thread.is_alive():
            texts += daemon.session.get(daemon.url + "/slots").text
            time.sleep(0.02)
        thread.join()
        for prompt in ("secret~~", "secret" * 100):  # those that fail are not in it either
            assert daemon.post("/v1/completions", {"prompt": prompt, "max_tokens": 9}).status_code in (400, 500)
        assert ("secret" in texts) == shown
        assert "job failed" in daemon.log() and "secret" not in daemon.log()


# ---- the description ----

def test_openapi_is_the_file_and_the_table(fake):
    reply = fake.get("/openapi.yaml")
    assert reply.text == (SERVER / "openapi.yaml").read_text()
    described = yaml.safe_load(reply.text)
    paths = {(method.upper(), path) for path, item in described["paths"].items() for method in item}
    assert paths == {(method, path) for method, path, _ in ROUTES}
    for method, path, needs_key in ROUTES:
        entry = described["paths"][path][method.lower()]
        assert (entry.get("security") == []) == (needs_key == "false"), path
        assert ("401" in entry["responses"]) == (needs_key == "true"), path


@pytest.mark.parametrize("schema,routes", [("CompletionRequest", ("COMPLETION", "ALL")), ("TokenizeRequest", ("TOKENIZE", "ALL")),
                                           ("DetokenizeRequest", ("DETOKENIZE", "ALL"))])
def test_openapi_fields_are_the_table(schema, routes):
    described = yaml.safe_load((SERVER / "openapi.yaml").read_text())["components"]["schemas"][schema]["properties"]
    table = {name: row for name, *row in FIELDS if row[1] in routes}
    assert set(described) == set(table)
    for name, (kind, _, fallback, low, high) in table.items():
        entry = described[name]
        if kind in ("INTEGER", "REAL"):
            assert entry["type"] == {"INTEGER": "integer", "REAL": "number"}[kind]
            assert entry["minimum"] == float(low), name
            named = {"INT32_MAX": 2**31 - 1, "REQUEST_MAX_INTEGER": 2**53, "SAMPLER_MAX_LOGPROBS": 20}
            if "maximum" in entry:
                assert entry["maximum"] == (named[high] if high in named else float(high)), name
            if "default" in entry:
                assert entry["default"] == float(fallback), name
        elif kind == "SWITCH":
            assert entry["type"] == "boolean" and entry["default"] == (fallback == "true")


NUMBERS = {"OPS_MAX_DIM": 2**26, "OPBENCH_MAX_ITERATIONS": 1000, "UINT32_MAX": 2**32 - 1, "OPS_MAX_INTEGER": 2**53, "OPS_MAX_REAL": 3e38,
           "-OPS_MAX_REAL": -3e38, "TOP_K_MAX": 64, "OPS_MAX_POSITIONS": 65536, "CONV_NONE": 0, "CONV_NCHW": 0, "SPARSE_CSR": 0}


@pytest.mark.parametrize("op", sorted({row[0] for row in OPERATOR_FIELDS}))
def test_openapi_operators_are_the_table(op):
    schema = yaml.safe_load((SERVER / "openapi.yaml").read_text())["components"]["schemas"]["Operator" + ("" if op == "common" else "_" + op)]
    table = {name: row for of, name, *row in OPERATOR_FIELDS if of == op}
    assert set(schema["properties"]) == set(table)
    assert schema.get("required", []) == [name for name, row in table.items() if row[1] == "REQUIRED"]
    for name, (kind, fallback, low, high, detail) in table.items():
        entry = schema["properties"][name]
        low, high = (NUMBERS[x] if x in NUMBERS else float(x) for x in (low, high))
        if kind in ("INTEGER", "REAL"):
            assert entry["type"] == {"INTEGER": "integer", "REAL": "number"}[kind]
            assert (entry["minimum"], entry["maximum"]) == (low, high), name
        elif kind == "SWITCH":
            assert entry["type"] == "boolean" and entry["default"] == (fallback == "true")
        elif kind == "CHOICE":
            assert entry["enum"] == detail.split("|"), name
        if "default" in entry and kind in ("INTEGER", "REAL", "PAIR"):
            assert entry["default"] == float(fallback) >= low, name
        if "default" in entry and kind == "CHOICE":
            assert entry["default"] == detail.split("|")[NUMBERS[fallback] if fallback in NUMBERS else int(fallback)], name


def test_answers_fit_the_description(fake):
    """Every key of an answer is described, and every required key is there."""
    schemas = yaml.safe_load((SERVER / "openapi.yaml").read_text())["components"]["schemas"]

    def check(value, schema, where):
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
        if value is None:
            assert schema.get("nullable"), where
        elif isinstance(value, dict) and "properties" in schema:
            assert set(schema.get("required", [])) <= set(value) <= set(schema["properties"]), (where, set(value))
            for key, part in value.items():
                check(part, schema["properties"][key], f"{where}.{key}")
        elif isinstance(value, list):
            for part in value:
                check(part, schema["items"], where)
        else:
            types = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict}
            assert isinstance(value, types[schema["type"]]), (where, value)
    check(fake.complete(prompt="<ok$|", logprobs=2, timings="kernels", echo=True), schemas["Completion"], "completion")
    check(fake.post("/v1/ops/matmul", {"m": 2, "n": 2, "k": 2, "variant": "all"}).json(), schemas["OperatorResult"], "operator")
    check(fake.get("/health").json(), schemas["Health"], "health")
    check(fake.get("/nope").json(), schemas["Error"], "error")
    check(fake.post("/v1/completions", {"prompt": "x" * 600}).json(), schemas["Error"], "context")
