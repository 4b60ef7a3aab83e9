#!/usr/bin/env python3
"""OInfer beside llama.cpp on the same CPU: prefill of 512 tokens (pp512), decoding of 128 (tg128), peak memory.

    tests/bench/vs_llama_cpp.py [--quick] [--model FILE ...] [--tests pp512,tg128,...] [--threads N] [--device NAME]
                                [--runs N] [--kv f16|q8_0] [--busy N] [--cpus N,N...]

A test is ppN, tgN or tgN@D (D tokens in the context before). Runs `oinfer bench` and llama.cpp (llama-cpp-python, its
low-level calls, meaning as in llama-bench) in turn, each in a fresh process, and compares the medians; the read bandwidth
of the memory is measured in every round, since it bounds tg128 and drifts on shared machines. --busy and --cpus give both
a busy machine, or only some of its processors. `goal` is what the project aims at on CPUs for such a model, `bound` what
must hold. Without --model: SmolLM2 Q4_1 and a synthetic 1.1B Q4_0; --quick: SmolLM2 alone, three rounds.
Exit status 1 when a bound below falls short. The last line is the worst ratio.

The peer is built natively in its own virtual environment at the first run (some minutes), or is the Python that
OINFER_PEER_PYTHON names.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oinfer"
PEER_PACKAGE = "llama-cpp-python==0.3.36"

# Least ratio of our tokens per second to llama.cpp's: what must hold anywhere.
BOUND = 0.5
# What is aimed at on CPUs, by kind of test and of weights: (models up to 400 million parameters, larger ones).
GOALS = {
    "tg": {"4_8": (2.3, 1.7), "5_6": (2.0, 1.5), "float": (1.8, 1.3)},
    "tg@": {"4_8": (3.0, 1.4), "5_6": (3.0, 1.4), "float": (3.0, 1.4)},
    "pp": {"4_8": (2.0, 2.2), "5_6": (1.7, 1.8), "float": (1.3, 1.35)},
    "pp4096": {"4_8": (1.5, 1.5), "5_6": (1.5, 1.5), "float": (1.5, 1.5)},
}
WEIGHTS = {"q4_0": "4_8", "q4_1": "4_8", "q8_0": "4_8", "q4_k": "4_8", "q5_0": "5_6", "q5_1": "5_6", "q5_k": "5_6",
           "q6_k": "5_6", "f16": "float", "bf16": "float"}
# On a busy machine, or with some of its processors, ours shall be no slower.
GOAL_HINDERED = 1.0
# Peak resident memory: at most this x file size + KV cache + this many bytes.
RESIDENT_FACTOR, RESIDENT_EXTRA = 1.2, 100e6


class Test:
    """ppN, tgN or tgN@D."""

    def __init__(self, name):
        match = re.fullmatch(r"(pp|tg)([1-9]\d*)(?:@(\d+))?", name)
        if not match:
            raise argparse.ArgumentTypeError(f"{name}: a test is ppN, tgN or tgN@D")
        self.name, self.kind, self.tokens, self.depth = name, match[1], int(match[2]), int(match[3] or 0)

    def goal(self, info):
        """The ratio aimed at for a model of this dtype and size; None where none is stated."""
        kind = "tg@" if self.kind == "tg" and self.depth >= 1024 else "pp4096" if self.tokens >= 4096 else self.kind
        weights = WEIGHTS.get(info["dtype"])
        return GOALS[kind][weights][info["n_params"] > 400e6] if weights else None


def parse_cpus(text):
    return {int(number) for number in text.split(",")}


def parse_tests(text):
    return [Test(name) for name in text.split(",")]


# ---- the peer: run by the peer's Python ----

def peer_main(path, threads, tests, kv):
    """Prints {test: tokens/s} for the model, after a warm-up of each."""
    import ctypes
    import random

    import llama_cpp

    llama_cpp.llama_backend_init()
    silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = max(t.depth + t.tokens for t in tests)
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = threads
    if kv == "q8_0":
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_Q8_0
        params.flash_attn_type = 1
    context = llama_cpp.llama_init_from_model(model, params)
    if not model or not context:
        sys.exit(f"llama.cpp cannot load {path}")
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    random.seed(1)

    def decode(n_tokens):
        for first in range(0, n_tokens, 512):
            n = min(512, n_tokens - first)
            tokens = (llama_cpp.llama_token * n)(*(random.randrange(n_vocab) for _ in range(n)))
            if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, n)) != 0:
                sys.exit("llama_decode failed")
        llama_cpp.llama_synchronize(context)

    def rate(test):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        if test.depth:
            decode(test.depth)
        elif test.kind == "pp":
            decode(min(test.tokens, 512))
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        else:
            decode(1)
        start = time.perf_counter()
        if test.kind == "pp":
            decode(test.tokens)
        else:
            for _ in range(test.tokens):
                decode(1)
        return test.tokens / (time.perf_counter() - start)

    print(json.dumps({test.name: rate(test) for test in tests}))


# ---- tools ----

def run(command, **keywords):
    """Runs a command that must succeed; its last lines are the message when it does not."""
    done = subprocess.run(command, capture_output=True, text=True, **keywords)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n" + (done.stdout + done.stderr)[-2000:])
    return done.stdout


def peer_python():
    """The Python that has llama-cpp-python, built for this machine's CPU."""
    named = os.environ.get("OINFER_PEER_PYTHON")
    if named:
        return named
    venv = ROOT / ".cache/peer-venv"
    python = venv / "bin/python3"
    if not python.exists() or subprocess.run([python, "-c", "import llama_cpp"], capture_output=True).returncode != 0:
        print(f"building {PEER_PACKAGE} (some minutes)", flush=True)
        run([sys.executable, "-m", "venv", "--clear", venv])
        run([python, "-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python", PEER_PACKAGE],
            env=dict(os.environ, CMAKE_ARGS="-DGGML_NATIVE=ON"))
    return str(python)


