"""`moetune explain`: the evidence behind a decision, from the configuration and from the journal."""

import program


class Evidence(program.ProgramTest):
    FAST = ["--device", "cpu", "--tokens", 8]

    def tune(self, budget):
        self.assert_done(self.run_program("tune", self.model, *self.FAST, "--budget", budget))

    def explain(self, *more):
        run = self.run_program("explain", self.model, *self.FAST, *more, "--json")
        self.assert_done(run)
        entry, = run.json()["explanations"]
        return run.json(), entry

    def test_the_journal_has_who_raced_and_who_was_confirmed(self):
        # Where others use the machine, a run may not come far; the next one, with more, goes on from its journal.
        for budget in ["4s", "8s", "16s", "32s"]:
            self.tune(budget)
            result, entry = self.explain()
            journal = entry["journal"]
            if journal["confirmed"] or entry["decision"]["resolved"]:
                break
        self.assertTrue(result["journal"].startswith(str(self.cache)))
        whole = [race for race in journal["races"] if race["stage"] == "whole"]
        self.assertTrue(whole, journal["races"])
        for race in journal["races"]:
            medians = [candidate["time"]["median_us"] for candidate in race["candidates"]]
            self.assertEqual(medians, sorted(medians))
            self.assertEqual(len({candidate["candidate"] for candidate in race["candidates"]}), len(medians), "each once")
            for candidate in race["candidates"]:
                time = candidate["time"]
                self.assertGreater(time["samples"], 0)
                self.assertLessEqual(time["q1_us"], time["median_us"])
                self.assertLessEqual(time["median_us"], time["q3_us"])
        self.assertEqual(journal["rejected"], [])
        measurer, = journal["measured_by"]
        self.assertIn("moetune", measurer["program"])
        self.assertIn("compiler", measurer["toolchain"])
        self.assertGreater(measurer["measurements"], 0)
        for comparison in journal["confirmed"] + journal["vetoes"]:
            self.assertEqual(comparison["against"], entry["default"])
            self.assertGreater(comparison["rounds"], 0)
            self.assertIn(comparison["outcome"], ["better", "not_better", "no_loss", "loss", "unresolved"])
        # On some runs the default wins every race, and there is nobody to confirm.
        decision = entry["decision"]
        has_challenger = not (decision["resolved"] and decision["note"] == "no candidate was faster in the race")
        self.assertEqual(bool(journal["confirmed"]), has_challenger, decision)

        text = self.run_program("explain", self.model, *self.FAST)
        self.assert_done(text)
        confirmed = ["confirmed", "rounds at 8 tokens of uniform"] if has_challenger else []
        for part in ["raced", "quartiles", "no candidate rejected", *confirmed, "measured by moetune"]:
            self.assertIn(part, text.out)
        for race in whole:
            if len(race["candidates"]) > 10:
                self.assertIn(f"and {len(race['candidates']) - 10} slower ones (--json lists all)", text.out)

    def test_another_journal_or_none(self):
        self.tune("4s")
        missing = self.folder / "none.db"
        self.assert_error(1, "not_found", ["none.db"], "explain", self.model, *self.FAST, "--journal", missing)
        (self.cache / "moetune" / "journal.db").unlink()
        result, entry = self.explain()
        self.assertEqual(result["journal"], "")
        self.assertEqual(entry["journal"]["races"], [])
        self.assertIn("decision", entry, "the configuration has its own evidence")
        (self.cache / "moetune" / "journal.db").write_bytes(b"words" * 100)
        run = self.run_program("explain", self.model, *self.FAST)
        self.assert_done(run)
        self.assertIn("warning: no evidence", run.err)


if __name__ == "__main__":
    program.main()
