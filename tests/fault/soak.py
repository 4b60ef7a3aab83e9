"""A long mixed load on a daemon: completions of every kind, streams, clients that leave, operators, tunings, requests that
are wrong. What the tunings keep goes into a copy of the cache folder.

  soak.py --daemon OINFERD --model MODEL [--minutes 30 | --seconds N] [--clients 8] [--cache-dir DIR] [--device D]

Passes when resident memory after the warm-up stays within 2 % (and 2 MiB) of what it was then, every
answer that can be foretold was right, and no error was of a kind that its request did not ask for. On a CPU a greedy text is
the same however it is batched; kernels of GPUs add in another order for other batches, so there two texts may part, but only
where the two best tokens are as good as equal. The last line of the output says what was done.
"""
import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "http"))
from client import Connection  # noqa: E402
from daemon import Daemon      # noqa: E402

GROWTH, GROWTH_KIB = 0.02, 2048
WARM_TUNINGS = 64  # tunings that have run all kinds of kernels; the warm-up is that and a quarter of the time
NEAR_TIE = 0.1  # of logits: where greedy texts of a GPU may part
PROMPTS = ["once upon a time", "the", "a b c d e f g h", "numbers: 1 2 3 4", "x" * 100]


class Soak:
    def __init__(self, port, seed):
        self.port, self.dice = port, random.Random(seed)
        self.counts, self.problems = collections.Counter(), []
        self.texts, self.operator, self.invariant = {}, None, True

    def problem(self, text):
        self.problems.append(text)

    async def post(self, c, path, body, allowed):
        status, _, data = await c.request("POST", path, body)
        self.counts[f"{path} {status}"] += 1
        if status not in allowed:
            self.problem(f"{path} {json.dumps(body)[:200]}: {status} {data[:300]!r}")
        return status, data

    async def greedy(self, c):
        """The same prompt gives the same text, however it is batched."""
        body = {"prompt": self.dice.choice(PROMPTS), "max_tokens": self.dice.choice([1, 7, 24]), "temperature": 0,
                "ignore_eos": True}
        status, data = await self.post(c, "/v1/completions", body, (200, 429))
        if status == 200:
            text = json.loads(data)["choices"][0]["text"]
            known = self.texts.setdefault((body["prompt"], body["max_tokens"]), [text])
            if text in known:
                return
            if self.invariant or not await self.parted_at_a_tie(c, body, known[0], text):
                self.problem(f"{body['prompt']!r}, {body['max_tokens']} tokens: {text!r}, before {known[0]!r}")
            known.append(text)

    async def parted_at_a_tie(self, c, body, one, other):
        """Whether the two best tokens where both texts part are within NEAR_TIE; asked again until an answer comes by there.
        A byte that is no text by itself looks like any other in a text, so they may have parted at the bytes before."""
        common = len(os.path.commonprefix([one, other]))
        for _ in range(20):
            status, data = await self.post(c, "/v1/completions", {**body, "logprobs": 2}, (200, 429))
            if status != 200:
                continue
            choice = json.loads(data)["choices"][0]
            if choice["text"][:common] != one[:common]:
                continue
            offsets = choice["logprobs"]["text_offset"]
            first = last = max(i for i, offset in enumerate(offsets) if offset <= common)
            while first > 0 and choice["logprobs"]["tokens"][first - 1].startswith("bytes:"):
                first -= 1
            pairs = [sorted(top.values(), reverse=True)[:2] for top in choice["logprobs"]["top_logprobs"][first:last + 1]]
            self.counts["parted"] += 1
            return min(best - second for best, second in pairs) < NEAR_TIE
        return False

    async def sampled(self, c):
        body = {"prompt": self.dice.choice(PROMPTS), "max_tokens": self.dice.randrange(1, 32), "temperature": 0.9,
                "n": self.dice.choice([1, 1, 2, 4]), "top_p": 0.9, "seed": self.dice.randrange(1 << 30)}
        if self.dice.random() < 0.3:
            body["logprobs"] = 3
        if self.dice.random() < 0.2:
            body["timings"] = "kernels"
        status, data = await self.post(c, "/v1/completions", body, (200, 429))
        if status == 200 and len(json.loads(data)["choices"]) != body["n"]:
            self.problem(f"{body}: {data[:200]!r}")

    async def stream(self, c):
        await c.send("POST", "/v1/completions", {"prompt": self.dice.choice(PROMPTS), "max_tokens": 24, "stream": True})
        status, headers = await c.head()
        data = await c.body(headers)
        self.counts[f"stream {status}"] += 1
        if status not in (200, 429) or (status == 200 and not data.endswith(b"data: [DONE]\n\n")):
            self.problem(f"stream: {status} {data[-200:]!r}")

    async def leave(self, c):
        body = {"prompt": self.dice.choice(PROMPTS), "max_tokens": 200, "stream": self.dice.random() < 0.5, "ignore_eos": True}
        await c.send("POST", "/v1/completions", body)
        await asyncio.sleep(self.dice.random() * 0.2)
        self.counts["left"] += 1
        c.abort()
        await c.open()

    async def wrong(self, c):
        body = self.dice.choice([{"prompt": 7}, {"prompt": "x", "max_tokens": -1}, {"prompt": "x" * 5000, "max_tokens": 4},
                                 {"prompt": "x", "model": "none"}, {"prompt": "x", "n": 10 ** 6}, {}])
        await self.post(c, "/v1/completions", body, (400, 404, 413, 429))

    async def others(self, c):
        path = self.dice.choice(["/health", "/metrics", "/v1/models", "/v1/devices", "/props", "/slots", "/nothing"])
        status, _, _ = await c.request("GET", path)
        self.counts[f"{path} {status}"] += 1
        if status != (404 if path == "/nothing" else 200):
            self.problem(f"{path}: {status}")

    async def tokens(self, c):
        _, data = await self.post(c, "/tokenize", {"content": "some words"}, (200,))
        await self.post(c, "/detokenize", {"tokens": json.loads(data)["tokens"]}, (200,))

    async def operators(self, c):
        if self.operator is None:  # not every daemon serves them
            status, _, _ = await c.request("GET", "/v1/ops")
            self.operator = status == 200
        if self.operator:
            body = self.dice.choice([{"m": 33, "n": 17, "k": 65}, {"m": 64, "n": 64, "k": 64}, {"m": 0, "n": 1, "k": 1}])
            await self.post(c, "/v1/ops/matmul", body, (200, 400, 429, 503))

    async def tuning(self, c):
        """A small one, followed to its end or given up. It runs when nothing else does, which may be late; and what is over
        is forgotten when many others have been since."""
        body = {"op": "softmax", "shape": {"rows": 16, "len": self.dice.choice([64, 256])}, "budget": 2, "search": "random",
                "seed": 1}
        status, data = await self.post(c, "/v1/tune", body, (202, 429, 503))
        if status != 202:
            return
        path, state = "/v1/tune/" + json.loads(data)["id"], "queued"
        patience_s = 60 * (self.dice.random() < 0.7)
        start = time.monotonic()
        while state in ("queued", "running"):
            late = time.monotonic() - start >= patience_s
            status, _, data = await c.request("DELETE" if late else "GET", path)
            state = json.loads(data)["status"] if status in (200, 202) else "forgotten" if status == 404 else f"{status} {data}"
            await asyncio.sleep(0.1)
        self.counts[f"tuning {state}"] += 1
        if state not in ("done", "forgotten") and not (state == "cancelled" and late):
            self.problem(f"{path}: {state}")

    def tunings(self):
        return sum(count for name, count in self.counts.items() if name.startswith("tuning "))

    async def client(self):
        kinds = [self.greedy] * 10 + [self.sampled] * 8 + [self.stream] * 8 + [self.leave] * 4 + [self.tuning] + 2 * [
            self.wrong, self.others, self.tokens, self.operators]
        c = await Connection(self.port).open()
        while time.monotonic() < self.end and len(self.problems) < 20:
            kind = self.dice.choice(kinds)
            try:
                await asyncio.wait_for(kind(c), 120)
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError, IndexError) as e:
                self.problem(f"{kind.__name__}: {e!r}")
                await c.open()
            self.counts["requests"] += 1
        c.close()


