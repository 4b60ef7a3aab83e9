#!/usr/bin/env python3
"""OInfer's operators on a CPU beside the usual libraries: matmul beside OpenBLAS, conv2d beside oneDNN, argmax and softmax
beside the bandwidth that the same process measures.

    tests/bench/vs_cpu_libraries.py [--only TEXT] [--runs N] [--threads N] [--device NAME] [--oinfer PROGRAM]

Each pair is run in turn, every run in a process of its own; medians. OpenBLAS is numpy's (in the Python that runs this, without
variables that force a kernel on it), oneDNN is Debian's libdnnl-dev; without one of them its rows are measured alone.
`goal` is what the project aims at. Exit status 0 whatever comes out; the last line is the worst ratio to a goal.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MATMULS = [(256, 0.9), (512, 0.9), (1024, 1.0), (2048, 1.0)]
# C, H, O, K, stride, pad, groups, goal: where Winograd applies it is to beat the direct form by far
CONVS = [(64, 56, 64, 3, 1, 1, 1, 2.0), (128, 28, 128, 3, 1, 1, 1, 2.0), (256, 56, 64, 1, 1, 0, 1, 0.95),
         (256, 14, 256, 3, 1, 1, 1, 0.95), (3, 224, 64, 7, 2, 3, 1, 0.95), (144, 56, 144, 3, 1, 1, 144, 0.95)]
ROWS = [("argmax", "read_gb_s", 1, 0.8), ("softmax", "copy_gb_s", 2, 0.8)]

NUMPY = """
import sys, time
import numpy
n = int(sys.argv[1])
a, b = (numpy.random.rand(n, n).astype("f4") for _ in range(2))
a @ b
runs, end = [], time.perf_counter() + 1
while time.perf_counter() < end or len(runs) < 5:
    start = time.perf_counter()
    a @ b
    runs.append(time.perf_counter() - start)
print(2 * n ** 3 / sorted(runs)[len(runs) // 2] / 1e9)
"""


def run(command, **keywords):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **keywords)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n" + (done.stdout + done.stderr)[-2000:])
    return done.stdout


def ours(o, op, shape):
    """(the best variant's name, GFLOP/s, GB/s, peaks of the device)."""
    out = json.loads(run([o.oinfer, "bench", "ops", "--op", op, "-s", shape, "--variant", "auto", "-r", o.iterations, "-o", "json",
                          "--device", o.device]))[0]["result"]
    row = out["results"][0]
    return row["variant"], row["gflop_s"], row["gb_s"], out["device"]["peaks"]


def peer_environment(threads):
    env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    return {**env, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}


def numpy_program(o):
    found = subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True).returncode == 0
    return lambda n: float(run([sys.executable, "-c", NUMPY, n], env=peer_environment(o.threads))) if found else None


def onednn_program(o, folder):
    program = folder / "onednn_conv"
    compiler = shutil.which("cc")
    built = subprocess.run([compiler, "-O2", str(ROOT / "tests/bench/onednn_conv.c"), "-ldnnl", "-o", str(program)],
                           capture_output=True).returncode == 0 if compiler else False
    return lambda *shape: float(run([program, *shape], env=peer_environment(o.threads))) if built else None


def pairs(o, folder):
    """(label, unit, goal, what gives (ours, theirs, variant))."""
    blas, dnn = numpy_program(o), onednn_program(o, folder)
    for n, goal in MATMULS:
        def matmul(n=n):
            variant, rate, _, _ = ours(o, "matmul", f"m={n},n={n},k={n}")
            return rate, blas(n), variant
        yield f"matmul f32 {n}", "GFLOP/s", goal, matmul
    for c, h, out, k, stride, pad, groups, goal in CONVS:
        def conv(c=c, h=h, out=out, k=k, stride=stride, pad=pad, groups=groups):
            variant, rate, _, _ = ours(o, "conv2d", f"n=1,c={c},h={h},w={h},o={out},kh={k},kw={k},stride={stride},pad={pad},groups={groups}")
            return rate, dnn(c, h, out, k, stride, pad, groups), variant
        yield f"conv2d f32 {k}x{k} {c}x{h}x{h}->{out}" + (f" /{stride}" if stride > 1 else "") + \
            (" depthwise" if groups > 1 else ""), "GFLOP/s", goal, conv
    for op, peak, passes, goal in ROWS:
        def rows(op=op, peak=peak):
            variant, _, rate, peaks = ours(o, op, "rows=1024,len=32768")
            return rate, peaks[peak], variant
        yield f"{op} f32 1024x32768, {peak[:4]} bandwidth", "GB/s", goal, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose label contains this")
    parser.add_argument("--runs", type=int, default=5, help="rounds (5)")
    parser.add_argument("--iterations", type=int, default=20, help="of ours in a run (20)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the peers")
    parser.add_argument("--device", default="auto", help="of ours")
    parser.add_argument("--oinfer", type=pathlib.Path, default=ROOT / "build/release/oinfer")
    o = parser.parse_args()
    print(f"{o.threads} threads, medians of {o.runs} alternating runs\n\n| work | variant | unit | OInfer | peer | ratio | goal |\n"
          "|---|---|---|---|---|---|---|", flush=True)
    worst = []
    with tempfile.TemporaryDirectory() as folder:
        for label, unit, goal, measure in pairs(o, pathlib.Path(folder)):
            if o.only not in label:
                continue
            rounds = [measure() for _ in range(o.runs + 1)][1:]   # the first one builds kernels
            mine = statistics.median(r[0] for r in rounds)
            if rounds[0][1] is None:
                print(f"| {label} | {rounds[-1][2]} | {unit} | {mine:.1f} | | | {goal:.2f} |", flush=True)
                continue
            other = statistics.median(r[1] for r in rounds)
            worst.append((mine / other / goal, label))
            print(f"| {label} | {rounds[-1][2]} | {unit} | {mine:.1f} | {other:.1f} | {mine / other:.2f} | {goal:.2f} |", flush=True)
    if worst:
        share, label = min(worst)
        print(f"\nworst: {share:.2f} of the goal ({label})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
