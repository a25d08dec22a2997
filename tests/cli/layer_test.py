"""--layer: a model's own weights, and what is said where they are not as they should be."""

import json
import pathlib
import shutil
import struct

import program

MODELS = pathlib.Path(__file__).resolve().parent.parent / "checkpoint" / "reference_models"


class Layer(program.ProgramTest):
    def copied(self, name):
        folder = self.folder / name
        shutil.copytree(MODELS / name, folder)
        return folder

    def test_verify_checks_on_the_layers_own_weights(self):
        for isolation in ("in-process", "worker"):
            done = self.run_program("verify", self.copied("qwen3_moe") if isolation == "worker" else MODELS / "qwen3_moe",
                                    "--layer", 0, "--tokens", "1,5", "--device", "cpu", "--isolation", isolation, "--json")
            self.assertEqual(done.code, 0, done.err)
            self.assertEqual((done.json()["failed"], done.json()["isolation"]), (0, isolation))
            self.assertEqual(done.json()["problem"]["layer"], 0)
            self.assertIn("with the weights of layer 0", done.err)

    def test_tune_measures_a_rank_of_a_layer(self):
        done = self.run_program("tune", MODELS / "deepseek_v3", "--layer", 1, "--tp", 2, "--ep", 2, "--rank", 3,
                                "--tokens", "1", "--budget", "2s", "--device", "cpu", "--no-journal", "--json")
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(done.json()["problem"]["layer"], 1)
        self.assertEqual(done.json()["isolation"], "worker")
        self.assertEqual(done.json()["rejected"], [])

    def test_a_preset_has_no_weights(self):
        self.assert_error(2, "invalid_argument", ["--layer 3", "preset"], "verify", "qwen3-30b-a3b", "--layer", 3)

    def test_a_number_that_is_none(self):
        for text in ("x", "-1", "1.5", "99999999999999999999"):
            self.assert_error(2, "invalid_argument", ["--layer"], "verify", self.model, "--layer", text)

    def test_a_folder_without_weights(self):
        self.assert_error(1, "not_found", ["model.safetensors.index.json"], "verify", self.model, "--layer", 0)

    def test_a_layer_that_is_not_there_or_dense(self):
        self.assert_error(1, "not_found", ["no layer 9"], "verify", MODELS / "deepseek_v3", "--layer", 9)
        error = self.assert_error(1, "not_found", ["no experts in layer 0"], "verify", MODELS / "deepseek_v3", "--layer", 0)
        self.assertIn("first layer with experts is 1", error["hint"])

    def test_another_format_than_the_layers_names_both(self):
        self.assert_error(2, "invalid_argument", ["layer 0", "stored in bf16, not in nvfp4", "down_proj.weight"],
                          "verify", MODELS / "qwen3_moe", "--layer", 0, "--weights", "nvfp4")

    def test_a_missing_file_is_named_with_what_it_should_hold(self):
        folder = self.copied("qwen3_moe")
        (folder / "model-00002-of-00004.safetensors").unlink()
        self.assert_error(1, "not_found", ["model-00002-of-00004.safetensors", "gate_proj.weight"],
                          "verify", folder, "--layer", 0)

    def test_a_truncated_file_is_named(self):
        folder = self.copied("mixtral")
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        self.assert_error(1, "parse", ["model.safetensors", "beyond the file"], "tune", folder, "--layer", 0)

    def test_other_sizes_than_the_configs_are_named(self):
        folder = self.copied("mixtral")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
        self.assert_error(1, "parse", ["w1.weight", "[40, 64]", "[48, 64]"], "tune", folder, "--layer", 0)

    def test_more_choices_than_experts_are_named(self):
        folder = self.copied("mixtral")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "num_experts_per_tok": 7}))
        self.assert_error(1, "parse", ["num_experts_per_tok", "6"], "verify", folder, "--layer", 0)

    def test_a_header_of_a_hundred_megabytes_ends_at_once(self):
        folder = self.copied("mixtral")
        with (folder / "model.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", 200_000_000))
            file.truncate(300_000_000)
        self.assert_error(1, "parse", ["model.safetensors", "header"], "verify", folder, "--layer", 0)


if __name__ == "__main__":
    program.main()
