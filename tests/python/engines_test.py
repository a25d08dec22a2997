"""How engines' kernels are offered: by an engine made up for the purpose, and by versions that nobody knows."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

try:
    import torch  # noqa: F401
    import triton

    import definition
    from moetune.host import Unsupported, engines, standin
    from moetune.host.space import intervals
except ImportError as error:
    if __name__ == "__main__":
        print(f"skipped: PyTorch and Triton are not here: {error}")
        sys.exit(77)
    raise unittest.SkipTest(f"PyTorch and Triton are not here: {error}") from None


def default_config(M, E, N, K, topk, dtype, block_shape=None):  # noqa: N803 - the engines' own names.
    config = {"BLOCK_SIZE_M": 16 if M <= E else 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
    if dtype is None:
        return {**config, "SPLIT_K": 1}
    return {**config, "BLOCK_SIZE_K": block_shape[1] if block_shape else 64, "num_warps": 8}


class FusedExperts:
    """Remembers how it was called, and under which configuration."""

    def __init__(self):
        module = standin.override_config_module()
        self.override_config, self.config = module["override_config"], module["get_config"]

    def __call__(self, x, w1, w2, topk_weights, topk_ids, inplace=True, activation="gelu", use_fp8_w8a8=False,
                 w1_scale=None, w2_scale=None, a1_scale=None, a2_scale=None, block_shape=None):
        self.options = {"inplace": inplace, "activation": activation, "fp8": use_fp8_w8a8, "block_shape": block_shape}
        self.scales = (w1_scale, w2_scale)
        self.activation_scales = (a1_scale, a2_scale)
        self.seen = self.config()
        return x


class Offered(unittest.TestCase):
    LIMITS = {"arch": 90, "shared_bytes": 232448}

    def setUp(self):
        patch = mock.patch.object(engines, "CompilePool")
        self.pools = patch.start()
        self.addCleanup(patch.stop)

    def runner(self, version="1.0", limits=None, **problem):
        self.experts = FusedExperts()
        engine = engines.Engine("vllm", version, "/x", self.experts, default_config, self.experts.override_config)
        asked = {"hidden": 256, "intermediate": 128, "experts": 8, "top_k": 2, **problem}
        return engines.EngineMoe(definition.problem(**asked), engine, limits or self.LIMITS, "none")

    FP8 = {"weights": "fp8-block", "activations": "fp8-block"}
    ONE_SCALE = {"weights": "fp8", "activations": "fp8"}

    def test_the_default_is_the_engines_for_each_number_of_tokens(self):
        defaults = intervals(self.runner().default, 64)
        self.assertEqual([(begin, tactic["BLOCK_SIZE_M"]) for begin, tactic in defaults], [(1, 16), (9, 64)])
        # What the engine leaves to Triton is Triton's.
        self.assertEqual((defaults[0][1]["num_warps"], defaults[0][1]["num_stages"]), (4, 3))
        self.assertEqual(self.runner(**self.FP8).default(1)["BLOCK_SIZE_K"], 128)

    def test_a_tactic_is_forced_with_what_else_the_engine_sets(self):
        runner = self.runner()
        call, weights, _ = definition.made_call(runner.moe, 3)
        tactic = runner.space().point(100)
        runner.compile(tactic, call)(call, runner.pack(weights))
        self.assertEqual(self.experts.seen, {**tactic, "SPLIT_K": 1})
        wanted = {"inplace": False, "activation": "silu", "fp8": False, "block_shape": None}
        self.assertEqual(self.experts.options, wanted)
        self.assertIsNone(self.experts.config(), "nothing stays forced")

    def test_blocks_of_scales_are_handed_on(self):
        runner = self.runner(**self.FP8)
        call, weights, _ = definition.made_call(runner.moe, 3)
        runner.compile(runner.default(3), call)(call, runner.pack(weights))
        self.assertEqual(self.experts.options["block_shape"], [128, 128])
        self.assertTrue(self.experts.options["fp8"])
        self.assertIs(self.experts.scales[1], weights["w2_scales"])

    def test_one_scale_each_is_handed_on(self):
        runner = self.runner(**self.ONE_SCALE)
        call, weights, _ = definition.made_call(runner.moe, 3)
        runner.compile(runner.default(3), call)(call, runner.pack(weights))
        self.assertIsNone(self.experts.options["block_shape"])
        self.assertTrue(self.experts.options["fp8"])
        self.assertEqual([tuple(scale.shape) for scale in self.experts.scales], [(8,), (8,)])
        self.assertEqual([scale.tolist() for scale in self.experts.activation_scales], [[2.0**-5], [2.0**-4]])

    def test_what_cannot_work_is_excluded_with_the_reason(self):
        tactic = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4,
                  "num_stages": 3}

        def why(tokens=4096, limits=None, problem=None, **changes):
            return self.runner(limits=limits, **(problem or {})).excluded({**tactic, **changes}, tokens)

        self.assertEqual(why(), "")
        self.assertEqual(why(tokens=1), "")
        self.assertIn("more rows", why(tokens=16, BLOCK_SIZE_M=32))
        self.assertEqual(why(tokens=17, BLOCK_SIZE_M=32), "")
        self.assertIn("more tiles", why(tokens=2, GROUP_SIZE_M=16))
        self.assertIn("registers", why(BLOCK_SIZE_M=256, BLOCK_SIZE_N=256))
        self.assertEqual(why(BLOCK_SIZE_M=256, BLOCK_SIZE_N=256, limits={"arch": 100, "shared_bytes": 0}), "")
        self.assertIn("shared memory", why(BLOCK_SIZE_M=128, BLOCK_SIZE_N=256, BLOCK_SIZE_K=256, num_warps=8))
        self.assertIn("block of scales", why(BLOCK_SIZE_K=256, problem=self.FP8))
        self.assertEqual(why(BLOCK_SIZE_K=256), "")
        self.assertEqual(why(BLOCK_SIZE_K=256, problem=self.ONE_SCALE), "")
        left = sum(not self.runner().excluded(self.runner().space().point(i), 4096) for i in range(0, 1920, 16))
        self.assertGreater(left, 50)

    def test_compilers_warm_up_when_weights_arrive_and_not_before(self):
        runner = self.runner()
        runner.default(3)
        runner.space()
        pool = self.pools.return_value
        pool.warm_up.assert_not_called()
        call, weights, _ = definition.made_call(runner.moe, 3)
        runner.pack(weights)
        self.pools.assert_called_once()
        pool.warm_up.assert_called_once()
        pool.prefetch.assert_not_called()
        runner.prefetch([runner.default(3)], 3)
        runner.compile(runner.default(3), call)(call, weights)
        self.assertEqual(pool.prefetch.call_args.args[0], [pool.claim.call_args.args[0]])
        for ended in (False, True):
            pool.has_ended.return_value = ended
            self.assertEqual(runner.is_compiled(runner.default(3), 3), ended)
        self.assertEqual(pool.has_ended.call_args.args[0], pool.claim.call_args.args[0])

    def test_nothing_compiles_ahead_without_a_gpu(self):
        runner = self.runner(limits={"arch": 0, "shared_bytes": 0})
        call, weights, _ = definition.made_call(runner.moe, 3)
        runner.pack(weights)
        runner.prefetch([runner.default(3)], 3)
        self.pools.assert_not_called()
        self.assertTrue(runner.is_compiled(runner.default(3), 3))

    def test_another_engine_or_triton_is_another_version(self):
        one = self.runner("1.0").version
        self.assertEqual(one, self.runner("1.0").version)
        self.assertNotEqual(one, self.runner("1.1").version)
        self.assertNotEqual(one, self.runner("1.0, alignment by moetune").version)
        with mock.patch.object(triton, "__version__", "0.1"):
            self.assertNotEqual(one, self.runner("1.0").version)
        self.assertTrue(0 <= one < 1 << 31)

    def test_problems_it_has_no_kernel_for_are_refused_with_the_reason(self):
        for words, problem in {
            "activations rounded to e4m3": {"weights": "fp8"},
            "weights is nvfp4": {"weights": "nvfp4"},
            "the problem's are a16": {"weights": "fp8-block"},
            "multiples of 128": {**self.FP8, "intermediate": "96"},
            "output is f32": {"output": "f32"},
            "ep is 2": {"ep": "2"},
        }.items():
            with self.assertRaisesRegex(Unsupported, words):
                self.runner(**problem)


class Unknown(unittest.TestCase):
    def load(self, text):
        with tempfile.TemporaryDirectory() as root:
            file = pathlib.Path(root) / "vllm/model_executor/layers/fused_moe/fused_moe.py"
            file.parent.mkdir(parents=True)
            file.write_text(text)
            layouts = [("vllm.model_executor.layers.fused_moe.fused_moe",) * 2 + ("vllm.config",)]
            try:
                return engines.load("vllm", root, "99.0", layouts, {"vllm.config": {"override_config": 1}}, "0.33.0")
            finally:
                sys.meta_path.pop(0)
                for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
                    del sys.modules[name]

    def test_a_version_that_is_laid_out_otherwise_is_named_with_those_that_work(self):
        for text in ("x = 1", "import no_such_package", "from vllm.new import thing\nthing()"):
            with self.assertRaisesRegex(Unsupported, r"vllm 99\.0 keeps its Triton kernel elsewhere") as raised:
                self.load(text)
            self.assertIn("0.33.0", raised.exception.hint)

    def test_a_function_without_what_is_needed_is_refused(self):
        engine = self.load("def fused_experts_impl(x): ...\ndef get_default_config(M): ...")
        with self.assertRaisesRegex(Unsupported, "get_default_config has no E, N, K"):
            engines.EngineMoe(definition.problem(), engine, Offered.LIMITS, "none")

    def test_an_engine_that_is_not_there_is_said_with_what_to_do(self):
        with mock.patch.dict(os.environ), self.assertRaisesRegex(Unsupported, "not installed") as raised:
            os.environ.pop("MOETUNE_NONE_PATH", None)
            engines.find("no_such_engine", "MOETUNE_NONE_PATH")
        self.assertIn("engine-subset", raised.exception.hint)


if __name__ == "__main__":
    unittest.main()
