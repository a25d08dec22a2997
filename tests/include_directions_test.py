"""Keeps the order of who may know whom: includes in src/ and include/, and the DEPS of each folder's CMake target.

HACKING.md explains the order. Run by ctest as tree.include_directions; by hand: tests/include_directions_test.py
"""

import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# For each folder of src/, the folders it may include besides itself. `engine` and `cli` put the parts together.
PARTS = {"base", "tuner", "journal", "worker", "dist", "report", "ops", "exchange", "cpu", "cuda", "model", "checkpoint"}
MAY_INCLUDE = {
    "base": set(),
    "tuner": {"base"},
    "journal": {"base", "tuner"},
    "worker": {"base", "tuner"},
    "dist": {"base", "tuner"},
    "report": {"base", "tuner"},
    "ops": {"base", "tuner"},
    "exchange": {"base", "tuner", "ops"},
    "cpu": {"base", "tuner", "ops"},
    "cuda": {"base", "tuner", "ops"},
    "model": {"base", "tuner", "ops"},
    "checkpoint": {"base", "tuner", "ops", "model"},
    "engine": PARTS,
    "capi": PARTS | {"engine"},
    "cli": PARTS | {"engine"},
}

# The folder that defines what a public header declares. A header counts as that folder for the order above, so that
# the tuner cannot learn of MoE through include/.
PUBLIC_HEADER_HOME = {
    "result.h": "base",
    "tensor.h": "base",
    "tactic.h": "tuner",
    "runner.h": "tuner",
    "profile.h": "tuner",
    "plan.h": "tuner",
    "measuring.h": "tuner",
    "autotuner.h": "tuner",
    "function_runner.h": "tuner",
    "host_device.h": "tuner",
    "moe_spec.h": "ops",
    "moe_weights.h": "ops",
    "checkpoint.h": "checkpoint",
    "fused_moe.h": "engine",
    "cpp.h": "engine",
    "moetune.h": "capi",
    "dl_tensor.h": "capi",
}

# Public headers that a C compiler reads: these of the standard library, and each other.
C_HEADERS = {"moetune.h", "dl_tensor.h"}
STANDARD_C_HEADERS = {"stddef.h", "stdint.h"}

# Third-party headers, by how their include begins, and the folders that may use them. Others may be used nowhere.
THIRD_PARTY = {
    "fmt/": set(MAY_INCLUDE),
    "nlohmann/": set(MAY_INCLUDE),
    "CLI/": {"cli"},
    "sqlite3.h": {"journal"},
    "cuda": {"cuda"},
    "nvrtc": {"cuda"},
    "nvml": {"cuda"},
}

# Starting processes and waiting for them has one place, so that none is left behind.
PROCESS_HEADERS = {"spawn.h": {"base"}, "sys/wait.h": {"base"}, "sys/prctl.h": {"worker"}}

# Of the operating system and the compiler, neither the public headers nor the tuner may know anything.
PORTABLE = {"tuner"}

STANDARD_HEADERS = set("""
    algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
    clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
    cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem format forward_list fstream
    functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
    memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator
    semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view
    strstream syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility
    valarray variant vector version
""".split())

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
CXX_SUFFIXES = {".h", ".cc", ".inc", ".cuh", ".cu"}


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def includes(path):
    """Pairs (is_quoted, target) of one file."""
    return [(kind == '"', target) for kind, target in INCLUDE.findall(without_comments(path.read_text()))]


def check_third_party(where, folder, target):
    for prefix, users in THIRD_PARTY.items():
        if target.startswith(prefix):
            if folder not in users:
                return [f"{where}: {folder} must not use <{target}>; only {', '.join(sorted(users))} may"]
            return []
    if folder in PORTABLE and target not in STANDARD_HEADERS:
        return [f"{where}: {folder} must use the standard library only, not <{target}>"]
    if folder not in PROCESS_HEADERS.get(target, {folder}):
        return [f"{where}: {folder} must not use <{target}>; base/child_process.h starts and ends processes"]
    return []


def check_public_include(where, folder, target):
    header = target.removeprefix("moetune/")
    home = PUBLIC_HEADER_HOME.get(header)
    if home is None:
        return [f"{where}: say which folder defines {target}, in PUBLIC_HEADER_HOME of {pathlib.Path(__file__).name}"]
    if home != folder and home not in MAY_INCLUDE[folder]:
        return [f"{where}: {folder} must not know {home}, which defines {target}"]
    return []


