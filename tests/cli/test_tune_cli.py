#!/usr/bin/env python3
"""`oinfer tune`: wrong usage, a search and its files, tuned values in model files. test_tune_cli.py OINFER"""
import json
import os
import pty
import re
import stat
import subprocess
import sys
import tempfile
import unittest

import gguf
import numpy as np

OINFER = sys.argv.pop(1)
RECORD = {"op": "linear", "variant": "rows", "dtype": "q4_0", "shape": {"m": 256, "k": 256, "n_tokens": 1}, "device": "Some device",
          "driver": "1", "source": "0123456789abcdef", "tuner": 1, "settings": {"ROWS": 2, "LWS": 64}, "ns": 5000, "standard_ns": 6000,
          "work": 131072}
KEY = "oinfer.tune.records"


def oinfer(*args):
    return subprocess.run([OINFER, "tune", *args], capture_output=True, text=True, timeout=600)


class Tune(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write_file(self, *records):
        with open(self.path("tune.json"), "w") as f:
            json.dump({"format": "oinfer.tune", "version": 1, "records": records}, f)
        return self.path("tune.json")

    def make(self):
        done = subprocess.run([OINFER, "mkmodel", "--shape", "tiny", "--dtype", "q4_0", "-o", self.path("m.gguf")], timeout=120)
        self.assertEqual(done.returncode, 0)
        return self.path("m.gguf")

    def test_wrong_usage(self):
        for args, word in ((["--op", "matmul", "--model", "x"], "one of --op, --model and --embed"), ([], "one of"),
                           (["--op", "matmul", "--search", "x"], '"x", expected bayes'), (["--op", "matmul", "--budget", "0"], "1 to 256"),
                           (["--op", "matmul", "--passes", "0"], "--passes")):
            done = oinfer(*args)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(word, done.stderr)
        for args, word in ((["--op", "warp"], '"warp"'), (["--op", "matmul", "--shape", "m=4,n=4"], "k is missing"),
                           (["--op", "matmul", "--shape", "m=4,n=4,k=0"], "k is 0, expected 1 to"),
                           (["--op", "gemv", "--shape", "m=4,k=4", "--dtype", "q9"], '"q9"'),
                           (["--op", "matmul", "--shape", "m=4,n=4,k=4", "--device", "nowhere"], "nowhere"),
                           (["--embed", self.path("absent")], "No such file")):
            done = oinfer(*args)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertIn(word, done.stderr)

    def test_a_search_is_kept(self):
        args = ["--op", "softmax", "--shape", "rows=16,len=100", "--variant", "online", "--budget", "2", "--file", self.path("t.json"),
                "--record", self.path("points.tsv")]
        done = oinfer(*args)
        if "no variant online" in done.stderr:
            self.skipTest("no OpenCL device")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("softmax f32 rows=16,len=100,log=0,mask=0 online LWS=", done.stdout)
        self.assertNotIn("\r", done.stderr)   # no bar where there is no terminal
        self.assertEqual(stat.S_IMODE(os.stat(self.path("t.json")).st_mode), 0o600)
        with open(self.path("t.json")) as f:
            record, = json.load(f)["records"]
        self.assertEqual((record["op"], record["variant"], list(record["settings"])), ("softmax", "online", ["LWS"]))
        with open(self.path("points.tsv")) as f:
            rows = [line.rstrip("\n").split("\t") for line in f]
        self.assertEqual(len(rows), 3)
        times = [float(row[5]) for row in rows[1:]]
        self.assertAlmostEqual(min(times), record["ns"], delta=1)

    def test_a_record_that_was_cut_short_is_continued(self):
        """Its whole lines count as measured; the piece of a line and the points that are missing are made anew."""
        shape = "rows=16,len=100,log=0,mask=0"
        head = "op\tvariant\tdtype\tshape\tsettings\tns\treason\n"
        known = [f"softmax\tonline\tf32\t{shape}\tLWS={lws}\t{ns}\t{why}\n" for lws, ns, why in ((32, 7, ""), (64, 0, "wrong: y"))]
        other = f"softmax\tvec4\tf32\t{shape}\tLWS=128\t1\t\n"
        with open(self.path("points.tsv"), "w") as f:
            f.write(head + other + "".join(known) + f"softmax\tonline\tf32\t{shape}\tLWS=128\t1")
        args = ["--op", "softmax", "--shape", "rows=16,len=100", "--variant", "online", "--search", "grid", "--file",
                self.path("t.json"), "--record", self.path("points.tsv")]
        done = oinfer(*args)
        if "no variant online" in done.stderr:
            self.skipTest("no OpenCL device")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("online LWS=32 0.007 us", done.stdout)
        with open(self.path("points.tsv")) as f:
            lines = f.readlines()
        self.assertEqual(lines[:4], [head, other, *known])
        self.assertEqual([line.split("\t")[4] for line in lines[4:]], ["LWS=128", "LWS=256"])
        self.assertTrue(all(float(line.split("\t")[5]) > 100 for line in lines[4:]), lines)
        before = lines
        self.assertEqual(oinfer(*args).returncode, 0)
        with open(self.path("points.tsv")) as f:
            self.assertEqual(f.readlines(), before)
        for text, word in (("other\n", "not a file of recorded points"), (head + "softmax\tonline\n", "line 2 is no recorded point")):
            with open(self.path("points.tsv"), "w") as f:
                f.write(text)
            done = oinfer(*args)
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stderr)
            with open(self.path("points.tsv")) as f:
                self.assertEqual(f.read(), text)

    def test_a_model_is_tuned_to_the_end(self):
        """All that its plans choose by shape, with a bar and an estimate on a terminal; the values then go into the file."""
        model, master_slave = self.make(), pty.openpty()
        done = subprocess.Popen([OINFER, "tune", "--model", model, "--budget", "1", "--file", self.path("t.json")],
                                stdout=subprocess.PIPE, stderr=master_slave[1], text=True)
        os.close(master_slave[1])
        shown = b""
        while True:
            try:
                part = os.read(master_slave[0], 65536)
            except OSError:   # the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(master_slave[0])
        out, _ = done.communicate(timeout=600)
        if b"ref" in shown and not out:
            self.skipTest("no OpenCL device")
        self.assertEqual(done.returncode, 0, shown)
        bars = re.findall(rb"\r\[([#.]{20})\] (\d+)/(\d+)  (\d+) s left  linear (\w+)  best", shown)
        self.assertEqual((bars[-1][0], bars[-1][1], bars[-1][3]), (b"#" * 20, bars[-1][2], b"0"), shown)
        points = [int(bar[1]) for bar in bars]
        self.assertEqual(points, list(range(1, len(points) + 1)))
        with open(self.path("t.json")) as f:
            records = json.load(f)["records"]
        self.assertEqual(len(records), len(out.splitlines()))
        for n_tokens in (1, 8, 512):   # decoding, a few, a prompt
            self.assertIn({"m": 256, "k": 256, "n_tokens": n_tokens}, [record["shape"] for record in records])
        done = oinfer("--embed", model, "--file", self.path("t.json"))
        self.assertEqual((done.returncode, done.stdout), (0, f"{model}: {len(records)} tuned values\n"), done.stderr)

    def test_embedding(self):
        """The gguf package reads the result; tensors are the same bytes, aligned; other key-values are the same."""
        model, out = self.make(), self.path("out.gguf")
        os.chmod(model, 0o640)
        other = {**RECORD, "dtype": "q8_0"}   # the model has no such weights
        done = oinfer("--embed", model, "--file", self.write_file(RECORD, other), "-o", out)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{out}: 1 tuned values\n", ""))
        self.assertEqual(stat.S_IMODE(os.stat(out).st_mode), 0o640)
        before, after = gguf.GGUFReader(model), gguf.GGUFReader(out)
        self.assertEqual(set(after.fields), set(before.fields) | {KEY})
        for key, field in before.fields.items():
            if not key.startswith("GGUF."):
                self.assertEqual(field.contents(), after.fields[key].contents(), key)
        line, = after.fields[KEY].contents()
        self.assertEqual(line.split("\t")[:4], ["linear", "rows", "q4_0", "m=256,k=256,n_tokens=1"])
        self.assertEqual(after.data_offset % after.alignment, 0)
        self.assertEqual([(t.name, t.tensor_type, list(t.shape)) for t in before.tensors],
                         [(t.name, t.tensor_type, list(t.shape)) for t in after.tensors])
        for a, b in zip(before.tensors, after.tensors):
            self.assertTrue(np.array_equal(a.data, b.data), a.name)
            self.assertEqual((b.data_offset - after.data_offset), (a.data_offset - before.data_offset))
        # in place; another device's value joins the first, a newer one replaces it
        newer, joined = {**RECORD, "ns": 4000}, {**RECORD, "device": "Another"}
        done = oinfer("--embed", out, "--file", self.write_file(newer, joined))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = gguf.GGUFReader(out).fields[KEY].contents()
        self.assertEqual(sorted((line.split("\t")[4], line.split("\t")[9]) for line in lines),
                         [("Another", "5000 6000"), ("Some device", "4000 6000")])
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["m.gguf", "out.gguf", "tune.json"])
        shown = subprocess.run([OINFER, "inspect", out], capture_output=True, text=True, timeout=120)
        self.assertEqual(shown.returncode, 0)
        self.assertIn(KEY, shown.stdout)

    def test_embedding_is_refused(self):
        model = self.make()
        with open(model, "rb") as f:
            before = f.read()
        done = oinfer("--embed", model, "--file", self.path("absent.json"))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("nothing was tuned", done.stderr)
        done = oinfer("--embed", model, "--file", self.write_file(RECORD), "-o", "/nonexistent/out.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("No such file", done.stderr)
        with open(model, "rb") as f:
            self.assertEqual(f.read(), before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[1:])
