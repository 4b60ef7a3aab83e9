"""POST /v1/completions on the fake engine: what comes out for what is asked."""
import json

import pytest

from daemon import poll, read_stream


def stream(daemon, **body):
    reply = daemon.post("/v1/completions", {**body, "stream": True})
    assert reply.status_code == 200, reply.text
    return read_stream(reply)


def texts_of(chunks):
    """Joined text of each choice, and each choice's finish reason."""
    texts, finishes = {}, {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert choice["index"] not in finishes, "a chunk after the finish"
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
            if choice["finish_reason"] is not None:
                finishes[choice["index"]] = choice["finish_reason"]
    return texts, finishes


def test_shape(fake):
    answer = fake.complete(prompt="<hello$|", max_tokens=20)
    assert answer["object"] == "text_completion" and answer["id"].startswith("cmpl-")
    assert answer["model"] == "fake" and answer["system_fingerprint"].startswith("fp_")
    assert answer["choices"] == [{"text": "hello", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    assert answer["usage"]["prompt_tokens"] == 9  # BOS and 8 bytes
    assert answer["usage"]["completion_tokens"] == 6
    assert answer["usage"]["total_tokens"] == 15
    timings = answer["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == 9 and timings["predicted_n"] == 6
    assert {"queue_ms", "prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second", "device"} <= set(timings)
    assert "kernels" not in timings


def test_timings_none_and_kernels(fake):
    assert "timings" not in fake.complete(prompt="x", timings="none")
    timings = fake.complete(prompt="x", timings="kernels")["timings"]
    assert timings["kernels"][0]["name"] == "fake" and timings["kernels"][0]["calls"] >= 1
    total = sum(row["total_ms"] for row in timings["kernels"])
    assert total == pytest.approx(timings["queues"]["compute_busy_ms"], rel=0.02)
    assert "kernels" not in fake.complete(prompt="x")["timings"]


def test_default_max_tokens_is_16(fake):
    answer = fake.complete(prompt="abc")
    assert answer["usage"]["completion_tokens"] == 16 and answer["choices"][0]["finish_reason"] == "length"


def test_s42_max_tokens_0_only_evaluates(fake):
    answer = fake.complete(prompt="abcd", max_tokens=0, echo=True)
    assert answer["choices"][0]["text"] == "abcd" and answer["usage"]["completion_tokens"] == 0
    assert answer["choices"][0]["finish_reason"] == "length"
    assert fake.complete(prompt="abcd", max_tokens=0)["choices"][0]["text"] == ""


def test_prompt_forms(fake):
    ids = [1] + [3 + b for b in b"<ok$|"]
    for prompt in ("<ok$|", ["<ok$|"], ids, [ids]):
        answer = fake.complete(prompt=prompt, max_tokens=9)
        assert [c["text"] for c in answer["choices"]] == ["ok"], prompt
    answer = fake.complete(prompt=["<one$|", ids, ], max_tokens=9)
    assert [c["text"] for c in answer["choices"]] == ["one", "ok"]
    assert [c["index"] for c in answer["choices"]] == [0, 1]
    assert answer["usage"]["prompt_tokens"] == 7 + 6


def test_n_and_best_of(fake):
    answer = fake.complete(prompt=["<a$|", "<b$|"], n=3, best_of=5, max_tokens=4)
    assert [c["text"] for c in answer["choices"]] == ["a"] * 3 + ["b"] * 3
    assert [c["index"] for c in answer["choices"]] == list(range(6))
    assert answer["usage"]["completion_tokens"] == 2 * 5 * 2


def test_choices_are_seeded(fake):
    body = {"prompt": "x", "n": 2, "temperature": 10, "max_tokens": 30, "seed": 7}
    first, second = fake.complete(**body), fake.complete(**body)
    assert [c["text"] for c in first["choices"]] == [c["text"] for c in second["choices"]]
    assert first["choices"][0]["text"] != first["choices"][1]["text"]
    assert first["seed"] == 7


def test_s23_seed_used_is_told(fake):
    """S23: the same seed gives the same text, 20 times, alone and in company, cached and not."""
    first = fake.complete(prompt="x", temperature=10, max_tokens=40)
    body = {"prompt": "x", "temperature": 10, "max_tokens": 40, "seed": first["seed"]}
    for i in range(20):
        assert fake.complete(**body, cache_prompt=i % 2 == 0)["choices"][0]["text"] == first["choices"][0]["text"]
    company = fake.complete(**{**body, "prompt": ["x", "y", "z"]})
    assert company["choices"][0]["text"] == first["choices"][0]["text"]


def test_echo(fake):
    assert fake.complete(prompt="<hi$|", echo=True)["choices"][0]["text"] == "<hi$|hi"
    ids = [3 + b for b in "<é$|".encode()]
    assert fake.complete(prompt=ids, echo=True)["choices"][0]["text"] == "<é$|é"


def test_s37_logprobs(fake):
    """S37: the legacy shape; probabilities of the whole vocabulary's best add up to at most 1."""
    import math
    answer = fake.complete(prompt="<hey$|", logprobs=3, max_tokens=5, temperature=0)
    lp = answer["choices"][0]["logprobs"]
    assert lp["tokens"] == ["h", "e", "y"] and lp["text_offset"] == [0, 1, 2]
    assert all(value <= 0 for value in lp["token_logprobs"])
    for token, value, top in zip(lp["tokens"], lp["token_logprobs"], lp["top_logprobs"]):
        assert top[token] == pytest.approx(value, abs=1e-6)
        assert len(top) == 3 and sum(math.exp(v) for v in top.values()) <= 1.0001
    zero = fake.complete(prompt="<hey$|", logprobs=0, max_tokens=2)["choices"][0]["logprobs"]
    assert zero["top_logprobs"] == [{}, {}] and len(zero["token_logprobs"]) == 2


def test_s37_offsets_count_what_the_text_shows(fake):
    """S37: bytes that are no text are a character each there; the bytes of one character begin where it does."""
    ids = [3 + b for b in b"<\x86a\xc3\xa9\xe9z$|"]
    choice = fake.complete(prompt=ids, logprobs=0, max_tokens=6, temperature=0)["choices"][0]
    assert choice["text"] == "\ufffda\u00e9\ufffdz"
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 2, 3, 3]


def test_s37_logprobs_of_an_echoed_prompt(fake):
    """S37: echo and logprobs score the prompt, over the limit of logits rows of one step too."""
    prompt = "ab" * 70
    answer = fake.complete(prompt=prompt, echo=True, logprobs=1, max_tokens=0)
    lp = answer["choices"][0]["logprobs"]
    assert answer["choices"][0]["text"] == prompt
    assert len(lp["tokens"]) == 141 and lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    assert all(isinstance(value, (int, float)) for value in lp["token_logprobs"][1:])
    assert lp["text_offset"] == [0] + list(range(140))
    assert "".join(lp["tokens"][1:]) == prompt
    both = fake.complete(prompt="<xy$|", echo=True, logprobs=1, max_tokens=3)["choices"][0]["logprobs"]
    assert "".join(both["tokens"][1:]) == "<xy$|xy" and both["text_offset"][-1] == 6


def test_logit_bias_forces_and_bans(fake):
    forced = fake.complete(prompt="<abc$|", logit_bias={str(3 + ord("Z")): 100}, max_tokens=3, temperature=0)
    assert forced["choices"][0]["text"] == "ZZZ"
    banned = fake.complete(prompt="<abc$|", logit_bias={str(3 + ord("a")): -100}, max_tokens=1, temperature=0)
    assert banned["choices"][0]["text"] != "a"


def test_ignore_eos_and_min_tokens(fake):
    assert len(fake.complete(prompt="<ab$|", max_tokens=12, ignore_eos=True, temperature=0)["choices"][0]["text"]) == 12
    for limits in ({"ignore_eos": True}, {"min_tokens": 7}):   # arg-max tokens, and those that logits were drawn for
        same = [fake.complete(prompt="<ab$|", max_tokens=40, temperature=0, **limits, **more) for more in ({}, {"logprobs": 0})]
        assert same[0]["choices"][0]["text"] == same[1]["choices"][0]["text"]
        assert same[0]["usage"]["completion_tokens"] == same[1]["usage"]["completion_tokens"]
    answer = fake.complete(prompt="<ab$|", max_tokens=12, min_tokens=4, temperature=0)
    assert answer["usage"]["completion_tokens"] >= 4


def test_stop_token_ids(fake):
    answer = fake.complete(prompt="<abcdef$|", max_tokens=9, stop_token_ids=[3 + ord("d")])
    assert answer["choices"][0]["text"] == "abc" and answer["choices"][0]["finish_reason"] == "stop"


def test_context_end_is_length(fake):
    answer = fake.complete(prompt="x" * 500, max_tokens=1000)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["prompt_tokens"] == 501
    assert answer["usage"]["completion_tokens"] == 512 - 501 + 1


def test_deadline_gives_what_there_is(start_fake):
    daemon = start_fake("--slots", "1", "--batch", "8", env={"FAKE_STEP_MS": "100"})
    answer = daemon.complete(prompt="<abcd|", max_tokens=400, deadline_ms=2000, temperature=1)
    assert answer["choices"][0]["finish_reason"] == "length" and answer["timings"]["deadline_passed"] is True
    assert 1 <= answer["usage"]["completion_tokens"] < 30
    late = daemon.post("/v1/completions", {"prompt": "x" * 100, "deadline_ms": 50})
    assert late.status_code == 503 and late.json()["error"]["code"] == "deadline_exceeded"


# ---- streams ----

@pytest.mark.parametrize("body", [
    {"prompt": "<hello wörld, 你好 🙂 ok$|", "max_tokens": 60},
    {"prompt": "<hello wörld, 你好 🙂 ok$|", "max_tokens": 60, "temperature": 0},
    {"prompt": "<hello wörld, 你好 🙂 ok|", "max_tokens": 21},
    {"prompt": ["<one$|", "<two$|"], "n": 2, "max_tokens": 9},
    {"prompt": "<abcSTOPdef$|", "stop": "STOP", "max_tokens": 30},
    {"prompt": "<a b$|", "echo": True, "max_tokens": 9},
    {"prompt": "<a b$|", "echo": True, "logprobs": 2, "max_tokens": 9},
    {"prompt": "abc", "temperature": 10, "seed": 11, "max_tokens": 80},
    {"prompt": "abc", "max_tokens": 0},
])
def test_s1_stream_equals_whole(fake, body):
    """S1: characters split over tokens; the joined stream is the whole text, byte for byte."""
    whole = fake.complete(**body)
    chunks, done = stream(fake, **body)
    assert done
    texts, finishes = texts_of(chunks)
    for choice in whole["choices"]:
        assert texts[choice["index"]] == choice["text"]
        assert finishes[choice["index"]] == choice["finish_reason"]
        if choice["logprobs"] is not None:
            joined = {key: [] for key in choice["logprobs"]}
            for chunk in chunks:
                for part in chunk["choices"]:
                    for key in joined:
                        joined[key] += part["logprobs"][key]
            assert joined == choice["logprobs"]
    assert "\ufffd" not in "".join(texts.values()) or body.get("temperature", 1) > 1
    assert len({chunk["id"] for chunk in chunks}) == 1 and len({chunk["created"] for chunk in chunks}) == 1


def test_s1_broken_utf8_is_replaced(fake):
    body = {"prompt": [3 + b for b in b"<a\xe4\xbdb\xff$|"], "max_tokens": 20}
    assert fake.complete(**body)["choices"][0]["text"].count("\ufffd") >= 2
    chunks, _ = stream(fake, **body)
    assert texts_of(chunks)[0][0] == fake.complete(**body)["choices"][0]["text"]


def test_s3_s5_stop_over_every_split(fake):
    """S3, S5: a stop string over several tokens never comes out, whatever stands around it."""
    for before in range(0, 9):
        script = "q" * before + "\n\nUser:" + "rest"
        for temperature in (0, 1):
            body = {"prompt": f"<{script}$|", "stop": ["\n\nUser:"], "max_tokens": 40, "temperature": temperature}
            chunks, _ = stream(fake, **body)
            texts, finishes = texts_of(chunks)
            assert texts[0] == "q" * before and finishes[0] == "stop"
    # A beginning of the stop string that does not go on is text.
    answer = fake.complete(prompt="<a\n\nUse b$|", stop="\n\nUser:", max_tokens=30)
    assert answer["choices"][0]["text"] == "a\n\nUse b"


def test_s9_stream_ends_as_it_should(fake):
    """S9: finish_reason is null until the last chunk, then a word; then [DONE]."""
    chunks, done = stream(fake, prompt="<abc$|")
    assert done
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons[-1] == "stop" and all(reason is None for reason in reasons[:-1])
    assert "timings" in chunks[-1] and "usage" not in chunks[-1]


def test_s10_usage_chunk(fake):
    """S10: include_usage adds one chunk without choices, and null everywhere else."""
    chunks, done = stream(fake, prompt="<abc$|", stream_options={"include_usage": True})
    assert done and chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 4
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_s7_stream_headers(fake):
    """S7: nothing between us and the client may buffer the stream."""
    reply = fake.post("/v1/completions", {"prompt": "x", "stream": True})
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    assert reply.headers["Cache-Control"] == "no-cache" and reply.headers["X-Accel-Buffering"] == "no"


def test_s7_frames_arrive_one_by_one(start_fake):
    """S7: each frame is sent when it is there."""
    import time
    daemon = start_fake(env={"FAKE_STEP_MS": "200"})
    reply = daemon.post("/v1/completions", {"prompt": "x", "stream": True, "temperature": 1, "max_tokens": 10}, stream=True)
    times = [time.monotonic() for _ in reply.iter_lines()]
    assert times[-1] - times[0] > 0.3


def test_s8_pings_while_nothing_comes(start_fake):
    """S8: a silent stream sends comments, the first one before the first token."""
    daemon = start_fake("--ping-interval", "100ms", "--batch", "8", env={"FAKE_STEP_MS": "80"})
    reply = daemon.post("/v1/completions", {"prompt": "x" * 200, "stream": True, "max_tokens": 2})
    assert reply.content.startswith(b":\n\n") and reply.content.count(b":\n\n") >= 4
    chunks, done = read_stream(reply)
    assert done and len(texts_of(chunks)[0][0]) == 2


def test_s21_errors_come_before_the_stream(fake):
    """S20, S21: too long a prompt is refused with both counts, streamed or not, and never cut."""
    for streamed in (False, True):
        for extra, status in ((510, 200), (511, 200), (512, 400)):
            reply = fake.post("/v1/completions", {"prompt": "x" * extra, "stream": streamed, "max_tokens": 1})
            assert reply.status_code == status, (extra, reply.text)
        error = reply.json()["error"]
        assert error["type"] == "exceed_context_size_error" and error["param"] == "prompt"
        assert error["n_prompt_tokens"] == 513 and error["n_ctx"] == 512


def test_faults_of_the_engine_hit_one_request(fake):
    """A step with NaN is 500 for the request that it belongs to; the others and the next are right."""
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        bad = [pool.submit(fake.post, "/v1/completions", {"prompt": "bad!", "max_tokens": 30}) for _ in range(2)]
        good = [pool.submit(fake.post, "/v1/completions", {"prompt": "<abc|", "max_tokens": 30}) for _ in range(4)]
    for future in bad:
        assert future.result().status_code == 500
        error = future.result().json()["error"]
        assert error["type"] == "server_error" and error["code"] == "numeric_error" and "NaN" in error["message"]
    for future in good:
        assert future.result().status_code == 200 and future.result().json()["choices"][0]["text"] == "abc" * 10
    assert fake.post("/v1/completions", {"prompt": "~~"}).status_code == 500
    assert fake.complete(prompt="<ok$|")["choices"][0]["text"] == "ok"


def test_error_in_a_started_stream(start_fake):
    daemon = start_fake("--ping-interval", "100ms", "--batch", "8", env={"FAKE_STEP_MS": "150"})
    reply = daemon.post("/v1/completions", {"prompt": "x" * 100 + "!", "stream": True})
    assert reply.status_code == 200
    frames = [f for f in reply.text.split("\n\n") if f.startswith("data: ")]
    assert json.loads(frames[-1][6:])["error"]["code"] == "numeric_error" and "[DONE]" not in reply.text


def test_lost_device_is_503_and_comes_back(start_fake):
    """Its jobs get 503 with its name, it is opened again, and all is as before: without a new process."""
    daemon = start_fake(env={"FAKE_FAILED_REOPENS": "3"})
    assert daemon.complete(prompt="<a$|")["choices"][0]["text"] == "a"
    reply = daemon.post("/v1/completions", {"prompt": "^^"})
    assert reply.status_code == 503 and reply.json()["error"]["code"] == "device_lost"
    assert "fake 0" in reply.json()["error"]["message"]
    daemon.until_health(lambda h: h["status"] == "degraded" and "cannot be opened" in h["devices"][0].get("error", ""))
    assert daemon.get("/health").status_code == 503
    reply = daemon.post("/v1/completions", {"prompt": "x"})
    assert reply.status_code == 503 and "fake 0" in reply.json()["error"]["message"]
    health = daemon.until_health(lambda h: h["status"] == "ok")
    assert "error" not in health["devices"][0]
    assert daemon.complete(prompt="<a$|")["choices"][0]["text"] == "a"
    assert 'oinfer_device_losses_total{device="0"} 1' in daemon.get("/metrics").text


def test_a_lost_device_leaves_the_others_alone(start_fake):
    daemon = start_fake("--device", "all", env={"FAKE_FAILED_REOPENS": "0"})
    daemon.until_health(lambda h: h["status"] == "ok")
    for _ in range(3):  # whichever device it is that gets it
        reply = daemon.post("/v1/completions", {"prompt": "^^"})
        assert reply.status_code == 503 and reply.json()["error"]["code"] == "device_lost"
        for _ in range(4):
            assert daemon.complete(prompt="<a$|")["choices"][0]["text"] == "a"
        daemon.until_health(lambda h: h["status"] == "ok")


def test_the_others_go_on_while_a_device_is_lost(start_fake):
    """It cannot be opened again: what ran on the other device is finished, and that one takes all that comes."""
    import concurrent.futures
    daemon = start_fake("--device", "all", "--slots", "2", env={"FAKE_FAILED_REOPENS": "1000000", "FAKE_STEP_MS": "10"})
    daemon.until_health(lambda h: h["status"] == "ok")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(daemon.complete, prompt="x", max_tokens=200, temperature=1) for _ in range(2)]
        assert poll(lambda: {slot["device"] for slot in daemon.get("/slots").json() if slot["is_processing"]} == {"fake 0", "fake 1"})
        assert daemon.post("/v1/completions", {"prompt": "^^"}).status_code == 503
        health = daemon.until_health(lambda h: "lost" in [device["status"] for device in h["devices"]])
        lost = [device["status"] for device in health["devices"]].index("lost")
        assert health["devices"][1 - lost]["status"] == "ready" and health["status"] == "degraded"
        for i in range(12):
            answer = daemon.complete(prompt=f"<{i}$|")
            assert answer["choices"][0]["text"] == str(i) and answer["timings"]["device"] == f"fake {1 - lost}"
        outcomes = [future.exception() for future in running]
        assert outcomes.count(None) == 1, outcomes  # of two long ones that on the other device
    assert daemon.get("/health").json()["devices"][lost]["status"] == "lost"


def test_cache_prompt(fake):
    body = {"prompt": "cache me if you can", "max_tokens": 1, "temperature": 0}
    fake.complete(**body)
    again = fake.complete(**body)
    assert again["timings"]["cache_n"] == 19 and again["timings"]["prompt_n"] == 1
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 19
    assert fake.complete(**body, cache_prompt=False)["timings"]["cache_n"] == 0


def test_tokenize_and_detokenize(fake):
    reply = fake.post("/tokenize", {"content": "aé</s>"}).json()
    assert reply["tokens"] == [3 + ord("a"), 3 + 0xC3, 3 + 0xA9, 2] and reply["count"] == 4
    assert fake.post("/tokenize", {"content": "a", "add_special": True}).json()["tokens"] == [1, 3 + ord("a")]
    plain = fake.post("/tokenize", {"content": "</s>", "parse_special": False}).json()["tokens"]
    assert plain == [3 + b for b in b"</s>"]  # S39: text stays text
    pieces = fake.post("/tokenize", {"content": "é", "with_pieces": True}).json()["tokens"]
    assert pieces == [{"id": 3 + 0xC3, "piece": [0xC3]}, {"id": 3 + 0xA9, "piece": [0xA9]}]
    assert fake.post("/detokenize", {"tokens": [3 + b for b in "wörld".encode()]}).json()["content"] == "wörld"
    assert fake.post("/detokenize", {"tokens": []}).json()["content"] == ""
    bad = fake.post("/detokenize", {"tokens": [99999]})
    assert bad.status_code == 400 and bad.json()["error"]["param"] == "tokens"


def test_unknown_fields_are_listed(fake):
    reply = fake.post("/v1/completions", {"prompt": "x", "foo": 1, "bär": 2, "stream_options": {"baz": 1}})
    assert reply.status_code == 200
    assert reply.headers["X-OInfer-Ignored"] == "foo, b??r, stream_options.baz"
    assert "X-OInfer-Ignored" not in fake.post("/v1/completions", {"prompt": "x", "user": "me"}).headers
    streamed = fake.post("/v1/completions", {"prompt": "x", "foo": 1, "stream": True})
    assert streamed.headers["X-OInfer-Ignored"] == "foo"
