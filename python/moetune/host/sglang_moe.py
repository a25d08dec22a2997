"""SGLang's fused MoE in Triton, tuned as it is: its kernel and launcher, its space, its heuristic as the default.

One configuration serves both products; the separate ones that newer versions look up for the second (files "_down",
with TMA) are out of scope. It takes the installed package; or, where MOETUNE_SGLANG_PATH names a folder that
scripts/engine-subset made, its files with moetune's own kernels for what SGLang has compiled (versions then say
"alignment by moetune").
"""

import contextlib
import functools
import sys

import torch
import triton

from . import moe_ops
from .devices import open_torch
from .engines import compiler_ahead, load, runners_of
from .standin import Nothing, override_config_module

VERSION = "1"
VERSIONS = {"torch": torch.__version__, "triton": triton.__version__}

LAYERS = "sglang.srt.layers.moe"
# Since 0.5.7, and before.
PACKAGES = (f"{LAYERS}.moe_runner.triton_utils", f"{LAYERS}.fused_moe_triton")
LAYOUTS = [(f"{name}.fused_moe", f"{name}.fused_moe_triton_config", name) for name in PACKAGES]
KNOWN = "0.5.6, 0.5.12, 0.5.23"
KERNELS = {"fused_moe_kernel"}


def _no_pool(*args, **kwargs):
    return contextlib.nullcontext()


# What the launcher asks of a server, of which there is none here.
SERVER = {
    "get_exec": Nothing,
    "get_parallel": Nothing,
    "get_global_server_args": Nothing,
    "is_allocation_symmetric": lambda: False,
    "use_symmetric_memory": _no_pool,
}


def _custom_op(function=None, **options):
    """In place of decorators that register an operator: the function itself."""
    return function if callable(function) else lambda decorated: decorated


def stand_ins(arch, ops):
    """What the launcher imports from the rest of SGLang, by module; small kernels are of `ops`."""

    def align(ids, buckets, rows, sorted_ids, expert_ids, total, *unused, **options):
        # Bucket 0 is for experts of other ranks.
        ops.align_blocks(ids, buckets, rows, sorted_ids, expert_ids, total, offset=1)

    def silu_and_mul(both, out, **row_filter):
        ops.silu_and_mul(out, both)

    def sum_slots(rows, out, scale):
        ops.sum_slots(rows, out)

    def quantise(values, group, *unused, **options):
        return ops.quantise_groups(values, group)

    def quantise_whole(values, scale, *unused, **options):
        return ops.quantise_given(values, scale)

    utils = {
        "is_cuda": lambda: True,
        "is_sm90_supported": lambda device=None: arch == 90,
        "get_device_name": lambda device=0: "",
        "direct_register_custom_op": moe_ops.ignore,
        "*": Nothing(),
    }
    compiled = {"moe_align_block_size": align, "silu_and_mul": silu_and_mul, "moe_sum_reduce": sum_slots}
    fp8 = {name: quantise for name in ("sglang_per_token_group_quant_fp8", "per_token_group_quant_fp8")}
    fp8["scaled_fp8_quant"] = quantise_whole
    groups = {"per_token_group_quant": lambda values, group_size, **options: quantise(values, group_size)}
    activations = {"silu_and_mul": silu_and_mul}
    pdl = {"is_arch_support_pdl": lambda: arch >= 90}
    padding = {"get_moe_padding_size": lambda use_aiter: 0}
    return {
        "sgl_kernel": {**compiled, "gelu_and_mul": moe_ops.ignore},
        "sglang.jit_kernel.activation": activations,
        "sglang.jit_kernel.utils": pdl,
        "sglang.kernels.jit.utils": pdl,
        "sglang.kernels.ops.activation.activation": activations,
        "sglang.kernels.ops.moe": {"moe_align_block_size": align},
        "sglang.kernels.ops.quantization.fp8_kernel": fp8,
        "sglang.kernels.ops.quantization.per_token_group_quant": groups,
        "sglang.srt.batch_invariant_ops": {"is_batch_invariant_mode_enabled": lambda: False},
        "sglang.srt.environ": {"envs": Nothing()},
        "sglang.srt.layers.moe.moe_runner": {"MoeRunnerConfig": Nothing},
        "sglang.srt.layers.moe.utils": padding,
        "sglang.srt.layers.quantization.fp8_kernel": fp8,
        "sglang.srt.utils": utils,
        "sglang.srt.utils.custom_op": {"register_custom_op": _custom_op},
        "sglang.srt.runtime_context": SERVER,
        "sglang.srt.server_args": SERVER,
        "sglang.srt.layers.dp_attention": SERVER,
        "sglang.srt.distributed.device_communicators.pynccl_allocator": SERVER,
        **{name: override_config_module() for name in PACKAGES},
    }


@functools.cache
def _engine(root, version, tables_of):
    """Once a process: modules stay."""
    engine = load("sglang", root, version, LAYOUTS, tables_of and stand_ins(*tables_of), KNOWN)
    for name in ("fused_experts", "get_default_config"):
        names = vars(sys.modules[getattr(engine, name).__module__])
        names.update({each: value for each, value in SERVER.items() if each in names})
        if tables_of and tables_of[1] is not moe_ops:  # Nothing is launched here.
            names["moe_sum_reduce_torch_compile"] = moe_ops.ignore
    return engine


def make_runners(problem, device):
    return runners_of("sglang", "SGLang", _engine, VERSIONS, __name__, problem, device)


def make_compiler(setup):
    return compiler_ahead(_engine, KERNELS, setup)


OPERATORS = {"fused_moe": make_runners}
OPEN_DEVICE = open_torch
