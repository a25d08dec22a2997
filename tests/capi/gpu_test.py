"""libmoetune.so on a GPU under PyTorch: its tensors, its streams, its graphs, and what goes wrong.

Needs an NVIDIA GPU and PyTorch; says so where they are missing. Run by ctest as capi.gpu, or by hand:

    MOETUNE_LIBRARY=$PWD/lib/libmoetune.so PYTHONPATH=python python3 tests/capi/gpu_test.py

with moetune-jit in libexec/moetune beside lib (docs/gpu.md); without it, or by a path that is not absolute, kernels are
compiled one at a time.

That kernels compute the operator is tested in C++ (tests/cuda/gpu); here outputs are held against those of a layer on the
CPU, and against other runs of the same layer, bit by bit.
"""

import json
import pathlib
import re
import sys
import tempfile
import threading
import unittest
from ctypes import byref


def skip(reason):
    if __name__ == "__main__":
        print(f"skipped: {reason}")
        sys.exit(77)
    raise unittest.SkipTest(reason)


try:
    import torch
except ImportError as error:
    skip(f"PyTorch is not here: {error}")
if not torch.cuda.is_available():
    skip("PyTorch finds no GPU")
if torch.cuda.get_device_capability(0) < (8, 0):
    skip(f"{torch.cuda.get_device_name(0)} is older than what cuda.mma runs on (sm_80)")

from moetune.capi import (ACTIVATIONS_FP8, ACTIVATIONS_FP8_BLOCK, BF16, FP16, FP8, FP8_BLOCK, INVALID_ARGUMENT, MXFP4, NVFP4,
                          UNSUPPORTED, Failed)
from refusal import RefusalTests
from torch_layer import EXPERTS, HIDDEN, INTERMEDIATE, MOST, TOP_K, Layer, Weights, dl, make_inputs, moetune, nans, relative_error

# As tests/capi/reference.h's layers are held to: both sides round h and the output.
CLOSE = 5e-3
GATE_PLUS_UP = 3
# Some 0.3 s on the GPUs there are: many times what a run takes the host, or a copy the GPU.
SLEEP_CYCLES = 600_000_000


def setUpModule():
    # What is loaded at its first use may wait for the GPU: not within a test.
    make_inputs(2, given_routing=True)
    nans(2).copy_(nans(2))
    torch.cuda._sleep(1)
    torch.cuda.synchronize()


class Case(RefusalTests, unittest.TestCase):
    def make(self, weights=None, **options):
        layer = Layer(weights or Weights(), **options)
        self.addCleanup(layer.free)
        self.addCleanup(torch.cuda.synchronize)  # Before it is freed.
        return layer

    def assert_same_bits(self, output, expected, message=None):
        self.assertTrue(torch.equal(output.cpu().view(torch.int16), expected.cpu().view(torch.int16)), message)

    def assert_close(self, output, expected, message=None):
        self.assertGreater(expected.double().square().mean().sqrt().item(), 1e-2, "outputs that tell nothing")
        self.assertLess(relative_error(output, expected), CLOSE, message)

    def direct(self, layer, inputs):
        """What a run on the default stream gives."""
        output = nans(len(inputs[0]))
        layer.run(inputs, output)
        torch.cuda.synchronize()
        return output


class Formats(Case):
    def check(self, weights, dtype=torch.bfloat16):
        gpu, cpu = self.make(weights), self.make(weights, device="cpu")
        for tokens in (1, 7, MOST):
            inputs = make_inputs(tokens, tokens, weights.spec.given_routing)
            expected, output = nans(tokens, "cpu", dtype), nans(tokens, dtype=dtype)
            cpu.run([each.cpu() for each in inputs], expected)
            gpu.run_dl(inputs, output, torch.cuda.current_stream().cuda_stream)
            self.assert_close(output, expected, f"{tokens} tokens")

    def test_every_format_as_on_the_cpu(self):
        for format_ in (BF16, FP16, FP8, FP8_BLOCK, NVFP4, MXFP4):
            with self.subTest(format_):
                self.check(Weights(format_))

    def test_rounded_activations(self):
        self.check(Weights(FP8_BLOCK, activations=ACTIVATIONS_FP8_BLOCK))

    def test_given_routing(self):
        self.check(Weights(given_routing=1))

    def test_f32_output(self):
        self.check(Weights(output=1), torch.float32)

    def test_activations_that_no_kernel_rounds_are_refused(self):
        scales = torch.ones(2)
        self.assert_fails(UNSUPPORTED, "cuda.mma", self.make, Weights(FP8, activations=ACTIVATIONS_FP8),
                          activation_scales=scales.data_ptr())


