"""POST /v1/ops/{op} and GET /v1/ops on the real engine: results against numpy, inputs of clients, .npy, bad input. The
queue is tested on the fake engine, whose operators take as long as they are told."""
import concurrent.futures
import fnmatch
import io
import json
import os
import pathlib
import re
import subprocess
import threading
import time

import numpy as np
import pytest

import operators
from daemon import Daemon
from operators import generate, nmse, rounded

SANITIZED = os.environ.get("OINFER_SANITIZE", "")
# Under ThreadSanitizer the threads of the OpenCL drivers give false alarms: there the references run.
ON_HOST = "thread" in SANITIZED
ROOT = pathlib.Path(__file__).resolve().parents[2]
FIELDS = re.findall(r'^FIELD\((\w+), (\w+), (\w+), ([^,]+), ([^,]+), ([^,]+), "(.*)"\)',
                    (ROOT / "server/ops/fields.def").read_text(), re.M)
SMALL = {"matmul": {"m": 5, "n": 7, "k": 9}, "conv2d": {"c": 3, "h": 6, "w": 5, "o": 4, "kh": 3, "kw": 3},
         "softmax": {"rows": 3, "len": 17}, "argmax": {"rows": 3, "len": 17}, "gemv": {"m": 6, "k": 32},
         "attention": {"n_head": 2, "head_dim": 32, "n_kv": 9}, "sparse_gemv": {"m": 6, "k": 8},
         "norm": {"rows": 2, "len": 32}, "rope": {"n_tokens": 3, "n_head": 2, "head_dim": 8},
         "elementwise": {"fn": "silu", "n": 33}}


@pytest.fixture(scope="module")
def daemon(real_binary, warm_cache):
    """Operators only: no model."""
    daemon = Daemon(real_binary, "--device", "host" if ON_HOST else "auto", "--cache-dir", warm_cache)
    yield daemon
    daemon.stop()


def run(daemon, op, **fields):
    """An operator that must succeed, measured once, with its output."""
    reply = daemon.post(f"/v1/ops/{op}", {"warmup": 0, "iterations": 1, "return_output": True, "verify": True, "seed": 11, **fields})
    assert reply.status_code == 200, reply.text
    assert "X-OInfer-Ignored" not in reply.headers, reply.headers["X-OInfer-Ignored"]
    result = reply.json()
    assert all(row["status"] == "ok" and row["verification"]["pass"] for row in result["results"]), result["results"]
    return result


def output(result):
    return np.array(result["output"]["data"], np.float64).reshape(result["output"]["shape"])


def exact():
    """The variant that computes in f32 throughout, where others have int8 inside."""
    return "auto" if ON_HOST else "naive"


def refused(daemon, op, body, param, *words, status=400):
    reply = daemon.post(f"/v1/ops/{op}", body)
    assert reply.status_code == status, (body, reply.status_code, reply.text)
    error = reply.json()["error"]
    assert error["param"] == param and all(word in error["message"] for word in words), error
    return error


# ---- results against numpy ----

@pytest.mark.parametrize("dtype,bound", [("f32", 1e-12), ("f16", 1e-6), ("bf16", 2e-5)])
@pytest.mark.parametrize("trans_a,trans_b,beta", [(False, False, 0), (True, False, 0.5), (False, True, 0), (True, True, -1)])
def test_matmul(daemon, dtype, bound, trans_a, trans_b, beta):
    m, n, k, batch = 33, 20, 45, 2
    a = rounded(generate(11, 0, *((batch, k, m) if trans_a else (batch, m, k))), dtype)
    b = rounded(generate(11, 1, *((batch, n, k) if trans_b else (batch, k, n))), dtype)
    c = rounded(generate(11, 2, batch, m, n), dtype)
    result = run(daemon, "matmul", m=m, n=n, k=k, batch=batch, trans_a=trans_a, trans_b=trans_b, alpha=1.5, beta=beta, dtype=dtype)
    assert result["output"]["shape"] == [batch, m, n] and result["output"]["dtype"] == dtype and result["flops"] == 2 * batch * m * n * k
    assert ("c" in result["inputs"]) == (beta != 0)
    assert nmse(output(result), operators.matmul(a, b, c, 1.5, beta, trans_a, trans_b)) < bound


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("fields", [
    {}, {"pad": 1, "bias": True, "activation": "relu"}, {"stride": [2, 1], "dilation": [1, 2], "pad": [0, 2]},
    {"c": 4, "groups": 4, "pad": 1, "activation": "silu"}, {"kh": 1, "kw": 1, "n": 2}])
