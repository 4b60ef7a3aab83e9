"""The measuring of gpu.sh: models, `oinfer bench`, `oinfer bench ops` against PyTorch, the table.

The limit of generation by one sequence without a prompt is the bytes of the file over the read bandwidth that is measured in
the same run; other rows have none.
"""
import argparse
import concurrent.futures
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = {"7b": "7b,n_ctx=8192", "1.1b": "1.1b", "135m": "135m"}
LLAMA_CPP = "llama.cpp, CUDA, one H200"

# (shape, dtype, arguments of bench, test, llama.cpp, at least, goal), tokens per second. One load serves all tests of a row's
# arguments. llama.cpp: with flash attention and CUDA graphs, measured earlier on a machine of the same kind.
MODELS = [
    ("7b", "q4_0", [], {"pp512": (10700, 22000, 35000), "tg128": (352, 650, 950)}),
    ("7b", "q4_0", ["-p", "0", "-d", "4096"], {"tg128 @ d4096": (294, 450, 750)}),
    ("7b", "q4_0", ["-p", "0", "--sequences", "2"], {"tg128 x 2": (626, 800, 1300)}),
    ("7b", "q4_0", ["-p", "0", "--sequences", "4"], {"tg128 x 4": (959, 1300, 2200)}),
    ("7b", "q4_0", ["-p", "0", "--sequences", "8"], {"tg128 x 8": (1341, 2000, 3500)}),
    ("7b", "q4_0", ["-p", "0", "--sequences", "32"], {"tg128 x 32": (3398, 4500, 8000)}),
    ("7b", "q8_0", [], {"pp512": (11100, 22000, 35000), "tg128": (272, 380, 520)}),
    ("7b", "f16", [], {"pp512": (18500, 24000, 38000), "tg128": (219, 250, 300)}),
    ("7b", "q4_k_m", ["-p", "0"], {"tg128": None}),
    ("7b", "q6_k", ["-p", "0"], {"tg128": None}),
    ("1.1b", "q4_0", [], {"pp512": (30700, 60000, 120000), "tg128": (887, 2000, 4000)}),
    ("135m", "q4_0", [], {"pp512": (47000, 80000, 200000), "tg128": (917, 2400, 5000)}),
]

# (label, op, shape, dtype, arguments of the peer, at least, goal): shares of the peer's speed.
MATMULS = [("f16", 1024, 1024, 1024, 0.85, 1.00), ("f16", 2048, 2048, 2048, 0.95, 1.02), ("f16", 4096, 4096, 4096, 0.95, 1.02),
           ("f16", 8192, 8192, 8192, 0.95, 1.02), ("f16", 512, 4096, 4096, 1.00, 1.07), ("f16", 128, 4096, 4096, 1.00, 1.10),
           ("f32", 4096, 4096, 4096, 0.95, 1.00)]
CONVS = [(64, 56, 64, 3, 1, 1, 1), (256, 56, 64, 1, 0, 1, 1), (512, 7, 512, 3, 1, 1, 1), (3, 224, 64, 7, 3, 2, 1),
         (144, 56, 144, 3, 1, 1, 144)]
BATCH = 32
ROWS, LENGTH = 4096, 32768
SLEEP_CYCLES = 20_000_000  # about 10 ms


def run(args, **kwargs):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, **kwargs)


# ---- models ----

def make_models(o):
    """Makes the files side by side; {(shape, dtype): path}."""
    wanted = {(m[0], m[1]) for m in o.models}
    paths = {w: o.dir / f"{w[0]}-{w[1]}.gguf" for w in wanted}

    def make(w):
        run([o.oinfer, "mkmodel", "--shape", SHAPES[w[0]], "--dtype", w[1], "-o", paths[w]], check=True)

    with concurrent.futures.ThreadPoolExecutor(len(wanted) or 1) as pool:
        list(pool.map(make, sorted(wanted)))
    return paths


def bench_models(o, paths, read_gb_s):
    for shape, dtype, arguments, tests in o.models:
        path = paths[(shape, dtype)]
        done = run([o.oinfer, "bench", "-m", path, "--device", o.device, "-r", "3", "-o", "csv", *arguments])
        if done.returncode != 0:
            print(f"{shape} {dtype} {' '.join(arguments)}: {done.stderr.strip()}", flush=True)
            continue
        for row in csv.DictReader(io.StringIO(done.stdout)):
            peer, least, goal = tests.get(row["test"]) or (None, None, None)
            out = {"label": f"{shape} {dtype} {row['test']}", "unit": "tok/s", "ours": float(row["median_ts"]),
                   "peer": peer, "least": least, "goal": goal}
            if row["test"] == "tg128":
                out["limit"] = read_gb_s * 1e9 / float(row["size_bytes"])
            yield out


# ---- operators ----

def ours(o, op, shape, dtype):
    """Median seconds of the chosen variant."""
    done = run([o.oinfer, "bench", "ops", "--op", op, "-s", shape, "--dtype", dtype, "--variant", "auto", "--device", o.device,
                "-o", "json"])
    try:
        return json.loads(done.stdout)[0]["result"]["results"][0]["kernel_ns"]["median"] / 1e9
    except (ValueError, KeyError, IndexError):
        print(f"{op} {shape}: {done.stderr.strip() or done.stdout.strip()[:200]}", flush=True)
        return None


