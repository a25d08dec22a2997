"""All weight formats through libmoetune.so: the same weights as pointers and as DLPack tensors give the same bits.

That pointers arrive as what they are is tested in C++ (tests/ops); this is about which tensor, and which part of it,
becomes which pointer. Run by ctest as capi.formats, which sets MOETUNE_LIBRARY; without it,
the library of an installed wheel is tried.
"""

import ctypes
import math
import os
import random
import struct
import unittest
from ctypes import byref, c_float, c_uint8, c_uint16

from moetune.capi import (ACTIVATIONS_FP8, BF16, FP8, FP8_BLOCK, FP16, MXFP4, NVFP4, DlWeights, Expert, Failed, LayerOptions,
                          Library, Matrix, Spec, Weights, tensor, tensors)

# No size is a multiple of a block, so that the last of each is short.
HIDDEN, INTERMEDIATE, EXPERTS, TOKENS = 168, 136, 3, 2
GATED, RELU2 = 0, 2

FLOAT32, UINT8 = (2, 32, 1), (1, 8, 1)
E4M3, E8M0, E2M1 = (10, 8, 1), (14, 8, 1), (17, 4, 2)
#          type of values, bytes of an element, values in it, type of scales, their bytes, rows and k of a block, globals
FORMATS = {
    BF16: ((4, 16, 1), 2, 1, None, 0, 1, 1, False),
    FP16: ((2, 16, 1), 2, 1, None, 0, 1, 1, False),
    FP8: (E4M3, 1, 1, None, 0, 1, 1, True),
    FP8_BLOCK: (E4M3, 1, 1, FLOAT32, 4, 128, 128, False),
    NVFP4: (E2M1, 1, 2, E4M3, 1, 1, 16, True),
    MXFP4: (E2M1, 1, 2, E8M0, 1, 1, 32, False),
}

moetune = Library(os.environ.get("MOETUNE_LIBRARY"))
rng = random.Random(7)


