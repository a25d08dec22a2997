"""An engine's kernels without the engine: runs chosen source files of a package, with stand-ins for all they import.

A serving engine is gigabytes; its Triton kernels and what launches them are a handful of files. Subset makes these
importable under their own names. Whatever else they import from their package is a stand-in: what is named in a table,
and else a placeholder that may be imported, annotated with and derived from, but says what is missing when called.
"""

import importlib
import importlib.abc
import importlib.util
import json
import pathlib
import sys
import types

from .errors import Unsupported

MANIFEST = "moetune-subset.json"

# The files of an engine that run as they are; of these, a version has some.
ENGINE_FILES = {
    "vllm": [
        f"vllm/model_executor/layers/fused_moe/{name}.py"
        for name in ("fused_moe", "moe_align_block_size", "activation", "utils")
    ],
    "sglang": [
        *(
            f"sglang/srt/layers/moe/{folder}/{name}.py"
            for folder in ("moe_runner/triton_utils", "fused_moe_triton")
            for name in ("fused_moe", "fused_moe_triton_config", "fused_moe_triton_kernels", "moe_align_block_size")
        ),
        "sglang/kernels/ops/moe/fused_moe_triton_kernels.py",
        "sglang/kernels/ops/moe/moe_align_small_numel.py",
    ],
}


class Nothing:
    """Settings that are all off: what is called answers False, and so does a part that enables something."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return False if name.startswith("enable_") else self

    def __call__(self, *args, **kwargs):
        return False

    def __bool__(self):
        return False


class _Missing(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _missing(f"{cls.where}.{name}")

    def __call__(cls, *args, **kwargs):
        raise Unsupported(f"{cls.where} is called, and there is no stand-in for it", "use the whole package")


def _missing(where):
    return _Missing(where.rpartition(".")[2], (), {"where": where})


class _StandIn(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        subset, full = self.__spec__.loader.subset, f"{self.__name__}.{name}"
        if subset.has(full):
            return importlib.import_module(full)
        return vars(self)["*"] if "*" in vars(self) else _missing(full)


class _Loader(importlib.abc.Loader):
    def __init__(self, subset):
        self.subset = subset

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        vars(module).update(self.subset.tables.get(module.__name__, {}))


class Subset(importlib.abc.MetaPathFinder):
    """Chosen files of one package. While it is in sys.meta_path, the package is nothing but these and the tables."""

    def __init__(self, package, root, tables):
        """`root` has the package's folder; tables: {"package.module": {name: its stand-in}}, "*" for the rest."""
        self.package = package
        self.root = pathlib.Path(root)
        self.tables = tables
        self._packages = {package, *(name.partition(".")[0] for name in tables)}
        self.files = {}
        for name in ENGINE_FILES[package]:
            if (self.root / name).is_file():
                self.files[name.removesuffix(".py").replace("/", ".")] = self.root / name
        if not self.files:
            raise Unsupported(f"{root} has none of {package}'s files that are known to hold its kernel")

    def has(self, name):
        return any(known == name or known.startswith(name + ".") for known in (*self.files, *self.tables))

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self._packages:
            return None
        if name in self.files:
            return importlib.util.spec_from_file_location(name, self.files[name])
        return importlib.util.spec_from_loader(name, _Loader(self), is_package=True)

    def install(self):
        if self.package in sys.modules:
            raise Unsupported(f"{self.package} is imported already")
        sys.meta_path.insert(0, self)


def override_config_module():
    """What an engine's package of its MoE layer has to force a configuration."""
    state = {"config": None}

    class override_config:  # noqa: N801 - the engines' own name.
        def __init__(self, config):
            self.config = config

        def __enter__(self):
            self.before, state["config"] = state["config"], self.config

        def __exit__(self, *raised):
            state["config"] = self.before

    return {"override_config": override_config, "get_config": lambda: state["config"]}


def read_manifest(root):
    """The version in a folder that scripts/engine-subset made; "" where it did not."""
    try:
        return json.loads((pathlib.Path(root) / MANIFEST).read_text())["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
