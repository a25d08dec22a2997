"""From tuning a tiny layer to running, showing, explaining and checking the result."""

import json
import pathlib
import signal
import time

import program


class Tuned(program.ProgramTest):
    FAST = ["--device", "cpu", "--tokens", "1,8", "--budget", "1s"]

    def tune(self, *more):
        run = self.run_program("tune", self.model, *self.FAST, *more, "--json")
        self.assert_done(run)
        return run.json()

    def test_the_result_has_what_is_promised_and_the_file_is_there(self):
        result = self.tune()
        for key in ["moetune", "device", "problem", "layout", "seconds", "measurements", "buckets", "rejected", "config"]:
            self.assertIn(key, result)
        self.assertEqual(result["problem"]["hidden"], 64)
        self.assertEqual(result["problem"]["experts"], 8)
        self.assertTrue(result["saved"])
        self.assertTrue(pathlib.Path(result["config"]).is_file())
        self.assertTrue(result["config"].startswith(str(self.cache)))
        covered = 0
        for bucket in result["buckets"]:
            self.assertEqual(bucket["from"], covered + 1)
            covered = bucket["to"]
            for key in ["tokens", "default_us", "tuned_us", "speedup", "speedup_ci", "resolved", "scheme", "stages", "bound",
                        "ceiling_fraction", "ceiling", "touched_experts", "provenance"]:
                self.assertIn(key, bucket)
            self.assertTrue(bucket["stages"])
            self.assertEqual(set(bucket["stages"][0]), {"name", "runner", "tactic"})
            low, high = bucket["speedup_ci"]
            self.assertLessEqual(low, bucket["speedup"])
            self.assertGreaterEqual(high, bucket["speedup"])
            if bucket["provenance"] == "tuned":
                self.assertGreater(low, 1)
        self.assertEqual(covered, 8)

    def test_text_goes_to_stdout_and_progress_to_stderr(self):
        run = self.run_program("tune", self.model, "--device", "cpu", "--tokens", "1", "--budget", "5s")
        self.assert_done(run)
        self.assertIn("tokens", run.out)
        self.assertIn("Saved to", run.out)
        self.assertNotIn("buckets done", run.out)
        self.assertNotIn("\x1b", run.out + run.err)

    def test_what_was_tuned_is_shown_explained_measured_and_checked(self):
        config = self.tune()["config"]

        shown = self.run_program("show")
        self.assert_done(shown)
        self.assertIn(config, shown.out)
        self.assertIn("fused_moe", shown.out)
        self.assertEqual(len(self.run_program("show", config, "--json").json()["plans"]), 1)

        explained = self.run_program("explain", self.model, "--device", "cpu", "--tokens", "1,5", "--json")
        self.assert_done(explained)
        self.assertEqual([entry["tokens"] for entry in explained.json()["explanations"]], [1, 5])
        self.assertEqual(explained.json()["config"], config)
        entry = explained.json()["explanations"][0]
        self.assertEqual(entry["decision"]["from"], 1)
        self.assertIn(entry["provenance"], ["tuned", "default"])
        text = self.run_program("explain", self.model, "--device", "cpu", "--tokens", "5")
        self.assertIn("because", text.out)
        self.assertIn("outcome", text.out)

        record = self.folder / "record.json"
        bench = self.run_program("bench", self.model, "--device", "cpu", "--tokens", "1..8", "--random-tokens", 3, "--budget", "1s",
                                 "--workload", "uniform,zipf:1.2", "--lookup", "--out", record, "--note", "abc", "--json")
        self.assert_done(bench)
        result = bench.json()
        self.assertEqual(result["rows_asked_for"], 6)  # Fewer are measured where time is up.
        self.assertIn(len(result["rows"]), range(1, 7))
        order = [(row["workload"], row["tokens"]) for row in result["rows"]]
        self.assertEqual(order, sorted(order))
        self.assertEqual(sum(result["coverage"].values()), len(result["rows"]))
        self.assertEqual(set(result["coverage"]), {"tuned", "nearest", "stale", "default"})
        self.assertGreater(result["ceilings"]["read_bytes_per_s"], 0)
        self.assertGreater(result["lookup"]["median_ns"], 0)
        self.assertEqual(json.loads(record.read_text()), result)
        self.assertEqual(result["note"], "abc")

        verified = self.run_program("verify", self.model, "--device", "cpu", "--tokens", "1,3,33", "--json")
        self.assert_done(verified)
        self.assertGreaterEqual(verified.json()["checked"], 12)
        self.assertEqual(verified.json()["failed"], 0)
        self.assertEqual(verified.json()["failures"], [])

    def test_other_plans_in_the_file_stay(self):
        out = self.folder / "plans.json"
        self.tune("--out", out)
        self.tune("--out", out, "--weights", "nvfp4")
        self.tune("--out", out)
        self.assertEqual(len(json.loads(out.read_text())["plans"]), 2)

    def test_all_tactics_are_checked_on_request(self):
        some = self.run_program("verify", self.model, "--device", "cpu", "--tokens", "3", "--json").json()
        run = self.run_program("verify", self.model, "--device", "cpu", "--tokens", "3", "--all", "--limit", 60, "--json")
        self.assert_done(run)
        self.assertGreater(run.json()["checked"], some["checked"])

    def test_a_tiny_budget_still_gives_a_valid_result_and_loses_nothing_known(self):
        out = self.folder / "kept.json"
        self.tune("--out", out)
        before = json.loads(out.read_text())
        run = self.run_program("tune", self.model, "--device", "cpu", "--tokens", "1,8", "--budget", "1ms", "--out", out, "--json")
        self.assert_done(run)
        self.assertEqual(run.json()["buckets"][-1]["to"], 8)
        after = json.loads(out.read_text())
        self.assertEqual(len(after["plans"]), 1)
        if not run.json()["saved"]:
            self.assertEqual(after, before)

    def test_a_memory_limit_leaves_out_what_does_not_fit_and_says_so(self):
        run = self.run_program("tune", self.model, "--device", "cpu", "--tokens", "1,4096", "--budget", "2s", "--memory", "512KiB", "--json")
        self.assert_done(run)
        self.assertTrue(any("--memory" in warning for warning in run.json()["warnings"]), run.json()["warnings"])
        self.assertIn("--memory", run.err)
        self.assertEqual(run.json()["buckets"][-1]["to"], 4096)

    def test_results_can_be_switched_off(self):
        self.tune()
        run = self.run_program("explain", self.model, "--device", "cpu", "--tokens", "1", "--json", MOETUNE_DEFAULT="1")
        self.assert_done(run)
        self.assertEqual(run.json()["explanations"][0]["provenance"], "default")
        self.assertIn("switched off", run.json()["explanations"][0]["reason"])


