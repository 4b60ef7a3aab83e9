"""Runs cl_exercise once for every OpenCL call it makes, with that call failing, and once with the device lost from that
call on: every run must end by itself with a clean error (or succeed, where the failure is harmless) and with no OpenCL
object alive.

  cl_faults.py EXERCISE LIBRARY [gpu]      every call: OINFER_FAULTS_ALL=1, few of them: OINFER_FAULTS_FEW=1
"""
import os
import subprocess
import sys
import tempfile

CODES = {"clGetPlatformIDs": -1001, "clGetDeviceIDs": -1, "clCreateBuffer": -4, "clBuildProgram": -11,
         "clCreateKernel": -46, "clEnqueueNDRangeKernel": -5, "clEnqueueMapBuffer": -12}
LOST = -36


def run(command, library, cache, report, fault):
    env = dict(os.environ, LD_PRELOAD=library, OINFER_FAULT_REPORT=report)
    env.pop("OINFER_FAULT", None)
    if fault:
        env["OINFER_FAULT"] = fault
    # The library is not built with the sanitizer that the program may have.
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    done = subprocess.run([command[0], cache] + command[1:], env=env, capture_output=True, text=True, timeout=120)
    if not os.path.exists(report):  # it did not get as far as its exit handlers
        return done, {}
    with open(report, encoding="ascii") as file:
        fields = dict(pair.split("=") for pair in file.read().split())
    os.remove(report)
    return done, {key: int(value) for key, value in fields.items()}


def check(done, fields, fault):
    """What is wrong with a run, or None."""
    alive = {key: value for key, value in fields.items() if key not in ("calls", "failed") and value != 0}
    if done.returncode not in (0, 1):
        return f"{fault}: exit status {done.returncode}: {done.stdout}{done.stderr[-400:]}"
    if alive:
        return f"{fault}: alive at exit: {alive} ({done.stdout.strip()})"
    if done.returncode == 1 and not done.stdout.strip():
        return f"{fault}: an error without a text"
    return None


def main():
    exercise, library, *mode = sys.argv[1:]
    command = [exercise] + mode
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        report, cache = os.path.join(folder, "report"), os.path.join(folder, "cache")
        with open(os.path.join(os.path.dirname(__file__), "calls.def"), encoding="ascii") as file:
            names = [line[2:].split(")")[0] for line in file if line.startswith("X(")]
        # cold: probes and builds are part of the run; they are those of every kind of device
        for state in ("warm",) if mode else ("cold", "warm"):
            def cache_dir(i, state=state):
                return os.path.join(folder, f"cold{i}") if state == "cold" else cache
            done, fields = run(command, library, cache, report, None)
            if done.returncode != 0 or check(done, fields, "no fault"):
                sys.exit(f"without a fault: {done.returncode} {done.stdout} {done.stderr} {fields}")
            done, fields = run(command, library, cache_dir(0), report, None)
            calls = fields["calls"]
            print(f"{state}: {calls} calls")
            runs = 0
            # A sample, with few of the many in the cold state; OINFER_FAULTS_ALL=1: every call.
            few = bool(os.environ.get("OINFER_FAULTS_FEW"))
            samples = 60 if state == "warm" else 12
            samples = calls if os.environ.get("OINFER_FAULTS_ALL") else samples // 4 if few else samples
            step = max(1, calls // samples)
            for number in range(1, calls + 1, step):
                for fault in (f"*:{number}:-5", f"*:{number}+:{LOST}"):
                    done, fields = run(command, library, cache_dir(number), report, fault)
                    problems.append(check(done, fields, f"{state} {fault}"))
                    runs += 1
            if state == "warm":
                for name in names:
                    for number in (1,) if few else (1, 2):
                        fault = f"{name}:{number}:{CODES.get(name, -30)}"
                        done, fields = run(command, library, cache, report, fault)
                        problems.append(check(done, fields, fault))
                        runs += 1
            print(f"{state}: {runs} runs")
    problems = [problem for problem in problems if problem]
    print("\n".join(problems[:20]))
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)


main()