def ceil_div(a, b):
    return -(-a // b)


def values_of(bits):
    """Of bf16."""
    return [value for (value,) in struct.iter_unpack("<f", struct.pack(f"<{2 * len(bits)}H", *(
        half for value in bits for half in (0, value))))]


def buffer_of(data):
    return (c_uint8 * len(data)).from_buffer_copy(data)


def random_values(format_, count):
    if format_ in (BF16, FP16):  # Of size 1/16 to 1/8, either sign.
        low, bits = (0x3D80, 7) if format_ == BF16 else (0x2C00, 10)
        return struct.pack(f"<{count}H", *(low | rng.getrandbits(bits) | rng.getrandbits(1) << 15 for _ in range(count)))
    if format_ in (FP8, FP8_BLOCK):
        return bytes(rng.randrange(0x20, 0x40) | rng.getrandbits(1) << 7 for _ in range(count))
    return bytes(rng.getrandbits(8) for _ in range(count))


def random_scales(format_, count):
    if format_ == FP8_BLOCK:
        return struct.pack(f"<{count}f", *(rng.uniform(0.1, 0.2) for _ in range(count)))
    return bytes(rng.randrange(0x20, 0x28) if format_ == NVFP4 else rng.randrange(120, 124) for _ in range(count))


class Stacked:
    """One of the operator's tensors of all experts: [experts, rows, columns] in elements."""

    def __init__(self, data, experts, shape, dtype, element_bytes):
        self.buffer, self.shape, self.dtype = buffer_of(data), shape, dtype
        self.row_bytes = element_bytes * math.prod(shape[1:])
        self.expert_bytes, self.experts = shape[0] * self.row_bytes, experts

    def matrix(self, expert, row=0):
        return Matrix(self.address(expert, row), self.row_bytes, 0)

    def address(self, expert, row=0):
        return ctypes.addressof(self.buffer) + expert * self.expert_bytes + row * self.row_bytes

    def floats(self, expert):
        return (c_float * self.shape[0]).from_address(self.address(expert))

    def stacked(self):
        return [tensor(self.buffer, [self.experts, *self.shape], self.dtype)]

    def one_each(self):
        return [tensor(self.buffer, list(self.shape), self.dtype, byte_offset=e * self.expert_bytes)
                for e in range(self.experts)]


class Layer:
    """Random weights of a format, as both."""

    def __init__(self, format_, activation=GATED, bias=0, shared=0):
        self.spec = Spec()
        moetune.spec_init(byref(self.spec), ctypes.sizeof(Spec))
        spec = self.spec
        spec.hidden, spec.intermediate, spec.top_k, spec.weights = HIDDEN, INTERMEDIATE, 2, format_
        spec.experts = spec.global_experts = EXPERTS
        spec.activation, spec.bias, spec.shared_experts = activation, bias, shared
        self.gates = 2 if activation == GATED else 1
        self.held = EXPERTS + shared
        self.activation_scales, self.of_before = None, False
        self.parts = {}
        dtype, size, values, scale_type, scale_size, block_rows, block_k, has_global = FORMATS[format_]
        for name, gates, rows, k in (("w13", self.gates, INTERMEDIATE, HIDDEN), ("w2", 1, HIDDEN, INTERMEDIATE)):
            shape = [gates * rows, k // values]
            self.add(name, random_values(format_, self.held * math.prod(shape)), shape, dtype, size)
            if scale_type:
                shape = [gates * ceil_div(rows, block_rows), ceil_div(k, block_k)]
                self.add(name + "_scales", random_scales(format_, self.held * math.prod(shape)), shape, scale_type,
                         scale_size)
            if has_global:
                self.add_floats(name + "_global", 2 if name == "w13" else 1, 0.1, 0.2)
            if bias:
                self.add_floats(name + "_bias", gates * rows, -1, 1)

    def add(self, name, data, shape, dtype, element_bytes):
        self.parts[name] = Stacked(data, self.held, shape, dtype, element_bytes)

    def add_floats(self, name, count, low, high):
        data = struct.pack(f"<{self.held * count}f", *(rng.uniform(low, high) for _ in range(self.held * count)))
        self.add(name, data, [count], FLOAT32, 4)

    def pointers(self):
        experts = (Expert * self.held)()
        for e, expert in enumerate(experts):
            for kind in ("", "_scales"):
                if w13 := self.parts.get("w13" + kind):
                    setattr(expert, "gate" + kind, w13.matrix(e))
                    setattr(expert, "up" + kind, w13.matrix(e, w13.shape[0] // 2 if self.gates == 2 else 0))
                    setattr(expert, "down" + kind, self.parts["w2" + kind].matrix(e))
            if "w13_global" in self.parts:
                expert.gate_global, expert.up_global = self.parts["w13_global"].floats(e)
                expert.down_global, = self.parts["w2_global"].floats(e)
            if "w13_bias" in self.parts:
                expert.gate_bias = self.parts["w13_bias"].address(e)
                expert.up_bias = self.parts["w13_bias"].address(e, INTERMEDIATE if self.gates == 2 else 0)
                expert.down_bias = self.parts["w2_bias"].address(e)
        weights = Weights(experts=experts, count=self.held, expert_size=ctypes.sizeof(Expert))
        return self.outputs(weights, "layer_create")

    def dl(self, how):
        weights = DlWeights(count=1 if how == "stacked" else self.held)
        keep = []
        for name, part in self.parts.items():
            pointer, kept = tensors(*getattr(part, how)())
            setattr(weights, name, pointer)
            keep.append(kept)
        return self.outputs(weights, "layer_create_dl")

    def outputs(self, weights, create):
        options = LayerOptions(device=b"cpu", threads=1, max_tokens=TOKENS, defaults_only=1)
        if self.activation_scales:
            scales = (c_float * 2)(*self.activation_scales)
            options.activation_scales = ctypes.addressof(scales)
        if self.of_before:
            options.struct_size = LayerOptions.activation_scales.offset
            options.activation_scales = 8  # Is not looked at.
        layer = moetune.make_layer(self.spec, weights, options, create)
        hidden = (c_uint16 * (TOKENS * HIDDEN))(*(0x3F80 if i % 3 else 0xBF00 for i in range(TOKENS * HIDDEN)))
        logits = (c_float * (TOKENS * EXPERTS))(0.1, 0.5, 0.2, 0.9, 0.3, 0.7)
        output = (c_uint16 * (TOKENS * HIDDEN))()
        moetune.layer_run(layer, TOKENS, hidden, logits, output, None)
        moetune.layer_free(layer)
        return list(output)


class Formats(unittest.TestCase):
    def check(self, layer):
        expected = layer.pointers()
        self.assertGreater(len(set(expected)), HIDDEN // 4, "outputs that tell nothing")
        self.assertFalse([bits for bits in expected if bits & 0x7F80 == 0x7F80], "not finite")
        self.assertEqual(layer.dl("stacked"), expected)
        self.assertEqual(layer.dl("one_each"), expected)

    def test_every_format(self):
        for format_ in FORMATS:
            with self.subTest(format_):
                self.check(Layer(format_))

    def test_biases_shared_experts_and_no_gate(self):
        for format_ in FORMATS:
            with self.subTest(format_):
                self.check(Layer(format_, RELU2, bias=1, shared=2))
                self.check(Layer(format_, bias=1, shared=1))

    def test_activations_under_given_scales(self):
        layer = Layer(FP8)
        exact = values_of(layer.pointers())
        layer.spec.activations = ACTIVATIONS_FP8
        with self.assertRaisesRegex(Failed, "activation_scales"):
            layer.pointers()
        for scales, least, most in (((2**-4, 1), 1e-4, 0.05), ((2**-12, 1), 0.3, 2), ((2**-4, 2**-20), 0.3, 2)):
            layer.activation_scales = scales
            self.check(layer)
            error = math.dist(values_of(layer.pointers()), exact) / math.hypot(*exact)
            self.assertTrue(least < error < most, (scales, error))

    def test_a_program_of_before_knows_no_scales(self):
        layer = Layer(FP8)
        expected = layer.pointers()
        layer.of_before = True
        self.assertEqual(layer.pointers(), expected)

    def test_unsigned_integers_stand_for_bits(self):
        layer = Layer(NVFP4)
        expected = layer.pointers()
        for name in ("w13", "w2", "w13_scales", "w2_scales"):
            layer.parts[name].dtype = UINT8
        self.assertEqual(layer.dl("stacked"), expected)


if __name__ == "__main__":
    unittest.main()
