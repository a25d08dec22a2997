"""The command line itself: help, versions, and everything that cannot be meant."""

import os
import pty
import subprocess

import program


class Help(program.ProgramTest):
    COMMANDS = ["tune", "bench", "show", "explain", "verify", "export", "audit", "devices", "journal list", "journal prune",
                "journal export", "journal import"]

    def test_lists_the_commands_and_exit_codes(self):
        run = self.run_program("--help")
        self.assert_done(run)
        for command in self.COMMANDS:
            self.assertIn(command.split()[0], run.out)
        self.assertIn("130", run.out)
        self.assertIn("MOETUNE_DEFAULT", run.out)

    def test_each_command_shows_an_example_of_itself_and_its_flags(self):
        for command in self.COMMANDS:
            run = self.run_program(*command.split(), "--help")
            self.assert_done(run)
            self.assertIn(f"Usage: moetune {command} [OPTIONS]", run.out)
            self.assertIn(f"  moetune {command}", run.out, "an example")
            self.assertIn("Examples:", run.out)
            self.assertIn("--json", run.out)

    def test_version(self):
        run = self.run_program("--version")
        self.assert_done(run)
        self.assertRegex(run.out, r"^moetune \d+\.\d+\.\d+")


class BadCommandLines(program.ProgramTest):
    def usage(self, parts, *arguments):
        return self.assert_error(2, "invalid_argument", parts, *arguments)

    def test_nothing_and_unknown_words(self):
        self.usage(["--help"])
        self.usage(["--help", '"tun"'], "tun")
        self.usage(["--frobnicate", "moetune tune --help"], "tune", self.model, "--frobnicate")
        self.usage(["MODEL"], "tune")
        self.usage(["extra"], "tune", self.model, "extra")
        self.usage(["--tokens"], "tune", self.model, "--tokens")

    def test_what_is_misspelt_is_guessed_at(self):
        self.usage(["did you mean --budget?"], "tune", self.model, "--budgt", "3s")
        self.usage(["did you mean --tokens?"], "bench", self.model, "--Tokns=3")
        self.usage(["did you mean `moetune explain`?"], "expalin", self.model)
        self.usage(["did you mean `moetune journal export`?"], "journal", "exprt")
        self.usage(["there is no command"], "qqqq")

    def test_a_flag_given_twice_is_not_guessed_at(self):
        self.usage(["--tp"], "tune", self.model, "--tp", 1, "--tp", 2)

    def test_token_lists(self):
        for tokens in ["8..4", "0", "-1", "", "1,", ",1", "1,,2", "x", "1.5", "1..", "..8", "1..2..3", "1e3", "nan", "99999999999999999999",
                       "1..2000000", "0..8", "1 2"]:
            self.usage(["--tokens", "1..1024"], "tune", self.model, "--tokens", tokens)
        self.usage(["64 is there twice"], "tune", self.model, "--tokens", "64,1,64")
        self.usage(["4 is there twice"], "tune", self.model, "--tokens", "1..8,4")
        self.usage(["at most 1000"], "tune", self.model, "--tokens", ",".join(map(str, range(1, 1100))))

    def test_budgets(self):
        for budget in ["0", "0s", "-5s", "nan", "inf", "1e9h", "10x", "s", "", "60 s", "0.1us", "1000h"]:
            self.usage(["--budget", "60s"], "tune", self.model, "--budget", budget)

    def test_memory_sizes(self):
        for memory in ["0", "-1GiB", "lots", "nan", "1ZiB", "1e99GiB", "GiB"]:
            self.usage(["--memory", "8GiB"], "tune", self.model, "--memory", memory)

    def test_parallel_layouts(self):
        for flag in ["--tp", "--ep"]:
            for value in ["0", "-1", "x", "1.5", "", "99999999999"]:
                self.usage([flag, "whole number"], "tune", self.model, flag, value)
        self.usage(["--tp 5", "--tp 4"], "tune", self.model, "--tp", 5)  # 32 values are 4 pieces of 8.
        self.usage(["--ep 9", "--ep 8"], "tune", self.model, "--ep", 9)
        self.usage(["--rank 2", "0 to 1"], "tune", self.model, "--tp", 2, "--rank", 2)

    def test_weights_workloads_seeds_threads_and_devices(self):
        self.usage(["fp3", "nvfp4"], "tune", self.model, "--weights", "fp3")
        for workload in ["zipf", "zipf:x", "zipf:-1", "zipf:nan", "poisson", ""]:
            self.usage([], "tune", self.model, "--workload", workload)
        self.assert_error(1, "not_found", ["nowhere.json"], "tune", self.model, "--workload", "trace:nowhere.json")
        self.usage(["--seed"], "tune", self.model, "--seed=-1")
        self.usage(["--threads"], "tune", self.model, "--threads=-1")
        self.usage(["tpu"], "tune", self.model, "--device", "tpu")
        self.usage(["--random-tokens"], "bench", self.model, "--random-tokens", "0")

    def test_a_gpu_that_is_not_there(self):
        run = self.run_program("devices", "--json")
        if any(device["kind"] == "cuda" for device in run.json()["devices"]):
            self.skipTest("this machine has a GPU")
        error = self.assert_error(1, "unsupported", [], "tune", self.model, "--device", "cuda:0")
        self.assertTrue(error["hint"])


class Terminal(program.ProgramTest):
    def stderr_on_a_terminal(self, *arguments, **changes):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([program.BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=theirs, env=self.environment(**changes))
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # What Linux says at the end.
                break
            if not part:
                break
            text += part
        os.close(ours)
        process.wait(timeout=60)
        return text.decode()

    def test_errors_are_coloured_unless_no_color_is_set(self):
        self.assertIn("\x1b[31merror:", self.stderr_on_a_terminal("tune"))
        self.assertNotIn("\x1b[", self.stderr_on_a_terminal("tune", NO_COLOR="1"))

    def test_progress_is_one_line_that_is_rewritten_and_cleared(self):
        text = self.stderr_on_a_terminal("tune", self.model, "--device", "cpu", "--tokens", "1,8", "--budget", "2s")
        self.assertIn("left", text)
        self.assertNotIn("\n", text.replace("\r\n", "\n").strip("\n"), "no second line")
        self.assertTrue(text.endswith("\r\x1b[K"))


class Stdout(program.ProgramTest):
    def test_a_full_disk_is_noticed(self):
        with open("/dev/full", "w") as full:
            process = subprocess.run([program.BINARY, "devices"], stdout=full, stderr=subprocess.PIPE, text=True,
                                     env=self.environment(), timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("stdout", process.stderr)


if __name__ == "__main__":
    program.main()
