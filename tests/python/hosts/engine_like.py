"""A host whose runner and parameters are named as vLLM's: what it takes follows from the tile alone, so that tuning,
exporting and importing can be told right from wrong on any machine."""

import time

from moetune.host import serve
from moetune.host.numpy_moe import NumpyMoe

# Milliseconds of a call, by BLOCK_SIZE_M.
COST_MS = {16: 4, 32: 2, 64: 8, 128: 12}


class EngineLike(NumpyMoe):
    """The default is 16 up to 8 tokens and 64 above; 32 is the fastest at all of them."""

    name = "vllm.triton"
    version = 7
    parameters = {
        "BLOCK_SIZE_M": [16, 32, 64],
        "BLOCK_SIZE_N": [64],
        "BLOCK_SIZE_K": [32],
        "GROUP_SIZE_M": [1, 8],
        "num_warps": [4],
        "num_stages": [3],
    }

    def default(self, tokens):
        rows = 16 if tokens <= 8 else 64
        tile = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}
        return {**tile, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}

    def excluded(self, tactic, tokens):
        return "groups of 8 are for many tokens" if tactic["GROUP_SIZE_M"] == 8 and tokens < 100 else ""

    def compile(self, tactic, arguments):
        def kernel(call, weights):
            self._run({"block": 256, "order": "expert"}, call, weights)
            time.sleep(COST_MS[tactic["BLOCK_SIZE_M"]] / 1e3)

        return kernel


serve("vllm", {"fused_moe": lambda problem, device: [EngineLike(problem)]}, versions={"vllm": "0.11.0", "triton": "3.4.0"})
