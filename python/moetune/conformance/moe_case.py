"""A small fused MoE layer with its right outputs, in plain Python: what a host is asked to compute."""

import array
import math
import random
import struct

ATTRIBUTES = {
    "hidden": "64",
    "intermediate": "32",
    "experts": "8",
    "top_k": "2",
    "weights": "bf16",
    "activations": "a16",
    "activation": "swiglu",
    "output": "bf16",
    "given_routing": "1",
}
PROBLEM = {"op": "fused_moe", "attributes": ATTRIBUTES}
HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 32, 8, 2

# Relative RMS of a row. A kernel that rounds where the definition does stays below 1e-3; one that rounds gate, up, their
# product and each expert's row to bf16, as serving engines' do, reaches 9e-3 at these sizes; an expert that is missing or
# another's is beyond 1e-1.
MOST_ERROR = 2e-2


def bits_of(value):
    """bf16 bits, to nearest with ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def value_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def rounded(value):
    return value_of(bits_of(value))


def as_bf16(values):
    return array.array("H", [bits_of(value) for value in values]).tobytes()


class Layer:
    """Random weights that follow from the seed."""

    def __init__(self, seed=0):
        draw = random.Random(seed)
        inner, outer = HIDDEN**-0.5, INTERMEDIATE**-0.5
        self.w13 = [
            [[rounded(draw.gauss(0, 1) * inner) for _ in range(HIDDEN)] for _ in range(2 * INTERMEDIATE)]
            for _ in range(EXPERTS)
        ]
        self.w2 = [
            [[rounded(draw.gauss(0, 1) * outer) for _ in range(INTERMEDIATE)] for _ in range(HIDDEN)]
            for _ in range(EXPERTS)
        ]

    def tensors(self):
        return [
            {"name": "w13", "type": "bf16", "shape": [EXPERTS, 2 * INTERMEDIATE, HIDDEN]},
            {"name": "w2", "type": "bf16", "shape": [EXPERTS, HIDDEN, INTERMEDIATE]},
        ]

    def data(self):
        return [
            as_bf16(value for expert in weights for row in expert for value in row) for weights in (self.w13, self.w2)
        ]


class Sample:
    """One call: hidden states, a routing, and what has to come out."""

    def __init__(self, tokens, seed):
        draw = random.Random(1000 * tokens + seed)
        self.tokens = tokens
        self.hidden = [[rounded(draw.gauss(0, 1)) for _ in range(HIDDEN)] for _ in range(tokens)]
        self.ids = [draw.sample(range(EXPERTS), TOP_K) for _ in range(tokens)]
        self.weights = [[draw.uniform(0.2, 0.8) for _ in range(TOP_K)] for _ in range(tokens)]

    def arguments(self):
        return {
            "inputs": [
                {"name": "hidden", "type": "bf16", "shape": [self.tokens, HIDDEN]},
                {"name": "topk_ids", "type": "i32", "shape": [self.tokens, TOP_K]},
                {"name": "topk_weights", "type": "f32", "shape": [self.tokens, TOP_K]},
            ],
            "outputs": [{"name": "output", "type": "bf16", "shape": [self.tokens, HIDDEN]}],
        }

    def data(self):
        flat = [value for row in self.hidden for value in row]
        ids = array.array("i", [each for row in self.ids for each in row])
        weights = array.array("f", [each for row in self.weights for each in row])
        return [as_bf16(flat), ids.tobytes(), weights.tobytes()]

    def right_row(self, layer, token):
        """The definition, in double precision but for what it rounds."""
        x = self.hidden[token]
        total = [0.0] * HIDDEN
        for expert, weight in zip(self.ids[token], self.weights[token]):
            both = [math.fsum(a * b for a, b in zip(x, row)) for row in layer.w13[expert]]
            gates, ups = both[:INTERMEDIATE], both[INTERMEDIATE:]
            h = [rounded(gate / (1 + math.exp(-gate)) * up) for gate, up in zip(gates, ups)]
            for column, row in enumerate(layer.w2[expert]):
                total[column] += weight * math.fsum(a * b for a, b in zip(h, row))
        return total


def why_wrong(row, right):
    """What is wrong with a row of bf16 bytes; "": nothing."""
    found = [value_of(bits) for bits in array.array("H", row)]
    if not all(math.isfinite(value) for value in found):
        return "it holds values that are not finite (outputs are filled with 0xFF beforehand: were all written?)"
    error = math.sqrt(sum((a - b) ** 2 for a, b in zip(found, right)) / sum(b * b for b in right))
    return "" if error <= MOST_ERROR else f"its relative RMS error is {error:.1e}; {MOST_ERROR:g} is allowed"