class Streams(Case):
    def setUp(self):
        self.layer = self.make()
        self.inputs = make_inputs(MOST)
        self.expected = self.direct(self.layer, self.inputs)
        self.stream = torch.cuda.Stream()

    def test_pointers_and_tensors_on_any_stream(self):
        for run in (self.layer.run, self.layer.run_dl):
            for stream in (torch.cuda.default_stream(), self.stream):
                with self.subTest(run=run.__name__, stream=stream), torch.cuda.stream(stream):
                    output = nans(MOST)
                    run(self.inputs, output, torch.cuda.current_stream().cuda_stream)
                    stream.synchronize()
                    self.assert_same_bits(output, self.expected)

    def in_order(self, layer, stream):
        """A run whose inputs arrive late on the stream, and whose output is spoilt once it was copied: the copy. The host
        waits for nothing in between."""
        inputs, output, copy = [torch.zeros_like(each) for each in self.inputs], nans(MOST), nans(MOST)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP_CYCLES)
            for late, wanted in zip(inputs, self.inputs):
                late.copy_(wanted)
            layer.run(inputs, output, stream.cuda_stream)
            self.assertFalse(stream.query(), "the run waited for the GPU")
            copy.copy_(output)
            output.zero_()
            for each in inputs:
                each.zero_()
        stream.synchronize()
        self.assertFalse(output.any())
        return copy

    def test_a_run_takes_its_turn_on_its_stream_and_waits_for_nothing(self):
        for stream in (self.stream, torch.cuda.default_stream()):
            with self.subTest(stream=stream):
                self.assert_same_bits(self.in_order(self.layer, stream), self.expected)

    def test_the_first_run_of_a_layer_waits_for_nothing_either(self):
        weights = Weights(FP16, activation=GATE_PLUS_UP)  # Of no other test: its kernels are loaded for this layer.
        cpu, expected = self.make(weights, device="cpu"), nans(MOST, "cpu")
        cpu.run([each.cpu() for each in self.inputs], expected)
        self.assert_close(self.in_order(self.make(weights), self.stream), expected)

    def test_threads_that_never_used_a_gpu(self):
        # By pointers, so that nothing of PyTorch selects the GPU there first.
        for stream in (None, self.stream.cuda_stream):
            output, failures = nans(MOST), []
            torch.cuda.synchronize()

            def other():
                try:
                    self.layer.run(self.inputs, output, stream)
                except Failed as failed:
                    failures.append(str(failed))

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            torch.cuda.synchronize()
            self.assertEqual(failures, [])
            self.assert_same_bits(output, self.expected)


class Graphs(Case):
    def test_replays_with_other_inputs_are_what_a_direct_run_gives(self):
        layer = self.make(Weights(), deterministic=1)
        for tokens in (1, 7, MOST):
            inputs, output, graph = make_inputs(tokens), nans(tokens), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):  # The first of these is the layer's first run.
                layer.run_dl(inputs, output, torch.cuda.current_stream().cuda_stream)
            for seed in range(3):
                for held, other in zip(inputs, make_inputs(tokens, 100 + seed)):
                    held.copy_(other)
                output.fill_(float("nan"))
                graph.replay()
                torch.cuda.synchronize()
                self.assert_same_bits(output, self.direct(layer, inputs), f"{tokens} tokens, inputs {seed}")

    def test_two_layers_in_one_graph(self):
        first, second = self.make(Weights(seed=1)), self.make(Weights(MXFP4, seed=2))
        inputs, between, output = make_inputs(MOST), nans(MOST), nans(MOST)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            stream = torch.cuda.current_stream().cuda_stream
            first.run(inputs, between, stream)
            second.run([between, inputs[1]], output, stream)
        graph.replay()
        torch.cuda.synchronize()
        expected = self.direct(first, inputs)
        self.assert_same_bits(between, expected)
        self.assert_same_bits(output, self.direct(second, [expected, inputs[1]]))


