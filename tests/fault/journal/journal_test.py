"""A journal among processes that are killed, stopped, many, and short of disk or of permission.

Runs $MOETUNE_JOURNAL_WRITER; journal_writer.cc says what it prints.
"""

import os
import pathlib
import random
import resource
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest

WRITER = os.environ.get("MOETUNE_JOURNAL_WRITER", "journal_writer")
IS_ROOT = os.geteuid() == 0


class JournalTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="moetune-journal-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.path = self.folder / "journal.db"

    def start(self, *arguments, path=None, **options):
        return subprocess.Popen([WRITER, str(path or self.path), *map(str, arguments)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def finish(self, process, code=0):
        """The lines of a process that ends by itself."""
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        self.assertEqual(process.returncode, code, out + err)
        lines = out.splitlines()
        self.assertEqual(lines[-1], "end", out)
        return lines

    def run_writer(self, *arguments, **options):
        return self.finish(self.start(*arguments, **options))

    @staticmethod
    def starting(word, lines):
        return [line for line in lines if line.startswith(word + " ")]

    @staticmethod
    def acknowledged(lines):
        return {int(line.split()[1]) for line in lines if line.startswith("put ") and line.split()[1].isdigit()}

    def stored(self, path=None):
        """Every record number in the file, which must be sound."""
        connection = sqlite3.connect(str(path or self.path))
        try:
            self.assertEqual(connection.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            self.assertEqual(connection.execute("PRAGMA foreign_key_check").fetchall(), [])
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'measurement'").fetchall():
                return set()  # Killed before the tables were there, and so before anything was acknowledged.
            rows = connection.execute("SELECT unix_ms - 1700000000000 FROM measurement").fetchall()
        finally:
            connection.close()
        numbers = [row[0] for row in rows]
        self.assertEqual(len(numbers), len(set(numbers)), "nothing is there twice")
        return set(numbers)

    def set_aside(self):
        return [path for path in self.folder.iterdir()
                if path.name.startswith("journal.db.damaged-") and not path.name.endswith(("-wal", "-shm"))]


class Killed(JournalTest):
    def test_what_was_acknowledged_is_there_after_a_kill_at_any_moment(self):
        randomly = random.Random(4)
        acknowledged = set()
        for number in range(100):
            process = self.start("write", number * 100000, 100000)
            time.sleep(randomly.uniform(0, 0.12))
            process.send_signal(signal.SIGKILL)
            out, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, -signal.SIGKILL)
            lines = out.splitlines()
            self.assertEqual(self.starting("warning", lines) + self.starting("kept", lines), [])
            acknowledged |= self.acknowledged(lines)
            if self.path.exists():
                missing = acknowledged - self.stored()
                self.assertEqual(missing, set(), f"after kill {number}")
        self.assertGreater(len(acknowledged), 1000, "it hardly got to write")
        self.assertEqual(self.set_aside(), [])


class KilledWhileGathering(JournalTest):
    """Puts that wait up to GATHER_US for others, as those of `tune` do."""

    GATHER_US = 250_000

    def killed(self, arguments, after_s):
        """The puts of a process that is killed: (number, from, to) of each, and what it said besides."""
        said = self.folder / "said"
        with said.open("w") as out:
            process = subprocess.Popen([WRITER, str(self.path), "gather", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.DEVNULL)
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        self.assertEqual(process.wait(60), -signal.SIGKILL)
        lines = said.read_text().splitlines()
        self.assertEqual(self.starting("warning", lines) + self.starting("kept", lines), [])
        return [tuple(map(int, line.split()[1:])) for line in self.starting("put", lines)]

    def check_rows(self):
        """Each row has all that its number says, in every table."""
        connection = sqlite3.connect(str(self.path))
        self.addCleanup(connection.close)
        rows = connection.execute("SELECT unix_ms - 1700000000000, tokens, samples, median_us, q3_us, phase, problem.key, device.key, stages"
                                  " FROM measurement m JOIN candidate ON candidate.id = m.candidate"
                                  " JOIN problem ON problem.id = m.problem JOIN device ON device.id = m.device").fetchall()
        for number, *row in rows:
            self.assertEqual(row[:-1], [1 + number % 7, 3, 100, 101, "race", "fused_moe hidden=64", "cpu isa=avx2"])
            self.assertIn(f'{{"number":{number}}}', row[-1])
        self.assertEqual(len(rows), len(self.stored()), "none refers to what is not there")

    def test_what_is_older_than_the_window_is_there_after_a_kill_at_any_moment(self):
        randomly = random.Random(5)
        old, waiting = 0, 0
        for number in range(100):
            first = number * 100000
            puts = self.killed([first, 100000, 1], randomly.uniform(0, 1))
            if not puts:
                continue
            # The last call began when all that had waited for longer was written.
            due = {put for put, _, to in puts if to <= puts[-1][1] - self.GATHER_US}
            stored = {stored for stored in self.stored() if stored >= first}
            self.assertEqual(due - stored, set(), f"after kill {number}")
            self.assertEqual(stored, set(range(first, first + len(stored))), "transactions are whole, and in order")
            old += len(due)
            waiting += len(puts) - len(stored)
        self.assertGreater(old, 1000, "it hardly got to write")
        self.assertGreater(waiting, 100, "nothing was ever gathered")
        self.check_rows()
        self.assertEqual(self.set_aside(), [])

    def test_what_no_put_came_after_is_written_by_itself(self):
        for number in range(5):
            first = number * 1000
            puts = self.killed([first, 20], 2.5)
            self.assertEqual([put for put, *_ in puts], list(range(first, first + 20)))
            self.assertTrue(set(range(first, first + 20)) <= self.stored(), f"after kill {number}")
        self.check_rows()


class Many(JournalTest):
    def test_all_that_many_processes_write_at_once_is_there(self):
        processes = [self.start("write", i * 1000, 300) for i in range(6)]
        for process in processes:
            lines = self.finish(process)
            self.assertEqual(self.starting("warning", lines) + self.starting("kept", lines), [])
        self.assertEqual(self.stored(), {i * 1000 + n for i in range(6) for n in range(300)})

    def test_many_may_begin_the_same_file(self):
        for number in range(10):
            path = self.folder / f"{number}.db"
            processes = [self.start("write", i * 10, 2, path=path) for i in range(8)]
            for process in processes:
                lines = self.finish(process)
                self.assertEqual(self.starting("warning", lines) + self.starting("kept", lines), [])
            self.assertEqual(len(self.stored(path)), 16)

    def test_many_may_find_the_same_damage(self):
        self.path.write_bytes(b"no journal at all" * 1000)
        processes = [self.start("write", i * 10, 2) for i in range(8)]
        for process in processes:
            self.finish(process)
        self.assertEqual(len(self.set_aside()), 1)
        self.assertEqual(len(self.stored()), 16)

    def test_a_reader_and_a_pruning_process_do_not_stop_a_writer(self):
        writer = self.start("write", 0, 400, 1)
        while writer.poll() is None:
            connection = sqlite3.connect(str(self.path), timeout=10)
            try:
                connection.execute("DELETE FROM measurement WHERE id % 2 = 0")
                connection.commit()
            except sqlite3.OperationalError:
                pass  # The tables are not there yet.
            finally:
                connection.close()
            time.sleep(0.02)
        lines = self.finish(writer)
        self.assertEqual(len(self.acknowledged(lines)), 400)
        self.stored()


class Stopped(JournalTest):
    def setUp(self):
        super().setUp()
        self.run_writer("write", 0, 10)
        self.holder = self.start("hold")
        self.addCleanup(self.holder.communicate)
        self.addCleanup(self.holder.kill)
        self.assertEqual(self.holder.stdout.readline(), "held\n")
        self.holder.send_signal(signal.SIGSTOP)

    def test_a_lock_that_a_stopped_process_holds_costs_one_warning_and_one_wait(self):
        started = time.monotonic()
        lines = self.run_writer("write", 100, 50)
        self.assertLess(time.monotonic() - started, 10)
        kept = self.starting("kept", lines)
        self.assertEqual(len(kept), 1, lines)
        self.assertIn("another process", kept[0])
        self.assertIn("found 60", lines)

    def test_what_was_kept_in_memory_is_written_once_the_lock_is_gone(self):
        process = self.start("write", 100, 30, 100)
        time.sleep(1.5)
        self.holder.kill()
        lines = self.finish(process)
        self.assertEqual(len(self.starting("kept", lines)), 1, lines)
        self.assertEqual(self.stored(), set(range(10)) | set(range(100, 130)))


class NoSpace(JournalTest):
    def check(self, lines):
        kept = self.starting("kept", lines)
        warnings = self.starting("warning", lines)
        self.assertEqual(len(kept) + len(warnings), 1, (kept, warnings))
        self.assertIn("found 2000", lines)

    def test_a_limit_on_the_size_of_files(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))
        lines = self.run_writer("write", 0, 2000, preexec_fn=limit, restore_signals=False)
        self.check(lines)
        self.assertTrue(self.stored().issubset(range(2000)))
        # With space again all is well.
        self.assertEqual(self.starting("warning", self.run_writer("write", 5000, 10)), [])

    @unittest.skipUnless(IS_ROOT, "mounting a file system takes root")
    def test_a_full_disk(self):
        script = f'mount -t tmpfs -o size=300k none "{self.folder}" && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", script, "sh", WRITER, str(self.path), "write", "0", "2000"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=60)
        if "unshare" in err or "mount" in err:
            self.skipTest(err.strip())
        self.assertEqual(process.returncode, 0, err)
        self.check(out.splitlines())


class NoPermission(JournalTest):
    def expect_read_only(self, lines):
        warnings = self.starting("warning", lines)
        self.assertEqual(len(warnings), 1, lines)
        self.assertIn(str(self.path), warnings[0])
        self.assertIn("kept in memory", warnings[0])
        self.assertEqual(self.starting("kept", lines), [], "one warning")
        self.assertIn("found 15", lines)

    def test_a_read_only_folder(self):
        self.run_writer("write", 0, 10)
        if not IS_ROOT:
            self.path.chmod(0o444)
            self.folder.chmod(0o555)
            self.addCleanup(self.folder.chmod, 0o755)
            return self.expect_read_only(self.run_writer("write", 100, 5))
        script = (f'mount --bind "{self.folder}" "{self.folder}" && '
                  f'mount -o remount,ro,bind "{self.folder}" && exec "$@"')
        command = ["unshare", "-m", "sh", "-c", script, "sh", WRITER, str(self.path), "write", "100", "5"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=60)
        if "unshare" in err or "mount" in err:
            self.skipTest(err.strip())
        self.assertEqual(process.returncode, 0, err)
        self.expect_read_only(out.splitlines())
        self.assertEqual(self.stored(), set(range(10)))

    @unittest.skipUnless(IS_ROOT, "being another user takes root")
    def test_another_users_file(self):
        self.run_writer("write", 0, 10)
        self.folder.chmod(0o755)
        os.chown(self.path, 4321, 4321)
        for mode, is_readable in [(0o644, True), (0o600, False)]:
            self.path.chmod(mode)
            lines = self.run_writer("write", 100, 5, user=65534, group=65534)
            warnings = self.starting("warning", lines)
            self.assertEqual(len(warnings), 1, lines)
            self.assertIn("belongs to user 4321", warnings[0])
            self.assertEqual(self.starting("kept", lines), [])
            self.assertIn("found 15" if is_readable else "found 5", lines)
        self.assertEqual(self.stored(), set(range(10)))

    @unittest.skipUnless(IS_ROOT, "being another user takes root")
    def test_a_folder_that_takes_no_files(self):
        self.folder.chmod(0o755)
        lines = self.run_writer("write", 0, 5, user=65534, group=65534)
        self.assertEqual(len(self.starting("warning", lines)), 1, lines)
        self.assertIn("found 5", lines)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
