"""vLLM's fused MoE in Triton, tuned as it is: its kernel and launcher, its space, its heuristic as the default.

It takes the installed package; or, where MOETUNE_VLLM_PATH names a folder that scripts/engine-subset made, the four
files in it with moetune's own kernels for what vLLM has compiled (versions then say "alignment by moetune").
"""

import functools

import torch
import triton
import triton.language

from . import moe_ops
from .devices import open_torch
from .engines import compiler_ahead, load, runners_of
from .standin import Nothing, override_config_module

VERSION = "1"
VERSIONS = {"torch": torch.__version__, "triton": triton.__version__}

PACKAGE = "vllm.model_executor.layers.fused_moe"
LAYOUTS = [(f"{PACKAGE}.fused_moe", f"{PACKAGE}.fused_moe", PACKAGE)]
KNOWN = "0.11.0, 0.22.0, 0.33.0"
KERNELS = {"fused_moe_kernel"}
# vLLM's environment variables that are not simply off where nobody sets them.
SETTINGS = {"VLLM_FUSED_MOE_CHUNK_SIZE": 32768, "VLLM_TRITON_USE_TD": None, "VLLM_TUNED_CONFIG_FOLDER": None}


class _Platform:
    """What the launcher asks of vLLM's current_platform."""

    simple_compile_backend = "inductor"

    def __init__(self, arch):
        self._arch = arch

    def __getattr__(self, name):
        return Nothing()

    def is_cuda(self):
        return True

    def is_device_capability(self, capability):
        return _number(capability) == self._arch

    def has_device_capability(self, capability):
        return self._arch >= _number(capability)

    def fp8_dtype(self):
        return torch.float8_e4m3fn


def _number(capability):
    return capability if isinstance(capability, int) else 10 * capability[0] + capability[1]


def stand_ins(arch, ops):
    """What the launcher imports from the rest of vLLM, by module; small kernels are of `ops`."""

    def align(ids, experts, rows, sorted_ids, expert_ids, total, *unused):
        ops.align_blocks(ids, experts, rows, sorted_ids, expert_ids, total)

    def quantise(values, group, *unused, **options):
        return ops.quantise_groups(values, group)

    def quantise_whole(values, scale, *unused, **options):
        return ops.quantise_given(values, scale)

    # Activations are taken from PyTorch's registry, which forgets what nobody holds.
    library = torch.library.Library("_C", "FRAGMENT")
    library.define("silu_and_mul(Tensor(a!) out, Tensor input) -> ()")
    for device in ("CUDA", "CPU", "Meta"):
        library.impl("silu_and_mul", ops.silu_and_mul, device)

    def dtype_name(dtype, use_fp8_w8a8=False, **unused):
        return "fp8_w8a8" if use_fp8_w8a8 else None

    class FusedMoEExpertsModular:
        @staticmethod
        def adjust_N_for_activation(width, activation):  # noqa: N802 - vLLM's own name.
            return width // 2

    config = {"_get_config_dtype_str": dtype_name, "FUSED_MOE_UNQUANTIZED_CONFIG": None, "library": library}
    math = {"cdiv": triton.cdiv, "next_power_of_2": triton.next_power_of_2, "round_up": lambda x, to: -(-x // to) * to}
    registering = {"direct_register_custom_op": moe_ops.ignore, "is_torch_equal_or_newer": lambda version: True}
    return {
        "vllm.envs": {**SETTINGS, "*": Nothing()},
        "vllm._custom_ops": {"moe_align_block_size": align, "moe_sum": ops.sum_slots, "scaled_fp8_quant": quantise_whole},
        "vllm.logger": {"init_logger": lambda name: Nothing()},
        "vllm.platforms": {"current_platform": _Platform(arch)},
        "vllm.triton_utils": {"tl": triton.language, "triton": triton},
        "vllm.utils": {**math, **registering},
        "vllm.utils.math_utils": math,
        "vllm.utils.torch_utils": registering,
        PACKAGE: override_config_module(),
        f"{PACKAGE}.config": config,
        f"{PACKAGE}.modular_kernel": {"FusedMoEExpertsModular": FusedMoEExpertsModular},
        "vllm.model_executor.layers.quantization.utils.fp8_utils": {"per_token_group_quant_fp8": quantise},
    }


@functools.cache
def _engine(root, version, tables_of):
    """Once a process: modules and registered operators stay."""
    return load("vllm", root, version, LAYOUTS, tables_of and stand_ins(*tables_of), KNOWN)


def make_runners(problem, device):
    return runners_of("vllm", "vLLM", _engine, VERSIONS, __name__, problem, device)


def make_compiler(setup):
    return compiler_ahead(_engine, KERNELS, setup)


OPERATORS = {"fused_moe": make_runners}
OPEN_DEVICE = open_torch
