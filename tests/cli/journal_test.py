"""The journal as users meet it: tuning that takes up, and `moetune journal`."""

import json
import os
import pathlib
import sqlite3
import stat
import time

import program


class JournalTest(program.ProgramTest):
    @staticmethod
    def flags(tokens="1,8", budget="2s"):
        return ["--device", "cpu", "--tokens", tokens, "--budget", budget]

    FAST = flags()

    def setUp(self):
        super().setUp()
        self.path = self.cache / "moetune" / "journal.db"

    def tune(self, *more, flags=FAST, **changes):
        run = self.run_program("tune", self.model, *flags, *more, "--json", **changes)
        self.assert_done(run)
        return run

    def journal(self, action, *more):
        run = self.run_program("journal", action, *more, "--json")
        self.assert_done(run)
        return run.json()

    def measurements(self, *more):
        return sum(group["measurements"] for group in self.journal("list", *more)["groups"])


class Tune(JournalTest):
    def test_keeps_a_private_journal_and_takes_it_up(self):
        first = self.tune().json()
        self.assertEqual(first["journal"], str(self.path))
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(self.path.parent).st_mode), 0o700)
        group, = self.journal("list")["groups"]
        self.assertGreater(group["measurements"], 0)
        self.assertEqual(group["plans"], 1)
        self.assertTrue(group["runners"])
        self.assertEqual(group["runs"], 1)
        self.assertAlmostEqual(group["run_seconds"], first["seconds"], delta=0.1)

    def test_a_second_run_measures_nothing_and_ends_at_once_with_the_same_plan(self):
        first = self.tune().json()
        self.assertFalse(first["from_journal"])
        self.assertNotIn("unix_ms", first["ceilings"])
        for budget in ["2s", "1s", "500ms"]:
            started = time.monotonic()
            run = self.tune(flags=self.flags(budget=budget))
            self.assertLess(time.monotonic() - started, 10)
            again = run.json()
            self.assertEqual(again["measurements"], 0)
            self.assertTrue(again["from_journal"])
            self.assertAlmostEqual(again["earlier_seconds"], first["seconds"], delta=0.1)
            self.assertLess(again["seconds"], 1)
            self.assertEqual(self.without_ceilings(again), self.without_ceilings(first))
            self.assertEqual(again["warnings"], [])
            # Measured once, and said when.
            self.assertGreater(again["ceilings"].pop("unix_ms"), 0)
            self.assertEqual(again["ceilings"], first["ceilings"])
        self.assertEqual(self.journal("list")["groups"][0]["runs"], 1)
        text = self.run_program("tune", self.model, *self.FAST)
        self.assertIn("are in the journal already", text.out)
        self.assertRegex(text.out, r"--budget \w+ would go on")
        self.assertRegex(text.out, r"Ceilings: .*, measured 20")

    @staticmethod
    def without_ceilings(result):
        return [{key: value for key, value in bucket.items() if key != "ceiling_fraction"} for bucket in result["buckets"]]

    def test_fewer_buckets_are_there_and_more_are_not(self):
        self.tune()
        fewer = self.tune(flags=self.flags("1")).json()
        self.assertEqual(fewer["measurements"], 0)
        self.assertEqual(fewer["buckets"][-1]["to"], 1)
        more = self.tune(flags=self.flags("1,8,16")).json()
        self.assertEqual(more["earlier_seconds"], 0)
        self.assertGreater(more["measurements"], 0)

    def test_another_runner_version_has_its_budget_again(self):
        self.tune()
        connection = sqlite3.connect(self.path)
        connection.execute("""UPDATE run SET runners = '["cpu.packed@0"]'""")
        connection.execute("UPDATE candidate SET version = 0")
        connection.commit()
        connection.close()
        again = self.tune().json()
        self.assertEqual(again["earlier_seconds"], 0)
        self.assertGreater(again["measurements"], 0)
        self.assertEqual(self.tune().json()["measurements"], 0)

    def test_an_export_carries_what_was_spent(self):
        first = self.tune().json()
        lines = self.folder / "lines.jsonl"
        self.assertEqual(self.journal("export", "--out", lines)["runs"], 1)
        other = self.folder / "other.db"
        self.assertEqual(self.journal("import", lines, "--journal", other)["runs"], 1)
        again = self.tune("--journal", other).json()
        self.assertEqual(again["measurements"], 0)
        self.assertEqual([bucket["stages"] for bucket in again["buckets"]], [bucket["stages"] for bucket in first["buckets"]])
        self.assertEqual(self.journal("prune", "--all")["runs"], 1)
        self.assertGreater(self.tune().json()["measurements"], 0)

    def test_a_journal_of_version_1_is_brought_up_to_date(self):
        self.path.parent.mkdir(parents=True)
        connection = sqlite3.connect(self.path)
        connection.executescript((pathlib.Path(__file__).parent.parent / "journal" / "version_1.sql").read_text())
        connection.close()
        run = self.tune()
        self.assertNotIn("warning", run.err)
        self.assertEqual(run.json()["earlier_seconds"], 0)
        self.assertEqual(self.tune().json()["measurements"], 0)
        self.assertEqual(len(self.journal("list")["groups"]), 2)

    def test_none_is_kept_where_none_is_wanted(self):
        self.assertEqual(self.tune("--no-journal").json()["journal"], "")
        self.assertFalse(self.path.exists())
        self.assert_error(2, "invalid_argument", ["--no-journal"], "tune", self.model, *self.FAST, "--no-journal",
                          "--journal", self.folder / "x.db")

    def test_another_place(self):
        place = self.folder / "mine.db"
        self.tune("--journal", place)
        self.assertTrue(place.exists())
        self.assertFalse(self.path.exists())
        self.assertGreater(self.measurements("--journal", place), 0)
        self.assert_error(1, "not_found", ["mkdir"], "tune", self.model, *self.FAST, "--journal",
                          self.folder / "no" / "such.db")
        self.assert_error(2, "invalid_argument", ["regular file"], "tune", self.model, *self.FAST, "--journal", self.folder)

    def test_a_damaged_one_is_set_aside_with_a_warning(self):
        self.path.parent.mkdir(parents=True)
        self.path.write_bytes(b"words" * 100)
        run = self.tune()
        self.assertEqual(run.err.count("warning:"), 1, run.err)
        aside, = self.path.parent.glob("journal.db.damaged-*")
        self.assertEqual(aside.read_bytes(), b"words" * 100)
        self.assertIn(str(aside), run.err)
        self.assertGreater(self.measurements(), 0)

    def test_a_trace_is_known_by_its_content(self):
        trace = self.folder / "trace.json"
        trace.write_text(json.dumps({"counts": [5, 1, 1, 1, 1, 1, 1, 1]}))
        first = self.tune("--workload", f"trace:{trace}").json()
        self.assertGreater(first["measurements"], 0)
        self.assertTrue(self.tune("--workload", f"trace:{trace}").json()["from_journal"])
        trace.write_text(json.dumps({"counts": [1, 1, 1, 1, 1, 1, 1, 5]}))
        other = self.tune("--workload", f"trace:{trace}").json()
        self.assertEqual(other["earlier_seconds"], 0)
        self.assertGreater(other["measurements"], 0)


