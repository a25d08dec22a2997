"""Other engines' files: export, audit, and show of what others wrote."""

import json
import os

import program

TACTIC = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
ATTRIBUTES = {"hidden": "64", "intermediate": "32", "experts": "8", "top_k": "2", "weights": "bf16", "activations": "a16",
              "activation": "swiglu", "output": "bf16", "score": "softmax", "renormalise": "1"}
NAME = "E=8,N=32,device_name=NVIDIA_H200.json"
# From which number of tokens on the engine's default is which.
DEFAULTS = [(1, 1001), (33, 1033), (300, 1300)]


def tactic(block_m):
    return {**TACTIC, "BLOCK_SIZE_M": block_m}


def stages(block_m):
    return [{"name": "main", "tactic": tactic(block_m)}]


def make_plan(parts, runner="vllm.triton", host=True, **attributes):
    """parts: (from, to, block_m), a default where block_m is None."""
    engine = runner.split(".")[0]
    plan = {"problem": {"op": "fused_moe", "attributes": {**ATTRIBUTES, **attributes}}, "runner": runner, "layout": "torch",
            "max_tokens": parts[-1][1],
            "decisions": [{"tokens": first, "from": first, "to": last, "default": block_m is None, "runner": runner, "version": 1,
                           "scheme": "engine", "stages": stages(block_m or 999)} for first, last, block_m in parts]}
    if host:
        plan["host"] = {"name": engine, "versions": {engine: "0.11.1", "triton": "3.4.0"}, "device_name": "NVIDIA H200 NVL",
                        "defaults": [{"from": first, "stages": stages(block_m)} for first, block_m in DEFAULTS]}
    return plan


def planned(parts, tokens):
    for first, last, block_m in parts:
        if first <= tokens <= last and block_m is not None:
            return block_m
    return [block_m for first, block_m in DEFAULTS if first <= tokens][-1]


def engine_takes(table, tokens):
    """The engines' documented rule: of the numbers in the file the nearest, of two the first."""
    numbers = [int(key) for key in table if key != "triton_version"]
    nearest = min(numbers, key=lambda number: abs(number - tokens))
    return table[str(nearest)]["BLOCK_SIZE_M"]


class EngineTest(program.ProgramTest):
    def config(self, *plans):
        path = self.folder / "tuned.json"
        device = {"kind": "cuda", "name": "NVIDIA H200", "identity": {"sm": "90"}}
        ordered = sorted(plans, key=lambda plan: sorted(plan["problem"]["attributes"].items()))
        path.write_text(json.dumps({"format": 1, "device": device, "plans": ordered}))
        return path

    def table(self, *parts, content=None):
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content if content is not None else {"1": TACTIC, "64": TACTIC}))
        return path