class Workspace(Case):
    GUARD = 512

    def memory(self, size):
        """Full of NaN, with as much again of what must stay before and behind: the tensor, and the address within."""
        memory = torch.full((size + 2 * self.GUARD + 256,), 0xFF, dtype=torch.uint8, device="cuda:0")
        return memory, memory.data_ptr() + self.GUARD + -(memory.data_ptr() + self.GUARD) % 256

    def test_two_layers_share_one_on_one_stream(self):
        both = [Weights(seed=1), Weights(MXFP4, seed=2)]
        layers = [self.make(weights, caller_workspace=1) for weights in both]
        inputs = make_inputs(MOST)
        expected = [self.direct(self.make(weights), inputs) for weights in both]
        size = max(moetune.layer_workspace_bytes(layer.handle) for layer in layers)
        memory, address = self.memory(size)
        outputs, stream = [nans(MOST) for _ in range(6)], torch.cuda.Stream()
        torch.cuda.synchronize()
        for layer in layers:
            moetune.layer_set_workspace(layer.handle, address, size)
        for i, output in enumerate(outputs):
            layers[i % 2].run(inputs, output, stream.cuda_stream)
        stream.synchronize()
        for i, output in enumerate(outputs):
            self.assert_same_bits(output, expected[i % 2], f"run {i}")
        start = address - memory.data_ptr()
        self.assertTrue((memory[:start] == 0xFF).all() and (memory[start + size:] == 0xFF).all(), "written beyond it")

    def test_what_does_not_fit_is_refused(self):
        layer, inputs, output = self.make(caller_workspace=1), make_inputs(1), nans(1)
        size = moetune.layer_workspace_bytes(layer.handle)
        self.assertGreater(size, 0)
        self.assert_fails(INVALID_ARGUMENT, "no workspace", layer.run, inputs, output)
        _, address = self.memory(size)
        give = lambda *given: moetune.layer_set_workspace(layer.handle, *given)
        self.assert_fails(INVALID_ARGUMENT, "256-byte aligned", give, address + 128, size)
        self.assert_fails(INVALID_ARGUMENT, "256-byte aligned", give, None, size)
        self.assert_fails(INVALID_ARGUMENT, f"needs {size}", give, address, size - 1)
        self.assert_fails(INVALID_ARGUMENT, "no workspace", layer.run, inputs, output)
        own = self.make()
        self.assert_fails(INVALID_ARGUMENT, "of its own", moetune.layer_set_workspace, own.handle, address, size)


class Calls(Case):
    def test_from_no_token_to_the_most(self):
        layer = self.make()
        for run in (layer.run, layer.run_dl):
            run(make_inputs(0), nans(0))
            for tokens in (1, MOST):
                output = nans(tokens + 1)
                run(make_inputs(tokens), output[:tokens])
                torch.cuda.synchronize()
                self.assertFalse(output[:tokens].isnan().any())
                self.assertTrue(output[tokens:].isnan().all(), "a row too many was written")
            self.assert_fails(INVALID_ARGUMENT, f"{MOST + 1} tokens; the layer was made for 0 to {MOST}", run,
                              make_inputs(MOST + 1), nans(MOST + 1))

    def test_addresses_that_kernels_cannot_use_are_refused(self):
        # They would fault, and no call of the process would work again.
        layer, inputs, output = self.make(), make_inputs(1), nans(1)
        shifted = lambda elements: torch.zeros(HIDDEN + 8, dtype=torch.bfloat16, device="cuda:0")[elements:][:HIDDEN].view(1, -1)
        for run in (layer.run, layer.run_dl):
            self.assert_fails(INVALID_ARGUMENT, "16 bytes", run, [shifted(4), inputs[1]], output)
            self.assert_fails(INVALID_ARGUMENT, "8 bytes", run, inputs, shifted(2))
            run([shifted(8), inputs[1]], shifted(4))
        torch.cuda.synchronize()

    def test_tensors_on_another_device_are_refused(self):
        gpu, cpu = self.make(), self.make(device="cpu")
        inputs, output = make_inputs(2), nans(2)
        hidden, logits = inputs
        self.assert_fails(UNSUPPORTED, "hidden is on the CPU; it must be in cuda:0's memory", gpu.run_dl,
                          [hidden.cpu(), logits], output)
        self.assert_fails(UNSUPPORTED, "logits is on the CPU", gpu.run_dl, [hidden, logits.cpu()], output)
        self.assert_fails(UNSUPPORTED, "output is on the CPU", gpu.run_dl, inputs, output.cpu())
        self.assert_fails(UNSUPPORTED, "hidden is on cuda:0; it must be in host memory", cpu.run_dl, inputs, output)

    def test_weights_on_a_gpu_are_refused(self):
        weights = Weights()
        layer = self.make(weights)
        self.assert_fails(UNSUPPORTED, "w13 is on cuda:0; it must be in host memory", moetune.make_layer, weights.spec,
                          weights.dl("cuda:0"), layer.options, "layer_create_dl")

    def test_devices_that_are_not_there_are_refused(self):
        self.assert_fails(INVALID_ARGUMENT, "no GPU 99", self.make, device="cuda:99")

    @unittest.skipIf(torch.cuda.device_count() < 2, "one GPU")
    def test_a_second_gpu(self):
        torch.cuda.set_device(0)
        layer = self.make(device="cuda:1")
        self.assertEqual(torch.cuda.current_device(), 0, "a new layer changed the thread's GPU")
        Layer(Weights(), device="cuda:1").free()
        self.assertEqual(torch.cuda.current_device(), 0, "a layer that went changed the thread's GPU")
        inputs, output = make_inputs(MOST, device="cuda:1"), nans(MOST, "cuda:1")
        with torch.cuda.device(1):
            tensors = [dl(each) for each in (*inputs, output)]
            stream = torch.cuda.Stream()
        torch.cuda.synchronize(1)
        for on in (stream.cuda_stream, None):
            moetune.layer_run_dl(layer.handle, *map(byref, tensors), on)
            self.assertEqual(torch.cuda.current_device(), 0, "a run changed the thread's GPU")
            torch.cuda.synchronize(1)
            self.assert_same_bits(output, self.direct(self.make(), [each.to("cuda:0") for each in inputs]))
            output.fill_(float("nan"))
            torch.cuda.synchronize(1)
        self.assert_fails(UNSUPPORTED, "hidden is on cuda:0; it must be in cuda:1's memory", layer.run_dl,
                          make_inputs(MOST), nans(MOST))


