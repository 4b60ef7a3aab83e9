#!/usr/bin/env python3
"""`oinfer` as a user meets it: help, exit statuses, inspect and mkmodel. test_cli.py OINFER"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

OINFER = sys.argv.pop(1)


def oinfer(*args):
    return subprocess.run([OINFER, *args], capture_output=True, text=True, timeout=120)


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def make(self, shape="tiny", dtype="q4_0", name="m.gguf"):
        done = oinfer("mkmodel", "--shape", shape, "--dtype", dtype, "-o", self.path(name))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return self.path(name)

    def assert_refused(self, done, status, *words):
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)

    def test_help_and_version(self):
        done = oinfer("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for command in ("inspect", "mkmodel"):
            self.assertIn(command, done.stdout)
            self.assertIn("usage: oinfer " + command, oinfer(command, "--help").stdout)
        self.assertRegex(oinfer("--version").stdout, r"^oinfer \d+\.\d+\.\d+\n$")

    def test_wrong_usage(self):
        self.assert_refused(oinfer(), 2, "usage: oinfer COMMAND")
        self.assert_refused(oinfer("explode"), 2, 'unknown command "explode"')
        self.assert_refused(oinfer("inspect"), 2, "FILE is missing", "usage")
        self.assert_refused(oinfer("inspect", "a", "b"), 2, 'unknown argument "b"', "usage")
        self.assert_refused(oinfer("inspect", "--all"), 2, 'unknown argument "--all"', "usage")
        for name, value in (("-n", "few"), ("--n-predict", "-1"), ("--temp", "hot"), ("--seed", "x")):
            self.assert_refused(oinfer("complete", name, value), 2, f'complete: {name} "{value}" is not a ')
        self.assert_refused(oinfer("complete", "-n"), 2, 'no value after "-n"')
        self.assert_refused(oinfer("mkmodel"), 2, "--shape is missing")
        self.assert_refused(oinfer("mkmodel", "--shape", "tiny", "-o", "x"), 2, "--dtype is missing")
        self.assert_refused(oinfer("mkmodel", "--shape"), 2, 'no value after "--shape"')
        self.assert_refused(oinfer("mkmodel", "--size", "7"), 2, 'unknown argument "--size"')

    def test_mkmodel_names_what_is_wrong(self):
        def run(shape, dtype):
            return oinfer("mkmodel", "--shape", shape, "--dtype", dtype, "-o", self.path("m.gguf"))
        self.assert_refused(run("13b", "q4_0"), 2, '"13b"', "135m 1.1b 7b tiny")
        self.assert_refused(run("tiny,n_layer=0", "q4_0"), 2, "n_layer", "1 .. 512")
        self.assert_refused(run("tiny", "q3"), 2, '"q3"', "q4_k_m")
        self.assertEqual(os.listdir(self.folder.name), [])
        done = oinfer("mkmodel", "--shape", "tiny", "--dtype", "q4_0", "-o", "/nonexistent/m.gguf")
        self.assert_refused(done, 1, "/nonexistent/m.gguf", "No such file")

    def test_inspect(self):
        path = self.make("tiny,n_layer=3,n_vocab=300", "q4_k_m")
        self.assertEqual(os.listdir(self.folder.name), ["m.gguf"])
        done = oinfer("inspect", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertIn("GGUF version 3, %d bytes" % os.path.getsize(path), lines[0])
        self.assertTrue(any("llama.block_count" in line and line.endswith(" 3") for line in lines))
        tokens = [line for line in lines if "tokenizer.ggml.tokens" in line]
        self.assertIn('string[300] "<unk>" "<s>" "</s>" "<0x00>" ...', tokens[0])
        tensors = [line for line in lines if ".weight" in line]
        self.assertEqual(len(tensors), 1 + 3 * 9 + 2)
        self.assertTrue(any("blk.2.ffn_down.weight" in t and "q6_k" in t and "512 x 256" in t
                            for t in tensors))
        self.assertRegex(lines[-1], r"weights in \d+ bytes: [45]\.\d\d bits per weight")

    def test_inspect_bad_files(self):
        path = self.make()
        with open(path, "r+b") as f:
            f.truncate(os.path.getsize(path) // 2)
        self.assert_refused(oinfer("inspect", path), 1, "oinfer inspect: " + path, "cut short")
        with open(path, "wb") as f:
            f.write(b"<!DOCTYPE html>")
        self.assert_refused(oinfer("inspect", path), 1, "not a GGUF file")
        self.assert_refused(oinfer("inspect", self.path("absent")), 1, "No such file")
        self.assert_refused(oinfer("inspect", self.folder.name), 1, "not a regular file")

    def test_bench(self):
        """Rates of both tests, also of several sequences at once, as JSON; limits are named."""
        model = self.make()
        done = oinfer("bench", "-m", model, "-p", "8", "-n", "4", "-r", "2", "--sequences", "3", "--breakdown",
                      "--device", "host", "-o", "json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = json.loads(done.stdout)
        self.assertEqual([row["test"] for row in rows], ["pp8", "tg4 x 3"])
        for row in rows:
            self.assertGreater(row["avg_ts"], 0)
            self.assertGreater(row["median_ts"], 0)
            self.assertTrue(0 < row["kernel_us"] <= row["token_us"], row)
            self.assertGreater(row["launches_per_token"], 0)
        self.assertTrue(all("layers_streamed" not in row for row in rows), rows)
        self.assert_refused(oinfer("bench", "-m", model, "--memory-limit", "much"), 2, "much", "a size such as 8MiB")
        self.assert_refused(oinfer("bench", "-m", model, "--sequences", "65"), 2, "65", "1 to 64")
        self.assert_refused(oinfer("bench", "-m", model, "-r", "0"), 2, "bench: -r is 0, 1 to 100")
        self.assert_refused(oinfer("bench", "-m", model, "-o", "xml"), 2, 'bench: -o is "xml", not md, csv or json')

    def test_bench_of_layers_that_stream(self):
        """A limit just below the whole: the rows say how many layers stream, and at what rate."""
        model = self.make("n_layer=6,n_embd=128,n_ff=512,n_head=4,n_head_kv=2,n_vocab=512,n_ctx=512")
        run = ("bench", "-m", model, "-p", "8", "-n", "4", "-r", "1", "-o")
        row = json.loads(oinfer(*run, "json").stdout)[0]
        limit = str(row["weights_bytes"] + row["kv_bytes"] + row["scratch_bytes"] - 1)
        self.assert_refused(oinfer(*run, "json", "--memory-limit", "1KiB"), 1, "with all layers streaming")
        done = oinfer(*run, "json", "--memory-limit", limit)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for row in json.loads(done.stdout):
            self.assertEqual(row["layers"], 6)
            self.assertTrue(3 <= row["layers_streamed"] <= 6, row)
            self.assertGreater(row["stream_bytes"], 0)
            self.assertGreater(row["stream_gb_s"], 0)
            self.assertGreater(row["bus_gb_s"], 0)
            self.assertEqual((row["layers_pinned"], row["layers_staged"]), (0, 0), row)
        table = oinfer(*run, "md", "--memory-limit", limit).stdout
        self.assertRegex(table, r"tg4: [3-6] of 6 layers stream, [\d.]+ MB a run \| [\d.]+ GB/s \| [\d.]+ % of [\d.]+ GB/s, 0 pinned, 0 staged")
        header, *lines = oinfer(*run, "csv", "--memory-limit", limit).stdout.splitlines()
        for line in lines:
            self.assertIn(dict(zip(header.split(","), line.split(",")))["layers_streamed"], "3456")

    def test_devices(self):
        """The same devices as a table and as JSON, `host` the last; what each can do; one is found by its name."""
        done = oinfer("devices", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        devices = json.loads(done.stdout)["devices"]
        self.assertEqual([d["index"] for d in devices], list(range(len(devices))))
        self.assertEqual((devices[-1]["kind"], devices[-1]["caps"]), ("host", []))
        table = oinfer("devices").stdout
        for device in devices:
            self.assertIn(f'{device["index"]}: {device["name"]}\n', table)
            self.assertGreater(device["memory_bytes"], 0)
            if device["usable"] and device["kind"] != "host":
                self.assertGreater(device["compute_units"], 0)
                self.assertNotEqual(device["driver"], "")
                for cap in device["caps"]:
                    self.assertIn(f" {cap}", table)
        self.assert_refused(oinfer("devices", "--xml"), 2, 'unknown argument "--xml"')
        self.assert_refused(oinfer("complete", "-m", self.make(), "-p", "x", "--device", "nowhere"), 1, "nowhere")

    def test_complete(self):
        """The text is whole before the timings begin; a forced variant of no operator is named."""
        command = [OINFER, "complete", "-m", self.make(), "-p", "x", "-n", "3", "--device", "host"]
        done = subprocess.run([*command, "--timings"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"\nprompt: ", done.stdout)
        done = oinfer(*command[1:], "--force", "bend=plain")
        self.assert_refused(done, 1, '"bend=plain"', 'no operator "bend"')


if __name__ == "__main__":
    unittest.main()
