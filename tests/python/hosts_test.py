"""Hosts that misbehave under the real program: each fault is named, costs one candidate, and a right one wins."""

import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
HOSTS = HERE / "hosts"
BINARY = os.environ.get("MOETUNE_BINARY", "moetune")
PYTHON = os.environ.get("MOETUNE_PYTHON", sys.executable)

TINY = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "torch_dtype": "bfloat16",
}

# What the program says of each.
REASONS = {
    "does_not_compile": "a tile of 3 is no power of two",
    "crashes": "signal 11",
    "aborts": "signal 6",
    "hangs": "took longer than",
    "exits": "ended with status 0",
    "raises": "ZeroDivisionError",
    "allocates": "out of memory|MemoryError|allocate",
    "not_a_number": "not finite",
    "slightly_wrong": "row",
    "past_the_end": "wrote past the end of output",
    "changes_its_input": "changed its input hidden",
    "wrong_shape": "uint16 [",
    "wrong_type": "float32",
    "two_outputs": "2 outputs",
    "a_word": "str",
    "unwritten": "not finite",
    "half_written": "not finite",
}


class HostTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "config.json").write_text(json.dumps(TINY))

    def run_program(self, command, host, *flags, timeout=240):
        return self.run_any(command, self.folder / "config.json", "--device", "cpu", "--host", host, *flags, "--json",
                            timeout=timeout)

    def run_any(self, *line, timeout=240):
        # Each with a journal of its own: what a run before has spent would count.
        cache = tempfile.mkdtemp(dir=self.folder)
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        return subprocess.run([BINARY, *line], capture_output=True, text=True, timeout=timeout, check=False, env=environment)

    def host(self, name, *arguments):
        return " ".join([PYTHON, str(HOSTS / name), *arguments])


class Unruly(HostTest):
    def test_every_fault_is_named_and_a_right_kernel_wins(self):
        run = self.run_program("tune", self.host("unruly.py"), "--tokens", "5,16", "--budget", "60s", "--run-deadline", "2s")
        self.assertEqual(run.returncode, 0, run.stderr)
        answer = json.loads(run.stdout)
        reasons = {re.search(r"kind=(\w+)", item["tactic"]).group(1): item["reason"] for item in answer["rejected"]}
        for kind, words in REASONS.items():
            self.assertIn(kind, reasons, sorted(reasons))
            self.assertRegex(reasons[kind].replace("[", "."), words.replace("[", "."), kind)
        for bucket in answer["buckets"]:
            (stage,) = bucket["stages"]
            self.assertIn(stage["tactic"]["kind"], ("fast", "floods", "scribbles"), bucket)
            self.assertGreater(bucket["speedup"], 1.5)