def check_source(root, path, folder):
    where = path.relative_to(root)
    problems = []
    for quoted, target in includes(path):
        if target.startswith("moetune/"):
            problems += check_public_include(where, folder, target)
        elif not quoted:
            problems += check_third_party(where, folder, target)
        elif not (root / "src" / target).is_file():
            problems.append(f'{where}: "{target}" is no file of src/; write includes from the root of src/')
        else:
            other = target.split("/")[0]
            if other != folder and other not in MAY_INCLUDE[folder]:
                problems.append(f'{where}: {folder} must not include "{target}" of {other}')
    return problems


def check_public_header(root, path):
    where = path.relative_to(root)
    header = path.relative_to(root / "include/moetune").as_posix()
    home = PUBLIC_HEADER_HOME.get(header)
    if home is None:
        return check_public_include(where, "base", f"moetune/{header}")
    problems = []
    for _, target in includes(path):
        if header in C_HEADERS:
            if target.removeprefix("moetune/") not in C_HEADERS | STANDARD_C_HEADERS:
                problems.append(f"{where}: a header for C includes C headers only, not {target}")
        elif target.startswith("moetune/"):
            problems += check_public_include(where, home, target)
        elif target not in STANDARD_HEADERS:
            problems.append(f"{where}: a public header includes the standard library and moetune/ only, not {target}")
    return problems


def check_example(root, path):
    return [f"{path.relative_to(root)}: an example shows the public library: not {target}"
            for quoted, target in includes(path) if quoted and not target.startswith("moetune/")]


def check_cmake(root, path, folder):
    where = path.relative_to(root)
    text = re.sub(r"#[^\n]*", "", path.read_text())
    problems = []
    for other in re.findall(r"\bmoetune(?:::|_)(\w+)\b", text):
        if other in MAY_INCLUDE and other != folder and other not in MAY_INCLUDE[folder]:
            problems.append(f"{where}: {folder} must not link {other}")
    return problems


def check_tree(root):
    """Every breach of the order in the tree, as one readable line each."""
    problems = []
    for folder in sorted(path for path in (root / "src").iterdir() if path.is_dir()):
        if folder.name not in MAY_INCLUDE:
            problems.append(f"src/{folder.name}: say whom it may include, in MAY_INCLUDE of {pathlib.Path(__file__).name}")
            continue
        for path in sorted(folder.rglob("*")):
            if path.suffix in CXX_SUFFIXES:
                problems += check_source(root, path, folder.name)
            elif path.name == "CMakeLists.txt":
                problems += check_cmake(root, path, folder.name)
    for path in sorted((root / "include/moetune").rglob("*.h")):
        problems += check_public_header(root, path)
    for path in sorted(path for path in (root / "examples").rglob("*") if path.suffix in {".c", ".cc"}):
        problems += check_example(root, path)
    return problems


class ThisTree(unittest.TestCase):
    def test_keeps_the_order(self):
        self.assertGreater(len(list((ROOT / "src").rglob("*.cc"))), 0, "found no sources: wrong root?")
        problems = check_tree(ROOT)
        self.assertEqual(problems, [], "\n" + "\n".join(problems))


