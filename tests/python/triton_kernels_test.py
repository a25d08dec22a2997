"""Kernels in Triton compute the operator, under its interpreter on the CPU.

moetune's own always; an engine's where MOETUNE_VLLM_PATH or MOETUNE_SGLANG_PATH names a folder of
scripts/engine-subset. Rounding to e4m3 is PyTorch's here, as the interpreter's (up to Triton 3.9) is not right.
"""

import importlib
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

try:
    import torch

    import interpreter
    import definition
    from moetune.host import MoeProblem, moe_ops
    from moetune.host.errors import Unsupported
    from moetune.host.torch_device import TorchDevice
except ImportError as error:
    if __name__ == "__main__":
        print(f"skipped: PyTorch and Triton are not here: {error}")
        sys.exit(77)
    raise unittest.SkipTest(f"PyTorch and Triton are not here: {error}") from None

interpreter.correct()
moe_ops.quantise_groups = lambda values, group: definition.quantised(values)
moe_ops.quantise_given = lambda values, scale: (definition.scaled(values, scale), scale)


class SmallKernels(unittest.TestCase):
    def test_tokens_are_ordered_by_expert_and_padded_to_blocks(self):
        cases = ((3, 2, 8, 16, 0), (40, 4, 8, 16, 1), (1, 8, 5, 32, 0), (700, 2, 3, 64, 0))
        for tokens, top_k, experts, rows, offset in cases:
            ids = torch.randint(-offset, experts, (tokens, top_k), dtype=torch.int32)
            count, buckets = ids.numel(), experts + offset
            order = torch.full((count + buckets * rows,), -7, dtype=torch.int32)
            blocks = torch.full((len(order) // rows + 1,), -7, dtype=torch.int32)
            total = torch.zeros(1, dtype=torch.int32)
            moe_ops.align_blocks(ids, buckets, rows, order, blocks, total, offset)
            wanted, wanted_blocks = [], []
            for expert in range(-offset, experts):
                mine = torch.nonzero(ids.view(-1) == expert).view(-1).tolist()
                wanted += mine + [count] * (-len(mine) % rows)
                wanted_blocks += [expert] * -(-len(mine) // rows)
            self.assertEqual(total.item(), len(wanted))
            self.assertEqual(order.tolist(), wanted + [-7] * (len(order) - len(wanted)))
            self.assertEqual(blocks.tolist(), wanted_blocks + [-7] * (len(blocks) - len(wanted_blocks)))

    def test_activation_and_sum(self):
        both, out = torch.randn(5, 96), torch.empty(5, 48)
        moe_ops.silu_and_mul(out, both)
        gate, up = both.chunk(2, -1)
        torch.testing.assert_close(out, torch.nn.functional.silu(gate) * up)
        rows = torch.randn(5, 3, 48).bfloat16()
        moe_ops.sum_slots(rows, out)
        torch.testing.assert_close(out, rows.float().sum(1))

    def test_codes_under_one_scale(self):
        # In f32, whose conversion to codes does not round: the interpreter's to e4m3 is not right.
        values = torch.randn(7, 333).bfloat16() * 30
        codes, scale = torch.full((7, 333), float("nan")), torch.tensor([0.125])
        moe_ops._scale_kernel[(3,)](codes, scale, values, values.numel(), BLOCK=1024, LARGEST=moe_ops.E4M3_MAX)
        torch.testing.assert_close(codes, (values.float() / 0.125).clamp(-448, 448))
        self.assertTrue((codes.abs() == 448).any())


class Layers(unittest.TestCase):
    """Whole layers, by the default and by another tactic."""

    def compare(self, runner, limit, **changes):
        for tokens in (1, 9, 33):
            call, weights, right = definition.made_call(runner.moe, tokens)
            runner.selected(call)
            for tactic in (runner.default(tokens), {**runner.default(tokens), **changes}):
                returned = runner.compile(tactic, call)(call, runner.pack(weights))
                output = call["output"] if returned is None else returned
                error = definition.relative_rms(output, right)
                self.assertLess(error, limit, (tokens, tactic))

    def engine(self, name):
        if f"MOETUNE_{name.upper()}_PATH" not in os.environ:
            self.skipTest(f"MOETUNE_{name.upper()}_PATH is not set")
        module = importlib.import_module(f"moetune.host.{name}_moe")
        changes = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64}
        device = TorchDevice("cpu")
        (runner,) = module.make_runners(definition.problem(256, 128, 8, 2), device)
        # They round gate and up to bf16, and each expert's row.
        self.compare(runner, 8e-3, **changes)
        self.assertIn("alignment by moetune", module.VERSIONS[name])
        blocks = {"weights": "fp8-block", "activations": "fp8-block"}
        (runner,) = module.make_runners(definition.problem(256, 128, 8, 2, **blocks), device)
        # A value of h on the other side of a rounding boundary is off by an eighth.
        self.compare(runner, 8e-2, **changes)
        whole = {"weights": "fp8", "activations": "fp8"}
        (runner,) = module.make_runners(definition.problem(200, 72, 8, 2, **whole), device)
        self.compare(runner, 8e-2, **changes)
        _, weights, _ = definition.made_call(runner.moe, 1)
        weights["w13_global"][1, 1] *= 2
        with self.assertRaisesRegex(Unsupported, "scales of their own"):
            runner.pack(weights)
        with self.assertRaisesRegex(Unsupported, "rounded to e4m3"):
            module.make_runners(definition.problem(256, 128, 8, 2, weights="fp8"), device)

    def test_vllm(self):
        self.engine("vllm")

    def test_sglang(self):
        self.engine("sglang")

    def test_the_example(self):
        sys.path.insert(0, str(ROOT / "examples/03_host_your_kernel"))
        self.addCleanup(sys.path.pop, 0)
        problem = definition.problem(200, 72, 6, 2)
        runner = importlib.import_module("host").MyMoe(problem)
        self.assertEqual(runner.moe, MoeProblem.of(problem))
        self.compare(runner, 6e-3, M=32, N=32, K=32)


if __name__ == "__main__":
    unittest.main()
