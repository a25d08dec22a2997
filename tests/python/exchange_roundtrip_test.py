"""From an engine's kernels to the file that it reads, and back: tune with a host, export, import."""

import importlib.util
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import hosts_test

MAXIMUM = 32


def taken_by_the_engine(table, tokens):
    """The entry that vLLM runs: its key is nearest, of two the first in the file."""
    keys = [key for key in table if key.isdecimal()]
    return table[min(keys, key=lambda key: abs(int(key) - tokens))]


def entry(rows):
    tile = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}
    return {**tile, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}


class RoundTrip(hosts_test.HostTest):
    def tuned(self, *flags):
        out = self.folder / "tuned.json"
        host = self.host("engine_like.py")
        run = self.run_program("tune", host, "--tokens", f"4,{MAXIMUM}", "--budget", "20s", "--out", out, *flags)
        return run, out

    def exported(self, plan):
        folder = self.folder / "configs"
        line = ["export", "--vllm", folder, "--config", plan, "--device-name", "NVIDIA H200", "--json"]
        run = self.run_any(*line)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        (file,) = folder.glob("*.json")
        return file

    def test_the_engine_runs_what_was_decided_at_every_size(self):
        run, plan = self.tuned()
        self.assertEqual(run.returncode, 0, run.stderr)
        decisions = json.loads(plan.read_text())["plans"][0]["decisions"]
        file = self.exported(plan)
        self.assertEqual(file.name, "E=8,N=32,device_name=NVIDIA_H200.json")
        table = json.loads(file.read_text())
        for tokens in range(1, MAXIMUM + 1):
            (decision,) = [d for d in decisions if d["from"] <= tokens <= d["to"]]
            wanted = 16 if tokens <= 8 else 64
            if not decision["default"]:
                wanted = decision["stages"][0]["tactic"]["BLOCK_SIZE_M"]
            self.assertEqual(taken_by_the_engine(table, tokens), entry(wanted), tokens)
        self.assertTrue(any(not decision["default"] for decision in decisions), "nothing was tuned")

    def imported(self, table):
        file = self.folder / "E=8,N=32,device_name=NVIDIA_H200.json"
        file.write_text(json.dumps(table))
        run, _ = self.tuned("--import", file)
        return run

    def test_an_old_file_competes_and_is_named_where_it_is_slower(self):
        # 128 is none of what the host searches.
        run = self.imported({"4": entry(128), str(MAXIMUM): entry(32)})
        self.assertEqual(run.returncode, 0, run.stderr)
        answer = json.loads(run.stdout)
        (words,) = [line for line in answer["warnings"] if "for 4 tokens" in line]
        # By how much depends on what else the machine does.
        self.assertRegex(words, r"takes [1-9]\.\d+ times as long as the default")
        self.assertFalse([line for line in answer["warnings"] if f"for {MAXIMUM} tokens" in line])
        for bucket in answer["buckets"]:
            self.assertNotEqual(bucket["stages"][0]["tactic"]["BLOCK_SIZE_M"], 128)

    def test_a_file_of_other_kernels_is_refused(self):
        run = self.imported({"4": {**entry(32), "OF_TOMORROW": 1}})
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("OF_TOMORROW", json.loads(run.stdout)["error"]["message"])
        run = self.imported({"4": "words"})
        self.assertNotEqual(run.returncode, 0)


if __name__ == "__main__":
    if not importlib.util.find_spec("numpy"):
        print(f"skipped: {sys.executable} has no NumPy (Debian: python3-numpy)")
        sys.exit(77)
    unittest.main()