def peer(torch, work, inputs, runs=20):
    """Median seconds of a launch by the device's own events, as ours are taken. A kernel that sleeps comes first, so that all
    launches are in the queue before the first one starts and the host's time to enqueue does not count."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    for _ in range(3):
        work(*inputs)
    torch.cuda._sleep(SLEEP_CYCLES)
    for start, end in events:
        start.record()
        work(*inputs)
        end.record()
    torch.cuda.synchronize()
    return sorted(s.elapsed_time(e) for s, e in events)[runs // 2] / 1e3


def bench_operators(o):
    try:
        import torch
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        torch.zeros(1, device="cuda")
    except (ImportError, RuntimeError) as e:
        print(f"no peer for the operators: {e}", flush=True)
        torch = None

    def randn(*shape, dtype=None):
        return torch.randn(*shape, device="cuda", dtype=dtype)

    def row(label, work, unit, seconds, theirs, least, goal):
        return {"label": label, "unit": unit, "ours": work / seconds if seconds else None,
                "peer": work / theirs if theirs else None, "least_share": least, "goal_share": goal}

    for dtype, m, n, k, least, goal in MATMULS:
        theirs = None
        if torch:
            kind = {"f16": torch.float16, "f32": torch.float32}[dtype]
            theirs = peer(torch, torch.matmul, (randn(m, k, dtype=kind), randn(k, n, dtype=kind)))
        yield row(f"matmul {dtype} {m} x {n} x {k}", 2e-12 * m * n * k, "TFLOP/s", ours(o, "matmul", f"m={m},n={n},k={k}", dtype),
                  theirs, least, goal)
    for c, size, out, kernel, pad, stride, groups in CONVS:
        theirs, side = None, (size + 2 * pad - kernel) // stride + 1
        if torch:
            def conv(x, w):
                return torch.nn.functional.conv2d(x, w, stride=stride, padding=pad, groups=groups)
            theirs = peer(torch, conv, (randn(BATCH, c, size, size), randn(out, c // groups, kernel, kernel)))
        shape = f"n={BATCH},c={c},h={size},w={size},o={out},kh={kernel},kw={kernel},pad={pad},stride={stride},groups={groups}"
        yield row(f"conv2d f32 {kernel}x{kernel} {c}->{out} {size}x{size} /{stride}",
                  2e-12 * BATCH * side * side * out * (c // groups) * kernel * kernel, "TFLOP/s", ours(o, "conv2d", shape, "f32"),
                  theirs, 0.8, 1.1)
    for op, passes in (("softmax", 2), ("argmax", 1)):
        theirs = None
        if torch:
            work = (lambda x: torch.softmax(x, 1)) if op == "softmax" else (lambda x: torch.argmax(x, 1))
            theirs = peer(torch, work, (randn(ROWS, LENGTH),))
        yield row(f"{op} f32 {ROWS} x {LENGTH}", 4e-9 * passes * ROWS * LENGTH, "GB/s",
                  ours(o, op, f"rows={ROWS},len={LENGTH}", "f32"), theirs, 1.0, None)


# ---- the whole ----

def cell(value, form="{:,.0f}"):
    return "" if value is None else form.format(value)


def print_table(results):
    print(f"\n| work | unit | OInfer | peer | ratio | at least | goal | limit | of the limit |\n|---|---|---|---|---|---|---|---|---|")
    for r in results:
        ratio = r["ours"] / r["peer"] if r["ours"] and r["peer"] else None
        form = "{:,.1f}" if (r["ours"] or 0) < 1000 else "{:,.0f}"
        least = cell(r.get("least")) or cell(r.get("least_share"), "{:.2f} x")
        goal = cell(r.get("goal")) or cell(r.get("goal_share"), "{:.2f} x")
        share = r["ours"] / r["limit"] if r["ours"] and r.get("limit") else None
        print(f"| {r['label']} | {r['unit']} | {cell(r['ours'], form)} | {cell(r['peer'], form)} | {cell(ratio, '{:.2f}')} | "
              f"{least} | {goal} | {cell(r.get('limit'))} | {cell(share, '{:.2f}')} |")


def main():
    p = argparse.ArgumentParser(prog="gpu.sh")
    p.add_argument("oinfer", nargs="?", default=str(ROOT / "build/release/oinfer"))
    p.add_argument("--device", default="NVIDIA", help="part of the device's name or platform")
    p.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/dev/shm/oinfer-gpu"))
    p.add_argument("--out", type=pathlib.Path)
    p.add_argument("--only", default="", help="models whose shape and dtype contain this; ops: the operators")
    o = p.parse_args()
    o.oinfer = os.path.abspath(o.oinfer)
    o.models = [m for m in MODELS if o.only in f"{m[0]} {m[1]}"]
    start = time.monotonic()
    o.dir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 << 30))
    try:
        devices = json.loads(run([o.oinfer, "devices", "--peaks", "--json"], check=True).stdout)
        devices = devices.get("devices", []) if isinstance(devices, dict) else devices
        device = next(d for d in devices if o.device.lower() in f"{d.get('name')} {d.get('platform')}".lower())
        read_gb_s = device["peaks"]["read_gb_s"]
        print(f"{device['name']}, driver {device.get('driver')}: reads {read_gb_s:,.0f} GB/s", flush=True)
        paths = make_models(o)
        print(f"models made after {time.monotonic() - start:.0f} s", flush=True)
        results = []
        for r in bench_models(o, paths, read_gb_s):
            results.append(r)
            print(f"{r['label']}: {r['ours']:,.0f} {r['unit']}", flush=True)
        if o.only in ("", "ops"):
            results += bench_operators(o)
        print_table(results)
        print(f"\npeer: {LLAMA_CPP}, measured earlier (models); PyTorch in this run (operators). "
              f"{time.monotonic() - start:.0f} s in all.")
        if o.out:
            o.out.write_text(json.dumps({"device": device["name"], "read_gb_s": read_gb_s, "results": results}, indent=1))
    finally:
        shutil.rmtree(o.dir, ignore_errors=True)


if __name__ == "__main__":
    main()
