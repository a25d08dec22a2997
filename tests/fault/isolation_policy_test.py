"""Where kernels run that nobody asked to be put anywhere: in the program itself once they are proven, else in a helper."""

import json
import os

import program

UNRULY = os.environ.get("MOETUNE_UNRULY_WORKER", "moetune-worker-unruly")
REAL = os.environ.get("MOETUNE_REAL_WORKER", "moetune-worker")
HANGING = os.environ.get("MOETUNE_HANGING_WORKER", "moetune-worker-hanging")
NONE = "/nonexistent/moetune-worker"


class Policy(program.ProgramTest):
    FAST = ["--device", "cpu", "--tokens", 8]

    def run_json(self, command, *more, worker=REAL, code=0):
        run = self.run_program(command, self.model, *self.FAST, *more, "--json", MOETUNE_WORKER=worker)
        self.assertEqual(run.code, code, run.out + run.err)
        return run.json()

    def bench(self, *more, worker=REAL):
        return self.run_json("bench", "--budget", "300ms", *more, worker=worker)

    def plan(self, resolved=True, **identity):
        """A configuration that puts another tactic than the default into force."""
        path = self.folder / "plan.json"
        path.unlink(missing_ok=True)
        self.run_json("tune", "--budget", "3s", "--out", path, "--isolation", "in-process")
        config = json.loads(path.read_text())
        config["device"]["identity"].update(identity)
        decisions = config["plans"][0]["decisions"]
        time = {"median_us": 10, "min_us": 9, "q1_us": 9.5, "q3_us": 10.5, "samples": 20}
        decision = decisions[-1]
        decision.update({"from": 1, "default": False, "evidence": {"chosen": time, "default": time, "resolved": resolved}})
        tactic = decision["stages"][0]["tactic"]
        tactic["prefetch_bytes"] = 1024 if tactic["prefetch_bytes"] == 4096 else 4096
        # What tuning found may be one of those that the unruly helper spoils.
        tactic.update({"feed": "direct", "token_tile": 2, "k_block": 0})
        config["plans"][0]["decisions"] = [decision]
        path.write_text(json.dumps(config))
        return ["--config", path]

    def test_what_is_proven_runs_here(self):
        plan = self.plan()
        for command, more in [("bench", ["--budget", "300ms"]), ("verify", [])]:
            for config in [plan, []]:
                result = self.run_json(command, *more, *config, worker=NONE)
                self.assertEqual(result["isolation"], "in-process", "a helper is not even looked for")
        self.assertEqual(self.bench(*plan)["coverage"]["tuned"], 1, "it was the plan's tactic that ran")

    def test_what_is_not_proven_goes_through_a_helper(self):
        for plan in [self.plan(resolved=False), self.plan(l2_kib="1")]:
            self.assertEqual(self.bench(*plan)["isolation"], "worker")
            self.assertEqual(self.run_json("verify", *plan)["isolation"], "worker")
            self.assertEqual(self.bench(*plan, "--isolation", "in-process", worker=NONE)["isolation"], "in-process")

    def test_ceilings_are_measured_where_candidates_run(self):
        plan = self.plan()
        tune = ["tune", "--budget", "300ms", "--no-journal", "--out", self.folder / "other.json"]
        for command in [tune, ["bench", "--budget", "300ms", *plan, "--isolation", "worker"]]:
            self.assertEqual(self.run_json(*command, worker=UNRULY)["ceilings"]["read"], "boasted", "the helper was asked")
            self.assertIn("threads", self.run_json(*command, worker=REAL)["ceilings"]["read"])
        # A helper of a program that knows no ceilings.
        run = self.run_program("bench", self.model, *self.FAST, "--budget", "300ms", "--isolation", "worker", "--json",
                               MOETUNE_WORKER=HANGING)
        self.assertIn("measured by this process", run.err)
        self.assertIn("threads", run.json()["ceilings"]["read"])

    def test_who_asks_for_a_helper_gets_it(self):
        self.assertEqual(self.bench("--isolation", "worker")["isolation"], "worker")
        for command in ["bench", "verify"]:
            self.assert_error(1, "not_found", [NONE], command, self.model, *self.FAST, "--isolation", "worker", MOETUNE_WORKER=NONE)
            self.assert_error(2, "invalid_argument", ["--isolation", "worker"], command, self.model, "--isolation", "elsewhere")

    def test_whole_spaces_are_checked_in_a_helper_that_may_crash(self):
        result = self.run_json("verify", "--all", "--limit", 40, "--workload", "uniform", worker=UNRULY, code=1)
        self.assertEqual(result["isolation"], "worker")
        reasons = {failure["stages"][0]["tactic"]["token_tile"]: failure["reason"] for failure in result["failures"]}
        self.assertTrue(any("died of signal 11" in reason for reason in reasons.values()), reasons)
        self.assertTrue(set(reasons) <= {3, 4, 5, 6, 12}, reasons)
        self.assertGreater(result["checked"], 2 * 30)

    def test_without_a_helper_whole_spaces_are_checked_here_with_a_warning(self):
        run = self.run_program("verify", self.model, *self.FAST, "--all", "--limit", 5, "--json", MOETUNE_WORKER=NONE)
        self.assert_done(run)
        self.assertEqual(run.json()["isolation"], "in-process")
        self.assertIn("warning", run.err)


if __name__ == "__main__":
    program.main()
