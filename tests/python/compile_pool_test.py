"""Children compile ahead: in order, once each, whatever happens to one of them, and no longer than the host lives."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]

from moetune.host import compile_pool  # noqa: E402
from moetune.host.compile_pool import CompilePool  # noqa: E402

PATIENCE_S = 60
SOON_S = 8  # On a busy machine. A claim that waits does for 10.


class Pool(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.said = []

    def pool(self, workers=1, **setup):
        pool = CompilePool("fake_compiler", {"folder": str(self.folder), **setup}, workers, self.said.append)
        self.addCleanup(pool.close)
        return pool

    def names(self, kind):
        return {path.name.removeprefix(f"{kind}.") for path in self.folder.glob(f"{kind}.*")}

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_all_are_compiled_by_as_many_workers_as_were_asked_for(self):
        pool = self.pool(workers=2)
        pool.prefetch(["slow1", "slow2", "a", "b"])
        self.until(lambda: {"slow1", "slow2"} <= self.names("begun"))
        (self.folder / "go").touch()
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual(self.names("done"), {"slow1", "slow2", "a", "b"})
        self.assertEqual(len(self.names("worker")), 2)
        self.assertEqual(len(self.names("server")), 1)
        self.assertEqual(self.said, [])

    def test_the_server_may_start_before_the_first_job(self):
        pool = self.pool(workers=2)
        pool.warm_up()
        self.until(lambda: self.names("server"))
        pool.warm_up()
        pool.prefetch(["a"])
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual(self.names("done"), {"a"})
        self.assertEqual(len(self.names("server")), 1)

    def test_what_has_ended_is_told(self):
        pool = self.pool(workers=2)
        pool.prefetch(["slow1", "crash", "a"])
        self.until(lambda: pool.has_ended("a") and pool.has_ended("crash"))
        self.assertFalse(pool.has_ended("slow1"))
        self.assertFalse(pool.has_ended("never told of"))
        (self.folder / "go").touch()
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertTrue(pool.has_ended("slow1"))
        pool.claim("mine")
        self.assertTrue(pool.has_ended("mine"))
        pool.close()
        self.assertTrue(pool.has_ended("never told of"))

    def test_a_server_that_was_started_early_is_taken(self):
        compile_pool.start_early("fake_compiler")
        early = compile_pool._early["fake_compiler"].process.pid
        pool = self.pool(workers=1)
        pool.prefetch(["a"])
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual(self.names("server"), {str(early)})
        self.assertEqual(self.names("done"), {"a"})

    def test_without_a_job_nothing_starts(self):
        pool = self.pool()
        pool.prefetch([])
        pool.claim("a")
        pool.prefetch(["a"])
        pool.close()
        self.assertFalse(self.names("server"))

    def test_the_host_does_not_wait_for_workers_that_are_not_ready(self):
        pool = self.pool(workers=2, late=True)
        pool.prefetch(["mine", "theirs"])
        self.until(lambda: self.names("server"))
        begin = time.monotonic()
        pool.claim("mine")
        self.assertLess(time.monotonic() - begin, SOON_S)
        (self.folder / "start").touch()
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual(self.names("begun"), {"theirs"})

    def test_a_crash_costs_one_job(self):
        pool = self.pool()
        pool.prefetch(["a", "crash", "b"])
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual(self.names("done"), {"a", "b"})
        self.assertEqual(len(self.names("worker")), 2)

        self.assertEqual(len(self.names("server")), 1)
        self.assertEqual(self.said, [])

    def test_a_crash_ends_no_other_worker(self):
        pool = self.pool(workers=2)
        pool.prefetch(["slow", "crash1", "crash2", "a"])
        self.until(lambda: "a" in self.names("done"))
        (self.folder / "go").touch()
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual(self.names("done"), {"a", "slow"})
        self.assertEqual((self.folder / "begun.slow").read_text(), "x")
        self.assertEqual(len(self.names("server")), 1)

    def test_what_a_compiler_starts_itself_may_fail(self):
        pool = self.pool()
        pool.prefetch(["run"])
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertIn("exit status 3", self.said[0])

    def test_a_server_that_dies_is_replaced_once(self):
        pool = self.pool()
        pool.prefetch(["a"])
        self.assertTrue(pool.wait(PATIENCE_S))
        self.end("server")
        self.until(lambda: self.gone("worker"))
        pool.prefetch(["lost", "b"])  # The first goes to the worker that is dead.
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual(self.names("done"), {"a", "b"})
        self.assertEqual(self.said, [])
        self.end("server")
        self.until(lambda: self.said)
        self.assertIn("the child died", self.said[0])
        begin = time.monotonic()
        pool.prefetch(["c"])
        pool.claim("c")
        self.assertLess(time.monotonic() - begin, SOON_S)
        self.assertEqual(len(self.names("server")), 2)

    def test_where_no_worker_can_be_had_the_host_does_not_wait(self):
        pool = self.pool(workers=2, childless=True)
        pool.prefetch(["a", "b"])
        self.until(lambda: self.said)
        self.assertIn("too many processes", self.said[0])
        begin = time.monotonic()
        pool.claim("a")
        pool.close()
        self.assertLess(time.monotonic() - begin, SOON_S)
        self.assertEqual(len(self.said), 1)
        self.assertEqual(len(self.names("server")), 1)

    def test_what_does_not_compile_is_said_once_and_costs_no_child(self):
        pool = self.pool()
        pool.prefetch(["fail1", "fail2", "a"])
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual(self.names("done"), {"a"})
        self.assertEqual(len(self.names("worker")), 1)
        self.assertEqual(len(self.said), 1)
        self.assertIn("fail1 is no good", self.said[0])

    def test_a_later_hint_replaces_what_was_not_begun(self):
        pool = self.pool()
        pool.prefetch(["slow", "old1", "old2"])
        self.until(lambda: "slow" in self.names("begun"))
        pool.prefetch(["slow", "new", "new"])
        (self.folder / "go").touch()
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual(self.names("done"), {"slow", "new"})
        self.assertEqual((self.folder / "begun.slow").read_text(), "x")

    def test_what_is_compiled_is_not_asked_for_again(self):
        pool = self.pool()
        for _ in range(2):
            pool.prefetch(["a", "crash"])
            self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual((self.folder / "begun.a").read_text(), "x")
        self.assertEqual((self.folder / "begun.crash").read_text(), "x")

    def test_the_host_takes_a_job_over_or_waits_for_the_child_at_it(self):
        pool = self.pool()
        pool.prefetch(["slow", "mine"])
        self.until(lambda: "slow" in self.names("begun"))
        pool.claim("mine")
        threading.Timer(0.2, (self.folder / "go").touch).start()
        pool.claim("slow")
        self.assertIn("slow", self.names("done"))
        self.assertTrue(pool.wait(PATIENCE_S))
        self.assertEqual(self.names("begun"), {"slow"})

    def test_without_a_compiler_there_is_one_complaint_and_no_endless_starting(self):
        for trouble, words in (("broken", "no compiler here"), ("dies", "the child died")):
            pool = self.pool(**{trouble: True})
            pool.prefetch([str(i) for i in range(20)])
            self.assertTrue(pool.wait(PATIENCE_S))
            self.until(lambda: self.said)
            self.assertIn(words, self.said.pop())
            pool.prefetch(["later"])
            pool.claim("later")
            self.assertTrue(pool.wait(0))
            pool.close()
            self.assertEqual(self.said, [])
            self.assertFalse(self.names("begun"))
        self.assertLessEqual(len(self.names("server")), 3, "who says why is not asked again, who dies is once")

    def test_closing_ends_children_at_work(self):
        pool = self.pool(workers=2)
        pool.prefetch(["slow1", "slow2"])
        self.until(lambda: {"slow1", "slow2"} <= self.names("begun"))
        begin = time.monotonic()
        pool.close()
        self.until(self.gone)
        self.assertLess(time.monotonic() - begin, SOON_S)
        self.assertEqual(self.said, [])

    def test_closing_does_not_wait_for_a_server_that_is_not_ready(self):
        pool = self.pool(late=True)
        pool.prefetch(["a"])
        self.until(lambda: self.names("server"))
        begin = time.monotonic()
        pool.close()
        self.assertLess(time.monotonic() - begin, SOON_S)
        self.assertTrue(self.gone())
        self.assertEqual(self.said, [])

    def test_children_die_with_the_host(self):
        program = (
            "import sys, time; from moetune.host.compile_pool import CompilePool; "
            "CompilePool('fake_compiler', {'folder': sys.argv[1]}, 2).prefetch(['slow1', 'slow2']); time.sleep(600)"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:2])}
        command = [sys.executable, "-c", program, str(self.folder)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as host:
            self.until(lambda: {"slow1", "slow2"} <= self.names("begun"))
            host.send_signal(signal.SIGKILL)
            self.until(self.gone)
            self.assertEqual(host.stdout.read(), b"", "children print nowhere")

    def end(self, kind):
        for pid in self.names(kind):
            if not is_dead(pid):
                os.kill(int(pid), signal.SIGKILL)

    def gone(self, *kinds):
        return all(is_dead(pid) for kind in kinds or ("server", "worker") for pid in self.names(kind))


def is_dead(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


if __name__ == "__main__":
    unittest.main()
