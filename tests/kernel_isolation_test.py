"""No code compiled for a special instruction set may be shared with the rest of the program.

An inline function or template that a kernel's translation unit emits is a weak symbol: the linker keeps one copy of it
for everybody, and if that is the copy compiled with AVX-512, a machine without AVX-512 dies in the middle of
std::vector. So objects compiled with such options may define no weak code at all.

Run by ctest as tree.kernel_isolation. Arguments: BUILD_DIR COMPILER.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
SPECIAL_OPTION = re.compile(r"(?:^|\s)-m(?:avx|fma|f16c|bmi|amx|arch=)\S*")

build_dir = pathlib.Path()
compiler = ""


def special_objects(build):
    """The object files of a build that are compiled with an option for an instruction set."""
    objects = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if SPECIAL_OPTION.search(entry["command"]):
            words = shlex.split(entry["command"])
            objects.append(pathlib.Path(entry["directory"], words[words.index("-o") + 1]))
    return objects


def shared_code(path):
    """Names of the weak functions that an object file defines."""
    listing = subprocess.run(["nm", "-C", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    return [line.split(maxsplit=2)[2] for line in listing.stdout.splitlines() if line.split(maxsplit=2)[1] == "W"]


class ThisBuild(unittest.TestCase):
    def test_kernels_share_no_code_with_other_units(self):
        problems = [f"{path.name}: {symbol}" for path in special_objects(build_dir) for symbol in shared_code(path)]
        self.assertEqual(problems, [], "give these internal linkage or take them out of the kernel:\n" + "\n".join(problems))


class MadeUpUnits(unittest.TestCase):
    """The check itself."""

    def compile(self, text):
        with tempfile.TemporaryDirectory() as folder:
            source, output = pathlib.Path(folder, "kernel.cc"), pathlib.Path(folder, "kernel.o")
            source.write_text(text)
            subprocess.run([compiler, "-O1", "-c", str(source), "-o", str(output)], check=True)
            return shared_code(output)

    def test_an_inline_function_that_is_emitted_is_found(self):
        symbols = self.compile("[[gnu::noinline]] inline int twice(int x) { return 2 * x; }\n"
                               "int kernel(int x) { return twice(x); }\n")
        self.assertEqual(symbols, ["twice(int)"])

    def test_internal_functions_are_let_pass(self):
        self.assertEqual(self.compile("[[gnu::noinline]] static int twice(int x) { return 2 * x; }\n"
                                      "int kernel(int x) { return twice(x); }\n"), [])


if __name__ == "__main__":
    build_dir, compiler = pathlib.Path(sys.argv[1]), sys.argv[2]
    objects = special_objects(build_dir)
    if not objects:
        print("this build compiles nothing for a special instruction set")
        sys.exit(SKIPPED)
    print(f"checking {', '.join(path.name for path in objects)}")
    unittest.main(argv=sys.argv[:1])
