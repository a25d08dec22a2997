"""A fused MoE layer in NumPy: slow and plain, for machines where nothing else is installed and for tests of hosts.

Its tactic has parameters that matter for speed on any CPU, and none for the result.
"""

import numpy

from .devices import open_device
from .numpy_device import NumpyDevice, bf16_to_f32, f32_to_bf16
from .problem import MoeProblem
from .runner import Runner, require

VERSION = "1"


class NumpyMoe(Runner):
    """Token blocks per expert, by matrix multiplications of NumPy."""

    name = "numpy.moe"
    version = 1
    parameters = {"block": [1, 16, 64, 256], "order": ["expert", "slot"]}
    meanings = {"block": "rows of one multiplication, at most", "order": "what goes first: an expert's rows, or a slot's"}

    def __init__(self, problem):
        self.moe = MoeProblem.of(problem)
        require(self.moe.require(weights="bf16", activations="a16", activation="swiglu", bias=False, ep=1))
        require(self.moe.require(given_routing=True, shared_experts=0))

    def default(self, tokens):
        return {"block": 16, "order": "slot"}

    def excluded(self, tactic, tokens):
        if tactic["block"] > 16 and tactic["block"] >= 2 * tokens * self.moe.top_k:
            return "more rows than there are"
        return ""

    def pack(self, weights):
        return {name: bf16_to_f32(weights[name]) for name in ("w13", "w2")}

    def compile(self, tactic, arguments):
        return lambda call, weights: self._run(tactic, call, weights)

    def _run(self, tactic, call, weights):
        hidden = bf16_to_f32(call["hidden"])
        result = numpy.zeros(hidden.shape, numpy.float32)
        ids = call["topk_ids"]
        for expert in range(len(weights["w13"])):
            tokens, slots = numpy.nonzero(ids == expert)
            if tactic["order"] == "slot":
                order = numpy.lexsort((tokens, slots))
                tokens, slots = tokens[order], slots[order]
            for begin in range(0, len(tokens), tactic["block"]):
                part = slice(begin, begin + tactic["block"])
                self._add(call, weights, expert, hidden, tokens[part], slots[part], result)
        output = call["output"]
        output[...] = f32_to_bf16(result) if output.dtype == numpy.uint16 else result

    def _add(self, call, weights, expert, hidden, tokens, slots, result):
        both = hidden[tokens] @ weights["w13"][expert].T
        gate, up = numpy.split(both, 2, axis=1)
        inner = bf16_to_f32(f32_to_bf16(gate / (1 + numpy.exp(-gate)) * up))
        part = (inner @ weights["w2"][expert].T) * call["topk_weights"][tokens, slots][:, None]
        numpy.add.at(result, tokens, part)


def make_runners(problem, device):
    if not isinstance(device, NumpyDevice):
        require(f"kernels in NumPy do not run on {device.name}")
    return [NumpyMoe(problem)]


OPERATORS = {"fused_moe": make_runners}
OPEN_DEVICE = open_device
VERSIONS = {"numpy": numpy.__version__}
