"""The host of PyTorch's kernels computes the operator, on a CPU."""

import sys
import unittest

try:
    import torch  # noqa: F401

    import definition
    from moetune.host import MoeProblem, Unsupported, torch_moe
    from moetune.host.numpy_device import NumpyDevice
    from moetune.host.torch_device import TorchDevice
except ImportError as error:
    if __name__ == "__main__":
        print(f"skipped: PyTorch is not here: {error}")
        sys.exit(77)
    raise unittest.SkipTest(f"PyTorch is not here: {error}") from None


class TorchMoe(unittest.TestCase):
    def test_every_tactic_computes_the_operator(self):
        for output in ("bf16", "f32"):
            problem = definition.problem(256, 128, 8, 4, output=output)
            for runner in torch_moe.make_runners(problem, TorchDevice("cpu")):
                self.compare(runner, problem)

    def compare(self, runner, problem):
        space = runner.space()
        for tokens in (1, 7, 40):
            call, weights, right = definition.made_call(MoeProblem.of(problem), tokens)
            for tactic in map(space.point, range(space.size)):
                call["output"].fill_(float("nan"))
                runner.compile(tactic, call)(call, runner.pack(weights))
                error = definition.relative_rms(call["output"], right)
                self.assertLess(error, 9e-3, (runner.name, tactic, tokens))

    def test_repeated_ids_add_up_and_an_expert_may_have_no_token(self):
        problem = definition.problem(64, 32, 5, 2)
        call, weights, _ = definition.made_call(MoeProblem.of(problem), 3)
        call["topk_ids"].fill_(4)
        call["topk_weights"].fill_(0.5)
        right = definition.layer(call, weights["w13"].double(), weights["w2"].double())
        for runner in torch_moe.make_runners(problem, TorchDevice("cpu")):
            runner.compile(runner.default(3), call)(call, runner.pack(weights))
            self.assertLess(definition.relative_rms(call["output"], right), 7e-3, runner.name)

    def test_memory_without_contents_is_poisoned_in_a_checked_run(self):
        device = TorchDevice("cpu")
        like = torch.zeros(3, 5, dtype=torch.bfloat16)
        with device.poisoned_memory():
            made = [torch.empty(7), torch.empty_like(like), like.new_empty(2, 2), torch.empty_strided((4, 2), (1, 4)), torch.empty(0)]
            kept = torch.zeros(3)
        self.assertTrue(all(each.isnan().all() for each in made))
        self.assertFalse(kept.isnan().any())
        self.assertFalse(torch.zeros_like(like).isnan().any())

    def test_what_it_has_not_is_said(self):
        for changes in ({"weights": "fp8"}, {"ep": "2"}, {"given_routing": "0"}, {"activation": "relu2"}):
            with self.assertRaises(Unsupported):
                torch_moe.make_runners(definition.problem(**changes), TorchDevice("cpu"))
        with self.assertRaisesRegex(Unsupported, "no device of PyTorch"):
            torch_moe.make_runners(definition.problem(), NumpyDevice())


if __name__ == "__main__":
    unittest.main()