class Crooked(HostTest):
    # Of the program's error, at once.
    REFUSED = {
        "other_protocol": "protocol 99",
        "no_hello": "no helper of moetune",
        "ends_at_once": "no licence found",
        "no_runners": "runners",
        "no_default": "defaults",
        "default_of_other_parameters": "no point of its space",
        "default_from_two_on": "from",
        "values_that_are_none": "values",
        "endless_space": "points",
        "dies_at_describe": "status 3",
    }
    # Of the default, which then cannot be tuned against.
    DEFAULT_FAILS = {
        "no_rows": "512 bytes",
        "no_file": "no rows came",
        "words_on_the_socket": "no answer",
        "another_requests_answer": "was not asked",
        "no_samples": "no sample came back",
        "no_times": "a time of nan us",
        "times_of_zero": "a time of 0 us",
    }
    def tuned(self, kind):
        begin = time.monotonic()
        run = self.run_program("tune", self.host("crooked.py", kind), "--tokens", "4", "--budget", "5s", "--run-deadline", "1s")
        self.assertLess(time.monotonic() - begin, 60, kind)
        return run.returncode, json.loads(run.stdout)

    def test_what_makes_no_sense_is_an_error_that_says_what(self):
        for kind, words in {**self.REFUSED, **self.DEFAULT_FAILS}.items():
            with self.subTest(kind):
                status, answer = self.tuned(kind)
                self.assertEqual(status, 1, answer)
                self.assertRegex(answer["error"]["message"], words)

    def test_a_default_that_hangs_stays_and_is_told_whatever_it_says_meanwhile(self):
        for kind in ("says_nothing_at_check", "talks_for_ever", "floods_the_socket"):
            with self.subTest(kind):
                status, answer = self.tuned(kind)
                self.assertEqual(status, 0, answer)
                self.assertEqual(answer["buckets"][0]["provenance"], "default")
                self.assertRegex(" ".join(answer["warnings"]), "took longer than 1 s")

    def test_a_stop_ends_a_host_that_never_stops_talking(self):
        line = [BINARY, "tune", self.folder / "config.json", "--device", "cpu", "--host", self.host("crooked.py", "floods_the_socket"),
                "--tokens", "4", "--no-journal", "--out", self.folder / "out.json"]
        program = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(3)
        begin = time.monotonic()
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130)
        self.assertLess(time.monotonic() - begin, 20)

    def test_limits_that_are_lower_already_are_no_obstacle(self):
        host = f"sh -c 'ulimit -c 0; exec {self.host('crooked.py', 'nothing')} \"$@\"' host"
        run = self.run_program("tune", host, "--tokens", "4", "--budget", "2s")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_a_comparison_goes_on_without_who_fails(self):
        for kind, words in {"fails_when_measured": "illegal instruction", "dies_when_measured": "status 9",
                            "times_of_zero": "a time of 0 us", "no_rows": "512 bytes"}.items():
            with self.subTest(kind):
                hosts = f"{self.host('crooked.py', kind)},numpy"
                run = self.run_program("compare", hosts, "--tokens", "4,8", "--budget", "2s")
                rows = json.loads(run.stdout)["rows"]
                self.assertEqual([row["fastest"] for row in rows], ["numpy default"] * 2)
                self.assertRegex(rows[0]["times"][0]["failed"], words)

    def test_excluded_points_that_are_not_there_are_not_believed(self):
        run = self.run_program("tune", self.host("crooked.py", "excludes_what_is_not_there"), "--tokens", "4", "--budget", "2s")
        self.assertEqual(run.returncode, 0, run.stderr)
        warnings = " ".join(json.loads(run.stdout)["warnings"])
        self.assertRegex(warnings, r"crooked.moe: the host cannot say what is excluded at \d+ tokens: .*points")

    def test_a_host_that_is_missing_is_named(self):
        for host in ("of-tomorrow", "/nowhere/host.py", "false"):
            run = self.run_program("tune", host, "--tokens", "4", "--budget", "2s")
            self.assertEqual(run.returncode, 1)
            self.assertIn(host, json.loads(run.stdout)["error"]["message"])


class Conformance(unittest.TestCase):
    def checked(self, *command):
        line = [PYTHON, "-m", "moetune.conformance", "--patience", "30", "--", *command]
        run = subprocess.run(line, capture_output=True, text=True, timeout=240, check=False)
        return run.returncode, run.stdout

    def test_the_host_in_numpy_conforms(self):
        status, text = self.checked(PYTHON, "-m", "moetune.host", "numpy")
        self.assertEqual(status, 0, text)
        self.assertIn(" 0 failed", text)

    def test_what_does_not_is_found(self):
        for kind, name in {
            "other_protocol": "hello",
            "no_default": "describe_is_a_space_with_a_default",
            "excludes_what_is_not_there": "exclude_names_points_of_the_space",
            "no_rows": "rows_are_those_asked_for",
            "no_file": "the_default_is_right_at_every_size",
            "no_samples": "measure_gives_a_time_for_each",
            "times_of_zero": "measure_gives_a_time_for_each",
            "another_requests_answer": "phases_are_told",
        }.items():
            with self.subTest(kind):
                line = ["--only", name, "--", PYTHON, str(HOSTS / "crooked.py"), kind]
                run = subprocess.run([PYTHON, "-m", "moetune.conformance", "--patience", "30", *line],
                                     capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(run.returncode, 1, run.stdout)
                self.assertIn(f"FAILED {name}", run.stdout)


if __name__ == "__main__":
    if not importlib.util.find_spec("numpy"):
        print(f"skipped: {sys.executable} has no NumPy (Debian: python3-numpy)")
        sys.exit(77)
    unittest.main()
