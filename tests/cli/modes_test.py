"""Deterministic, pinned, defaults only: which tuning results a command may use."""

import json

import program


class Modes(program.ProgramTest):
    CPU = ["--device", "cpu"]

    def setUp(self):
        super().setUp()
        self.config = self.folder / "tuned.json"
        self.tuned = self.run_program("tune", self.model, *self.CPU, "--tokens", "1,8", "--budget", "3s", "--out", self.config,
                                      "--deterministic", "--json")
        self.assert_done(self.tuned)
        self.pinned = ["--config", self.config, "--pinned"]

    def edit(self, change):
        """Another configuration, changed from the tuned one."""
        config = json.loads(self.config.read_text())
        change(config)
        path = self.folder / "edited.json"
        path.write_text(json.dumps(config))
        return ["--config", path, "--pinned"]

    def explain(self, *more):
        run = self.run_program("explain", self.model, *self.CPU, "--tokens", 8, *more, "--json")
        self.assert_done(run)
        return run.json()["explanations"][0]

    def test_tuning_says_that_it_was_deterministic(self):
        self.assertIs(self.tuned.json()["deterministic"], True)
        plain = self.run_program("tune", self.model, *self.CPU, "--tokens", 1, "--budget", "100ms", "--json")
        self.assertIs(plain.json()["deterministic"], False)
        self.assertEqual(self.explain("--config", self.config, "--deterministic")["tokens"], 8)

    def test_a_plan_says_that_it_was_tuned_deterministic(self):
        def said(*arguments):
            run = self.run_program(*arguments)
            self.assert_done(run)
            return "deterministic" in run.out

        explain = ["explain", self.model, *self.CPU, "--tokens", 8, "--config"]
        self.assertTrue(json.loads(self.config.read_text())["plans"][0]["deterministic"])
        self.assertTrue(said("show", self.config))
        self.assertTrue(said(*explain, self.config))
        self.assertIs(self.explain("--config", self.config)["decision"]["deterministic"], True)
        plain = self.folder / "plain.json"
        self.assert_done(self.run_program("tune", self.model, *self.CPU, "--tokens", 8, "--budget", "1s", "--out", plain))
        self.assertNotIn("deterministic", json.loads(plain.read_text())["plans"][0])
        self.assertFalse(said("show", plain))
        self.assertFalse(said(*explain, plain))

    def test_pinned_runs_what_the_file_says(self):
        for command in [["explain"], ["verify"], ["bench", "--budget", "500ms"]]:
            run = self.run_program(*command, self.model, *self.CPU, "--tokens", "1,8", *self.pinned, "--json")
            self.assert_done(run)

    def test_pinned_names_each_mismatch(self):
        def refused(parts, *arguments):
            for command in ["explain", "verify", "bench"]:
                self.assert_error(1, "unsupported", parts, command, *arguments)

        refused(["covers 1 to 8 tokens, not 9"], self.model, *self.CPU, "--tokens", "1,9", *self.pinned)

        def other_device(config):
            config["device"]["identity"]["threads"] = "99"
            config["device"]["identity"]["l2_kib"] = "7"
        refused(["edited.json", "threads: ", "99 there", "l2_kib: ", "7 there"], self.model, *self.CPU, "--tokens", 8,
                *self.edit(other_device))

        def other_version(config):
            for decision in config["plans"][0]["decisions"]:
                decision["version"] = 99
        refused(["99"], self.model, *self.CPU, "--tokens", 8, *self.edit(other_version))
        refused(["weights: nvfp4 here, bf16 there"], self.model, *self.CPU, "--tokens", 8, "--weights", "nvfp4", *self.pinned)

    def test_pinned_needs_a_file_and_results(self):
        for command in ["explain", "verify", "bench"]:
            self.assert_error(2, "invalid_argument", ["--pinned", "--config"], command, self.model, *self.CPU, "--pinned")
            self.assert_error(2, "invalid_argument", ["--defaults-only"], command, self.model, *self.CPU, "--pinned", "--defaults-only",
                              "--config", self.config)
        self.assert_error(1, "not_found", ["none.json"], "explain", self.model, *self.CPU, "--pinned", "--config",
                          self.folder / "none.json")
        self.assert_error(2, "invalid_argument", ["MOETUNE_DEFAULT"], "explain", self.model, *self.CPU, "--tokens", 8, *self.pinned,
                          MOETUNE_DEFAULT="1")

    def test_defaults_only_uses_no_result(self):
        self.assertIn("switched off", self.explain("--defaults-only")["reason"])
        self.assertNotIn("switched off", self.explain("--config", self.config)["reason"])
        bench = self.run_program("bench", self.model, *self.CPU, "--tokens", "1,8", "--budget", "500ms", "--defaults-only", "--json")
        self.assert_done(bench)
        self.assertEqual(bench.json()["coverage"]["default"], 2)
        self.assertEqual(bench.json()["config"], "")
        self.assertEqual([row["speedup"] for row in bench.json()["rows"]], [1, 1])


if __name__ == "__main__":
    program.main()
