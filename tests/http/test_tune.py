"""Tunings over HTTP: bad fields, progress, streams, cancelling, what is kept. On the fake engine, and on the real one."""
import concurrent.futures
import json
import os
import pathlib
import re
import stat
import time

import pytest
import yaml

from daemon import Daemon, read_stream

SERVER = pathlib.Path(__file__).resolve().parents[2] / "server"
FIELDS = re.findall(r'^FIELD\((\w+), (\w+), ([^,]+), ([^,]+), ([^,]+), "(.*)"\)', (SERVER / "tune_fields.def").read_text(), re.M)
MATMUL = {"op": "matmul", "shape": {"m": 8, "n": 8, "k": 8}}


@pytest.fixture
def daemon(start_fake, tmp_path):
    return start_fake("--cache-dir", tmp_path)


def finish(daemon, reply, seconds=120):
    """Follows a tuning to its end; returns its last state."""
    assert reply.status_code == 202, reply.text
    path = "/v1/tune/" + reply.json()["id"]
    assert reply.headers["Location"] == path
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        state = daemon.get(path).json()
        if state["status"] not in ("queued", "running"):
            return state
        time.sleep(0.02)
    raise AssertionError(f"not over within {seconds} s: {state}")


def test_a_tuning_from_start_to_file(daemon, tmp_path):
    state = finish(daemon, daemon.post("/v1/tune", {**MATMUL, "budget": 5, "seed": 7, "search": "random"}))
    assert state["status"] == "done" and state["error"] is None
    assert (state["points"], state["most_points"], state["budget"], state["seed"], state["search"]) == (2, 2, 5, 7, "random")
    assert state["results"] == [{"op": "matmul", "shape": {"m": 8, "n": 8, "k": 8, "batch": 1, "trans_a": 0, "trans_b": 0},
                                 "dtype": "f32", "variant": "quick", "params": {"LWS": 32}, "us": 1, "standard_us": 1}]
    assert state["applied"] == 1
    path = tmp_path / "tune.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = json.loads(path.read_text())
    assert kept["format"] == "oinfer.tune" and [r["settings"] for r in kept["records"]] == [{"LWS": 32}]
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("tune")] == ["tune.json"]
    model = finish(daemon, daemon.post("/v1/tune", {"model": "fake"}))
    assert model["status"] == "done" and model["points"] == 4 and len(model["results"]) == 2
    assert len(json.loads(path.read_text())["records"]) == 3


@pytest.mark.parametrize("body,param,said", [
    ({}, "op", "either op and shape, or model"),
    ({"op": "matmul", "model": "fake"}, "op", "either"),
    ({"op": "matmul"}, "shape", "missing"),
    ({"op": "warp", "shape": {}}, "op", '"warp", expected one of'),
    ({"op": 3, "shape": {}}, "op", "a string"),
    ({"op": "x" * 33, "shape": {}}, "op", "33 bytes, expected at most 32"),
    ({"op": "matmul", "shape": {"m": 8, "n": 8}}, "shape", "k is missing"),
    ({"op": "matmul", "shape": {"m": 8, "n": 8, "k": 0}}, "shape", "k is 0, expected 1 to 67108864"),
    ({"op": "matmul", "shape": {"m": 8, "n": 8, "k": 2**27}}, "shape", "expected 1 to 67108864"),
    ({"op": "matmul", "shape": {"m": 8, "n": 8, "k": -1}}, "shape", "k: expected a whole number"),
    ({"op": "matmul", "shape": {"m": 8, "n": 8, "k": 1.5}}, "shape", "k: expected a whole number"),
    ({"op": "matmul", "shape": {"m": 8, "n": 8, "z": 1}}, "shape", 'no dimension "z"'),
    ({"op": "matmul", "shape": [8, 8, 8]}, "shape", "an object"),
    ({"op": "sparse_gemv", "shape": {"m": 2**20, "k": 2**20}}, "shape", "m * k"),
    ({**MATMUL, "search": "simplex"}, "search", '"simplex", expected one of grid|random|bayes'),
    ({**MATMUL, "budget": 0}, "budget", "budget is 0, expected a whole number of 1 to 256"),
    ({**MATMUL, "budget": 257}, "budget", "257"),
    ({**MATMUL, "budget": "20"}, "budget", "a whole number"),
    ({**MATMUL, "seed": -1}, "seed", "-1"),
    ({**MATMUL, "dtype": "q9"}, "dtype", '"q9"'),
    ({**MATMUL, "device": "nowhere"}, "device", "nowhere"),
    ({**MATMUL, "variant": "none"}, "variant", "no variant none"),
    ({"op": "matmul", "shape": {"m": 14, "n": 8, "k": 8}}, "shape", "m is 14"),
    ({"model": "fake", "variant": "x"}, "model", "go with op"),
    ([], None, "object"),
])
def test_bad_requests_name_field_value_and_limit(daemon, body, param, said):
    reply = daemon.post("/v1/tune", body)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error" and error["param"] == param and said in error["message"], error


