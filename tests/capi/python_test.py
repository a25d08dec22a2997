"""libmoetune.so from Python: layers from pointers and from DLPack tensors, and what goes wrong.

Needs nothing but Python; with numpy its arrays' own capsules are tried too. Run by ctest as capi.python, which sets
MOETUNE_LIBRARY; without it, the library of an installed wheel is tried.
"""

import ctypes
import math
import os
import pathlib
import random
import struct
import threading
import unittest
from ctypes import byref, c_float, c_int32, c_uint16

from moetune.capi import (BF16, FUNCTIONS, INVALID_ARGUMENT, NOT_FOUND, NVFP4, SIZES, UNSUPPORTED, Decision, DlWeights,
                          Expert, LayerOptions, Library, Matrix, ModelOptions, PlanInfo, Selected, Spec, Weights,
                          tensor, tensor_of, tensors)
from refusal import RefusalTests

try:
    import numpy
except ImportError:
    numpy = None

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 32, 16, 4, 2, 3
BFLOAT16, UINT16, UINT8, FLOAT32, INT32 = (4, 16, 1), (1, 16, 1), (1, 8, 1), (2, 32, 1), (0, 32, 1)
CUDA0 = (2, 0)

moetune = Library(os.environ.get("MOETUNE_LIBRARY"))


def bf16_bits(value):
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


class SmallLayer:
    """bf16 weights as stacked tensors, and the outputs that they should give."""

    def __init__(self):
        rng = random.Random(1)
        draw = lambda count, size: (c_uint16 * count)(*(bf16_bits(rng.uniform(-size, size)) for _ in range(count)))
        self.w13 = draw(EXPERTS * 2 * INTERMEDIATE * HIDDEN, 0.5)
        self.w2 = draw(EXPERTS * HIDDEN * INTERMEDIATE, 0.5)
        self.hidden = draw(TOKENS * HIDDEN, 1)
        self.logits = (c_float * (TOKENS * EXPERTS))(*(rng.uniform(-2, 2) for _ in range(TOKENS * EXPERTS)))
        self.spec = Spec()
        moetune.spec_init(byref(self.spec), ctypes.sizeof(Spec))
        self.spec.hidden, self.spec.intermediate = HIDDEN, INTERMEDIATE
        self.spec.experts = self.spec.global_experts = EXPERTS
        self.spec.top_k = TOP_K
        self.expected = [value for token in range(TOKENS) for value in self.reference(token)]

    def reference(self, token):
        logits = self.logits[token * EXPERTS:(token + 1) * EXPERTS]
        chosen = sorted(range(EXPERTS), key=lambda e: -logits[e])[:TOP_K]
        total = sum(math.exp(logits[e]) for e in chosen)
        x = [bf16_value(bits) for bits in self.hidden[token * HIDDEN:(token + 1) * HIDDEN]]
        output = [0.0] * HIDDEN
        for expert in chosen:
            share = math.exp(logits[expert]) / total
            dot = lambda row: sum(bf16_value(w) * v for w, v in zip(
                self.w13[(expert * 2 * INTERMEDIATE + row) * HIDDEN:][:HIDDEN], x))
            h = []
            for row in range(INTERMEDIATE):
                gate, up = dot(row), dot(INTERMEDIATE + row)
                h.append(bf16_value(bf16_bits(gate / (1 + math.exp(-gate)) * up)))
            for row in range(HIDDEN):
                weights = self.w2[(expert * HIDDEN + row) * INTERMEDIATE:][:INTERMEDIATE]
                output[row] += share * sum(bf16_value(w) * v for w, v in zip(weights, h))
        return output

    def pointers(self):
        experts = (Expert * EXPERTS)()
        row = 2 * HIDDEN
        for i, expert in enumerate(experts):
            at = ctypes.addressof(self.w13) + i * 2 * INTERMEDIATE * row
            expert.gate = Matrix(at, row, 0)
            expert.up = Matrix(at + INTERMEDIATE * row, row, 0)
            expert.down = Matrix(ctypes.addressof(self.w2) + i * HIDDEN * 2 * INTERMEDIATE, 0, 0)
        weights = Weights(experts=experts, count=EXPERTS, expert_size=ctypes.sizeof(Expert))
        weights.keep = experts
        return weights

    def w13_tensor(self, dtype=BFLOAT16, **how):
        return tensor(self.w13, [EXPERTS, 2 * INTERMEDIATE, HIDDEN], dtype, **how)

    def w2_tensor(self, dtype=BFLOAT16):
        return tensor(self.w2, [EXPERTS, HIDDEN, INTERMEDIATE], dtype)

    def dl_weights(self, w13=None, w2=None):
        (w13, keep13), (w2, keep2) = tensors(w13 or self.w13_tensor()), tensors(w2 or self.w2_tensor())
        weights = DlWeights(count=1, w13=w13, w2=w2)
        weights.keep = keep13, keep2
        return weights

    def call_tensors(self):
        self.output = (c_uint16 * (TOKENS * HIDDEN))()
        return [tensor(self.hidden, [TOKENS, HIDDEN], BFLOAT16), tensor(self.logits, [TOKENS, EXPERTS], FLOAT32),
                tensor(self.output, [TOKENS, HIDDEN], BFLOAT16)]


