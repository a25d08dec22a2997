"""Chosen files of a package run without the rest of it, and say what is missing when it is needed."""

import importlib
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

from moetune.host.errors import Unsupported  # noqa: E402
from moetune.host.standin import ENGINE_FILES, Nothing, Subset, read_manifest  # noqa: E402

SOURCE = '''
import pretend.settings as settings
from pretend import tools
from pretend.deep.down import Base, helper
from pretend.tools import double

class Derived(Base.Inner):
    def f(self, value: "int | Base") -> Base | None: ...

def use(value):
    return double(value), settings.anything, settings.get.more()

def fail():
    return helper(3)
'''


class Standing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        ENGINE_FILES["pretend"] = ["pretend/core/real.py", "pretend/core/absent.py"]
        self.addCleanup(ENGINE_FILES.pop, "pretend")

    def install(self, source=SOURCE):
        (self.root / "pretend/core").mkdir(parents=True)
        (self.root / "pretend/core/real.py").write_text(source)
        tables = {"pretend.tools": {"double": lambda x: 2 * x}, "pretend.settings": {"*": Nothing()}, "other": {"a": 1}}
        subset = Subset("pretend", self.root, tables)
        subset.install()
        self.addCleanup(self.forget, subset)
        return importlib.import_module("pretend.core.real")

    def forget(self, subset):
        sys.meta_path.remove(subset)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("pretend", "other")]:
            del sys.modules[name]

    def test_a_file_runs_with_stand_ins_for_what_it_imports(self):
        real = self.install()
        value, setting, called = real.use(4)
        self.assertEqual(value, 8)
        self.assertFalse(setting)
        self.assertIs(called, False)
        self.assertEqual(real.__file__, str(self.root / "pretend/core/real.py"))
        self.assertEqual(importlib.import_module("other").a, 1)

    def test_what_is_missing_is_named_when_it_is_called(self):
        with self.assertRaisesRegex(Unsupported, r"pretend\.deep\.down\.helper is called"):
            self.install().fail()

    def test_a_folder_without_any_of_the_files_is_refused(self):
        with self.assertRaisesRegex(Unsupported, "none of pretend's files"):
            Subset("pretend", self.root, {})

    def test_the_script_unpacks_what_is_needed_and_says_how_much(self):
        wheel, out = self.root / "vllm-9.8.7-py3-none-any.whl", self.root / "out"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in (ENGINE_FILES["vllm"][0], "vllm/__init__.py", "vllm/big.so"):
                archive.writestr(name, "x" * 2048)
        script = [sys.executable, str(ROOT / "scripts/engine-subset")]
        run = subprocess.run([*script, "vllm", str(wheel), str(out)], capture_output=True, text=True, check=True)
        self.assertIn("vllm 9.8.7: 1 files, 2 KiB", run.stdout)
        self.assertEqual(read_manifest(out), "9.8.7")
        self.assertFalse((out / "vllm/__init__.py").exists())
        wrong = subprocess.run([*script, "sglang", str(wheel), str(out)], capture_output=True, text=True, check=False)
        self.assertEqual(wrong.returncode, 1)


if __name__ == "__main__":
    unittest.main()