class Export(EngineTest):
    PARTS = [(1, 1, 16), (2, 40, None), (41, 64, 32), (65, 200, None), (201, 256, 64)]

    def export(self, *arguments, flag="--vllm"):
        run = self.run_program("export", flag, self.folder / "out", *arguments, "--json")
        self.assert_done(run)
        return run.json()

    def test_each_number_of_tokens_gets_exactly_its_decision(self):
        answer = self.export("--config", self.config(make_plan(self.PARTS)))
        out = self.folder / "out"
        self.assertEqual(answer["environment"], {"VLLM_TUNED_CONFIG_FOLDER": str(out)})
        self.assertEqual(os.listdir(out), [NAME])
        file = answer["files"][0]
        self.assertEqual((file["path"], file["E"], file["N"], file["dtype"]), (str(out / NAME), 8, 32, None))
        self.assertEqual(file["tuned_tokens"], 1 + 24 + 56)
        table = json.loads((out / NAME).read_text())
        self.assertEqual(table["triton_version"], "3.4.0")
        self.assertEqual(len(table) - 1, file["entries"])
        for tokens in range(1, 3000):
            self.assertEqual(engine_takes(table, tokens), planned(self.PARTS, tokens), tokens)

    def test_what_is_there_is_kept_or_left(self):
        config = self.config(make_plan(self.PARTS))
        mine = self.table("out", NAME, content={"1": tactic(128)})
        before = mine.read_text()
        self.assertEqual(self.export("--config", config)["files"][0]["backup"], str(mine) + ".bak")
        self.assertEqual((self.folder / "out" / (NAME + ".bak")).read_text(), before)
        again = self.export("--config", config)["files"][0]
        self.assertEqual((again["outcome"], again["backup"]), ("unchanged", ""))

    def test_says_what_to_do_next(self):
        run = self.run_program("export", "--vllm", self.folder / "out", "--config", self.config(make_plan(self.PARTS)))
        self.assert_done(run)
        self.assertIn(f"export VLLM_TUNED_CONFIG_FOLDER='{self.folder / 'out'}'", run.out)
        self.assertIn("above 256 tokens", run.err)

    def test_sglang_has_a_folder_for_each_triton(self):
        config = self.config(make_plan(self.PARTS, runner="sglang.triton", weights="fp8-block"))
        answer = self.export("--config", config, flag="--sglang")
        name = "E=8,N=32,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128, 128].json"
        path = self.folder / "out" / "configs" / "triton_3_4_0" / name
        self.assertEqual(answer["files"][0]["path"], str(path))
        self.assertNotIn("triton_version", json.loads(path.read_text()))
        self.export("--config", config, "--triton-version", "3.5.1", flag="--sglang")
        self.assertTrue((self.folder / "out/configs/triton_3_5_1" / name).exists())

    def test_names_what_is_missing(self):
        out = self.folder / "out"
        config = self.config(make_plan(self.PARTS, host=False))
        self.assert_error(2, "invalid_argument", ["--device-name"], "export", "--vllm", out, "--config", config)
        self.assert_error(1, "not_found", ["sglang.triton", "vllm.triton", "--host sglang"], "export", "--sglang", out,
                          "--config", config)
        config = self.config(make_plan(self.PARTS, runner="sglang.triton", host=False))
        self.assert_error(2, "invalid_argument", ["--triton-version"], "export", "--sglang", out, "--config", config,
                          "--device-name", "NVIDIA H200")
        self.assertFalse(out.exists(), "nothing is made where something is wrong")

    def test_the_usual_configuration_is_where_tuning_with_the_host_keeps_it(self):
        out = self.folder / "out"
        usual = self.folder / "usual.json"
        arguments = ["export", "--vllm", out]
        self.assert_error(1, "not_found", ["usual-vllm.json", "moetune tune MODEL --host vllm"], *arguments, MOETUNE_CONFIG=str(usual))
        self.config(make_plan(self.PARTS)).rename(self.folder / "usual-vllm.json")
        self.assert_done(self.run_program(*arguments, MOETUNE_CONFIG=str(usual)))
        self.assertTrue((out / NAME).exists())

    def test_two_plans_of_one_file_are_not_chosen_from(self):
        config = self.config(make_plan(self.PARTS), make_plan(self.PARTS, hidden="128"))
        self.assert_error(2, "invalid_argument", ["--problem", "hidden=128"], "export", "--vllm", self.folder / "out", "--config", config)
        answer = self.export("--config", config, "--problem", "hidden=128")
        self.assertEqual(len(answer["files"]), 1)

    def test_command_lines_that_cannot_be_meant(self):
        self.assert_error(2, "invalid_argument", ["--vllm PATH"], "export")
        self.assert_error(2, "invalid_argument", ["one of"], "export", "--vllm", "a", "--sglang", "b")
        self.assert_error(2, "invalid_argument", ["3.4.0"], "export", "--vllm", "a", "--triton-version", "3.4.0+git")
        self.assert_error(2, "invalid_argument", ["--device-name"], "export", "--vllm", "a", "--device-name", "a/b")