def default_models(oinfer, quick):
    """SmolLM2, and unless quick the synthetic 1.1B, made where they are missing."""
    run(["bash", "-c", f'set -euo pipefail; . "{ROOT}/deploy/lib.sh"; fetch_smollm2'])
    models = [CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"]
    if not quick:
        synthetic = CACHE / "synthetic-1.1b.q4_0.gguf"
        if not synthetic.exists():
            run([oinfer, "mkmodel", "--shape", "1.1b", "--dtype", "q4_0", "-o", synthetic])
        models.append(synthetic)
    return models


def bandwidth_program():
    """The read loop of bandwidth.c, compiled for this machine."""
    program = ROOT / ".cache/bandwidth"
    program.parent.mkdir(exist_ok=True)
    run(["cc", "-O3", "-march=native", "-pthread", ROOT / "tests/bench/bandwidth.c", "-o", program])
    return program


def measure(command):
    """Runs a command and returns its output and its peak resident bytes."""
    with tempfile.TemporaryFile("w+") as errors, \
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))} failed:\n" + (out + errors.read())[-2000:])
    return out, usage.ru_maxrss * 1024


def measure_ours(oinfer, path, options):
    """{test: rate} of `oinfer bench`, its peak resident bytes, and what it says of the model."""
    rates, peak, info = {}, 0, None
    for test in options.tests:
        command = [oinfer, "bench", "-m", path, "-r", 1, "--threads", options.threads, "-o", "json", "--kv", options.kv,
                   "-p", test.tokens if test.kind == "pp" else 0, "-n", test.tokens if test.kind == "tg" else 0]
        if test.depth:
            command += ["-d", test.depth]
        if options.device:
            command += ["--device", options.device]
        out, resident = measure([str(word) for word in command])
        row = json.loads(out)[0]
        if info is None or row["kv_bytes"] >= info["kv_bytes"]:
            info, peak = row, resident
        rates[test.name] = row["avg_ts"]
    return rates, peak, info