class Outputs(program.ProgramTest):
    """A place that cannot take the result is found out before time is spent."""

    def refused(self, code, kind, parts, out):
        started = time.monotonic()
        self.assert_error(code, kind, parts, "tune", self.model, "--device", "cpu", "--budget", "60s", "--out", out)
        self.assertLess(time.monotonic() - started, 20)

    def test_a_missing_folder(self):
        self.refused(1, "not_found", ["mkdir"], self.folder / "no" / "such" / "tuned.json")

    def test_a_folder_as_file(self):
        self.refused(2, "invalid_argument", ["is a folder"], self.folder)

    def test_a_folder_that_takes_no_files(self):
        self.refused(1, "io", ["cannot write"], "/proc/tuned.json")

    def test_a_file_that_is_something_else_is_left_alone(self):
        other = self.folder / "other.json"
        for text in ['{"name": "not a configuration"}', "words", '{"format": 999}']:
            other.write_text(text)
            error = self.run_program("tune", self.model, "--device", "cpu", "--out", other, "--json")
            self.assertEqual(error.code, 1, error.out)
            self.assertIn("other.json", error.json()["error"]["message"])
            self.assertEqual(other.read_text(), text)

    def test_another_devices_file_is_left_alone(self):
        out = self.folder / "tuned.json"
        self.assert_done(self.run_program("tune", self.model, "--device", "cpu", "--tokens", 1, "--budget", "300ms", "--out", out))
        config = json.loads(out.read_text())
        name = sorted(config["device"]["identity"])[0]
        config["device"]["identity"][name] = "something else"
        out.write_text(json.dumps(config))
        self.refused(2, "invalid_argument", [name], out)
        self.assertEqual(json.loads(out.read_text()), config)