class Audit(EngineTest):
    def audit(self, code, *arguments):
        run = self.run_program("audit", *arguments, "--json")
        self.assertEqual(run.code, code, run.out + run.err)
        return run.json()["configurations"]

    def model_audit(self, code, *arguments, device="NVIDIA H200"):
        own = self.folder / "own"
        own.mkdir(exist_ok=True)
        return self.audit(code, self.model, "--vllm", own, "--device-name", device, *arguments)

    def test_a_file_that_is_there_is_found(self):
        path = self.table("own", NAME)
        row = self.model_audit(0, device="NVIDIA H200 NVL")[0]
        self.assertEqual((row["outcome"], row["path"]), ("found", str(path)))

    def test_what_is_missing_comes_with_the_file_and_the_commands(self):
        row = self.model_audit(1, "--tp", 2)[0]
        self.assertEqual(row["outcome"], "default")
        wanted = self.folder / "own" / "E=8,N=16,device_name=NVIDIA_H200.json"
        self.assertEqual(row["fix"]["path"], str(wanted))
        self.assertIn(f"moetune tune {self.model} --tp 2 --host vllm", row["fix"]["commands"])
        self.assertIn(f"moetune export --vllm '{self.folder / 'own'}'", row["fix"]["commands"])

    def test_the_commands_for_fp8_say_what_activations_the_engine_has(self):
        for weights in ("fp8", "fp8-block"):
            row = self.model_audit(1, "--weights", weights)[0]
            self.assertIn(f"moetune tune {self.model} --tp 1 --weights {weights} --activations {weights} --host vllm",
                          row["fix"]["commands"])

    def test_without_a_folder_of_ones_own_one_is_to_be_chosen(self):
        package = self.folder / "vllm"
        near = self.table("vllm", "model_executor", "layers", "fused_moe", "configs", "E=9,N=32,device_name=NVIDIA_H200.json")
        row = self.audit(1, self.model, "--vllm", package, "--device-name", "NVIDIA H200")[0]
        self.assertEqual(row["looked_for"], [str(near.parent / NAME)])
        self.assertEqual(row["fix"]["path"], f"DIR/{NAME}")
        self.assertEqual(row["near"][0]["path"], str(near))

    def test_near_misses_are_named(self):
        for name, kind in [("E=8,N=32,device_name=NVIDIA_H200_NVL.json", "device_name"),
                           ("E=9,N=32,device_name=NVIDIA_H200.json", "shared_expert"),
                           ("E=8,N=16,device_name=NVIDIA_H200.json", "tensor_parallel"),
                           ("E=8,N=32,device_name=NVIDIA_H200,dtype=fp8_w8a8.json", "format")]:
            path = self.table("own", name)
            near = self.model_audit(1)[0]["near"]
            self.assertEqual([(one["kind"], one["path"]) for one in near], [(kind, str(path))])
            text = self.run_program("audit", self.model, "--vllm", self.folder / "own", "--device-name", "NVIDIA H200")
            self.assertEqual(text.code, 1)
            self.assertIn(near[0]["text"], text.out)
            self.assertIn(f"{self.folder / 'own'}: taken for a folder of tuned files", text.err)
            path.unlink()

    def test_a_file_that_the_engine_would_end_at_is_broken(self):
        self.table("own", NAME, content={"1": {**TACTIC, "USE_TMA": True}})
        row = self.model_audit(1)[0]
        self.assertEqual(row["outcome"], "broken")
        self.assertIn("USE_TMA", row["detail"])

    def test_a_file_that_was_measured_slower_is_named(self):
        self.table("own", NAME, content={"1": tactic(48)})
        plan = make_plan([(1, 64, None)])
        lost = "vllm.triton/engine main{BLOCK_SIZE_M=48,BLOCK_SIZE_N=64,BLOCK_SIZE_K=128,GROUP_SIZE_M=1,num_warps=4,num_stages=3}"
        plan["decisions"][0]["evidence"] = {"challenger": lost, "speedup": 0.8, "speedup_low": 0.7, "speedup_high": 0.9, "resolved": True}
        row = self.model_audit(0, "--config", self.config(plan))[0]
        self.assertTrue(row["slower_than_default"])
        self.assertIn("0.80x", row["against_plan"])

    def test_sglang_looks_for_fused_shared_experts_too(self):
        model = self.write_model("shared", {**program.TINY, "model_type": "deepseek_v3", "n_routed_experts": 8,
                                            "n_shared_experts": 1, "scoring_func": "sigmoid"})
        self.table("own", "configs", "triton_3_4_0", "E=9,N=32,device_name=NVIDIA_H200.json")
        arguments = [model, "--sglang", self.folder / "own", "--device-name", "NVIDIA H200", "--triton-version", "3.4.0"]
        rows = self.audit(1, *arguments)
        self.assertEqual([(row["E"], row["outcome"]) for row in rows], [(8, "default"), (9, "found")])
        self.assertEqual([row["E"] for row in self.audit(0, *arguments, "--shared-experts")], [9])
        self.assertEqual([row["E"] for row in self.audit(1, *arguments, "--no-shared-experts")], [8])
        arguments[-1] = "3.5.1"
        rows = self.audit(0, *arguments, "--shared-experts")
        self.assertEqual(rows[0]["outcome"], "other_triton")

    def test_a_log_is_read_and_ranks_are_counted(self):
        near = self.table("own", "E=8,N=32,device_name=NVIDIA_H200_NVL.json")
        wanted = self.folder / "own" / NAME
        line = f"(Worker_TP0 pid=1) WARNING [fused_moe.py:1] Using default MoE config. Performance might be sub-optimal! Config file not found at {wanted}\n"
        log = self.folder / "server.log"
        log.write_text("noise\n" + line * 4)
        row = self.audit(1, "--log", log)[0]
        self.assertEqual((row["lines"], row["outcome"], row["engine"]), (4, "default", "vllm"))
        self.assertEqual(row["fix"]["path"], f"DIR/{NAME}", "the package's own folder is not the place for it")
        self.assertEqual([one["path"] for one in row["near"]], [str(near)])
        log.write_text(line.replace(str(wanted), f"{wanted}, /package/configs/{NAME}"))
        self.assertEqual(self.audit(1, "--log", log)[0]["fix"]["path"], str(wanted))
        log.write_text(f"INFO Using configuration from {wanted} for MoE layer.\n")
        self.assertEqual(self.audit(0, "--log", log)[0]["outcome"], "found")
        root = self.folder / "sgl"
        log.write_text(f"[TP0] Using default MoE kernel config. Performance might be sub-optimal! Config file not found at "
                       f"{root}/configs/triton_3_5_1/{NAME}, you can create them with https://example.org\n")
        row = self.audit(1, "--log", log)[0]
        self.assertEqual((row["engine"], row["fix"]["path"]), ("sglang", f"{root}/configs/triton_3_5_1/{NAME}"))
        self.assertIn(f"moetune export --sglang '{root}' --triton-version 3.5.1", row["fix"]["commands"])
        log.write_bytes(bytes(range(256)) * 1000)
        self.assertEqual(self.audit(0, "--log", log), [])

    def test_errors(self):
        own = self.folder / "own"
        own.mkdir()
        self.assert_error(2, "invalid_argument", ["MODEL"], "audit")
        self.assert_error(2, "invalid_argument", ["--vllm"], "audit", self.model)
        self.assert_error(2, "invalid_argument", ["both"], "audit", self.model, "--log", "x")
        self.assert_error(1, "not_found", ["nowhere", "VLLM_TUNED_CONFIG_FOLDER"], "audit", self.model, "--vllm", "nowhere")
        self.assert_error(1, "not_found", ["no.log"], "audit", "--log", "no.log")
        self.assert_error(2, "invalid_argument", ["--triton-version"], "audit", self.model, "--sglang", own)
        self.assert_error(1, "unsupported", ["nvfp4"], "audit", self.model, "--vllm", own, "--device-name", "X", "--weights", "nvfp4")
        devices = self.run_program("devices", "--json").json()["devices"]
        if all(device["kind"] != "cuda" for device in devices):
            self.assert_error(1, "unsupported", ["--device-name"], "audit", self.model, "--vllm", own)


