"""What the hosts of serving engines' Triton kernels share: the space, its constraints, and how a call is made.

vLLM and SGLang have the same kernel by descent, with the same parameters. An engine's tactic is forced by its own
override_config; its tuned files are never looked at.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import pathlib
import zlib
from dataclasses import dataclass
from typing import Any

import torch
import triton

from . import moe_ops
from .compile_pool import CompilePool
from .errors import Unsupported
from .problem import MoeProblem, Problem
from .runner import Runner, require
from .standin import ENGINE_FILES, Subset, read_manifest
from .torch_device import TorchDevice

BLOCK = 128  # Of fp8-block weights.
# Triton's own, where an engine's default leaves them open.
TRITON_DEFAULTS = {"num_warps": 4, "num_stages": 3}
REGISTERS = 255  # Of one thread, 32 bits each.


@dataclass
class Engine:
    """An engine's functions, as some version of it has them."""

    package: str
    version: str  # "0.33.0", or "0.33.0, alignment by moetune"
    root: str  # The folder that has the package's.
    fused_experts: Any
    get_default_config: Any
    override_config: Any
    is_whole: bool = False  # The installed package, with all that it has compiled.

    @property
    def text(self):
        return f"{self.package} {self.version} triton {triton.__version__}"


def find(package, variable):
    """(folder that has the package, version, whether that is the whole package), by environment or installation."""
    if root := os.environ.get(variable):
        version = read_manifest(root) or _contents(package, root)
        return root, version, False
    try:
        spec = importlib.util.find_spec(package)
    except ImportError as error:
        raise Unsupported(f"{package} is installed, and does not import: {error}") from None
    if spec is None or spec.origin is None:
        hint = f"pip install {package}, or set {variable} to what scripts/engine-subset made"
        raise Unsupported(f"{package} is not installed", hint)
    return str(pathlib.Path(spec.origin).parent.parent), importlib.metadata.version(package), True


def _contents(package, root):
    files = [pathlib.Path(root) / name for name in ENGINE_FILES[package]]
    crc = 0
    for file in files:
        crc = zlib.crc32(file.read_bytes(), crc) if file.is_file() else crc
    return f"of files {crc:08x}"


def load(package, root, version, layouts, tables, known):
    """The engine in this process. With `tables`, of its files alone; else the installed package.

    `layouts`: modules of (fused_experts_impl, get_default_config, override_config), newest first; `known`: versions,
    for the message where none of the layouts is there.
    """
    subset = None if tables is None else Subset(package, root, tables)
    if subset:
        subset.install()
    reasons = []
    for layout in layouts:
        if subset and layout[0] not in subset.files:
            continue
        try:
            impl, config, override = (importlib.import_module(name) for name in layout)
            functions = impl.fused_experts_impl, config.get_default_config, override.override_config
            return Engine(package, version, root, *functions, is_whole=tables is None)
        except (ImportError, AttributeError) as error:
            reasons.append(str(error))
        except Unsupported as error:
            reasons.append(str(error))
    raise Unsupported(
        f"{package} {version} keeps its Triton kernel elsewhere than this host knows ({'; '.join(reasons)})",
        f"known to work: {known}",
    )


def formats(moe):
    """The engine's name of a problem's number formats, and the keyword arguments that say so."""
    require(moe.require(weights=("bf16", "fp8", "fp8-block")))
    if moe.weights == "bf16":
        require(moe.require(activations="a16"))
        return None, {}
    if moe.activations != moe.weights:
        raise Unsupported(
            f"engines run {moe.weights} weights on activations rounded to e4m3, and the problem's are {moe.activations}",
            f"--weights {moe.weights} --activations {moe.weights}",
        )
    if moe.weights == "fp8":
        return "fp8_w8a8", {"use_fp8_w8a8": True}
    ragged = moe.hidden % BLOCK or moe.intermediate % BLOCK
    require(f"hidden and intermediate must be multiples of {BLOCK} for fp8-block weights" if ragged else "")
    return "fp8_w8a8", {"use_fp8_w8a8": True, "block_shape": [BLOCK, BLOCK]}


def one_scale(scales):
    """[E] of the w13_global [E, 2]: an engine's kernel takes one scale for gate and up of an expert."""
    if not torch.equal(scales[:, 0], scales[:, 1]):
        raise Unsupported(
            "gate and up have scales of their own in some expert, and engines take one for both",
            "engines bring both to the larger scale when they load such a checkpoint, which changes its weights",
        )
    return scales[:, 0].contiguous()


def accepted(function, optional, needed):
    """The keyword arguments that this version's function takes; `needed` ones must be among them."""
    names = inspect.signature(function).parameters
    absent = [name for name in needed if name not in names]
    if absent:
        raise Unsupported(f"this version's {function.__name__} has no {', '.join(absent)}")
    return {**{name: value for name, value in optional.items() if name in names}, **needed}


