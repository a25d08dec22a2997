"""Candidates that fail in the real program: a line when tuning ends, a table on request."""

import json
import os
import re

import program

UNRULY = os.environ.get("MOETUNE_UNRULY_WORKER", "moetune-worker-unruly")
REAL = os.environ.get("MOETUNE_REAL_WORKER", "moetune-worker")


class Rejected(program.ProgramTest):
    def tune(self, worker, *arguments):
        out = self.folder / "tuned.json"
        run = self.run_program("tune", self.model, "--device", "cpu", "--tokens", 8, "--out", out, *arguments, MOETUNE_WORKER=worker)
        self.assert_done(run)
        return out, run

    def rejected(self, out):
        """Rejected candidates of the one problem in that configuration, by kind."""
        problem, = self.run_program("show", out, "--rejected", "--json").json()["problems"]
        kinds = {}
        for entry in problem["rejected"]:
            kinds.setdefault(entry["kind"], []).append(entry)
        return kinds

    def test_tuning_ends_with_one_line_and_the_table_says_who_and_why(self):
        # Where others use the machine, a run may not come far; the next one goes on from its journal.
        for _ in range(8):
            out, run = self.tune(UNRULY, "--budget", "4s")
            line = run.out.splitlines()[-1]
            kinds = self.rejected(out)
            if "rejected:" in line and {"run", "wrong_result"} <= set(kinds):
                break
        self.assertRegex(line, r"^\d+ candidates? rejected: \d+ (crashed|wrong result)")
        self.assertNotIn("died of signal", run.out, "no reasons where nobody asked for them")
        command = re.search(r"`moetune (.*)` lists them", line).group(1).split()
        shown = self.run_program(*command)
        self.assert_done(shown)
        for part in ["crashed", "died of signal 11", "wrong result", "token_tile=", "cpu.packed@"]:
            self.assertIn(part, shown.out)
        self.assertIn(f"{sum(map(len, kinds.values()))} candidates rejected: ", shown.out)
        self.assertLess(max(map(len, shown.out.splitlines())), 500)

        self.assertIn("died of signal 11", kinds["run"][0]["reason"])
        for kind, tiles in [("run", [3, 6, 12]), ("wrong_result", [4, 5])]:
            for entry in kinds[kind]:
                self.assertEqual(entry["tokens"], [8])
                self.assertTrue(entry["reason"])
                self.assertIn(entry["stages"][0]["tactic"]["token_tile"], tiles)
        plan, = json.loads(out.read_text())["plans"]
        for decision in plan["decisions"]:
            tile = decision["stages"][0]["tactic"]["token_tile"]
            self.assertTrue(decision["default"] or tile not in [3, 4, 5, 6, 12], decision)

    def test_nothing_rejected_is_said_too(self):
        out, run = self.tune(REAL, "--budget", "10s")
        self.assertEqual(run.out.splitlines()[-1], "no candidate rejected")
        shown = self.run_program("show", out, "--rejected")
        self.assert_done(shown)
        self.assertIn("no candidate rejected", shown.out)
        self.assertEqual(self.rejected(out), {})

    def test_without_a_journal_it_says_so(self):
        out, _ = self.tune(REAL, "--budget", "3s")
        missing = self.folder / "none.db"
        self.assert_error(1, "not_found", ["none.db"], "show", out, "--rejected", "--journal", missing)
        self.assert_error(2, "invalid_argument", ["--rejected"], "show", out, "--journal", missing)
        other = self.folder / "other.db"
        self.assert_done(self.run_program("tune", self.model, "--device", "cpu", "--tokens", "1", "--budget", "300ms", "--weights",
                                          "nvfp4", "--out", self.folder / "x.json", "--journal", other))
        shown = self.run_program("show", out, "--rejected", "--journal", other)
        self.assert_done(shown)
        self.assertIn("nothing of this problem is in the journal", shown.out)


if __name__ == "__main__":
    program.main()
