"""Runs the moetune binary ($MOETUNE_BINARY) and checks what every command promises."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BINARY = os.environ.get("MOETUNE_BINARY", "moetune")

# A layer so small that measuring it takes a second.
TINY = {
    "model_type": "qwen3_moe",
    "hidden_act": "silu",
    "hidden_size": 64,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "torch_dtype": "bfloat16",
}


class Run:
    """One finished run: exit code, stdout, stderr."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        return json.loads(self.out)


class ProgramTest(unittest.TestCase):
    """Gives each test a folder of its own, with a tiny model, and a cache that is nobody else's."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.cache = self.folder / "cache"
        self.model = self.write_model("tiny", TINY)

    def write_model(self, name, config):
        (self.folder / name).mkdir()
        (self.folder / name / "config.json").write_text(json.dumps(config))
        return str(self.folder / name)

    def environment(self, **changes):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MOETUNE_")}
        environment.update(XDG_CACHE_HOME=str(self.cache), HOME=str(self.folder), **changes)
        return environment

    def start(self, *arguments, **changes):
        return subprocess.Popen([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace", env=self.environment(**changes))

    def run_program(self, *arguments, **changes):
        process = self.start(*arguments, **changes)
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return Run(process.returncode, out, err)

    def assert_done(self, run):
        self.assertEqual(run.code, 0, run.err)

    def assert_error(self, code, kind, parts, *arguments, **changes):
        """The same error as text and as JSON: exit code, kind, and `parts` in the message or hint."""
        text = self.run_program(*arguments, **changes)
        self.assertEqual(text.code, code, text.out + text.err)
        self.assertEqual(text.out, "", "results only on stdout")
        self.assertIn("error: ", text.err)
        run = self.run_program(*arguments, "--json", **changes)
        self.assertEqual(run.code, code, run.err)
        error = run.json()["error"]
        self.assertEqual(error["code"], kind, error)
        self.assertTrue(error["message"])
        for part in parts:
            self.assertIn(part, error["message"] + "\n" + error["hint"])
            self.assertIn(part, text.err)
        return error


def main():
    unittest.main(verbosity=1)