class MadeUpTree(unittest.TestCase):
    """The check itself: breaches that it must see, and a clean tree that it must let pass."""

    CLEAN = {
        "include/moetune/result.h": "#include <string>\n",
        "include/moetune/moe_spec.h": '#include "moetune/result.h"\n',
        "src/base/json.h": "#include <nlohmann/json.hpp>\n",
        "src/base/CMakeLists.txt": "moetune_library(base DEPS Threads::Threads)\n",
        "src/tuner/race.cc": '#include "base/json.h"\n#include <vector>\n#include "moetune/result.h"\n',
        "src/tuner/CMakeLists.txt": "moetune_library(tuner DEPS moetune::base)\n",
        "src/worker/host.cc": '#include <poll.h>\n#include "base/json.h"\n#include "tuner/race.h"\n',
        "src/worker/CMakeLists.txt": "moetune_library(worker DEPS moetune::tuner)\n",
        "src/engine/worker_program/main.cc": '#include "cpu/pack.h"\n#include "worker/host.cc"\n',
        "src/engine/worker_program/CMakeLists.txt": "target_link_libraries(moetune_worker_program PRIVATE moetune::engine)\n",
        "src/ops/moe/spec.cc": '#include "moetune/moe_spec.h"\n#include "tuner/race.h"\n',
        "src/tuner/race.h": "// Not an include: #include \"cpu/pack.h\"\n",
        "src/cpu/pack.h": "#include <immintrin.h>\n",
        "src/cpu/CMakeLists.txt": "moetune_library(cpu DEPS moetune::ops)\n",
        "examples/01_own.cc": '#include <vector>\n#include "moetune/result.h"\n',
        "src/cli/main.cc": '#include "cpu/pack.h"\n#include <CLI/CLI.hpp>\n',
    }

    def problems_with(self, changes):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**self.CLEAN, **changes}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_tree(root)

    def assert_caught(self, name, text, part):
        problems = self.problems_with({name: text})
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(name, problems[0])
        self.assertIn(part, problems[0])

    def test_a_clean_tree_passes(self):
        self.assertEqual(self.problems_with({}), [])

    def test_an_include_against_the_order_is_caught(self):
        self.assert_caught("src/tuner/race.cc", '#include "cpu/pack.h"\n', "must not include")
        self.assert_caught("src/base/json.h", '  #  include "tuner/race.h"\n', "must not include")
        self.assert_caught("src/cpu/pack.h", '#include "cli/main.cc"\n', "must not include")

    def test_a_public_header_counts_as_the_folder_that_defines_it(self):
        self.assert_caught("src/tuner/race.cc", '#include "moetune/moe_spec.h"\n', "must not know ops")
        self.assert_caught("include/moetune/result.h", '#include "moetune/moe_spec.h"\n', "must not know ops")

    def test_a_public_header_that_needs_more_than_the_standard_library_is_caught(self):
        self.assert_caught("include/moetune/result.h", "#include <nlohmann/json.hpp>\n", "standard library")
        self.assert_caught("include/moetune/result.h", '#include "base/json.h"\n', "standard library")

    def test_a_header_for_c_that_needs_more_than_c_is_caught(self):
        self.assert_caught("include/moetune/moetune.h", "#include <vector>\n", "C headers only")
        self.assert_caught("include/moetune/moetune.h", '#include "moetune/result.h"\n', "C headers only")

    def test_a_third_party_header_outside_its_folder_is_caught(self):
        self.assert_caught("src/tuner/race.cc", "#include <sqlite3.h>\n", "only journal may")
        self.assert_caught("src/cpu/pack.h", "#include <cuda.h>\n", "only cuda may")

    def test_the_tuner_may_not_know_the_operating_system(self):
        self.assert_caught("src/tuner/race.cc", "#include <sys/wait.h>\n", "standard library only")

    def test_the_worker_knows_no_operator_and_no_backend(self):
        self.assert_caught("src/worker/host.cc", '#include "ops/moe/spec.cc"\n', "must not include")
        self.assert_caught("src/worker/host.cc", '#include "moetune/moe_spec.h"\n', "must not know ops")
        self.assert_caught("src/worker/CMakeLists.txt", "moetune_library(worker DEPS moetune::cpu)\n", "must not link cpu")
        self.assert_caught("src/cpu/pack.h", '#include "worker/host.cc"\n', "must not include")

    def test_processes_are_started_in_one_place(self):
        self.assert_caught("src/worker/host.cc", "#include <spawn.h>\n", "child_process.h")
        self.assert_caught("src/cpu/pack.h", "#include <sys/wait.h>\n", "child_process.h")

    def test_a_cmake_dependency_against_the_order_is_caught(self):
        self.assert_caught("src/base/CMakeLists.txt", "moetune_library(base DEPS moetune::tuner)\n", "must not link")
        self.assert_caught("src/tuner/CMakeLists.txt", "target_link_libraries(moetune_tuner PUBLIC moetune_cpu)\n",
                           "must not link")

    def test_an_example_that_needs_more_than_the_public_library_is_caught(self):
        self.assert_caught("examples/01_own.cc", '#include "base/json.h"\n', "public library")

    def test_an_include_that_does_not_start_at_the_root_is_caught(self):
        self.assert_caught("src/tuner/race.cc", '#include "race.h"\n', "from the root of src/")
        self.assert_caught("src/tuner/race.cc", '#include "../cpu/pack.h"\n', "from the root of src/")

    def test_a_folder_or_public_header_that_nobody_placed_is_caught(self):
        problems = self.problems_with({"src/misc/helper.cc": "\n", "include/moetune/new.h": "\n"})
        self.assertEqual(len(problems), 2, problems)


if __name__ == "__main__":
    unittest.main()