def test_other_refusals(daemon):
    assert daemon.post("/v1/tune", {"model": "nobody"}).status_code == 404
    for path in ("/v1/tune/tune-99", "/v1/tune/99", "/v1/tune/tune-", "/v1/tune/tune-1x", "/v1/tune/tune--1"):
        for method in ("GET", "DELETE"):
            assert daemon.session.request(method, daemon.url + path, timeout=30).status_code == 404, path
    reply = daemon.session.request("PUT", daemon.url + "/v1/tune/tune-1", timeout=30)
    assert reply.status_code == 405 and reply.headers["Allow"] == "GET, HEAD, DELETE"
    reply = daemon.session.post(daemon.url + "/v1/tune", data='{"op":"matmul","op":"matmul"}', timeout=30)
    assert reply.status_code == 400 and "twice" in reply.json()["error"]["message"]
    reply = daemon.post("/v1/tune", {**MATMUL, "later": 1})
    assert reply.status_code == 202 and reply.headers["X-OInfer-Ignored"] == "later"


def test_progress_as_events(start_fake, tmp_path):
    daemon = start_fake("--cache-dir", tmp_path, env={"FAKE_STEP_MS": "50"})
    started = daemon.post("/v1/tune", {"model": "fake"})
    path = "/v1/tune/" + started.json()["id"]
    reply = daemon.get(path, headers={"Accept": "text/event-stream"})
    assert reply.headers["Content-Type"] == "text/event-stream" and reply.headers["Cache-Control"] == "no-cache"
    states, done = read_stream(reply)
    assert done and len(states) >= 2
    points = [state["points"] for state in states]
    assert points == sorted(points) and states[-1]["status"] == "done" and states[-1]["points"] == 4
    assert all(state["left_s"] >= 0 for state in states)
    again, done = read_stream(daemon.get(path, headers={"Accept": "text/event-stream"}))
    assert done and [state["status"] for state in again] == ["done"]


def test_cancelling_keeps_what_was_complete(start_fake, tmp_path):
    daemon = start_fake("--cache-dir", tmp_path, env={"FAKE_STEP_MS": "200"})
    first = daemon.post("/v1/tune", {"model": "fake"})
    second = daemon.post("/v1/tune", MATMUL)
    assert second.json()["status"] in ("queued", "running")
    path = "/v1/tune/" + first.json()["id"]
    daemon._until("a result", 60, lambda: daemon.get(path).json()["results"])
    assert daemon.session.delete(daemon.url + path, timeout=30).status_code == 200
    state = finish(daemon, first)
    assert state["status"] == "cancelled" and len(state["results"]) == 1 and state["points"] < 4
    assert finish(daemon, second)["status"] == "done"
    assert len(json.loads((tmp_path / "tune.json").read_text())["records"]) == 2
    assert daemon.session.delete(daemon.url + path, timeout=30).json()["status"] == "cancelled"


def test_requests_come_first(start_fake, tmp_path):
    """A completion's 30 steps of 100 ms follow one another: points of 100 ms between them would double its time."""
    daemon = start_fake("--cache-dir", tmp_path, env={"FAKE_STEP_MS": "100"})
    path = "/v1/tune/" + daemon.post("/v1/tune", {"op": "matmul", "shape": {"m": 15, "n": 8, "k": 8}}).json()["id"]
    daemon._until("a point", 60, lambda: daemon.get(path).json()["points"])
    timings = daemon.complete(prompt="<ab|", max_tokens=30)["timings"]
    state = daemon.get(path).json()
    assert state["status"] == "running" and timings["predicted_n"] == 30
    assert timings["predicted_ms"] < 1.5 * 30 * 100
    daemon._until("more points", 60, lambda: daemon.get(path).json()["points"] > state["points"])


def test_a_busy_device_answers_and_cancels_at_once(start_fake, tmp_path):
    """While requests keep the device from tuning, a tuning is accepted, and another ended, between two steps."""
    daemon = start_fake("--cache-dir", tmp_path, env={"FAKE_STEP_MS": "100"})
    endless = {"op": "matmul", "shape": {"m": 15, "n": 8, "k": 8}}
    first = "/v1/tune/" + daemon.post("/v1/tune", endless).json()["id"]
    daemon._until("a point", 60, lambda: daemon.get(first).json()["points"])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        completion = pool.submit(daemon.complete, prompt="<ab|", max_tokens=60)
        daemon._until("a step", 60, daemon.busy_slots)
        second = daemon.post("/v1/tune", endless)
        assert second.status_code == 202
        daemon.session.delete(daemon.url + first, timeout=30)
        daemon._until("the end", 60, lambda: daemon.get(first).json()["status"] == "cancelled")
        assert not completion.done()
        assert completion.result()["timings"]["predicted_n"] == 60
    daemon._until("its turn", 60, lambda: daemon.get("/v1/tune/" + second.json()["id"]).json()["points"])


