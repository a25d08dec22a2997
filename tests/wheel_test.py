"""A wheel of moetune: what is in it, and that it works in a fresh virtual environment where nothing else is.

Run by scripts/wheel --check, which ctest runs as tree.wheel; by hand: tests/wheel_test.py build/wheel/moetune-*.whl
Needs no network. The environment is made with the Python that runs this.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests" / "checkpoint" / "reference_models" / "qwen3_moe"
OF_GLIBC = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so\.\d+")
LIBRARY = "moetune/lib/libmoetune.so.1"
WHEEL = None  # a pathlib.Path, from the command line


def version():
    return re.search(r"project\(moetune VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def run(*command, **how):
    """What the command printed; a failure with all of that where it did not end with status 0."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **how)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Contents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data = f"moetune-{version()}.data"
        cls.info = f"moetune-{version()}.dist-info"
        cls.programs = [f"{cls.data}/scripts/moetune"] + [
            f"{cls.data}/data/libexec/moetune/{name}" for name in ("moetune-jit", "moetune-worker")]
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        with zipfile.ZipFile(WHEEL) as archive:
            cls.entries = {entry.filename: entry for entry in archive.infolist()}
            archive.extractall(cls.folder)

    def test_nothing_is_missing_and_nothing_superfluous(self):
        package = ROOT / "python"
        python = {path.relative_to(package).as_posix() for path in (package / "moetune").rglob("*")
                  if path.is_file() and "__pycache__" not in path.parts}
        self.assertTrue({"moetune/__init__.py", "moetune/capi.py"} <= python)
        info = {f"{self.info}/{name}" for name in (
            "METADATA", "WHEEL", "RECORD", "licenses/LICENSE", "licenses/python/third-party-licenses.txt")}
        self.assertEqual(set(self.entries), python | {LIBRARY} | set(self.programs) | info)

    def test_programs_can_be_run_as_they_are_unpacked(self):
        for name in self.programs:
            self.assertEqual(self.entries[name].external_attr >> 16 & 0o755, 0o755, name)

    def test_binaries_are_stripped_and_know_no_folder_of_the_build(self):
        for name in self.programs + [LIBRARY]:
            sections = run("readelf", "-SW", self.folder / name)
            self.assertNotRegex(sections, r"\.debug_|\.symtab", name)
            self.assertNotRegex(run("readelf", "-d", self.folder / name), "RPATH|RUNPATH", name)

    def test_the_tag_is_what_the_binaries_need(self):
        newest = (0, 0)
        for name in self.programs + [LIBRARY]:
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", self.folder / name))
            self.assertEqual([library for library in needed if not OF_GLIBC.fullmatch(library)], [], name)
            for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "-V", self.folder / name)):
                newest = max(newest, (int(major), int(minor)))
        tag = f"py3-none-manylinux_{newest[0]}_{newest[1]}_{os.uname().machine}"
        self.assertEqual(WHEEL.name, f"moetune-{version()}-{tag}.whl")
        fields = (self.folder / self.info / "WHEEL").read_text().splitlines()
        self.assertIn(f"Tag: {tag}", fields)
        self.assertIn("Root-Is-Purelib: false", fields)

    def test_it_asks_for_no_other_package(self):
        fields = (self.folder / self.info / "METADATA").read_text().split("\n\n")[0].splitlines()
        self.assertIn("Requires-Python: >=3.10", fields)
        self.assertEqual([field for field in fields if field.startswith("Requires-Dist:") and "extra ==" not in field], [])

    def test_it_is_small(self):
        self.assertLess(WHEEL.stat().st_size, 12e6)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.venv = cls.folder / "venv"
        cls.bin = cls.venv / "bin"
        # Nothing of the calling shell: no other moetune, no caches and no settings of its user.
        cls.environment = {"PATH": f"{cls.bin}:/usr/bin:/bin", "HOME": str(cls.folder), "LC_ALL": "C.UTF-8"}
        run(sys.executable, "-m", "venv", cls.venv)
        cls.before = cls.files()
        cls.pip("install", "--no-index", WHEEL)

    @classmethod
    def files(cls):
        return {path for path in cls.venv.rglob("*") if not path.is_dir() and "__pycache__" not in path.parts}

    @classmethod
    def here(cls, *command, **more):
        return run(*command, env={**cls.environment, **more}, cwd=cls.folder)

    @classmethod
    def pip(cls, *arguments):
        return cls.here(cls.bin / "python", "-m", "pip", "--disable-pip-version-check", *arguments)

    def python(self, text):
        return self.here(self.bin / "python", "-c", text).strip()

    def tune(self, command):
        out = self.folder / "tuned.json"
        out.unlink(missing_ok=True)
        report = json.loads(self.here(command, "tune", MODEL, "--device", "cpu", "--threads", "1", "--tokens", "1,4",
                                      "--budget", "500ms", "--isolation", "worker", "--no-journal", "--out", out,
                                      "--json"))
        # And sizes in between, where the decisions for these differ.
        self.assertLessEqual({1, 4}, {bucket["tokens"] for bucket in report["buckets"]})
        self.assertTrue(out.is_file())

    def test_the_command_is_on_the_path(self):
        self.assertIn(version(), self.here("moetune", "--version"))
        self.assertIn("cpu", self.here("moetune", "devices"))

    def test_tuning_finds_the_helper_process(self):
        self.tune("moetune")

    def test_tuning_finds_the_helper_process_through_a_link_to_the_command(self):
        link = self.folder / "elsewhere" / "tuner"
        link.parent.mkdir()
        link.symlink_to(self.bin / "moetune")
        self.tune(link)

    def test_the_library_finds_the_compile_process(self):
        helper = self.venv / "libexec" / "moetune" / "moetune-jit"
        self.assertTrue(os.access(helper, os.X_OK))
        library = pathlib.Path(self.python("import moetune; print(moetune.library_path())"))
        # As helper_places() of src/base looks for it: there it is tested in C++.
        self.assertIn(self.venv.resolve(), list(library.parents)[1:6])

    def test_the_package_knows_its_version_and_its_parts(self):
        self.assertEqual(self.python("import moetune; print(moetune.__version__)"), version())
        command = self.python("import moetune; print(moetune.command_path())")
        self.assertEqual(pathlib.Path(command), (self.bin / "moetune").resolve())

    def test_importing_loads_nothing(self):
        self.assertEqual(self.python("import sys, moetune; print({'ctypes', 'numpy', 'torch'} & set(sys.modules))"), "set()")

    def test_layers_run_by_ctypes(self):
        for test in ("python", "formats"):
            self.here(self.bin / "python", "-B", ROOT / "tests" / "capi" / f"{test}_test.py",
                      MOETUNE_CHECKPOINTS=str(MODEL.parent))

    def test_the_command_starts_hosts_in_the_python_of_its_environment(self):
        self.assertIn("Usage", self.here(self.bin / "python", "-m", "moetune.host", "--help"))
        # Which has no NumPy: the host itself must have said so.
        path = {**self.environment, "PATH": "/usr/bin:/bin"}
        tried = subprocess.run([self.bin / "moetune", "tune", MODEL, "--device", "cpu", "--host", "numpy"], env=path,
                               cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(tried.returncode, 1)
        self.assertIn("the host numpy needs a package that is not here", tried.stdout + tried.stderr)

    @classmethod
    def tearDownClass(cls):
        # The last of all: it takes away what the other tests use.
        cls.pip("uninstall", "--yes", "moetune")
        left = {str(path.relative_to(cls.venv)) for path in cls.files() ^ cls.before}
        if left:
            raise AssertionError(f"pip uninstall left, or took what was not moetune's: {sorted(left)}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    WHEEL = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
