"""What MODEL may be, and what is said of one that is not."""

import json
import os
import pathlib

import program


class Models(program.ProgramTest):
    def test_a_misspelled_preset_gets_a_suggestion(self):
        error = self.assert_error(1, "not_found", ["qwen3-30b-a3b"], "explain", "qwen3-30b-a3")
        self.assertTrue(error["hint"].startswith("did you mean qwen3-30b-a3b?"))

    def test_a_folder_without_config(self):
        (self.folder / "empty").mkdir()
        self.assert_error(1, "not_found", ["config.json", "empty"], "tune", self.folder / "empty")

    def test_files_that_are_no_config(self):
        for name, text in {"empty.json": "", "half.json": '{"num_experts": ', "list.json": "[]", "binary.json": "\x00\x01\x02"}.items():
            path = self.folder / name
            path.write_text(text)
            self.assert_error(1, "parse", [name], "tune", path)

    def test_a_dense_model_names_the_fields_that_are_missing(self):
        path = self.write_model("dense", {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128})
        self.assert_error(2, "invalid_argument", ["not a Mixture-of-Experts model", "num_experts"], "tune", path)

    def test_absurd_sizes_are_named(self):
        for number, value in enumerate([-1, 0, 1e18, "64", None, [1], 0.5]):
            path = self.write_model(f"absurd{number}", {**program.TINY, "hidden_size": value})
            self.assert_error(1, "parse", ["hidden_size"], "tune", path)

    def test_deep_nesting_and_huge_files_end_at_once(self):
        deep = self.folder / "deep.json"
        deep.write_text('{"num_experts":' + "[" * 500000 + "]" * 500000 + "}")
        self.assert_error(1, "parse", ["deep.json"], "tune", deep)
        huge = self.folder / "huge.json"
        with huge.open("w") as file:
            file.truncate(5 << 30)
        self.assert_error(2, "invalid_argument", ["huge.json"], "tune", huge)

    def test_what_is_not_supported_says_so_and_what_to_do(self):
        awq = self.write_model("awq", {**program.TINY, "quantization_config": {"quant_method": "awq", "bits": 4}})
        self.assert_error(1, "unsupported", ["awq", "--weights"], "tune", awq)
        self.assert_done(self.run_program("explain", awq, "--weights", "bf16", "--tokens", 1, "--device", "cpu"))
        gelu = self.write_model("gelu", {**program.TINY, "hidden_act": "gelu"})
        self.assert_error(1, "unsupported", ["gelu"], "tune", gelu)

    def test_every_weight_format_runs_on_a_cpu(self):
        for name in ["bf16", "fp16", "fp8", "fp8-block", "nvfp4", "mxfp4"]:
            model = self.write_model(name, program.TINY)
            self.assert_done(self.run_program("verify", model, "--weights", name, "--tokens", "1,5", "--device", "cpu"))

    def test_a_layer_larger_than_memory_is_refused_before_anything_is_made(self):
        self.assert_error(1, "out_of_memory", ["--ep"], "tune", "qwen3-30b-a3b", "--weights", "bf16", "--memory", "64MiB", "--device", "cpu")

    def test_an_unreadable_file(self):
        path = self.folder / "secret.json"
        path.write_text(json.dumps(program.TINY))
        path.chmod(0)
        if os.access(path, os.R_OK):
            self.skipTest("this user may read everything")
        self.assert_error(1, "io", ["secret.json"], "tune", path)


if __name__ == "__main__":
    program.main()
