#!/usr/bin/env python3
"""OInfer beside llama.cpp on the same CPU: prefill of 512 tokens (pp512), decoding of 128 (tg128), peak memory.

    tests/bench/vs_llama_cpp.py [--quick] [--model FILE ...] [--threads N] [--device NAME] [--runs N]

Runs `oinfer bench` and llama.cpp (llama-cpp-python, its low-level calls, meaning as in llama-bench) in turn, each in a fresh
process, and compares the medians; the read bandwidth of the memory is measured in every round, since it bounds tg128 and
drifts on shared machines. Without --model: SmolLM2 Q4_1 and a synthetic 1.1B Q4_0; --quick: SmolLM2 alone, three rounds.
Exit status 1 when a bound below falls short. The last line is the worst ratio.

The peer is built natively in its own virtual environment at the first run (some minutes), or is the Python that
OINFER_PEER_PYTHON names.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oinfer"
PEER_PACKAGE = "llama-cpp-python==0.3.36"
PROMPT, GENERATE = 512, 128

# Least ratio of our tokens per second to llama.cpp's.
BOUNDS = {"pp512": 0.5, "tg128": 0.5}
# Peak resident memory: at most this x file size + KV cache + this many bytes.
RESIDENT_FACTOR, RESIDENT_EXTRA = 1.2, 100e6


# ---- the peer: run by the peer's Python ----

def peer_main(path, threads):
    """Prints {"pp512": tokens/s, "tg128": tokens/s} for the model, after a warm-up of each."""
    import ctypes
    import random

    import llama_cpp

    llama_cpp.llama_backend_init()
    silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = PROMPT + GENERATE
    params.n_batch = params.n_ubatch = PROMPT
    params.n_threads = params.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, params)
    if not model or not context:
        sys.exit(f"llama.cpp cannot load {path}")
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    random.seed(1)

    def decode(n_tokens):
        tokens = (llama_cpp.llama_token * n_tokens)(*(random.randrange(n_vocab) for _ in range(n_tokens)))
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, n_tokens)) != 0:
            sys.exit("llama_decode failed")
        llama_cpp.llama_synchronize(context)

    def rate(n_steps, n_tokens):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        start = time.perf_counter()
        for _ in range(n_steps):
            decode(n_tokens)
        return n_steps * n_tokens / (time.perf_counter() - start)

    rate(1, PROMPT)
    pp = rate(1, PROMPT)
    rate(1, 1)
    print(json.dumps({"pp512": pp, "tg128": rate(GENERATE, 1)}))


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
    """Rates of one `oinfer bench` run, its peak resident bytes and its KV cache's bytes."""
    command = [oinfer, "bench", "-m", path, "-p", PROMPT, "-n", GENERATE, "-r", 1, "--threads", options.threads, "-o", "json"]
    if options.device:
        command += ["--device", options.device]
    out, peak = measure([str(word) for word in command])
    rows = json.loads(out)
    return {row["test"]: row["avg_ts"] for row in rows}, peak, rows[0]["kv_bytes"]


def compare(oinfer, peer, bandwidth, path, options):
    """Prints the table rows of one model; returns (ratio to bound, text) of each bound."""
    ours, theirs, memory, read_gb_s = [], [], [], []
    kv_bytes = 0
    measure_ours(oinfer, path, options)   # fills the kernel cache and the page cache
    for _ in range(options.runs):
        rates, peak, kv_bytes = measure_ours(oinfer, path, options)
        ours.append(rates)
        memory.append(peak)
        out, _ = measure([peer, __file__, "--peer", str(path), "--threads", str(options.threads)])
        theirs.append(json.loads(out.splitlines()[-1]))
        read_gb_s.append(float(run([bandwidth, str(options.threads)]).split()[0]))
    results = []
    size = path.stat().st_size
    for test, bound in BOUNDS.items():
        mine = statistics.median(rates[test] for rates in ours)
        other = statistics.median(rates[test] for rates in theirs)
        ratio = mine / other
        print(f"| {path.name} | {test} | {mine:.1f} | {other:.1f} | {ratio:.2f} | {bound:.2f} |", flush=True)
        results.append((ratio, bound, f"{test} of {path.name}"))
    mbu = statistics.median(rates["tg128"] for rates in ours) * size / 1e9 / statistics.median(read_gb_s)
    print(f"| {path.name} | read GB/s, share used by tg128 | {statistics.median(read_gb_s):.1f} | | {mbu:.2f} | |")
    limit = RESIDENT_FACTOR * size + kv_bytes + RESIDENT_EXTRA
    peak = statistics.median(memory)
    print(f"| {path.name} | peak MB (limit) | {peak / 1e6:.0f} | {limit / 1e6:.0f} | {limit / peak:.2f} | 1.00 |", flush=True)
    results.append((limit / peak, 1.0, f"memory of {path.name}"))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="SmolLM2 alone, three rounds")
    parser.add_argument("--model", type=pathlib.Path, action="append", help="GGUF file; may be given again")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", help="device of ours, as in oinfer bench --device")
    parser.add_argument("--runs", type=int, help="rounds (default 7)")
    parser.add_argument("--oinfer", type=pathlib.Path, default=ROOT / "build/release/oinfer")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer_main(options.peer, options.threads)
        return 0
    options.runs = options.runs or (3 if options.quick else 7)
    for path in options.model or []:
        if not path.is_file():
            sys.exit(f"{path}: no such file")
    if options.oinfer == ROOT / "build/release/oinfer":
        run(["bash", "-c", f'set -euo pipefail; . "{ROOT}/deploy/lib.sh"; build_preset release'])
    peer, bandwidth = peer_python(), bandwidth_program()
    models = options.model or default_models(options.oinfer, options.quick)
    print(f"{options.threads} threads, medians of {options.runs} alternating runs\n")
    print("| model | test | oinfer | llama.cpp | ratio | bound |\n|---|---|---|---|---|---|", flush=True)
    results = [row for path in models for row in compare(options.oinfer, peer, bandwidth, path, options)]
    print()
    short = [row for row in results if row[0] < row[1]]
    for ratio, bound, name in short:
        print(f"falls short: {name}: {ratio:.2f}, bound {bound:.2f}")
    ratio, bound, name = min((row for row in results if row[2].split()[0] in BOUNDS), key=lambda row: row[0])
    print(f"worst ratio {ratio:.2f} ({name})")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
