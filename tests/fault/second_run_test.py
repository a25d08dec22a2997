"""A budget that is counted over runs, however they end: the real program on a real layer."""

import json
import signal
import sqlite3
import time

import program


class SecondRun(program.ProgramTest):
    # A real layer: a tiny one is tuned to the end before anybody can interrupt it.
    LAYER = ["qwen3-30b-a3b", "--weights", "nvfp4", "--device", "cpu", "--tokens", "1,8", "--isolation", "in-process"]

    def setUp(self):
        super().setUp()
        self.path = self.cache / "moetune" / "journal.db"

    def tune(self, budget):
        run = self.run_program("tune", *self.LAYER, "--budget", budget, "--json")
        self.assert_done(run)
        return run.json()

    def seconds_spent(self):
        if not self.path.exists():
            return 0
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        try:
            return connection.execute("SELECT total(seconds) FROM run").fetchone()[0]
        except sqlite3.OperationalError:
            return 0  # The tables are not there yet.
        finally:
            connection.close()

    def end_after(self, spent, budget, number):
        """Ends a run once that many seconds of it are in the journal."""
        process = self.start("tune", *self.LAYER, "--budget", budget, "--json")
        deadline = time.monotonic() + 100
        while self.seconds_spent() < spent and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(number)
        process.communicate(timeout=60)
        return process.returncode

    def expect_nothing_measured(self, budget):
        started = time.monotonic()
        result = self.tune(budget)
        self.assertLess(time.monotonic() - started, 10)
        self.assertEqual(result["measurements"], 0)
        self.assertTrue(result["from_journal"])
        return result

    def test_the_same_budget_is_spent_and_a_larger_one_goes_on(self):
        first = self.tune("8s")
        self.assertGreater(first["measurements"], 0)
        second = self.expect_nothing_measured("8s")
        self.assertEqual([bucket["stages"] for bucket in second["buckets"]], [bucket["stages"] for bucket in first["buckets"]])
        more = self.tune("12s")
        if first["seconds"] > 7:
            self.assertAlmostEqual(more["earlier_seconds"], first["seconds"], delta=0.5)
            self.assertGreater(more["measurements"], 0)
        self.expect_nothing_measured("12s")

    def test_a_killed_run_counts_for_what_it_used(self):
        self.assertEqual(self.end_after(4, "60s", signal.SIGKILL), -signal.SIGKILL)
        spent = self.seconds_spent()
        self.assertGreaterEqual(spent, 4)
        self.assertEqual(self.expect_nothing_measured("4s")["earlier_seconds"], spent)
        rest = self.tune("10s")
        self.assertEqual(rest["earlier_seconds"], spent)
        self.assertLess(rest["seconds"], 10 - spent + 3)
        self.expect_nothing_measured("10s")

    def test_an_interrupted_run_counts_for_what_it_used(self):
        self.assertEqual(self.end_after(4, "60s", signal.SIGINT), 130)
        self.expect_nothing_measured("4s")

    def test_two_at_once_both_count(self):
        processes = [self.start("tune", *self.LAYER, "--budget", "6s", "--json") for _ in range(2)]
        results = []
        for process in processes:
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, err)
            self.assertNotIn("warning", err)
            results.append(json.loads(out))
        spent = sum(result["seconds"] for result in results)
        self.assertAlmostEqual(self.seconds_spent(), spent, delta=0.1)
        self.assertAlmostEqual(self.expect_nothing_measured("6s")["earlier_seconds"], spent, delta=0.1)


if __name__ == "__main__":
    program.main()
