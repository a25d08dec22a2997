"""The MoE block that a PyTorch user writes, from given ids to output: a yardstick that needs nothing but PyTorch.

`torch.grouped_mm` sorts tokens by expert and multiplies all experts in one call each way; nothing waits for the host,
so it can be captured in a CUDA graph. `torch.loop` goes through the experts one by one, and is there for CPUs, on which
grouped products may be missing or slow.
"""

import zlib

import torch
import torch.nn.functional as F

from .devices import open_torch
from .problem import MoeProblem
from .runner import Runner, require
from .torch_device import TorchDevice

VERSION = "1"

# Public since PyTorch 2.10, and before that under its first name.
grouped_mm = getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


class _TorchMoe(Runner):
    # Who computes with another PyTorch computes with other kernels.
    version = zlib.crc32(f"torch {torch.__version__}".encode()) & 0x7FFFFFFF

    def __init__(self, problem):
        self.moe = MoeProblem.of(problem)
        require(self.moe.require(weights="bf16", activations="a16", activation="swiglu", bias=False, ep=1))
        require(self.moe.require(given_routing=True, shared_experts=0))

    def pack(self, weights):
        return {name: weights[name] for name in ("w13", "w2")}

    def compile(self, tactic, arguments):
        return lambda call, weights: self._run(tactic, call, weights)


class GroupedMm(_TorchMoe):
    """Sort, gather, two grouped products, and a choice of how the rows come back to their tokens.

    "index_add" sums in the output's type, as most blocks do: in bf16 its errors come close to what is allowed (0.58 %
    of 0.6 % for top-8), so that it is not the default.
    """

    name = "torch.grouped_mm"
    parameters = {"combine": ["sum", "index_add_f32", "index_add"]}
    meanings = {"combine": "rows put back in order and summed; or added where their token is, by atomics"}
    deterministic = False

    def __init__(self, problem):
        super().__init__(problem)
        require("" if grouped_mm else f"PyTorch {torch.__version__} has no grouped matrix product")
        odd = self.moe.hidden % 8 or self.moe.intermediate % 8
        require("grouped products take rows of a multiple of 16 bytes" if odd else "")

    def default(self, tokens):
        return {"combine": "sum"}

    def _run(self, tactic, call, weights):
        hidden, ids, output = call["hidden"], call["topk_ids"], call["output"]
        experts, top_k = len(weights["w13"]), ids.shape[1]
        flat = ids.reshape(-1)
        in_order, order = torch.sort(flat, stable=True)
        tokens = order // top_k
        each = torch.arange(experts, device=flat.device, dtype=flat.dtype)
        ends = torch.searchsorted(in_order, each, right=True).to(torch.int32)
        both = grouped_mm(hidden[tokens], weights["w13"].transpose(-2, -1), offs=ends)
        gate, up = both.chunk(2, dim=-1)
        rows = grouped_mm(F.silu(gate) * up, weights["w2"].transpose(-2, -1), offs=ends)
        scale = call["topk_weights"].reshape(-1)
        if tactic["combine"] == "index_add":
            scaled = rows.to(output.dtype) * scale[order].unsqueeze(1).to(output.dtype)
            output.zero_().index_add_(0, tokens, scaled)
            return
        if tactic["combine"] == "index_add_f32":
            result = torch.zeros_like(output, dtype=torch.float32)
            output.copy_(result.index_add_(0, tokens, rows * scale[order].unsqueeze(1)))
            return
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        back = rows[place].view(*ids.shape, -1).float()
        output.copy_((back * scale.view(*ids.shape, 1)).sum(1))


class Loop(_TorchMoe):
    """One expert after the other, each with the tokens that chose it. In f32, which every CPU multiplies well."""

    name = "torch.loop"
    layout = "f32"
    parameters = {"order": ["expert", "reverse"]}
    meanings = {"order": "which expert goes first"}
    capturable = False

    def default(self, tokens):
        return {"order": "expert"}

    def pack(self, weights):
        return {name: weights[name].float() for name in ("w13", "w2")}

    def _run(self, tactic, call, weights):
        hidden, ids, scale = call["hidden"].float(), call["topk_ids"], call["topk_weights"]
        result = torch.zeros_like(hidden)
        experts = range(len(weights["w13"]))
        for expert in experts if tactic["order"] == "expert" else reversed(experts):
            tokens, slots = torch.nonzero(ids == expert, as_tuple=True)
            if len(tokens):
                gate, up = (hidden[tokens] @ weights["w13"][expert].T).chunk(2, dim=-1)
                inner = (F.silu(gate) * up).to(torch.bfloat16).float()
                result.index_add_(0, tokens, inner @ weights["w2"][expert].T * scale[tokens, slots].unsqueeze(1))
        call["output"].copy_(result)


def make_runners(problem, device):
    require("" if isinstance(device, TorchDevice) else f"{device.name} is no device of PyTorch")
    return [GroupedMm(problem)] if device.is_cuda else [Loop(problem), GroupedMm(problem)]


OPERATORS = {"fused_moe": make_runners}
OPEN_DEVICE = open_torch
VERSIONS = {"torch": torch.__version__}