def test_conv2d(daemon, layout, fields):
    shape = {"n": 1, "c": 3, "h": 9, "w": 8, "o": 4, "kh": 3, "kw": 3, **{k: v for k, v in fields.items() if isinstance(v, int) and k != "pad"}}
    n, c, h, w = (shape[x] for x in "nchw")
    pairs = {key: fields[key] if isinstance(fields.get(key), list) else [fields.get(key, other)] * 2
             for key, other in (("stride", 1), ("pad", 0), ("dilation", 1))}
    groups = fields.get("groups", 1)
    x = generate(11, 0, n, c, h, w) if layout == "nchw" else generate(11, 0, n, h, w, c).transpose(0, 3, 1, 2)
    weights = generate(11, 1, shape["o"], c // groups, shape["kh"], shape["kw"])
    bias = generate(11, 2, shape["o"]) if fields.get("bias") else None
    want = operators.conv2d(x, weights, bias, groups=groups, activation=fields.get("activation", "none"), **pairs)
    got = output(run(daemon, "conv2d", layout=layout, **{**shape, **fields}))
    assert nmse(got if layout == "nchw" else got.transpose(0, 3, 1, 2), want) < 1e-11


@pytest.mark.parametrize("dtype,bound", [("f32", 1e-10), ("f16", 1e-6)])
@pytest.mark.parametrize("log,mask,scale", [(False, False, 1), (True, False, 2), (False, True, -0.5)])
def test_softmax(daemon, dtype, bound, log, mask, scale):
    x, m = (rounded(generate(11, i, 5, 301), dtype) for i in (0, 1))
    got = output(run(daemon, "softmax", rows=5, len=301, log=log, mask=mask, scale=scale, dtype=dtype))
    assert nmse(got, operators.softmax(x, m if mask else None, scale, log)) < bound


@pytest.mark.parametrize("k", [1, 5])
def test_argmax(daemon, k):
    result = run(daemon, "argmax", rows=4, len=5000, top_k=k)
    assert result["output"]["dtype"] == "i32" and result["output"]["shape"] == [4, k]
    assert output(result).astype(int).tolist() == operators.top_k(generate(11, 0, 4, 5000), k).tolist()


@pytest.mark.parametrize("wtype", ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"])
def test_gemv(daemon, wtype):
    m, k = 37, 64
    w, x = operators.quantised(generate(11, 0, m, k), wtype), generate(11, 1, k)
    result = run(daemon, "gemv", m=m, k=k, wtype=wtype, variant=exact())
    assert nmse(output(result), w.astype(np.float64) @ x.astype(np.float64)) < 1e-9


@pytest.mark.parametrize("wtype,bound", [("q4_k", 0.02), ("q5_k", 0.005), ("q6_k", 0.001)])
def test_gemv_of_super_blocks(daemon, wtype, bound):
    """numpy has no quantiser for these: the product is near that of the unquantised weights."""
    w, x = generate(11, 0, 16, 512), generate(11, 1, 512)
    got = output(run(daemon, "gemv", m=16, k=512, wtype=wtype, variant=exact()))
    assert nmse(got, w.astype(np.float64) @ x.astype(np.float64)) < bound


@pytest.mark.parametrize("kv_dtype,bound", [("f32", 1e-10), ("f16", 1e-6), ("q8_0", 5e-4)])
@pytest.mark.parametrize("fields", [{}, {"n_q": 5, "window": 4}, {"n_q": 3, "causal": False}, {"n_q": 12, "softcap": 0.5}])
def test_attention(daemon, kv_dtype, bound, fields):
    n_q = fields.get("n_q", 1)
    q, k, v = generate(11, 0, n_q, 4, 32), generate(11, 1, 21, 2, 32), generate(11, 2, 21, 2, 32)
    if kv_dtype == "f16":
        k, v = rounded(k, "f16"), rounded(v, "f16")
    options = {key: value for key, value in fields.items() if key != "n_q"}
    got = output(run(daemon, "attention", n_head=4, n_head_kv=2, head_dim=32, n_kv=21, kv_dtype=kv_dtype, **fields))
    assert nmse(got, operators.attention(q, k, v, **options)) < bound


@pytest.mark.parametrize("kind,density", [("csr", 0.3), ("csr", 1), ("2:4", 1)])
def test_sparse_gemv(daemon, kind, density):
    m, k = 23, 44
    a = operators.sparse_matrix(11, m, k, kind, density)
    got = output(run(daemon, "sparse_gemv", m=m, k=k, format=kind, density=density))
    assert nmse(got, a @ generate(11, 3, k).astype(np.float64)) < 1e-11


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norm(daemon, kind):
    x, weight, bias = generate(11, 0, 3, 96), generate(11, 1, 96), generate(11, 2, 96)
    result = run(daemon, "norm", rows=3, len=96, kind=kind, eps=1e-3, variant="auto" if ON_HOST else "all")
    assert nmse(output(result), operators.norm(x, weight, bias if kind == "layer" else None, kind, 1e-3)) < 1e-11


@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize("positions", [None, [0, 7, 300]])
def test_rope(daemon, mode, positions):
    x = generate(11, 0, 3, 2, 8)
    result = run(daemon, "rope", n_tokens=3, n_head=2, head_dim=8, mode=mode, base=500, iterations=3,
                 **({} if positions is None else {"positions": positions}))
    assert nmse(output(result), operators.rope(x, positions or [0, 1, 2], 500, mode)) < 1e-11


@pytest.mark.parametrize("fn", ["add", "mul", "silu", "gelu", "relu", "swiglu", "scale"])
def test_elementwise(daemon, fn):
    x, y = generate(11, 0, 1001), generate(11, 1, 1001)
    got = output(run(daemon, "elementwise", fn=fn, n=1001, factor=-3))
    assert nmse(got, operators.elementwise(fn, x, y.astype(np.float64), -3)) < 1e-11


def test_generated_data_need_no_device(daemon):
    """The formula written out for one element, by hand."""
    def fmix(h):
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
            h = (h ^ h >> shift) * factor & 0xFFFFFFFF
        return h
    seed, number, i = 4000000000, 1, 2
    want = (fmix(seed * 0x9E3779B9 + number * 0x85EBCA6B + i & 0xFFFFFFFF) >> 8) * 2**-23 - 1
    got = run(daemon, "elementwise", fn="add", n=3, seed=seed, inputs={"x": [0, 0, 0]})["output"]["data"][i]
    assert got == pytest.approx(want, abs=1e-8)


# ---- what a result tells ----

def test_all_variants(daemon):
    result = run(daemon, "matmul", m=64, n=48, k=32, variant="all", iterations=5, warmup=1)
    rows = {row["variant"]: row for row in result["results"]}
    listed = {v["variant"] for op in daemon.get("/v1/ops").json()["data"] if op["op"] == "matmul" for v in op["variants"]
              if v["runs_on"] and ("f32" in v["dtypes"] or not v["dtypes"])}
    assert set(rows) == listed and (ON_HOST or len(rows) > 8)
    for row in rows.values():
        for kind in ("kernel_ns", "host_ns"):
            times = row[kind]
            assert 0 < times["min"] <= times["median"] <= times["p95"] and times["min"] <= times["mean"], row
            assert times["stddev"] >= 0
        assert row["gflop_s"] == pytest.approx(2 * 64 * 48 * 32 / row["kernel_ns"]["median"], rel=1e-3)
        assert row["gb_s"] == pytest.approx(result["bytes"] / row["kernel_ns"]["median"], rel=1e-3)
        peaks = result["device"]["peaks"]
        assert row["share_of_peak_flops"] == pytest.approx(row["gflop_s"] / peaks["f32_gflop_s"], rel=1e-3)
    if not ON_HOST:
        naive = rows["naive"]["kernel_ns"]["median"]
        assert all(r["speedup_over_naive"] == pytest.approx(naive / r["kernel_ns"]["median"], rel=1e-3) for r in rows.values())
    moved = result["transfers"]
    assert moved["upload_bytes"] == 4 * (64 * 32 + 32 * 48) and moved["download_bytes"] == 4 * 64 * 48
    beside = moved["upload_beside_kernels"]
    assert 0 <= beside["overlap_ns"] <= min(beside["compute_busy_ns"], beside["transfer_busy_ns"])
    assert result["device"]["name"] and result["device"]["driver"] is not None and result["timings"]["queue_ms"] >= 0


def test_params(daemon):
    if ON_HOST:
        pytest.skip("the references have no tunables")
    result = run(daemon, "matmul", m=64, n=64, k=64, variant="local_tile", params={"TILE": 8, "LWS": 64})
    assert result["results"][0]["params"] == {"TILE": 8, "LWS": 64}


def test_catalogue(daemon):
    catalogue = daemon.get("/v1/ops").json()
    assert [op["op"] for op in catalogue["data"]] == list(SMALL)
    for op in catalogue["data"]:
        table = [row for row in FIELDS if row[0] in ("common", op["op"])]
        assert [f["name"] for f in op["fields"]] == [row[1] for row in table]
        for field, row in zip(op["fields"], table):
            assert field["required"] == (row[3] == "REQUIRED")
            assert ("choices" in field) == (row[2] == "CHOICE")
            if "default" in field and "choices" in field:
                assert field["default"] in field["choices"]
        assert any(v["runs_on"] for v in op["variants"]), op["op"]
        for variant in op["variants"]:
            assert variant["runs_on"] or variant["needs"] or variant["variant"] == "ref" or ON_HOST, variant
            for tunable in variant["tunables"]:
                assert tunable["default"] in tunable["values"], (op["op"], variant)


def test_variants_of_the_readme_exist(daemon):
    """Each name of the README's table is a variant of its operator, and every variant is in the table."""
    listed = {}
    for op in daemon.get("/v1/ops").json()["data"]:
        listed.setdefault(op["op"], set()).update(v["variant"] for v in op["variants"] if v["variant"] != "ref")
    section = (ROOT / "README.md").read_text().split("### Variants\n")[1].split("|---|---|---|\n")[1].split("\n\n")[0]
    operators_of_row, named = [], {op: set() for op in listed}
    for line in section.splitlines():
        _, first, _, names, _ = line.split("|")
        operators_of_row = [name.strip() for name in first.split(",")] if first.strip() else operators_of_row
        for name in re.findall(r"`([^`]+)`", names):
            found = {(op, v) for op in operators_of_row for v in listed[op] if fnmatch.fnmatchcase(v, name)}
            assert found, (operators_of_row, name)
            for op, variant in found:
                named[op].add(variant)
    assert named == listed, {op: listed[op] - named[op] for op in listed}


# ---- inputs of clients ----

def test_inline_inputs(daemon):
    result = run(daemon, "matmul", m=2, n=2, k=2, inputs={"a": [[1, 2], [3, 4]], "b": [[[5, 6], [7, 8]]]})
    assert result["output"]["data"] == [19, 22, 43, 50]
    assert result["inputs"]["a"] == {"shape": [1, 2, 2], "generated": False}
    x = run(daemon, "gemv", m=2, k=3, inputs={"w": [[1, 0, 2], [0, 1, 0]], "x": [1, 2, 3]}, variant=exact())
    assert x["output"]["data"] == [7, 2]
    assert run(daemon, "argmax", rows=1, len=4, inputs={"x": [0, 3, 3, 1]})["output"]["data"] == [1]
    sparse = {"values": [1, 2, 3], "col_indices": [0, 2, 1], "row_ptr": [0, 2, 3], "x": [1, 10, 100]}
    assert run(daemon, "sparse_gemv", m=2, k=3, inputs=sparse)["output"]["data"] == [201, 30]
    attention = run(daemon, "attention", n_head=1, head_dim=2, n_kv=1, kv_dtype="f32",
                    inputs={"q": [[1, 2]], "k": [[[1, 1]]], "v": [[[3, 4]]]})
    assert attention["output"]["data"] == pytest.approx([3, 4])
    assert run(daemon, "rope", n_tokens=1, n_head=1, head_dim=2, inputs={"x": [[1, 2]]})["output"]["data"] == [1, 2]


def npy(array, version=(1, 0)):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version, allow_pickle=False)
    return out.getvalue()


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_npy_both_ways(daemon, version):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((33, 21), np.float32), rng.standard_normal((21, 17), np.float32).astype(np.float16)
    fields = {"m": 33, "n": 17, "k": 21, "iterations": 1, "warmup": 0, "verify": True}
    files = {"request": (None, json.dumps(fields), "application/json"), "a": ("a.npy", npy(a, version)), "b": ("b.npy", npy(b, version))}
    reply = daemon.post("/v1/ops/matmul", files=files, headers={"Accept": "application/x-npy"})
    assert reply.status_code == 200 and reply.headers["Content-Type"] == "application/x-npy", reply.text
    got = np.load(io.BytesIO(reply.content), allow_pickle=False)
    assert got.dtype == np.float32 and got.shape == (1, 33, 17)
    assert nmse(got, a.astype(np.float64) @ b.astype(np.float64)) < 1e-12
    reply = daemon.post("/v1/ops/matmul", files=files)
    assert reply.json()["results"][0]["verification"]["pass"] and "output" not in reply.json()


@pytest.mark.parametrize("op,fields,dtype", [("softmax", {"dtype": "f16"}, np.float16), ("matmul", {"dtype": "bf16"}, np.float32), ("argmax", {"top_k": 2}, np.int32), ("rope", {}, np.float32)])
def test_npy_dtypes(daemon, op, fields, dtype):
    body = {**SMALL[op], **fields, "iterations": 1, "warmup": 0, "seed": 5}
    got = np.load(io.BytesIO(daemon.post(f"/v1/ops/{op}", body, headers={"Accept": "application/x-npy"}).content))
    inline = daemon.post(f"/v1/ops/{op}", {**body, "return_output": True}).json()["output"]
    assert got.dtype == dtype and list(got.shape) == inline["shape"]
    assert got.ravel().astype(np.float64).tolist() == pytest.approx(inline["data"], rel=1e-7)


def test_large_npy_with_a_larger_body(real_binary, tmp_path):
    daemon = Daemon(real_binary, "--device", "host", "--body", "20MiB", "--cache-dir", tmp_path)
    x = np.arange(3000000, dtype=np.float32)
    files = {"request": (None, '{"fn": "scale", "factor": 2, "n": 3000000, "iterations": 1, "warmup": 0}'), "x": ("x", npy(x))}
    reply = daemon.post("/v1/ops/elementwise", files=files, headers={"Accept": "application/x-npy"})
    assert np.array_equal(np.load(io.BytesIO(reply.content)), 2 * x)
    error = daemon.post("/v1/ops/elementwise", {"fn": "relu", "n": 3000000, "return_output": True}).json()["error"]
    assert error["param"] == "return_output" and "1048576" in error["message"]
    daemon.stop()


def bad_npy(good):
    """Names and bytes of files that must be refused, with a word of the refusal."""
    header = good[10:128]
    return {
        "cut": (good[:-1], "cut short"), "long": (good + b"x", "expected 8"), "empty": (b"", "0 bytes"),
        "head": (good[:40], "cut short"), "magic": (b"\x93NUMPX" + good[6:], "do not begin"),
        "version": (good[:6] + b"\x03\x00" + good[8:], "version is 3.0"),
        "huge": (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + header, "header of 2147483647 bytes"),
        "f8": (npy(np.zeros(2)), "dtype is <f8"), "big endian": (npy(np.zeros(2, ">f4")), "dtype is >f4"),
        "i4": (npy(np.zeros(2, np.int32)), "dtype is i32"), "fortran": (npy(np.asfortranarray(np.zeros((2, 2), np.float32))), "fortran_order"),
        "shape": (npy(np.zeros(3, np.float32)), "shape is [3], expected [2]"), "deep": (npy(np.zeros((1,) * 9, np.float32)), "more than 8"),
        "nan": (npy(np.array([1, np.nan], np.float32)), "element 1 is NaN"),
        "structured": (npy(np.zeros(2, [("a", "<f4")])), "structured"),
        "overflow": (good[:10] + header.replace(b"(2,)", b"(4611686018427387904, 8)")[:118] + good[128:], "2^61"),
        "keys": (good[:10] + header.replace(b"descr", b"decsr") + good[128:], "decsr"),
    }


def test_bad_npy(daemon):
    good = npy(np.array([1, 2], np.float32))
    assert len(good) == 136
    for name, (data, word) in bad_npy(good).items():
        files = {"request": (None, '{"fn": "relu", "n": 2}'), "x": ("x.npy", data)}
        reply = daemon.post("/v1/ops/elementwise", files=files)
        error = reply.json()["error"]
        assert reply.status_code == 400 and error["param"] == "inputs.x" and word in error["message"], (name, error)


def test_bad_multipart(daemon):
    head, good = {"Content-Type": "multipart/form-data; boundary=xx"}, b'--xx\r\nContent-Disposition: form-data; name="request"\r\n\r\n{"fn":"relu","n":1}\r\n--xx--\r\n'
    assert daemon.post("/v1/ops/elementwise", data=good, headers=head).status_code == 200
    part = b'--xx\r\nContent-Disposition: form-data; name="request"\r\n\r\n{}\r\n'
    for body, headers, word in [
            (good[:-6], head, "end with the boundary"), (b"", head, "end with"), (good, {"Content-Type": "multipart/form-data"}, "no boundary"),
            (good, {"Content-Type": "multipart/form-data; boundary=" + "y" * 80}, "no boundary"), (part * 9 + b"--xx--", head, "more than 8"),
            (part + part + b"--xx--", head, "twice"), (b"--xx\r\nX: y\r\n\r\nz\r\n--xx--", head, "no Content-Disposition"),
            (good.replace(b"request", b"q" * 70), head, "no Content-Disposition"), (good.replace(b"request", b"zz"), head, "fn is missing"),
            (good.replace(b'{"fn', b'{"f'), head, "fn is missing")]:
        reply = daemon.post("/v1/ops/elementwise", data=body, headers=headers)
        assert reply.status_code == 400 and word in reply.json()["error"]["message"], (body, reply.text)


# ---- errors ----

def test_errors_name_field_value_and_limit(daemon):
    for op in SMALL:
        for of, name, kind, fallback, *_ in FIELDS:
            if of == op and fallback == "REQUIRED":
                refused(daemon, op, {k: v for k, v in SMALL[op].items() if k != name}, name, f"{name} is missing")
    matmul = SMALL["matmul"]
    refused(daemon, "matmul", {**matmul, "m": -1}, "m", "m is -1", "1 to 67108864")
    refused(daemon, "matmul", {**matmul, "m": 0}, "m", "m is 0")
    refused(daemon, "matmul", {**matmul, "m": 1.5}, "m", "1.5", "whole")
    refused(daemon, "matmul", {**matmul, "m": 1e300}, "m", "1e+300")
    refused(daemon, "matmul", {**matmul, "m": "5"}, "m", "whole number")
    refused(daemon, "matmul", {**matmul, "m": 67108864, "n": 67108864, "k": 67108864}, "m", "m x n", "at most")
    refused(daemon, "matmul", {**matmul, "m": 1000000, "n": 1000000}, None, "bytes", "the limit is" if ON_HOST else "allows")
    refused(daemon, "matmul", {**matmul, "dtype": "f64"}, "dtype", "f64", "f32|f16|bf16")
    refused(daemon, "matmul", {**matmul, "alpha": 1e39}, "alpha", "1e+39")
    refused(daemon, "matmul", {**matmul, "iterations": 0}, "iterations", "1 to 1000")
    refused(daemon, "matmul", {**matmul, "iterations": 1001}, "iterations", "1 to 1000")
    refused(daemon, "matmul", {**matmul, "seed": 2**32}, "seed", "4294967296")
    refused(daemon, "matmul", {**matmul, "verify": 1}, "verify", "true or false")
    refused(daemon, "matmul", {**matmul, "variant": "fastest"}, "variant", "fastest")
    refused(daemon, "matmul", {**matmul, "variant": 3}, "variant", "string")
    refused(daemon, "matmul", {**matmul, "variant": "x" * 41}, "variant", "41 bytes", "40")
    refused(daemon, "matmul", {**matmul, "device": "nothing"}, "device", "nothing")
    refused(daemon, "matmul", {**matmul, "device": "auto" if ON_HOST else "host"}, "device", "not in use") if not ON_HOST else None
    refused(daemon, "matmul", {**matmul, "deadline_ms": 10**9}, "deadline_ms", "600000")
    refused(daemon, "matmul", {**matmul, "params": {"LWS": 64}}, "params", "variant by name")
    refused(daemon, "matmul", {**matmul, "params": [1]}, "params", "object")
    refused(daemon, "matmul", {**matmul, "params": {"LWS": -1}}, "params", "params.LWS is -1")
    refused(daemon, "matmul", {**matmul, "params": {str(i): 1 for i in range(9)}}, "params", "9 items")
    refused(daemon, "conv2d", {**SMALL["conv2d"], "kh": 7}, "kh", "kh is 7")
    refused(daemon, "conv2d", {**SMALL["conv2d"], "groups": 2}, "groups", "groups is 2")
    refused(daemon, "conv2d", {**SMALL["conv2d"], "stride": [1, 2, 3]}, "stride", "[height, width]")
    refused(daemon, "conv2d", {**SMALL["conv2d"], "stride": 0}, "stride", "stride is 0")
    refused(daemon, "argmax", {**SMALL["argmax"], "top_k": 65}, "top_k", "1 to 64")
    refused(daemon, "argmax", {"rows": 1, "len": 3, "top_k": 4}, None, "k is 4, expected at most 3")
    refused(daemon, "gemv", {"m": 1, "k": 33, "wtype": "q4_0"}, "k", "multiple of 32")
    refused(daemon, "attention", {**SMALL["attention"], "n_head_kv": 3}, "n_head_kv", "does not divide")
    refused(daemon, "attention", {**SMALL["attention"], "n_q": 10}, "n_q", "over n_kv, 9")
    refused(daemon, "attention", {**SMALL["attention"], "head_dim": 33, "kv_dtype": "q8_0"}, "head_dim", "multiple of 32")
    refused(daemon, "attention", {**SMALL["attention"], "window": 2, "causal": False}, "window", "needs causal")
    refused(daemon, "sparse_gemv", {"m": 1, "k": 6, "format": "2:4"}, "k", "multiple of 4")
    refused(daemon, "sparse_gemv", {"m": 1, "k": 6, "density": 0}, "density", "density is 0")
    refused(daemon, "rope", {**SMALL["rope"], "head_dim": 7}, "head_dim", "even")
    refused(daemon, "rope", {**SMALL["rope"], "positions": [0, 1]}, "positions", "2 items", "expected 3")
    refused(daemon, "rope", {**SMALL["rope"], "positions": [0, 2, 1]}, "positions", "item 2 is 1")
    refused(daemon, "rope", {**SMALL["rope"], "positions": [0, 1, 65536]}, "positions", "65536")
    refused(daemon, "elementwise", {"fn": "tan", "n": 1}, "fn", "add|mul")
    refused(daemon, "nothing", {}, None, "nothing", status=404)


def test_errors_of_variants(daemon):
    if ON_HOST:
        refused(daemon, "matmul", {**SMALL["matmul"], "variant": "naive"}, "variant", "runs the reference only")
        return
    matmul = {**SMALL["matmul"], "iterations": 1, "warmup": 0}
    refused(daemon, "matmul", {**matmul, "variant": "naive", "params": {"SPEED": 64}}, "params", "no tunable SPEED")
    refused(daemon, "matmul", {**matmul, "variant": "naive", "params": {"LWS": 63}}, "params", "LWS is 63", "32, 64, 128, 256")
    for layout in ("nchw", "nhwc"):   # the reason is that of the row for the layout
        conv2d = {**SMALL["conv2d"], "layout": layout, "kh": 2}
        refused(daemon, "conv2d", {**conv2d, "variant": "winograd_2x2"}, "variant", "needs a 3 x 3 filter")
        refused(daemon, "conv2d", {**conv2d, "c": 2000, "o": 8, "variant": "constant"}, "variant", "at most 8192 elements")
    refused(daemon, "conv2d", {**SMALL["conv2d"], "layout": "nhwc", "variant": "cpu_depthwise"}, "variant", "reads nchw only") \
        if "cpu_depthwise" in {v["variant"] for op in daemon.get("/v1/ops").json()["data"] for v in op["variants"] if v["runs_on"]} else None
    lacking = [(op["op"], v) for op in daemon.get("/v1/ops").json()["data"] for v in op["variants"]
               if not v["runs_on"] and v["variant"] != "ref"]
    assert lacking
    for op, variant in lacking:
        others = [v for o in daemon.get("/v1/ops").json()["data"] if o["op"] == op for v in o["variants"]
                  if v["variant"] == variant["variant"] and v["runs_on"]]
        if others or op in ("norm", "rope"):
            continue
        fields = dict(SMALL[op])
        if variant["dtypes"]:
            fields[{"gemv": "wtype", "attention": "kv_dtype"}.get(op, "dtype")] = variant["dtypes"][0]
        if op == "gemv":
            fields["k"] = 256
        if variant["kernel"] != "top_k":
            refused(daemon, op, {**fields, "variant": variant["variant"]}, "variant", "needs", "lacks")


def test_errors_of_inline_inputs(daemon):
    base = {"m": 2, "n": 2, "k": 2}
    for inputs, param, word in [
            ({"a": [[1, 2], [3]]}, "inputs.a", "1 items at depth 3, expected 2"), ({"a": [[1, 2]]}, "inputs.a", "1 items at depth 2"),
            ({"a": [1, 2, 3, 4]}, "inputs.a", "[1, 2, 2]"), ({"a": 3}, "inputs.a", "expected nested arrays"),
            ({"a": [[1, 2], [3, "4"]]}, "inputs.a", "element 3 is no number"), ({"a": [[1, 2], [3, None]]}, "inputs.a", "element 3"),
            ({"a": [[1, 2], [3, 1e39]]}, "inputs.a", "element 3 is"), ({"a": [[1, 2], [3, [4]]]}, "inputs.a", "element 3 is no number"),
            ({"q": [[1]]}, "inputs.q", "reads a, b"), ({"c": [[1, 2], [3, 4]]}, "inputs.c", "reads a, b"), ([1], "inputs", "object"),
            ({"a": []}, "inputs.a", "0 items")]:
        refused(daemon, "matmul", {**base, "inputs": inputs}, param, word)
    raw = daemon.post("/v1/ops/matmul", data='{"m":2,"n":2,"k":2,"inputs":{"a":[[1,NaN],[3,4]]}}', headers={"Content-Type": "application/json"})
    assert raw.status_code == 400
    raw = daemon.post("/v1/ops/matmul", data='{"m":1,"n":1,"k":1,"inputs":{"a":[[1]],"a":[[1]]}}', headers={"Content-Type": "application/json"})
    assert raw.status_code == 400 and "twice" in raw.json()["error"]["message"]
    sparse = {"values": [1, 2], "col_indices": [0, 1], "row_ptr": [0, 1, 2], "x": [1, 2, 3]}
    for change, param, word in [({"col_indices": [0, 3]}, "inputs", "expected 0 to 2"), ({"col_indices": [0]}, "inputs.col_indices", "1 items"),
                                ({"row_ptr": [0, 2, 1]}, "inputs", "row_ptr"), ({"col_indices": [0, 0.5]}, "inputs.col_indices", "whole number"),
                                ({"values": []}, "inputs.values", "at least 1")]:
        refused(daemon, "sparse_gemv", {"m": 2, "k": 3, "inputs": {**sparse, **change}}, param, word)
    refused(daemon, "sparse_gemv", {"m": 2, "k": 3, "inputs": {"values": [1]}}, "inputs", "col_indices is missing")
    refused(daemon, "sparse_gemv", {"m": 2, "k": 3, "inputs": {"row_ptr": [0, 0, 0]}}, "inputs", "values is missing")


def test_unknown_fields_are_listed(daemon):
    reply = daemon.post("/v1/ops/elementwise", {"fn": "relu", "n": 4, "iterations": 1, "spede": 1, "m": 3})
    assert reply.status_code == 200 and reply.headers["X-OInfer-Ignored"] == "spede, m"


def test_an_estimate_over_the_deadline_is_refused(daemon):
    start = time.monotonic()
    error = refused(daemon, "matmul", {"m": 4096, "n": 4096, "k": 4096, "iterations": 1000, "variant": exact(), "verify": True,
                                       "deadline_ms": 20000}, "deadline_ms", "would take about", "the deadline is")
    assert error["code"] == "over_deadline"
    assert time.monotonic() - start < 60, "the work was begun"


def test_the_estimate_counts_what_is_packed_and_generated(daemon):
    """Few rows and columns of a huge k: little arithmetic, but panels of whole tiles, and a long time to make the data."""
    start = time.monotonic()
    refused(daemon, "matmul", {"m": 3, "n": 5, "k": 16777216, "iterations": 20, "deadline_ms": 4000}, "deadline_ms", "would take about")
    assert time.monotonic() - start < 30, "the work was begun"


def test_bad_input_never_gives_5xx(daemon):
    """Every field of every operator with every kind of wrong value, and pairs of extremes."""
    values = [None, True, "", "x", [], {}, [[]], [1, 2], {"a": 1}, -1, 0, 1.5, 2**31, 2**53, 1e308, -1e308, "\u0000", "é" * 30]
    for op, small in SMALL.items():
        for of, name, kind, *_ in FIELDS:
            if of != op and (of, op) != ("common", "elementwise"):
                continue
            for value in values:
                body = json.dumps({**small, "iterations": 1, "warmup": 0, "deadline_ms": 60000, name: value})
                reply = daemon.post(f"/v1/ops/{op}", data=body, headers={"Content-Type": "application/json"})
                assert reply.status_code in (200, 400), (op, name, value, reply.status_code, reply.text[:300])
    assert daemon.get("/health").json()["status"] == "ok"


# ---- the command line ----

def oinfer(*arguments):
    done = subprocess.run([os.environ["OINFER"], "bench", *arguments], capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def host(real_binary, tmp_path):
    daemon = Daemon(real_binary, "--device", "host", "--cache-dir", tmp_path)
    yield daemon
    daemon.stop()


def test_bench_ops_of_several_boxes(host):
    """A daemon, this machine and a box that is not there, side by side."""
    daemon, boxes = host, ["--url", host.url + "/", "--url", "local", "--url", "http://127.0.0.1:1", "--device", "host"]
    code, out, _ = oinfer("ops", "--op", "elementwise", "--shape", "fn=silu,n=1000", "--variant", "auto", "-r", "3", "--verify",
                            "-o", "json", *boxes)
    answers = json.loads(out)
    assert code == 1 and len(answers) == 3
    for answer in answers[:2]:
        result = answer["result"]
        assert result["op"] == "elementwise" and result["iterations"] == 3 and result["results"][0]["verification"]["pass"]
    assert answers[0]["box"] == daemon.url + "/" and "127.0.0.1:1" in answers[2]["error"]
    code, out, _ = oinfer("ops", "--op", "elementwise", "--shape", "fn=silu,n=1000", "--variant", "auto", *boxes[:4], *boxes[-2:])
    assert code == 0 and re.search(r"^\| \w+ \| [\d.]+ \|", out, re.M) and out.count("driver") == 2, out
    code, out, _ = oinfer("ops", "--op", "gemv", "--shape", "m=8,k=32,wtype=q8_0", "-o", "csv", *boxes[:2], *boxes[-2:])
    rows = out.splitlines()
    assert code == 0 and len(rows) >= 2 and len({row.count(",") - row.split('"')[5].count(",") for row in rows[1:]}) == 1, out


def test_bench_ops_says_what_is_wrong(host):
    code, out, _ = oinfer("ops", "--op", "gemv", "--shape", "m=8,k=33,wtype=q8_0", "--url", host.url, "--url", "local", "--device", "host")
    assert code == 1 and out.count("k is 33, expected a multiple of 32") == 2
    assert oinfer("ops", "--op", "gemv", "--shape", "m", "--device", "host")[0::2] == (1, 'oinfer bench ops: --shape: "m" is not name=value\n')
    assert "no operator" in oinfer("ops", "--op", "tan", "--device", "host")[1]
    assert oinfer("ops", "--device", "nothing")[0] == 1
    assert oinfer("ops", "-o", "xml")[0] == 2


def test_bench_ops_sends_the_key(start_fake, tmp_path):
    (tmp_path / "keys").write_text("secret\n")
    (tmp_path / "keys").chmod(0o600)
    daemon = start_fake("--api-key-file", tmp_path / "keys", wait=False)
    daemon._until("ready", 60, lambda: daemon.get("/health").status_code == 200)
    arguments = [os.environ["OINFER"], "bench", "ops", "--op", "matmul", "--shape", "m=2,n=2,k=2", "--url", daemon.url]
    for key, code in (("secret", 0), ("other", 1)):
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, env={**os.environ, "OINFER_API_KEY": key})
        assert done.returncode == code and ("quick" in done.stdout) == (code == 0), done.stdout


def test_bench_seeds_goes_on_without_what_a_device_lacks(start_fake):
    daemon = start_fake()
    code, out, _ = oinfer("seeds", "--url", daemon.url, "-o", "json")
    rows = json.loads(out)
    claims = [row for row in rows if "claim" in row]
    assert code == 0 and len(claims) == 14 and all(row["claim"] > 0 and row.get("ours", 1) > 0 for row in rows if row in claims)
    assert all(("ratio" in row) == ("ours" in row) for row in claims)
    assert {row["what"] for row in rows if "claim" not in row} >= {"matmul 1024 f32, naive", "matmul 1024 f32, quick"}, rows
    assert all(row.get("not_measured", "x") for row in rows) and any("ours" in row for row in rows), rows


# ---- the queue, on the fake engine ----

def operator(daemon, **fields):
    return daemon.post("/v1/ops/matmul", {"m": 2, "n": 2, "k": 2, **fields})


def test_two_clients_take_turns(start_fake):
    daemon = start_fake(env={"FAKE_STEP_MS": "20"})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        replies = [f.result() for f in [pool.submit(operator, daemon, iterations=30, warmup=0) for _ in range(2)]]
    waits = sorted(r.json()["timings"]["queue_ms"] for r in replies)
    runs = [r.json()["timings"]["run_ms"] for r in replies]
    assert min(runs) >= 600 and waits[1] >= 300 and waits[1] > waits[0], (waits, runs)


def test_operators_and_completions_share_the_worker(start_fake):
    daemon = start_fake(env={"FAKE_STEP_MS": "5"})
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        texts = [pool.submit(daemon.complete, prompt=f"<{i}$|", max_tokens=9) for i in range(3)]
        runs = [pool.submit(operator, daemon, iterations=10) for _ in range(3)]
        assert [f.result()["choices"][0]["text"] for f in texts] == ["0", "1", "2"]
        assert all(f.result().status_code == 200 for f in runs)


def test_a_full_queue_is_429(start_fake):
    daemon = start_fake("--queue", "1", "--slots", "1", env={"FAKE_STEP_MS": "50"})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = [f.result() for f in [pool.submit(operator, daemon, iterations=20) for _ in range(8)]]
    codes = [r.status_code for r in replies]
    assert set(codes) == {200, 429} and all("Retry-After" in r.headers for r in replies if r.status_code == 429), codes


def leave(daemon, **fields):
    """Sends a request and closes the connection at once."""
    body = json.dumps({"m": 2, "n": 2, "k": 2, **fields}).encode()
    with daemon.connect() as s:
        s.sendall(b"POST /v1/ops/matmul HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.3)


def test_a_client_that_leaves_ends_its_run(start_fake):
    daemon = start_fake(env={"FAKE_STEP_MS": "100"})
    leave(daemon, iterations=1000)
    threading.Thread(target=leave, args=(daemon,), kwargs={"iterations": 1000}).start()
    assert daemon.wait_idle(30) < 30
    assert operator(daemon, iterations=1).status_code == 200


def test_the_deadline_holds(start_fake):
    daemon = start_fake(env={"FAKE_STEP_MS": "100"})
    error = refused(daemon, "matmul", {"m": 2, "n": 2, "k": 2, "iterations": 1000, "deadline_ms": 500}, "deadline_ms", "the deadline")
    assert error["code"] == "over_deadline"
    refused(daemon, "matmul", {"m": 1501, "n": 2, "k": 2}, "deadline_ms", "would take about")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(operator, daemon, iterations=20)
        time.sleep(0.5)
        late = operator(daemon, iterations=1, deadline_ms=300)
        assert late.status_code == 503 and late.json()["error"]["code"] == "deadline_exceeded"
        assert first.result().status_code == 200


def test_memory_is_the_request_s_fault_and_a_lost_device_is_not(start_fake):
    daemon = start_fake()
    refused(daemon, "matmul", {"m": 2, "n": 2, "k": 2, "seed": 14}, None, "no memory")
    assert operator(daemon, variant="none").json()["error"]["param"] == "variant"
    reply = operator(daemon, seed=13)
    assert reply.status_code == 503 and reply.json()["error"]["code"] == "device_lost"
    daemon._until("opened again", 60, lambda: operator(daemon).status_code == 200)


def test_the_device_is_chosen(start_fake):
    daemon = start_fake("--device", "all")
    assert {operator(daemon, device=str(i)).json()["device"]["index"] for i in (0, 1)} == {0, 1}
    refused(daemon, "matmul", {"m": 2, "n": 2, "k": 2, "device": "7"}, "device", "7")


def test_the_catalogue_shows_what_was_tuned(start_fake, tmp_path):
    def tuned(daemon):
        return {v["variant"]: v["tuned"] for v in daemon.get("/v1/ops").json()["data"][0]["variants"]}
    daemon = start_fake("--cache-dir", tmp_path)
    assert tuned(daemon) == {"naive": [], "quick": []}
    path = "/v1/tune/" + daemon.post("/v1/tune", {"op": "matmul", "shape": {"m": 8, "n": 8, "k": 8}}).json()["id"]
    daemon._until("tuned", 60, lambda: daemon.get(path).json()["status"] == "done")
    daemon.stop()
    shown = tuned(start_fake("--cache-dir", tmp_path))
    assert shown["naive"] == [] and len(shown["quick"]) == 1
    record = shown["quick"][0]
    assert (record["device"], record["dtype"], record["params"], record["us"]) == (0, "f32", {"LWS": 32}, 1)
    assert record["shape"].startswith("m=8,n=8,k=8")


def test_stopping_ends_a_run(start_fake):
    daemon = start_fake("--drain-time", "200ms", env={"FAKE_STEP_MS": "50"})
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reply = pool.submit(operator, daemon, iterations=1000)
        daemon._until("running", 30, lambda: daemon.get("/health").json()["running"] == 1)
        daemon.signal(15)
        assert daemon.wait(30) == 0
        try:
            assert reply.result().status_code == 503
        except OSError:
            pass