def test_the_queue_of_tunings_is_bounded(start_fake, tmp_path):
    daemon = start_fake("--cache-dir", tmp_path, env={"FAKE_STEP_MS": "300"})
    endless = {"op": "matmul", "shape": {"m": 15, "n": 8, "k": 8}}
    replies = [daemon.post("/v1/tune", endless) for _ in range(9)]
    assert [reply.status_code for reply in replies] == [202] * 8 + [429]
    assert "8" in replies[8].json()["error"]["message"] and int(replies[8].headers["Retry-After"]) > 0
    start = time.monotonic()
    daemon.stop()   # tunings do not hold up the end
    assert time.monotonic() - start < 20


def test_a_lost_device_ends_tunings(start_fake, tmp_path):
    daemon = start_fake("--cache-dir", tmp_path)
    state = finish(daemon, daemon.post("/v1/tune", {"op": "matmul", "shape": {"m": 13, "n": 8, "k": 8}}))
    assert state["status"] == "failed" and "lost" in state["error"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format":"oinfer.tune","version":2,"records":[]}',
                                  '{"format":"other","version":1,"records":[]}', '{"format":"oinfer.tune","version":1}',
                                  '{"format":"oinfer.tune","version":1,"records":[{"op":"matmul"}]}', "\xff\xfe", "[" * 5000])
def test_broken_files_are_ignored_with_one_warning(start_fake, tmp_path, text):
    (tmp_path / "tune.json").write_text(text, encoding="latin-1")
    daemon = start_fake("--cache-dir", tmp_path)
    assert daemon.log().count("tuned values ignored") == 1, daemon.log()
    assert finish(daemon, daemon.post("/v1/tune", MATMUL))["status"] == "done"
    assert len(json.loads((tmp_path / "tune.json").read_text())["records"]) == 1


def test_openapi_fields_are_the_table():
    schema = yaml.safe_load((SERVER / "openapi.yaml").read_text())["components"]["schemas"]["TuneRequest"]["properties"]
    assert set(schema) == {name for name, *_ in FIELDS} and len(FIELDS) >= 9
    for name, kind, fallback, low, high, detail in FIELDS:
        entry = schema[name]
        high = 256 if high == "SEARCH_MAX_BUDGET" else int(high)
        if kind == "INTEGER":
            assert (entry["minimum"], entry["maximum"], entry["default"]) == (int(low), high, int(fallback)), name
        elif kind == "CHOICE":
            assert entry["enum"] == detail.split("|") and entry["default"] == entry["enum"][int(fallback)]
        elif kind == "DIMS":
            assert entry["additionalProperties"]["maximum"] == high
    assert "256" in re.search(r"SEARCH_MAX_BUDGET\s+(\d+)", (SERVER.parent / "engine/tune/search.h").read_text()).group(1)


def test_answers_fit_the_description(daemon):
    schemas = yaml.safe_load((SERVER / "openapi.yaml").read_text())["components"]["schemas"]
    state = finish(daemon, daemon.post("/v1/tune", MATMUL))
    assert set(state) == set(schemas["Tuning"]["properties"]) == set(schemas["Tuning"]["required"])
    assert set(state["call"]) == set(schemas["Tuning"]["properties"]["call"]["properties"])
    assert set(state["results"][0]) == set(schemas["Tuning"]["properties"]["results"]["items"]["properties"])


def test_the_real_engine(real_binary, tmp_path):
    """Two points of a softmax on whatever device is first; the daemon of the next start reads what was kept."""
    cache = tmp_path / "cache"
    daemon = Daemon(real_binary, "--cache-dir", cache)
    try:
        state = finish(daemon, daemon.post("/v1/tune", {"op": "softmax", "shape": {"rows": 16, "len": 100}, "budget": 2}), 600)
        assert state["status"] == "done" and state["points"] >= 1, state
        if "host" in state["device"]:
            return
        assert state["results"] and state["applied"] == len(state["results"])
        reply = daemon.post("/v1/tune", {"op": "softmax", "shape": {"rows": 16, "len": 100}, "variant": "columns"})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "variant", reply.text
    finally:
        daemon.stop()
    kept = json.loads((cache / "tune.json").read_text())["records"]
    assert {r["variant"] for r in kept} == {r["variant"] for r in state["results"]}
    daemon = Daemon(real_binary, "--cache-dir", cache)
    daemon.stop()
    assert "ignored" not in daemon.log()
