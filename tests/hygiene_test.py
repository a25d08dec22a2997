"""What must not be in the source tree: marks of unfinished work, paths of somebody's machine, overlong files.

Run by ctest as tree.hygiene; by hand: tests/hygiene_test.py
"""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED_FOLDERS = {".git", ".cache", "build"}
CODE = {".h", ".c", ".cc", ".cuh", ".cu", ".inc", ".py", ".sh", ".cmake"}
MAX_LINES = 500

# Written so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
# Made-up people's homes may appear in examples and tests.
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:work|home(?!/(?:user|someone|alice)\b)|root|Users|farm)/[\w.]|/tmp/\w+\.\d")


def tracked_files():
    """The files git knows of or would add; every file outside build folders where this is no git checkout."""
    listing = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, check=False)
    if listing.returncode == 0:
        return sorted(ROOT / name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file())
    return sorted(path for path in ROOT.rglob("*")
                  if path.is_file() and not SKIPPED_FOLDERS & set(path.relative_to(ROOT).parts))


def findings(name, text):
    """One line for each thing that must not be in a file."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := UNFINISHED.search(line):
            found.append(f"{name}:{number}: '{match.group()}': finish it, or file an issue and say nothing here")
        if match := MACHINE_PATH.search(line):
            found.append(f"{name}:{number}: a path of one machine: {match.group()}…")
    suffix = pathlib.PurePath(name).suffix
    if suffix in CODE and (lines := text.count("\n")) > MAX_LINES:
        found.append(f"{name}: {lines} lines; split what has more than one subject (at most {MAX_LINES})")
    return found


class ThisTree(unittest.TestCase):
    def test_holds_nothing_that_must_not_be_there(self):
        files = tracked_files()
        self.assertIn(ROOT / "CMakeLists.txt", files)
        problems = []
        for path in files:
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue  # a binary file
            problems += findings(path.relative_to(ROOT).as_posix(), text)
        self.assertEqual(problems, [], "\n" + "\n".join(problems))


class MadeUpFiles(unittest.TestCase):
    """The check itself."""

    def test_marks_of_unfinished_work_are_found(self):
        for mark in ("TO" "DO", "FIX" "ME", "X" "XX"):
            self.assertEqual(len(findings("src/a.cc", f"int a;  // {mark}: later\n")), 1, mark)
        self.assertEqual(findings("src/a.cc", "int todos = 0;  // what is left to do\n"), [])

    def test_paths_of_a_machine_are_found(self):
        for path in ("/ho" "me/jdoe/model", "/wo" "rk/main", "/ro" "ot/.cache"):
            self.assertEqual(len(findings("README.md", f"see {path}\n")), 1, path)
        self.assertEqual(findings("README.md", "see ~/models, $HOME/work/x, docs/work/x, /home/user/x\n"), [])

    def test_an_overlong_source_file_is_found_and_long_data_is_not(self):
        self.assertEqual(len(findings("src/a.cc", "int a;\n" * (MAX_LINES + 1))), 1)
        self.assertEqual(findings("src/a.cc", "int a;\n" * MAX_LINES), [])
        self.assertEqual(findings("bench/results/a.json", "1\n" * 5000), [])


if __name__ == "__main__":
    unittest.main()
