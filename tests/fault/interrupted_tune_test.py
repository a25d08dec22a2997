"""The real program with helpers that hang, are missing, or are of another version."""

import json
import os
import pathlib
import signal
import sqlite3
import time

import program

HANGING = os.environ.get("MOETUNE_HANGING_WORKER", "moetune-worker-hanging")
REAL = os.environ.get("MOETUNE_REAL_WORKER", "moetune-worker")


def helpers_of(pid):
    """Processes started by `pid` that still run."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (OSError, IndexError):
            continue
        if folder.name.isdigit() and int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Interrupted(program.ProgramTest):
    ARGUMENTS = ["--device", "cpu", "--tokens", "8", "--budget", "100s", "--json"]

    def hanging(self, **changes):
        """A run whose helper hangs in compiling, and the helper."""
        process = self.start("tune", self.model, *self.ARGUMENTS, MOETUNE_WORKER=HANGING, **changes)
        deadline = time.monotonic() + 20
        while not helpers_of(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        (helper,) = helpers_of(process.pid)
        time.sleep(3)
        self.assertIsNone(process.poll())
        return process, helper

    def test_ctrl_c_in_a_hang_saves_and_exits_130(self):
        process, helper = self.hanging()
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        out, err = process.communicate(timeout=60)
        took = time.monotonic() - sent
        self.assertEqual(process.returncode, 130, err)
        self.assertLess(took, 10, "a compilation may take 30 s")
        result = json.loads(out)
        self.assertTrue(result["interrupted"])
        self.assertEqual(result["isolation"], "worker")
        self.assertEqual(result["buckets"][-1]["to"], 8, "the plan covers everything")
        self.assertTrue(result["saved"], err)
        self.assertFalse(runs(helper))

    def test_deadlines_can_be_set(self):
        run = self.run_program("tune", self.model, *self.ARGUMENTS, "--compile-deadline", "400ms", "--run-deadline", "20s",
                               MOETUNE_WORKER=HANGING)
        self.assert_done(run)
        reasons = [rejected["reason"] for rejected in run.json()["rejected"]]
        self.assertTrue(reasons)
        self.assertTrue(all("longer than 0.4 s" in reason for reason in reasons), reasons)

    def test_limits_of_a_candidate_must_be_times(self):
        for flag in ["--candidate-budget", "--compile-deadline", "--run-deadline"]:
            self.assert_error(2, "invalid_argument", [flag, "soon"], "tune", self.model, *self.ARGUMENTS[:-1], flag, "soon")

    def test_kill_9_in_a_hang_leaves_no_helper(self):
        process, helper = self.hanging()
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 10
        while runs(helper) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(runs(helper))
        # Of the step that hung all but the last second is in the account.
        journal = sqlite3.connect(self.cache / "moetune" / "journal.db")
        self.addCleanup(journal.close)
        ((seconds,),) = journal.execute("SELECT seconds FROM run").fetchall()
        self.assertGreater(seconds, 3 - 1.5, "it hung for three seconds, less what starting took")


class Isolation(program.ProgramTest):
    ARGUMENTS = ["--device", "cpu", "--tokens", "1,8", "--budget", "1s"]

    def fake(self, text):
        path = self.folder / "helper"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)

    def test_the_helper_is_used_where_it_is_found(self):
        run = self.run_program("tune", self.model, *self.ARGUMENTS, "--json", MOETUNE_WORKER=REAL)
        self.assert_done(run)
        self.assertEqual(run.json()["isolation"], "worker")
        self.assertEqual(run.json()["respawns"], 0)
        self.assertEqual(run.json()["rejected"], [])
        self.assertEqual(run.json()["warnings"], [])
        self.assertGreater(run.json()["measurements"], 0)

    def test_a_memory_limit_holds_in_the_helper_too(self):
        run = self.run_program("tune", self.model, "--device", "cpu", "--tokens", "1,4096", "--budget", "2s", "--memory", "512KiB",
                               "--json", MOETUNE_WORKER=REAL)
        self.assert_done(run)
        self.assertEqual(run.json()["isolation"], "worker")
        self.assertTrue(any("--memory" in warning for warning in run.json()["warnings"]), run.json()["warnings"])

    def test_without_a_helper_candidates_run_here_with_a_warning(self):
        hello = """printf '{"hello":"moetune-worker","protocol":1,"version":"0.0.9"}\\n' >&3; sleep 20\n"""
        for helper, part in [("/nonexistent/moetune-worker", "/nonexistent"), (self.fake(hello), "0.0.9")]:
            run = self.run_program("tune", self.model, *self.ARGUMENTS, "--json", MOETUNE_WORKER=helper)
            self.assert_done(run)
            self.assertEqual(run.json()["isolation"], "in-process")
            self.assertIn("warning", run.err)
            self.assertIn(part, run.err)

    def test_a_helper_that_was_asked_for_must_be_there(self):
        self.assert_error(1, "not_found", ["/nonexistent/moetune-worker"], "tune", self.model, *self.ARGUMENTS, "--isolation", "worker",
                          MOETUNE_WORKER="/nonexistent/moetune-worker")

    def test_in_process_needs_no_helper(self):
        run = self.run_program("tune", self.model, *self.ARGUMENTS, "--isolation", "in-process", "--json", MOETUNE_WORKER="/nonexistent")
        self.assert_done(run)
        self.assertEqual(run.json()["isolation"], "in-process")
        self.assertNotIn("warning", run.err)

    def test_another_word_is_refused(self):
        self.assert_error(2, "invalid_argument", ["--isolation", "worker"], "tune", self.model, "--isolation", "elsewhere")


if __name__ == "__main__":
    program.main()