SMALL = SmallLayer()


def cpu_options(**more):
    return LayerOptions(**{"device": b"cpu", "threads": 1, "max_tokens": 8, "defaults_only": 1, **more})


class Case(RefusalTests, unittest.TestCase):
    def make(self, weights=None, create="layer_create", spec=None, options=None):
        layer = moetune.make_layer(spec or SMALL.spec, weights or SMALL.pointers(), options or cpu_options(), create)
        self.addCleanup(moetune.layer_free, layer)
        return layer

    def assert_right(self, bits):
        error = sum((bf16_value(b) - e)**2 for b, e in zip(bits, SMALL.expected))
        size = sum(e**2 for e in SMALL.expected)
        self.assertLess(math.sqrt(error / size), 5e-3)

    def assert_runs_right(self, layer):
        output = (c_uint16 * (TOKENS * HIDDEN))()
        moetune.layer_run(layer, TOKENS, SMALL.hidden, SMALL.logits, output, None)
        self.assert_right(output)


class Basics(Case):
    def test_versions_and_sizes(self):
        self.assertEqual(moetune.abi_version(), 1)
        self.assertRegex(moetune.version().decode(), r"^\d+\.\d+\.\d+$")
        for structure, size in SIZES.items():
            self.assertEqual(ctypes.sizeof(structure), size, structure)

    def test_every_function_is_declared(self):
        exported = (pathlib.Path(__file__).parent / "symbols.txt").read_text().split()
        self.assertEqual(sorted("moetune_" + name for name in FUNCTIONS), sorted(exported))

    def test_plans_of_a_file(self):
        plans = ctypes.c_void_p()
        file = pathlib.Path(__file__).parents[2] / "configs" / "nvidia-h200.json"
        moetune.plans_load(str(file).encode(), byref(plans))
        self.addCleanup(moetune.plans_free, plans)
        self.assertIn(b"cuda", moetune.plans_device(plans))
        plan, decision = PlanInfo(), Decision()
        moetune.plans_get(plans, moetune.plans_count(plans) - 1, byref(plan))
        moetune.plans_decision(plans, moetune.plans_count(plans) - 1, plan.decisions - 1, byref(decision))
        self.assertEqual(decision.to_tokens, plan.max_tokens)
        self.assertGreater(decision.default_median_us, 0)
        self.assertRegex(decision.date.decode(), r"^20\d\d-")

    def test_specifications_of_models(self):
        spec = Spec()
        options = ModelOptions()
        moetune.model_options_init(byref(options), ctypes.sizeof(options))
        options.weights, options.tp = NVFP4, 2
        moetune.spec_from_model(b"qwen3-30b-a3b", byref(options), byref(spec))
        self.assertEqual((spec.hidden, spec.intermediate, spec.weights), (2048, 384, NVFP4))
        self.assert_fails(NOT_FOUND, "no-such-model", moetune.spec_from_model, b"no-such-model", None, byref(spec))

    def test_each_thread_has_its_own_last_error(self):
        self.assert_fails(NOT_FOUND, "mine", moetune.spec_from_model, b"mine", None, byref(Spec()))
        seen = []

        def other():
            seen.append(moetune.last_error())
            self.assert_fails(NOT_FOUND, "theirs", moetune.spec_from_model, b"theirs", None, byref(Spec()))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        self.assertEqual(seen, [b""])
        self.assertIn(b"mine", moetune.last_error())