class Configurations(program.ProgramTest):
    def test_nothing_tuned_yet(self):
        self.assert_error(1, "not_found", ["moetune tune"], "show")
        run = self.run_program("explain", self.model, "--device", "cpu", "--tokens", "1", "--json")
        self.assert_done(run)
        self.assertEqual(run.json()["explanations"][0]["provenance"], "default")

    def test_files_that_are_no_configuration(self):
        self.assert_error(1, "not_found", ["missing.json"], "show", self.folder / "missing.json")
        bad = self.folder / "bad.json"
        for text in ["", "{", "[]", '{"format": "x"}', '{"format": 1, "plans": 3}', "[" * 100000]:
            bad.write_text(text)
            for arguments in [["show", bad], ["explain", self.model, "--device", "cpu", "--config", bad]]:
                self.assert_error(1, "parse", ["bad.json"], *arguments)
        bad.write_text('{"format": 999}')
        self.assert_error(1, "unsupported", ["bad.json"], "show", bad)


class Interrupted(program.ProgramTest):
    # A real layer: a tiny one is tuned to the end before anybody can interrupt it.
    LAYER = ["qwen3-30b-a3b", "--weights", "nvfp4", "--device", "cpu", "--budget", "60s"]

    def interrupt(self, signal_number, after_s):
        process = self.start("tune", *self.LAYER, "--tokens", "1..64", "--json")
        time.sleep(after_s)
        process.send_signal(signal_number)
        sent = time.monotonic()
        out, err = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - sent, 15)
        self.assertEqual(process.returncode, 130, err)
        return out, err

    def test_ctrl_c_keeps_the_best_so_far(self):
        for number in [signal.SIGINT, signal.SIGTERM]:
            out, err = self.interrupt(number, 5)
            result = json.loads(out)
            self.assertTrue(result["interrupted"])
            self.assertEqual(result["buckets"][-1]["to"], 64, "the plan covers everything")
            if result["saved"]:
                self.assertTrue(pathlib.Path(result["config"]).is_file())
            else:
                self.assertIn("stays as it is", err)

    def test_a_second_ctrl_c_ends_at_once(self):
        process = self.start("tune", *self.LAYER)
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
        # Ended by the signal itself, which a shell shows as 130 too, or by the first one in time.
        self.assertIn(process.returncode, [130, -signal.SIGINT])
        self.assertIn("once more", err)

    def test_progress_is_told_at_least_every_two_seconds(self):
        _, err = self.interrupt(signal.SIGINT, 5)
        lines = [line for line in err.splitlines() if "left" in line]
        self.assertGreaterEqual(len(lines), 2, err)


class Devices(program.ProgramTest):
    def test_lists_the_cpu_and_what_is_missing(self):
        run = self.run_program("devices", "--json")
        self.assert_done(run)
        result = run.json()
        cpu = result["devices"][0]
        self.assertEqual(cpu["kind"], "cpu")
        self.assertGreaterEqual(cpu["threads"], 1)
        self.assertIn("portable", cpu["instruction_sets"])
        for part in result["missing"]:
            self.assertEqual(set(part), {"part", "turns_off", "how_to_get"})
        self.assertEqual(result["ceilings"], {})

    def test_measures_ceilings_on_request(self):
        run = self.run_program("devices", "--ceilings", "--json")
        self.assert_done(run)
        self.assertGreater(run.json()["ceilings"]["cpu"]["read_bytes_per_s"], 1e8)
        self.assertGreater(run.json()["ceilings"]["cpu"]["operations_per_s"], 1e8)


if __name__ == "__main__":
    program.main()
