"""python3 -m moetune.host NAME: one of the hosts that come with moetune."""

import importlib
import os
import sys

from . import compile_pool
from .errors import one_line
from .program import serve

# Modules with OPERATORS, OPEN_DEVICE, VERSION and VERSIONS. Importing those of AHEAD takes seconds, and they have a compile pool.
HOSTS = {
    "numpy": ("numpy_moe", "a plain layer in NumPy, on the CPU"),
    "torch": ("torch_moe", "the block of torch._grouped_mm that a PyTorch user writes"),
    "vllm": ("vllm_moe", "vLLM's Triton kernel of a fused MoE layer"),
    "sglang": ("sglang_moe", "SGLang's Triton kernel of a fused MoE layer"),
}


AHEAD = {"vllm", "sglang"}


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in HOSTS:
        print("Usage: python3 -m moetune.host NAME, started by moetune tune MODEL --host NAME\n")
        for known, (_, summary) in HOSTS.items():
            print(f"  {known:8} {summary}")
        return 0 if name in ("-h", "--help") else 2
    module, _ = HOSTS[name]
    is_serving = any(argument.startswith("--parent") for argument in sys.argv[2:])
    if name in AHEAD and is_serving and os.environ.get("TRITON_INTERPRET") != "1":
        compile_pool.start_early(f"{__package__}.{module}")
    try:
        host = importlib.import_module(f".{module}", __package__)
    except ImportError as error:
        print(f"the host {name} needs a package that is not here: {one_line(error)}", file=sys.stderr)
        return 1
    serve(name, host.OPERATORS, host.VERSION, host.VERSIONS, sys.argv[2:], host.OPEN_DEVICE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
