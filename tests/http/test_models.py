"""The daemon on the real engine: a tiny synthetic model on every kind of device, and SmolLM2."""
import concurrent.futures
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import openai
import pytest
import requests

from daemon import SANITIZED, Daemon, poll, read_stream, run_to_end


@pytest.fixture(scope="module")
def tiny(real_binary, tiny_model):
    # Under ThreadSanitizer the threads of the OpenCL drivers give false alarms: there the references run.
    device = "host" if "thread" in SANITIZED else "auto"
    daemon = Daemon(real_binary, "--model", tiny_model, "--device", device)
    yield daemon
    daemon.stop()


@pytest.fixture(scope="module")
def smol(real_binary, smollm2):
    if SANITIZED:
        pytest.skip("SmolLM2 is not run under sanitizers")
    daemon = Daemon(real_binary, "--model", smollm2)
    yield daemon
    daemon.stop()


@pytest.fixture(params=["tiny", "smol"])
def daemon(request):
    return request.getfixturevalue(request.param)


def client(daemon):
    return openai.OpenAI(base_url=daemon.url + "/v1", api_key="none", max_retries=0)


def model_of(daemon):
    return daemon.get("/v1/models").json()["data"][0]["id"]


# ---- every model ----

def test_openai_client(daemon):
    """The official client works unchanged, streaming and not, and both give the same text."""
    with client(daemon) as api:
        model = model_of(daemon)
        assert [m.id for m in api.models.list()] == [model]
        body = {"model": model, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
        whole = api.completions.create(**body)
        assert whole.usage.completion_tokens == 24 and whole.choices[0].finish_reason == "length"
        text, usage, reasons = "", None, []
        for chunk in api.completions.create(**body, stream=True, stream_options={"include_usage": True}):
            for choice in chunk.choices:
                text += choice.text
                reasons.append(choice.finish_reason)
            usage = chunk.usage or usage
        assert text == whole.choices[0].text and reasons[-1] == "length" and usage.completion_tokens == 24
        with pytest.raises(openai.BadRequestError) as refused:
            api.completions.create(model=model, prompt="x", max_tokens=-1)
        assert refused.value.body["param"] == "max_tokens"
        with pytest.raises(openai.NotFoundError):
            api.completions.create(model="nothing", prompt="x")


@pytest.mark.parametrize("body", [
    {"prompt": "Hello, world", "max_tokens": 40, "temperature": 0},
    {"prompt": "表情 emoji: 🙂", "max_tokens": 48, "temperature": 1.5, "seed": 3},
    {"prompt": "A", "max_tokens": 30, "temperature": 1, "seed": 1, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "repeat_penalty": 1.1},
    {"prompt": "A", "max_tokens": 30, "mirostat": 2, "seed": 1},
    {"prompt": ["one", "two"], "n": 2, "max_tokens": 12, "seed": 9},
])
def test_s1_stream_equals_whole(daemon, body):
    """S1: the joined stream is the whole text, byte for byte, on real vocabularies."""
    body = {**body, "cache_prompt": False}
    whole = daemon.complete(**body)
    chunks, done = read_stream(daemon.post("/v1/completions", {**body, "stream": True}))
    assert done
    for choice in whole["choices"]:
        joined = "".join(c["text"] for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"])
        assert joined == choice["text"]


def test_s23_same_seed_same_text(daemon):
    """S23: one request 20 times without the cache gives one text."""
    body = {"prompt": "The weather today", "max_tokens": 12, "temperature": 0.9, "cache_prompt": False}
    first = daemon.complete(**body)
    for _ in range(20):
        assert daemon.complete(**body, seed=first["seed"])["choices"][0]["text"] == first["choices"][0]["text"]


def test_greedy_alone_in_company_and_cached(smol):
    """S23: greedy text is the same alone, among others, and on a cached prompt."""
    body = {"prompt": "Water boils at", "max_tokens": 16, "temperature": 0}
    alone = smol.complete(**body)["choices"][0]["text"]
    assert smol.complete(**body)["timings"]["cache_n"] > 0
    assert smol.complete(**body)["choices"][0]["text"] == alone
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: smol.complete(**body), range(4)):
            assert answer["choices"][0]["text"] == alone


def test_s37_logprobs_are_probabilities(daemon):
    """S37: scoring a prompt; the chosen token is among the best, and greedy takes the best."""
    answer = daemon.complete(prompt="The quick brown fox", max_tokens=4, temperature=0, logprobs=20, echo=True)
    lp = answer["choices"][0]["logprobs"]
    n = answer["usage"]["prompt_tokens"]
    assert lp["token_logprobs"][0] is None and len(lp["tokens"]) == n + 4
    for value, top in list(zip(lp["token_logprobs"], lp["top_logprobs"]))[1:]:
        assert value <= 1e-5 and sum(math.exp(v) for v in top.values()) <= 1.001
    for value, top in list(zip(lp["token_logprobs"], lp["top_logprobs"]))[n:]:
        assert value == pytest.approx(max(top.values()), abs=1e-4)
    again = daemon.complete(prompt="The quick brown fox", max_tokens=0, logprobs=0, echo=True)["choices"][0]["logprobs"]
    assert again["token_logprobs"][1:] == pytest.approx(lp["token_logprobs"][1:n], abs=0.02)


def test_s20_context_limits(daemon):
    """S20: n_ctx and n_ctx +- 1 tokens, as ids."""
    n_ctx = daemon.get("/v1/models").json()["data"][0]["meta"]["n_ctx"]
    for n in (n_ctx - 1, n_ctx):
        answer = daemon.complete(prompt=[5] * n, max_tokens=5, temperature=0)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == min(5, n_ctx - n + 1)
    reply = daemon.post("/v1/completions", {"prompt": [5] * (n_ctx + 1)})
    assert reply.status_code == 400
    assert reply.json()["error"]["n_prompt_tokens"] == n_ctx + 1 and reply.json()["error"]["n_ctx"] == n_ctx


def test_tokens_there_and_back(daemon):
    for text in ("Hello, world!", " leading", "tabs\tand\nlines", "漢字かな交じり文", "🙂🙃", "  two  spaces  "):
        tokens = daemon.post("/tokenize", {"content": text}).json()["tokens"]
        assert daemon.post("/detokenize", {"tokens": tokens}).json()["content"].lstrip() == text.lstrip()


def test_faults_leave_the_next_request_right(daemon):
    body = {"prompt": "one two three", "max_tokens": 8, "temperature": 0, "cache_prompt": False}
    before = daemon.complete(**body)["choices"][0]["text"]
    for bad in ({"prompt": "x", "n": -1}, {"prompt": [10**9]}, {"prompt": "x", "logit_bias": {"99999999": 1}}):
        assert daemon.post("/v1/completions", bad).status_code == 400
    assert daemon.complete(**body)["choices"][0]["text"] == before


def test_s31_kernels_are_built_on_demand(real_binary, tiny_model, tmp_path):
    """S31: loading with an empty cache builds what the model's plans use, not the catalogue."""
    device = "host" if "thread" in SANITIZED else "auto"
    daemon = Daemon(real_binary, "--model", tiny_model, "--device", device, "--cache-dir", tmp_path)
    built = daemon.get("/props").json()["memory"][0]["loads"]["tiny"]["kernels_built"]
    kind = next(d for d in daemon.get("/v1/devices").json()["data"] if d["in_use"])["kind"]
    daemon.stop()
    assert built == 0 if kind == "host" else 0 < built <= 40


def test_props_tell_what_loading_did(real_binary, tiny_model, warm_cache, tmp_path):
    """Rate of the uploads and overlap of the queues, in the log too; and the variant that failed its self-test, with the reason:
    the next one does its work."""
    if "thread" in SANITIZED:
        pytest.skip("the references have no variants")
    kernels = shutil.copytree(pathlib.Path(__file__).parents[2] / "kernels", tmp_path / "kernels")
    broken = kernels / "cpu/argmax.cl"
    broken.write_text("#error planted fault\n" + broken.read_text())
    body = {"prompt": "one two three", "max_tokens": 8, "temperature": 0}
    texts = []
    for more in ((), ("--kernel-dir", kernels)):
        daemon = Daemon(real_binary, "--model", tiny_model, "--cache-dir", warm_cache, "--stepwise", *more)
        try:
            kind = next(d for d in daemon.get("/v1/devices").json()["data"] if d["in_use"])["kind"]
            load = daemon.get("/props").json()["memory"][0]["loads"]["tiny"]
            texts.append(daemon.complete(**body)["choices"][0]["text"])
            log = daemon.log()
        finally:
            daemon.stop(300)
        if kind != "cpu":
            pytest.skip(f"cpu/argmax.cl is not used on a device of kind {kind}")
        assert load["upload_bytes"] > 0 and load["upload_gb_s"] > 0 and 0 <= load["overlap_ms"] <= load["load_ms"], load
        assert re.search(r"model loaded .* upload_gb_s=[\d.]+ .* overlap_ms=[\d.]+ ", log), log
        replaced = [(row["op"], row["variant"]) for row in load["replaced"]]
        assert replaced == ([("argmax", "cpu")] if more else []), load["replaced"]
    assert "planted fault" in load["replaced"][0]["reason"], load["replaced"]
    assert texts[0] == texts[1]


def test_s41_no_template_is_said(tiny):
    """S41: a model without a chat template gets none in silence: /props says null, and there is no chat route."""
    assert tiny.get("/props").json()["models"][0]["chat_template"] is None
    reply = tiny.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
    assert reply.status_code in (400, 404), reply.text


# ---- SmolLM2 ----

def test_s41_the_file_s_template_is_shown(smol):
    """S41: the template in /props is the model's own."""
    assert "<|im_start|>" in smol.get("/props").json()["models"][0]["chat_template"]


def test_knows_paris(smol):
    assert "Paris" in smol.complete(prompt="The capital of France is", max_tokens=8, temperature=0)["choices"][0]["text"]


def test_readme_examples(smol):
    """Every request that the README shows is answered, by this model under the name shown."""
    readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    section = readme.split("\n## Asking it\n")[1].split("\n## ")[0].replace("http://127.0.0.1:8080", smol.url)
    shell, python = (re.search(rf"```{language}\n(.*?)```", section, re.S).group(1) for language in ("", "python"))
    commands = shell.replace("\\\n", "").replace("curl ", "curl --silent --show-error --fail-with-body ")
    for command in filter(None, (line.strip() for line in commands.split("\n"))):
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and (done.stdout != "" or command[0] == "#"), (command, done)
    done = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip() != "", done


def test_timings_add_up(smol):
    """The kernels' times sum to the busy time of their queue within 2 %; prompt and predicted to what the client saw
    within 10 %."""
    body = {"prompt": "Once upon a time there was a " * 20, "max_tokens": 48, "temperature": 0, "cache_prompt": False}
    smol.complete(**body)
    best = 1.0
    for timings in ("summary", "kernels", "summary", "kernels"):
        start = time.monotonic()
        t = smol.complete(**body, timings=timings)["timings"]
        wall_ms = (time.monotonic() - start) * 1e3
        best = min(best, abs(wall_ms - t["prompt_ms"] - t["predicted_ms"]) / wall_ms)
        if timings == "kernels":
            total = sum(row["total_ms"] for row in t["kernels"])
            assert total == pytest.approx(t["queues"]["compute_busy_ms"], rel=0.02)
            names = {row["name"] for row in t["kernels"]}
            assert names >= {"linear", "attention", "norm"}
            # Greedy tokens are chosen on the device: a row of logits, 197 KB, is never read, but an index and what goes with it.
            read = sum(row["gb_s"] * 1e6 * row["total_ms"] for row in t["kernels"] if row["name"] == "arg-max")
            assert "logits" not in names and 4 * 48 <= read <= 128 * 48, read
            assert all(row["calls"] > 0 and row["min_us"] <= row["max_us"] for row in t["kernels"])
    assert best < 0.10
    drawn = smol.complete(**{**body, "temperature": 1}, timings="kernels")["timings"]  # what reading them looks like
    assert "logits" in {row["name"] for row in drawn["kernels"]}


def test_s11_leaving_clients_free_the_slot(smol):
    """S11: a real model's slot is free soon after its client left, not at the end of its answer."""
    reply = requests.post(smol.url + "/v1/completions", stream=True, timeout=60,
                          json={"prompt": "Tell me a story", "max_tokens": 2000, "stream": True, "ignore_eos": True})
    next(reply.iter_content(100))
    reply.close()
    assert smol.wait_idle(60) < 1


def test_s12_leaving_in_a_long_prompt(smol):
    """S12: a prompt of thousands of tokens is given up between sub-batches."""
    body = '{"prompt":[%s],"max_tokens":1,"cache_prompt":false}' % ",".join(str(100 + i % 5000) for i in range(4000))
    start = time.monotonic()
    assert smol.post("/v1/completions", data=body).status_code == 200
    whole = time.monotonic() - start
    s = smol.connect()
    s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    assert poll(lambda: smol.busy_slots() == 1)
    s.close()
    assert smol.wait_idle(60) < whole / 2  # one sub-batch of 512 tokens is an eighth of it


def test_s26_health_while_generating(smol):
    """S26: /health answers at once while the device is busy."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(smol.complete, prompt="word " * 1000, max_tokens=16, cache_prompt=False)
        times = []
        while not job.done():
            start = time.monotonic()
            assert smol.session.get(smol.url + "/health", timeout=10).status_code == 200
            times.append(time.monotonic() - start)
            time.sleep(0.02)
    assert sorted(times)[len(times) // 2] < 0.05


def test_s30_warm_start(real_binary, smollm2, smol):
    """S30, D23: the kernels come from the cache the second time; the end of the first start has stored them."""
    Daemon(real_binary, "--model", smollm2).stop(300)
    start = time.monotonic()
    warm = Daemon(real_binary, "--model", smollm2)
    seconds = time.monotonic() - start
    loads = warm.get("/props").json()["memory"][0]["loads"]
    warm.stop()
    assert all(load["kernels_built"] == 0 for load in loads.values())
    assert seconds < 20


def test_same_text_on_host(real_binary, smollm2, smol):
    """The C references give the text of the kernels."""
    body = {"prompt": "Water boils at", "max_tokens": 6, "temperature": 0}
    host = Daemon(real_binary, "--model", smollm2, "--device", "host", "--slots", "1", "--ctx", "256")
    try:
        assert host.complete(**body)["choices"][0]["text"] == smol.complete(**body)["choices"][0]["text"]
    finally:
        host.stop(120)


# ---- what keeps it from starting ----

def test_s43_bad_files_are_refused_by_name(real_binary, tiny_model, tmp_path):
    """S43: missing, empty, cut: one sentence with the file's name, and a status that is not 0."""
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_model.read_bytes()[:5000])
    empty = tmp_path / "empty.gguf"
    empty.write_bytes(b"")
    for path in (tmp_path / "missing.gguf", empty, cut):
        code, _, err = run_to_end(real_binary, "--model", path, "--port", 0)
        assert code == 1 and path.name in err and len(err.strip().splitlines()) == 1, err


