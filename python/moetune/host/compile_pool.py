"""Compiles ahead: child processes that fill a compiler's cache on disk while the host measures.

A job is a text; what it means is the compiling module's affair: its make_compiler(setup) returns the function that
children call with each. They share nothing with the host but that cache, die with it, and print nowhere.

    pool = CompilePool("moetune.host.vllm_moe", setup)
    pool.prefetch(["...", "..."])      # at once; replaces what was not begun
    pool.claim("...")                  # before the host compiles that itself
"""

import collections
import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import threading

from .errors import one_line

PR_SET_PDEATHSIG = 1
MAX_WORKERS = 24
MAX_DEATHS_AT_START = 2


def usual_workers():
    """All processors that this process may use but two, for the host and the tuner."""
    return max(1, min(MAX_WORKERS, len(os.sched_getaffinity(0)) - 2))


class CompilePool:
    """Children that work through jobs in order. Thread-safe. Starts no child before the first job."""

    def __init__(self, module, setup, workers=None, say=None):
        """`setup` is JSON; `say` takes a line for people, of the first trouble: standard error by default."""
        self._command = [sys.executable, "-m", __spec__.name, module, json.dumps(setup), str(os.getpid())]
        self._workers = workers or usual_workers()
        self._say = say or (lambda line: print(line, file=sys.stderr, flush=True))
        self._changed = threading.Condition()
        self._queue = collections.deque()
        self._begun = set()
        self._running = set()
        self._threads = []
        self._children = set()
        self._deaths_at_start = 0
        self._warned = False
        self._closed = False

    def prefetch(self, jobs):
        """Replaces what is queued; what was begun goes on, and what was compiled is not compiled again."""
        with self._changed:
            self._queue = collections.deque(job for job in dict.fromkeys(jobs) if job not in self._begun)
            while len(self._threads) < min(self._workers, len(self._queue)):
                # A child is to die with the thread that started it, so threads live as long as the pool.
                self._threads.append(threading.Thread(target=self._work, daemon=True))
                self._threads[-1].start()
            self._changed.notify_all()

    def claim(self, job, patience_s=10):
        """Takes a job out of the queue, or waits until the child that is at it has ended it."""
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)
            self._begun.add(job)
            self._changed.wait_for(lambda: job not in self._running or self._closed, patience_s)

    def wait(self, patience_s):
        """Whether nothing is left to do, after so long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._running, patience_s)

    def close(self):
        """Ends the children, whatever they are doing."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            for child in self._children:
                child.kill()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self):
        child = None
        while (job := self._next()) is not None:
            child = child or self._start()
            answer = _ask(child, job) if child else ""
            self._ended(job, answer)
            if child and not answer:
                self._bury(child)
                child = None
        if child:
            self._bury(child)

    def _next(self):
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if self._closed:
                return None
            job = self._queue.popleft()
            self._begun.add(job)
            self._running.add(job)
            return job

    def _ended(self, job, answer):
        with self._changed:
            self._running.discard(job)
            self._changed.notify_all()
        if answer and answer["error"]:
            self._warn(f"a candidate does not compile ahead: {answer['error']}")

    def _start(self):
        """A child that is ready for jobs; None where none can be had."""
        with self._changed:
            if self._closed or self._deaths_at_start >= MAX_DEATHS_AT_START:
                return None
            pipe = subprocess.PIPE
            child = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=_environment()
            )
            self._children.add(child)
        greeting = _read(child)
        if greeting and not greeting["error"]:
            return child
        self._bury(child)
        self._deaths_at_start += 1
        self._warn("compiling ahead is not possible: " + (greeting["error"] if greeting else "the child died"))
        return None

    def _bury(self, child):
        with self._changed:
            self._children.discard(child)
        child.kill()
        with contextlib.suppress(OSError):
            child.stdin.close()
        child.stdout.close()
        child.wait()

    def _warn(self, line):
        if not self._warned and not self._closed:
            self._warned = True
            self._say(line)


def _environment():
    """A program may have found its modules by other means than its environment."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _ask(child, job):
    """The child's answer; {} where it died."""
    try:
        child.stdin.write(json.dumps(job).encode() + b"\n")
        child.stdin.flush()
    except OSError:
        return {}
    return _read(child)


def _read(child):
    try:
        return json.loads(child.stdout.readline())
    except ValueError:
        return {}


def _main(module, setup, parent):
    """A child's life."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        return
    os.nice(10)
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)

    def answer(error=""):
        answers.write(json.dumps({"error": error}) + "\n")
        answers.flush()

    try:
        compile_one = importlib.import_module(module).make_compiler(json.loads(setup))
    except Exception as error:  # noqa: BLE001 - whatever it is, the host compiles without help.
        answer(one_line(error))
        return
    answer()
    for line in sys.stdin:
        try:
            compile_one(json.loads(line))
            answer()
        except Exception as error:  # noqa: BLE001 - a candidate's own; the host will meet it.
            answer(one_line(error))


if __name__ == "__main__":
    _main(*sys.argv[1:])