class Show(EngineTest):
    def test_a_triton_table(self):
        path = self.table("own", NAME, content={"64": tactic(32), "1": {**TACTIC, "SPLIT_K": 1}, "triton_version": "3.4.0"})
        run = self.run_program("show", path)
        self.assert_done(run)
        self.assertIn("E=8, N=32", run.out)
        self.assertIn("SPLIT_K", run.out)
        shown = self.run_program("show", path, "--json").json()
        self.assertEqual((shown["format"], shown["triton_version"]), ("triton_table", "3.4.0"))
        self.assertEqual([entry["tokens"] for entry in shown["entries"]], [1, 64])
        self.assertEqual(shown["entries"][1]["tactic"], tactic(32))
        path = self.table("renamed.json", content={"1": {**TACTIC, "BLOCK_SIZE_M": -1}})
        self.assert_error(1, "parse", ['"1".BLOCK_SIZE_M', "-1"], "show", path)

    def test_flashinfers_cache(self):
        path = self.table("cache.json", content={
            "_metadata": {"flashinfer_version": "0.7.4", "gpu": "NVIDIA H200"},
            "('fused_moe', 'MoERunner', ((8, 4096), (0,)), ())": ["MoERunner", -1],
            "('fused_moe', 'MoERunner', ((16, 4096), (0,)), ())": ["MoERunner", [128, 2]]})
        run = self.run_program("show", path)
        self.assert_done(run)
        for part in ["0.7.4", "8x4096 0", "-1 (fallback)", "[128,2]"]:
            self.assertIn(part, run.out)
        shown = self.run_program("show", path, "--json").json()
        self.assertEqual([entry["fallback"] for entry in shown["entries"]], [True, False])
        self.assertEqual(shown["metadata"]["gpu"], "NVIDIA H200")


if __name__ == "__main__":
    program.main()