@contextlib.contextmanager
def busy_loops(n):
    """n processes that do nothing but keep a processor busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def compare(oinfer, peer, bandwidth, path, options):
    """Prints the table rows of one model; returns (ratio to bound, text) of each bound."""
    ours, theirs, memory, read_gb_s = [], [], [], []
    names = ",".join(test.name for test in options.tests)
    _, _, info = measure_ours(oinfer, path, options)   # fills the kernel cache and the page cache
    for _ in range(options.runs):
        rates, peak, info = measure_ours(oinfer, path, options)
        ours.append(rates)
        memory.append(peak)
        out, _ = measure([peer, __file__, "--peer", str(path), "--threads", str(options.threads), "--tests", names, "--kv", options.kv])
        theirs.append(json.loads(out.splitlines()[-1]))
        read_gb_s.append(float(run([bandwidth, str(options.threads)]).split()[0]))
    results = []
    size = path.stat().st_size
    for test in options.tests:
        mine = statistics.median(rates[test.name] for rates in ours)
        other = statistics.median(rates[test.name] for rates in theirs)
        ratio, goal = mine / other, GOAL_HINDERED if options.busy or options.cpus else test.goal(info)
        print(f"| {path.name} | {test.name} | {mine:.1f} | {other:.1f} | {ratio:.2f} | {goal or ''} | {BOUND:.2f} |", flush=True)
        results.append((ratio, BOUND, f"{test.name} of {path.name}"))
        if test.kind == "tg" and not test.depth:
            read = statistics.median(read_gb_s)
            print(f"| {path.name} | read GB/s, share used by {test.name} | {read:.1f} | | {mine * size / 1e9 / read:.2f} | | |")
    limit = RESIDENT_FACTOR * size + info["kv_bytes"] + RESIDENT_EXTRA
    peak = statistics.median(memory)
    print(f"| {path.name} | peak MB (limit) | {peak / 1e6:.0f} | {limit / 1e6:.0f} | {limit / peak:.2f} | | 1.00 |", flush=True)
    results.append((limit / peak, 1.0, f"memory of {path.name}"))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="SmolLM2 alone, three rounds")
    parser.add_argument("--model", type=pathlib.Path, action="append", help="GGUF file; may be given again")
    parser.add_argument("--threads", type=int, help="of both (default: as many as processors may be used)")
    parser.add_argument("--busy", type=int, default=0, help="loops that keep processors busy beside both")
    parser.add_argument("--cpus", type=parse_cpus, help="processors that may be used, with commas between")
    parser.add_argument("--tests", type=parse_tests, default="pp512,tg128", help="ppN, tgN, tgN@D, with commas between")
    parser.add_argument("--kv", choices=["f16", "q8_0"], default="f16", help="of the KV caches of both")
    parser.add_argument("--device", help="device of ours, as in oinfer bench --device")
    parser.add_argument("--runs", type=int, help="rounds (default 7)")
    parser.add_argument("--oinfer", type=pathlib.Path, default=ROOT / "build/release/oinfer")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer_main(options.peer, options.threads, options.tests, options.kv)
        return 0
    if options.cpus:
        os.sched_setaffinity(0, options.cpus)
    options.threads = options.threads or len(os.sched_getaffinity(0))
    options.runs = options.runs or (3 if options.quick else 7)
    for path in options.model or []:
        if not path.is_file():
            sys.exit(f"{path}: no such file")
    if options.oinfer == ROOT / "build/release/oinfer":
        run(["bash", "-c", f'set -euo pipefail; . "{ROOT}/deploy/lib.sh"; build_preset release'])
    peer, bandwidth = peer_python(), bandwidth_program()
    models = options.model or default_models(options.oinfer, options.quick)
    hindered = (f", {options.busy} busy loops beside them" if options.busy else "") + \
        (f", on processors {sorted(options.cpus)}" if options.cpus else "")
    print(f"{options.threads} threads, medians of {options.runs} alternating runs{hindered}\n")
    print("| model | test | oinfer | llama.cpp | ratio | goal | bound |\n|---|---|---|---|---|---|---|", flush=True)
    with busy_loops(options.busy):
        results = [row for path in models for row in compare(options.oinfer, peer, bandwidth, path, options)]
    print()
    short = [row for row in results if row[0] < row[1]]
    for ratio, bound, name in short:
        print(f"falls short: {name}: {ratio:.2f}, bound {bound:.2f}")
    ratio, bound, name = min((row for row in results if not row[2].startswith("memory")), key=lambda row: row[0])
    print(f"worst ratio {ratio:.2f} ({name})")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