def test_too_little_device_memory_gives_the_bill(real_binary, tiny_model):
    """Out of device memory while loading: one error with what is needed for what, and what there is."""
    code, out, err = run_to_end(real_binary, "--model", tiny_model, "--slots", 64, "--memory-limit", 4000000,
                                "--port", 0)
    errors = [line for line in (out + err).splitlines() if line.startswith("oinferd:")]
    assert code == 1 and len(errors) == 1, out + err
    assert re.search(r"needs [\d.]+ GB on .*: weights [\d.]+ GB, KV cache [\d.]+ GB .*, scratch [\d.]+ GB; "
                     r"with all layers streaming [\d.]+ GB; available: [\d.]+ GB", errors[0]), errors


def test_layers_that_do_not_fit_stream(real_binary, tmp_path):
    """A limit that is too small for all layers: the text is that of the whole model, and /props says what streams."""
    model = tmp_path / "layers.gguf"
    subprocess.run([os.environ["OINFER"], "mkmodel", "--shape",
                    "n_layer=6,n_embd=128,n_ff=512,n_head=4,n_head_kv=2,n_vocab=512,n_ctx=256", "--dtype", "q8_0", "-o",
                    str(model)], check=True, capture_output=True)
    arguments = ("--model", model, "--stepwise", "--slots", 2, *(("--device", "host") if "thread" in SANITIZED else ()))
    body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "seed": 1}

    def run(*more):
        daemon = Daemon(real_binary, *arguments, *more)
        try:
            text = [daemon.complete(**body)["choices"][0]["text"] for _ in range(2)]
            assert text[0] == text[1]
            memory = daemon.get("/props").json()["memory"][0]
            return text[0], memory["loads"][model_of(daemon)], memory["memory"], daemon.log()
        finally:
            daemon.stop()

    whole, load, _, log = run()
    assert load["layers"] == 6 and load["layers_streamed"] == 0 and load["stream_bytes"] == 0, load
    assert "layers stream" not in log
    limit = load["weights_bytes"] + load["kv_bytes"] + load["scratch_bytes"] - 1
    streamed, load, memory, log = run("--memory-limit", limit)
    assert streamed == whole
    assert load["layers"] == 6 and 3 <= load["layers_streamed"] <= 6 and load["layers_pinned"] == load["layers_staged"] == 0, load
    assert load["stream_bytes"] > 0 and load["stream_gb_s"] > 0, load
    assert memory["peak_bytes"] <= memory["limit_bytes"] == limit
    assert re.search(rf"layers stream .*resident={6 - load['layers_streamed']} streamed={load['layers_streamed']} "
                     r"mb_per_token=[\d.]+ gb_s=[\d.]+ pinned=0 staged=0", log), log