class Commands(JournalTest):
    def test_export_and_import_move_everything(self):
        self.tune()
        lines = self.folder / "lines.jsonl"
        exported = self.journal("export", "--out", lines)
        self.assertEqual(exported["measurements"], self.measurements())
        self.assertEqual(len(lines.read_text().splitlines()), exported["measurements"] + exported["plans"] + exported["runs"])
        other = self.folder / "other.db"
        imported = self.journal("import", lines, "--journal", other)
        self.assertEqual(imported["measurements"], exported["measurements"])
        self.assertEqual(imported["plans"], exported["plans"])
        self.assertEqual(self.journal("import", lines, "--journal", other)["already_there"],
                         exported["measurements"] + exported["plans"] + exported["runs"])
        self.assertEqual(self.journal("list", "--journal", other)["groups"], self.journal("list")["groups"])
        to_stdout = self.run_program("journal", "export", "--journal", other)
        self.assert_done(to_stdout)
        self.assertEqual(to_stdout.out, lines.read_text())
        both = self.run_program("journal", "export", "--json")
        self.assertEqual(both.code, 2)
        self.assertIn("--out", both.json()["error"]["hint"])

    def test_bad_lines_are_named_with_their_place(self):
        self.tune()
        lines = self.folder / "lines.jsonl"
        self.journal("export", "--out", lines)
        # How many measurements two seconds bring depends on the machine; one is enough here.
        measurement, *_, spent = lines.read_text().splitlines()
        lines.write_text("\n".join([measurement, "{", measurement.replace('"tokens":', '"tokens":-'), spent]))
        for strict, taken in [(["--strict"], 0), ([], 1)]:
            other = self.folder / f"other{taken}.db"
            run = self.run_program("journal", "import", lines, "--journal", other, "--json", *strict)
            self.assertEqual(run.code, 1)
            self.assertEqual(run.json()["measurements"], taken)
            self.assertEqual(run.json()["runs"], taken)
            self.assertEqual([bad["line"] for bad in run.json()["bad"]], [2, 3])
            self.assertIn(f"{lines}:2: ", run.err)
            self.assertIn(f"{lines}:3: tokens: ", run.err)
            self.assertEqual(self.measurements("--journal", other), taken)

    def test_prune_takes_what_was_asked_for(self):
        self.tune()
        known = self.measurements()
        self.assertEqual(self.journal("prune", "--all", "--dry-run")["measurements"], known)
        self.assertEqual(self.journal("prune", "--older-than", "1h")["measurements"], 0)
        self.assertEqual(self.journal("prune", "--device", "sm=90")["measurements"], 0)
        self.assertEqual(self.measurements(), known)
        time.sleep(0.01)
        self.assertEqual(self.journal("prune", "--older-than", "0s", "--problem", "hidden=64")["measurements"], known)
        self.assertEqual(self.measurements(), 0)

    def test_text_is_for_people(self):
        self.tune()
        listed = self.run_program("journal", "list")
        self.assert_done(listed)
        for part in [str(self.path), "fused_moe", "measurements", "runners"]:
            self.assertIn(part, listed.out)
        pruned = self.run_program("journal", "prune", "--all")
        self.assertIn("took", pruned.out)

    def test_what_makes_no_sense(self):
        self.assert_error(1, "not_found", ["moetune tune"], "journal", "list")
        self.assertFalse(self.path.exists())
        self.assert_error(1, "not_found", ["nowhere"], "journal", "import", self.folder / "nowhere")
        self.assert_error(2, "invalid_argument", ["folder"], "journal", "import", self.folder)
        self.assert_error(2, "invalid_argument", ["--all"], "journal", "prune")
        self.assert_error(2, "invalid_argument", ["--all"], "journal", "prune", "--all", "--device", "x")
        for age in ["x", "1y", "d", "nan", "1 d"]:
            self.assert_error(2, "invalid_argument", ["--older-than", "90d"], "journal", "prune", "--older-than", age)
        self.assert_error(2, "invalid_argument", ["journal lost"], "journal", "lost")
        self.assert_error(2, "invalid_argument", ["another word"], "journal")
        words = self.folder / "words"
        words.write_text("words " * 100)
        self.assert_error(1, "parse", ["damaged", "words"], "journal", "list", "--journal", words)
        self.assertEqual(words.read_text(), "words " * 100)

    def test_newer_journals_are_left_alone(self):
        self.tune()
        connection = sqlite3.connect(self.path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        self.assert_error(1, "unsupported", ["version 99", "update moetune"], "journal", "list")
        run = self.tune()
        self.assertIn("version 99", run.err)


if __name__ == "__main__":
    program.main()