class Pointers(Case):
    def test_a_layer_runs_and_says_what_it_runs(self):
        layer = self.make()
        self.assert_runs_right(layer)
        selected = Selected()
        moetune.layer_selected(layer, 1, byref(selected))
        self.assertEqual(selected.provenance_name, b"default")
        self.assertTrue(selected.candidate.startswith(b"cpu.packed/"))

    def test_what_is_missing_is_named(self):
        weights = SMALL.pointers()
        weights.keep[3].up.data = None
        self.assert_fails(INVALID_ARGUMENT, "expert 3: up is missing", self.make, weights)

    def test_devices_that_are_not_there_are_refused(self):
        self.assert_fails(INVALID_ARGUMENT, "toaster", self.make, options=cpu_options(device=b"toaster"))


class Tensors(Case):
    def make_dl(self, weights):
        return self.make(weights, "layer_create_dl")

    def test_stacked_tensors(self):
        self.assert_runs_right(self.make_dl(SMALL.dl_weights()))

    def test_bits_for_frameworks_without_bfloat16(self):
        self.assert_runs_right(self.make_dl(SMALL.dl_weights(SMALL.w13_tensor(UINT16), SMALL.w2_tensor(UINT16))))

    def test_one_tensor_an_expert(self):
        w13 = [tensor(ctypes.addressof(SMALL.w13), [2 * INTERMEDIATE, HIDDEN], BFLOAT16,
                      byte_offset=e * 4 * INTERMEDIATE * HIDDEN) for e in range(EXPERTS)]
        w2 = [tensor(ctypes.addressof(SMALL.w2), [HIDDEN, INTERMEDIATE], BFLOAT16,
                     byte_offset=e * 2 * INTERMEDIATE * HIDDEN) for e in range(EXPERTS)]
        (w13, keep13), (w2, keep2) = tensors(*w13), tensors(*w2)
        weights = DlWeights(count=EXPERTS, w13=w13, w2=w2)
        self.assert_runs_right(self.make_dl(weights))
        del keep13, keep2

    def test_transposed_tensors(self):
        rows = 2 * INTERMEDIATE
        turned = (c_uint16 * len(SMALL.w13))()
        for e in range(EXPERTS):
            for row in range(rows):
                for column in range(HIDDEN):
                    turned[(e * HIDDEN + column) * rows + row] = SMALL.w13[(e * rows + row) * HIDDEN + column]
        w13 = tensor(turned, [EXPERTS, rows, HIDDEN], BFLOAT16, strides=[rows * HIDDEN, 1, rows])
        self.assert_runs_right(self.make_dl(SMALL.dl_weights(w13)))

    def test_calls_with_tensors(self):
        layer = self.make()
        hidden, logits, output = SMALL.call_tensors()
        moetune.layer_run_dl(layer, byref(hidden), byref(logits), byref(output), None)
        self.assert_right(SMALL.output)

    def test_wrong_weights_are_refused(self):
        wrong = {
            "w13 is a float32 [4, 32, 32]; bfloat16 (or uint16) [4, 32, 32] is wanted": SMALL.w13_tensor(FLOAT32),
            "w13 is a bfloat16 [4, 16, 64]": tensor(SMALL.w13, [4, 16, 64], BFLOAT16),
            "w13 is a bfloat16 [128, 32]": tensor(SMALL.w13, [128, 32], BFLOAT16),
            "stride 0 in dimension 0": SMALL.w13_tensor(strides=[0, HIDDEN, 1]),
            "w13's data is NULL": tensor(0, [EXPERTS, 2 * INTERMEDIATE, HIDDEN], BFLOAT16),
        }
        for part, w13 in wrong.items():
            with self.subTest(part):
                self.assert_fails(INVALID_ARGUMENT, part, self.make_dl, SMALL.dl_weights(w13))
        self.assert_fails(UNSUPPORTED, "cuda:0", self.make_dl, SMALL.dl_weights(SMALL.w13_tensor(device=CUDA0)))
        self.assert_fails(INVALID_ARGUMENT, "w13 is NULL", self.make_dl, DlWeights(count=1))
        self.assert_fails(INVALID_ARGUMENT, "3 experts", self.make_dl, DlWeights(count=3))

    def test_wrong_calls_are_refused(self):
        layer = self.make()
        hidden, logits, output = SMALL.call_tensors()
        run = lambda *given: moetune.layer_run_dl(layer, *map(byref, given), None)
        other = lambda of, **how: tensor(of, **{"shape": [TOKENS, HIDDEN], "dtype": BFLOAT16, **how})
        self.assert_fails(UNSUPPORTED, "cuda:0", run, other(SMALL.hidden, device=CUDA0), logits, output)
        self.assert_fails(INVALID_ARGUMENT, "hidden is a float32", run, other(SMALL.hidden, dtype=FLOAT32), logits,
                          output)
        self.assert_fails(INVALID_ARGUMENT, "[any, 32]", run, other(SMALL.hidden, shape=[HIDDEN, TOKENS]), logits,
                          output)
        self.assert_fails(INVALID_ARGUMENT, "output is a bfloat16 [2, 32]", run, hidden, logits,
                          other(SMALL.output, shape=[2, HIDDEN]))
        self.assert_fails(INVALID_ARGUMENT, "strides [1, 3]", run, other(SMALL.hidden, strides=[1, TOKENS]), logits,
                          output)
        self.assert_fails(INVALID_ARGUMENT, "its own router", moetune.layer_run_routed_dl, layer, byref(hidden),
                          byref(tensor((c_int32 * 6)(), [TOKENS, TOP_K], INT32)),
                          byref(tensor((c_float * 6)(), [TOKENS, TOP_K], FLOAT32)), byref(output), None)

    @unittest.skipIf(numpy is None or not hasattr(numpy.ndarray, "__dlpack__"), "no numpy with __dlpack__")
    def test_capsules_of_numpy(self):
        array = lambda buffer, shape: numpy.frombuffer(buffer, numpy.uint16).copy().reshape(shape)
        w13 = array(SMALL.w13, (EXPERTS, 2 * INTERMEDIATE, HIDDEN))
        w2 = array(SMALL.w2, (EXPERTS, HIDDEN, INTERMEDIATE))
        capsules = [w13.__dlpack__(), w2.__dlpack__()]
        self.assert_runs_right(self.make_dl(SMALL.dl_weights(*map(tensor_of, capsules))))


class Checkpoints(Case):
    """Layers of the small models in tests/checkpoint."""

    def test_a_layer_of_a_folder(self):
        model = os.path.join(os.environ.get("MOETUNE_CHECKPOINTS", ""), "qwen3_moe").encode()
        if not os.path.isdir(model):
            self.skipTest("MOETUNE_CHECKPOINTS is not set")
        spec = Spec()
        moetune.spec_from_model(model, None, byref(spec))
        self.assertEqual(spec.weights, BF16)
        layer = ctypes.c_void_p()
        create = lambda index: moetune.layer_create_from_checkpoint(
            byref(spec), model, ctypes.c_int64(index), 0, byref(cpu_options()), byref(layer))
        self.assert_fails(NOT_FOUND, "layer 99", create, 99)
        create(0)
        self.addCleanup(moetune.layer_free, layer)
        hidden = (c_uint16 * spec.hidden)(*[bf16_bits(1)] * spec.hidden)
        output = (c_uint16 * spec.hidden)()
        moetune.layer_run(layer, 1, hidden, (c_float * spec.experts)(), output, None)
        self.assertTrue(any(output))


if __name__ == "__main__":
    unittest.main()