def test_too_much_context_is_refused(real_binary, tiny_model):
    code, _, err = run_to_end(real_binary, "--model", tiny_model, "--ctx", 1000000, "--port", 0)
    assert code == 1 and re.search("1000000", err)


# ---- little memory ----

@pytest.fixture
def small_box(real_binary, tmp_path):
    """The daemon in a memory group of 400 MB, as a program."""
    mount = pathlib.Path("/sys/fs/cgroup")
    v1 = (mount / "memory/memory.limit_in_bytes").exists()
    group = mount / ("memory" if v1 else "") / f"oinfer-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text("400000000")
    except OSError as e:
        pytest.skip(f"no memory group can be made here: {e}")
    program = tmp_path / "oinferd"
    program.write_text(f'#!/bin/sh\necho $$ >{group}/cgroup.procs\nexec {real_binary} "$@"\n')
    program.chmod(0o755)
    yield program
    events = (group / ("memory.oom_control" if v1 else "memory.events")).read_text()
    assert poll(lambda: (group / "cgroup.procs").read_text() == "")
    group.rmdir()
    assert re.search(r"oom_kill 0$", events, re.M), events


def test_a_group_of_400_mb(small_box, smollm2):
    """135M parameters run in it; a context that does not fit is refused with the bill, and nobody is killed."""
    if SANITIZED:
        pytest.skip("a sanitizer takes far more memory")
    code, _, err = run_to_end(small_box, "--model", smollm2, "--port", 0, "--ctx", 8192, seconds=300)
    assert code == 1 and "KV cache" in err and "available" in err, err
    daemon = Daemon(small_box, "--model", smollm2, "--ctx", 1024)
    assert daemon.complete(prompt="The capital of France is", max_tokens=8, temperature=0)["choices"][0]["text"].startswith(" Paris")
    assert daemon.complete(prompt=[100] * 900, max_tokens=8, ignore_eos=True)["usage"]["total_tokens"] == 908
    assert len(daemon.complete(prompt=["one", "two", "three", "four"], max_tokens=8)["choices"]) == 4
    daemon.stop(300)