async def measure(soak, daemon, seconds, samples):
    """Resident memory of each half second after the warm-up, which takes from a quarter of the seconds to twice as many."""
    start = time.monotonic()
    while time.monotonic() < start + seconds / (4 if soak.tunings() >= WARM_TUNINGS or soak.problems else 0.5):
        soak.end = time.monotonic() + seconds * 3 / 4
        await asyncio.sleep(0.5)
    while time.monotonic() < soak.end:
        samples.append((time.monotonic(), daemon.resident_kib()))
        await asyncio.sleep(0.5)


async def run(daemon, seconds, clients, samples):
    soak = Soak(daemon.port, 3)
    soak.end = time.monotonic() + seconds
    c = await Connection(daemon.port).open()
    _, _, data = await c.request("GET", "/v1/devices")
    c.close()
    soak.invariant = all(device["kind"] in ("cpu", "host") for device in json.loads(data)["data"] if device["in_use"])
    await asyncio.gather(measure(soak, daemon, seconds, samples), *(soak.client() for _ in range(clients)))
    return soak


def middle(values):
    return sorted(values)[len(values) // 2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--cache-dir")
    parser.add_argument("--device", default="auto")
    o = parser.parse_args()
    arguments = ["--model", o.model, "--slots", "4", "--ctx", "512", "--device", o.device]
    with tempfile.TemporaryDirectory() as folder:
        if o.cache_dir:
            shutil.copytree(o.cache_dir, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("pocl", "tune.json"))
        sys.exit(soak_daemon(o, [*arguments, "--cache-dir", folder]))


def soak_daemon(o, arguments):
    """The exit status."""
    daemon = Daemon(o.daemon, *arguments)
    daemon.wait_quiet()
    samples = []
    try:
        soak = asyncio.run(run(daemon, o.seconds or 60 * o.minutes, o.clients, samples))
        daemon.wait_idle(60)
        log = [line for line in daemon.log().splitlines() if line.startswith(("warn", "error"))]
        daemon.stop(300)
    except BaseException:
        daemon.kill()
        raise
    kib = [value for _, value in samples]
    third = max(1, len(kib) // 3)
    warm, last = middle(kib[:third]), middle(kib[-third:])
    problems = soak.problems + log
    if last > warm * (1 + GROWTH) + GROWTH_KIB:
        problems.append(f"resident memory grew from {warm} to {last} KiB")
    for name, count in sorted(soak.counts.items()):
        print(f"{count:8} {name}")
    print("\n".join(problems[:20]))
    print(f"requests={soak.counts['requests']} problems={len(problems)} warm_kib={warm} last_kib={last} "
          f"growth={100 * (last / warm - 1):.2f}%")
    return 1 if problems else 0


if __name__ == "__main__":
    main()