class EngineMoe(Runner):
    """An engine's fused experts in Triton, from given ids to output."""

    parameters = {
        "BLOCK_SIZE_M": [16, 32, 64, 128, 256],
        "BLOCK_SIZE_N": [32, 64, 128, 256],
        "BLOCK_SIZE_K": [64, 128, 256],
        "GROUP_SIZE_M": [1, 16, 32, 64],
        "num_warps": [4, 8],
        "num_stages": [2, 3, 4, 5],
    }
    meanings = {
        "BLOCK_SIZE_M": "rows of a tile, to which each expert's tokens are padded",
        "BLOCK_SIZE_N": "columns of a tile",
        "BLOCK_SIZE_K": "depth of a step",
        "GROUP_SIZE_M": "tiles of rows that go through the columns together",
        "num_warps": "warps of a program",
        "num_stages": "steps that are loaded ahead",
    }
    compiles_on_first_run = True

    def __init__(self, problem, engine, limits, compiler):
        """`limits`: {"arch": 90, "shared_bytes": 232448}, 0: unknown; `compiler`: the module of make_compiler()."""
        self.moe = MoeProblem.of(problem)
        require(self.moe.require(activation="swiglu", bias=False, ep=1, output="bf16"))
        require(self.moe.require(given_routing=True, shared_experts=0))
        self.format, switches = formats(self.moe)
        self.engine = engine
        self.name = f"{engine.package}.triton"
        self.version = zlib.crc32(engine.text.encode()) & 0x7FFFFFFF
        self.limits = limits
        setup = {"root": engine.root, "arch": limits["arch"], "attributes": problem.attributes}
        setup["small_kernels"] = not engine.is_whole
        # Starts no process before it is told of something.
        self._pool = CompilePool(compiler, setup) if limits["arch"] else None
        optional = {"inplace": False, "activation": "silu", "filter_expert": False}
        self._switches = accepted(engine.fused_experts, optional, switches)
        moe = self.moe
        optional = {"is_marlin": False, "block_shape": switches.get("block_shape")}
        sizes = {"M": 1, "E": moe.experts, "N": moe.intermediate, "K": moe.hidden, "topk": moe.top_k}
        self._sizes = accepted(engine.get_default_config, optional, {**sizes, "dtype": self.format})
        self.default = functools.lru_cache(self.default)

    def default(self, tokens):
        """The engine's heuristic for this size, without its files of tuned configurations."""
        config = self.config(tokens)
        return {name: config[name] for name in self.parameters}

    def config(self, tokens):
        """All that the heuristic sets: more than the tactic, in some versions."""
        return {**TRITON_DEFAULTS, **self.engine.get_default_config(**{**self._sizes, "M": tokens})}

    def excluded(self, tactic, tokens):
        rows, columns, depth = (tactic[f"BLOCK_SIZE_{letter}"] for letter in "MNK")
        if self.moe.weights == "fp8-block" and depth > BLOCK:
            return f"a step may not be deeper than a block of scales, {BLOCK}"
        if rows > 16 and rows >= 2 * tokens:
            return "more rows than an expert can have"
        group = tactic["GROUP_SIZE_M"]
        if group > 1 and group > 2 * self._row_tiles(tokens, rows):
            return "a group of more tiles than there are"
        if rows * columns > REGISTERS * 32 * tactic["num_warps"] and 0 < self.limits["arch"] < 100:
            return "its sums do not fit into registers"
        bytes_each = 1 if self.format else 2
        # At least so many stages are in shared memory at once, whatever Triton makes of them.
        shared = (tactic["num_stages"] - 1) * (rows + columns) * depth * bytes_each
        if shared > self.limits["shared_bytes"] > 0:
            return "its stages do not fit into shared memory"
        return ""

    def _row_tiles(self, tokens, rows):
        """How many tiles of rows there are at most."""
        pairs = tokens * self.moe.top_k
        return min(pairs, pairs // rows + self.moe.experts)

    def pack(self, weights):
        if self._pool:
            self._pool.warm_up()  # Now, so that it is warm when the weights are here and the race begins.
        packed = {name: weights[name] for name in ("w13", "w2")}
        if self.moe.weights == "fp8-block":
            packed.update(w13_scales=weights["w13_scales"], w2_scales=weights["w2_scales"])
        elif self.moe.weights == "fp8":
            packed.update(w13_scales=one_scale(weights["w13_global"]), w2_scales=weights["w2_global"].reshape(-1))
        return packed

    def compile(self, tactic, arguments):
        config = {**self.config(arguments.tokens), **tactic}
        return lambda call, weights: self._run(tactic, config, call, weights)

    def _run(self, tactic, config, call, weights):
        if self._pool:
            self._pool.claim(_job(call["hidden"].shape[0], tactic))
        return self.launch(config, call, weights)

    def launch(self, config, call, weights):
        """One call of the engine's function with a configuration."""
        scales = {"w1_scale": weights["w13_scales"], "w2_scale": weights["w2_scales"]} if self.format else {}
        if self.moe.activations == "fp8":
            scales.update(a1_scale=call["activation_scales"][:1], a2_scale=call["activation_scales"][1:])
        with self.engine.override_config(config):
            return self.engine.fused_experts(
                call["hidden"], weights["w13"], weights["w2"], call["topk_weights"], call["topk_ids"],
                **self._switches, **scales,
            )  # fmt: skip

    def prefetch(self, tactics, tokens):
        if tokens and self._pool:
            self._pool.prefetch([_job(tokens, tactic) for tactic in tactics])

    def is_compiled(self, tactic, tokens):
        return not self._pool or self._pool.has_ended(_job(tokens, tactic))


def limits_of(device):
    """What the space depends on of a GPU; zeros under Triton's interpreter on the CPU, which is for tests."""
    if not device.is_cuda:
        interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        require("" if interpreted else f"Triton's kernels do not run on {device.name}")
        return {"arch": 0, "shared_bytes": 0}
    properties = torch.cuda.get_device_properties(device.device)
    shared = getattr(properties, "shared_memory_per_block_optin", 0)
    return {"arch": 10 * properties.major + properties.minor, "shared_bytes": shared}


def _job(tokens, tactic):
    return json.dumps({"tokens": tokens, "tactic": tactic})


class _CompilerOnly:
    """A driver of Triton for a process that compiles for a GPU and never opens it."""

    def __init__(self, arch):
        self._target = triton.backends.compiler.GPUTarget("cuda", arch, 32)

    def get_current_target(self):
        return self._target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def compiler_of(runner, kernels):
    """A function that compiles what a job's call would launch, of the kernels of these names, and launches nothing.

    Arguments are of the device "meta", which have types, sizes and strides and no memory. Triton's kernels depend on
    these, and on whether addresses and sizes are multiples of 16: addresses are here, as they are in a call.
    """
    triton.runtime.driver.set_active(_CompilerOnly(runner.limits["arch"]))
    launch = triton.runtime.jit.JITFunction.run

    def compile_only(function, *args, grid, warmup, **kwargs):
        if function.fn.__name__ in kernels:
            launch(function, *args, grid=grid, warmup=True, **kwargs)

    triton.runtime.jit.JITFunction.run = compile_only

    def compile_one(text):
        job = json.loads(text)
        call, weights = _meta_arguments(runner.moe, job["tokens"])
        config = {**runner.config(job["tokens"]), **job["tactic"]}
        runner.launch(config, call, weights)

    return compile_one


def _meta_arguments(moe, tokens):
    """A call's, and the weights as pack() returns them."""

    def empty(dtype, *shape):
        return torch.empty(shape, dtype=dtype, device="meta")

    call = {
        "hidden": empty(torch.bfloat16, tokens, moe.hidden),
        "topk_ids": empty(torch.int32, tokens, moe.top_k),
        "topk_weights": empty(torch.float32, tokens, moe.top_k),
    }
    held = torch.bfloat16 if moe.weights == "bf16" else torch.float8_e4m3fn
    rows, depth = 2 * moe.intermediate, moe.hidden
    weights = {"w13": empty(held, moe.experts, rows, depth), "w2": empty(held, moe.experts, depth, rows // 2)}
    if moe.weights == "fp8":
        call["activation_scales"] = empty(torch.float32, 2)
        weights["w13_scales"] = empty(torch.float32, moe.experts)
        weights["w2_scales"] = empty(torch.float32, moe.experts)
    elif moe.weights == "fp8-block":
        weights["w13_scales"] = empty(torch.float32, moe.experts, rows // BLOCK, depth // BLOCK)
        weights["w2_scales"] = empty(torch.float32, moe.experts, depth // BLOCK, rows // 2 // BLOCK)
    return call, weights


def runners_of(package, title, engine_of, versions, module, problem, device):
    """The runners of an engine's host. `engine_of(root, version, stand-ins or None)` loads it; `module` compiles ahead."""
    require("" if isinstance(device, TorchDevice) else f"{title} does not run on {device.name}: say cuda:0")
    limits = limits_of(device)
    root, version, is_whole = find(package, f"MOETUNE_{package.upper()}_PATH")
    version = version if is_whole else f"{version}, alignment by moetune"
    versions[package] = version
    engine = engine_of(root, version, None if is_whole else (limits["arch"], moe_ops))
    return [EngineMoe(problem, engine, limits, module)]


def compiler_ahead(engine_of, kernels, setup):
    """For compile_pool: compiles a job's kernels from the engine's files alone, even where all of it is there.

    setup["small_kernels"]: moetune's own too, which stand in for what the engine has compiled.
    """
    ops = moe_ops.AheadOps if setup["small_kernels"] else moe_ops.DryOps
    kernels = kernels | moe_ops.KERNELS
    engine = engine_of(setup["root"], "", (setup["arch"], ops))
    limits = {"arch": setup["arch"], "shared_bytes": 0}
    return compiler_of(EngineMoe(Problem("fused_moe", setup["attributes"]), engine, limits, ""), kernels)