class Provenance(Case):
    def test_a_layer_says_what_runs_and_where(self):
        layer = self.make()
        selected = layer.selected(MOST)
        self.assertEqual((selected.provenance, selected.provenance_name), (3, b"default"))
        self.assertRegex(selected.candidate.decode(), r"^cuda\.mma/\S+ gemm1\{.*\} gemm2\{.*\}$")
        self.assertTrue(selected.reason)
        self.assertIsNone(moetune.layer_note(layer.handle, 0))
        major, minor = torch.cuda.get_device_capability(0)
        device = moetune.layer_device(layer.handle).decode()
        self.assertRegex(device, rf"^cuda .*\bsm={major}{minor}\b")
        self.assertIn(f"multiprocessors={torch.cuda.get_device_properties(0).multi_processor_count}", device)

    def test_a_plan_in_force(self):
        default = self.make()
        candidates = [default.selected(tokens).candidate.decode() for tokens in (1, MOST)]
        plan = plan_of(moetune.layer_device(default.handle).decode(), *candidates)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "plan.json"
            path.write_text(json.dumps(plan))
            layers = [self.make(defaults_only=0, config=str(path).encode(), pinned=pinned) for pinned in (0, 1)]
        inputs = make_inputs(MOST)
        for layer in layers:
            selected = layer.selected(MOST)
            self.assertEqual((selected.provenance_name, selected.candidate), (b"tuned", candidates[1].encode()),
                             (selected.reason, moetune.layer_note(layer.handle, 0)))
            self.assert_close(self.direct(layer, inputs), self.direct(default, inputs))
            moetune.layer_use_defaults(layer.handle, 1)
            self.assertEqual(layer.selected(MOST).provenance_name, b"default")
            self.assertEqual(layer.selected(MOST).candidate, candidates[1].encode())
            self.assert_same_bits(self.direct(layer, inputs), self.direct(default, inputs))


def plan_of(device, default, candidate):
    """A configuration in which the default stays below MOST tokens of Weights() on that device, and a candidate was measured
    to be better for MOST.

    What it is all made of is a configuration that ships with moetune.
    """
    plan = json.loads((pathlib.Path(__file__).parents[2] / "configs" / "nvidia-h200.json").read_text())
    kind, *identity = device.split()
    plan["device"].update(kind=kind, identity=dict(each.split("=") for each in identity))
    qwen3 = plan["plans"][0]
    qwen3["problem"]["attributes"].update(hidden=str(HIDDEN), intermediate=str(INTERMEDIATE), experts=str(EXPERTS),
                                          top_k=str(TOP_K))
    below = decision_of(default, qwen3["decisions"][0], **{"tokens": 1, "from": 1, "to": MOST - 1, "default": True})
    best = decision_of(candidate, qwen3["decisions"][0], **{"tokens": MOST, "from": MOST, "to": MOST, "default": False})
    qwen3.update(runner=best["runner"], max_tokens=MOST, decisions=[below, best])
    plan["plans"] = [qwen3]
    return plan


def decision_of(candidate, pattern, **changes):
    """The decision for a candidate's text, otherwise like another one."""
    runner, scheme = candidate.split()[0].split("/")
    value = lambda text: int(text) if text.isdecimal() else text
    stages = [{"name": name, "tactic": {key: value(text) for key, text in (each.split("=") for each in tactic.split(","))}}
              for name, tactic in re.findall(r"(\w+)\{(.*?)\}", candidate)]
    return {**pattern, "runner": runner, "scheme": scheme, "stages": stages, **changes}


if __name__ == "__main__":
    unittest.main()
