"""Compiles ahead: child processes that fill a compiler's cache on disk while the host measures.

A job is a text; what it means is the compiling module's affair: its make_compiler(setup) returns the function that
children call with each. They share nothing with the host but that cache, die with it, and print nowhere.

    pool = CompilePool("moetune.host.vllm_moe", setup)
    pool.warm_up()                     # seconds before the first job, where that is known
    pool.prefetch(["...", "..."])      # at once; replaces what was not begun
    pool.claim("...")                  # before the host compiles that itself

Importing a compiler takes seconds, and longer where many processes do so at once. So one does, the server, and forks
the others, the workers: the host makes a pair of sockets for each, and sends the server one end of it over the socket
that is the server's standard input. A worker serves its socket, a line of JSON each way; the server reads its setup, and
then does but fork. A host that imports the same at its start has the server do so meanwhile (start_early).
"""

import collections
import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading

from .errors import one_line

PR_SET_PDEATHSIG = 1
MAX_WORKERS = 24
MAX_DEATHS = 2  # Of servers.


def usual_workers():
    """All processors that this process may use but two, for the host and the tuner."""
    return max(1, min(MAX_WORKERS, len(os.sched_getaffinity(0)) - 2))


class _Server:
    """The process, with the socket that leads to it. It dies with the thread that starts it."""

    def __init__(self, module):
        self.control, theirs = socket.socketpair()
        command = [sys.executable, "-m", __spec__.name, module, str(os.getpid())]
        nowhere = subprocess.DEVNULL
        with theirs:
            self.process = subprocess.Popen(command, stdin=theirs, stdout=nowhere, stderr=nowhere, env=_environment())

    def close(self):
        self.process.kill()
        self.process.wait()
        self.control.close()


_early = {}  # Servers by module, until a pool takes them.


def start_early(module):
    """Starts the server of a pool that is made later in this process."""
    _early[module] = _Server(module)


class CompilePool:
    """Children that work through jobs in order. Thread-safe. Starts no process before it is warmed up or has a job."""

    def __init__(self, module, setup, workers=None, say=None):
        """`setup` is JSON; `say` takes a line for people, of the first trouble: standard error by default."""
        self._module = module
        self._setup = setup
        self._workers = workers or usual_workers()
        self._say = say or (lambda line: print(line, file=sys.stderr, flush=True))
        self._changed = threading.Condition()
        self._queue = collections.deque()
        self._begun = set()  # Jobs, the host's own too.
        self._running = set()  # Those of them that a worker is at.
        self._keeper = None
        self._threads = []
        self._server = None
        self._control = None  # The socket of a server that is ready to fork.
        self._warned = False
        self._closed = False

    def warm_up(self):
        """Starts the server, and returns at once."""
        with self._changed:
            if not self._keeper and not self._closed:
                self._keeper = _start(self._keep_server)

    def prefetch(self, jobs):
        """Replaces what is queued; what was begun goes on, and what was compiled is not compiled again."""
        with self._changed:
            if self._closed:
                return
            self._queue = collections.deque(job for job in dict.fromkeys(jobs) if job not in self._begun)
            if self._queue:
                self.warm_up()
            while len(self._threads) < min(self._workers, len(self._queue)):
                self._threads.append(_start(self._work))
            self._changed.notify_all()

    def claim(self, job, patience_s=10):
        """Takes a job out of the queue, or waits until the worker that is at it has ended it."""
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)
            self._begun.add(job)
            self._changed.wait_for(lambda: job not in self._running or self._closed, patience_s)

    def has_ended(self, job):
        """Whether the host would not compile it any more, or compile it in vain. True of all where nothing compiles ahead."""
        with self._changed:
            return self._closed or (job in self._begun and job not in self._running)

    def wait(self, patience_s):
        """Whether nothing is left to do, after so long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._running, patience_s)

    def close(self):
        """Ends the children, whatever they are doing."""
        self._end()
        for thread in (self._keeper, *self._threads):
            if thread:
                thread.join()

    def _end(self):
        with self._changed:
            self._closed = True
            self._queue.clear()
            if self._server:
                self._server.kill()  # Workers die with it.
            self._changed.notify_all()

    def _keep_server(self):
        """Has a server while the pool is open."""
        error = ""
        for _ in range(MAX_DEATHS):
            if error := self._run_server():
                break
        self._warn(f"compiling ahead is not possible: {error or 'the child died'}")
        self._end()

    def _run_server(self):
        """The life of one: what it said where it cannot serve, "" where it died."""
        with self._changed:
            if self._closed:
                return ""
            server = _early.pop(self._module, None) or _Server(self._module)
            self._server = server.process
        with contextlib.closing(server):
            with contextlib.suppress(OSError):
                _write(server.control, {"setup": self._setup})
            greeting = _read(server.control)
            if greeting and not greeting["error"]:
                self._set_control(server.control)
                server.process.wait()
                self._set_control(None)
        return greeting["error"] if greeting else ""

    def _set_control(self, control):
        with self._changed:
            self._control = control
            self._changed.notify_all()

    def _work(self):
        """The life of one worker after the other. Only one that is ready takes a job: else the host is faster."""
        while worker := self._hire():
            with worker:
                while (job := self._next()) is not None:
                    answer = _ask(worker, job)
                    self._ended(job, answer)
                    if not answer:
                        break

    def _hire(self):
        """The socket of a worker that is ready; None where the pool is closed."""
        refused = None
        while True:
            worker, theirs = socket.socketpair()
            with self._changed, theirs:
                self._changed.wait_for(lambda: self._closed or self._control not in (None, refused))
                if self._closed:
                    worker.close()
                    return None
                refused = self._control
                with contextlib.suppress(OSError):
                    socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            greeting = _read(worker)
            if greeting and not greeting["error"]:
                return worker
            worker.close()
            if greeting:
                self._warn(f"fewer children compile ahead than could: {greeting['error']}")

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

    def _warn(self, line):
        if not self._warned and not self._closed:
            self._warned = True
            self._say(line)


def _start(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _environment():
    """A program may have found its modules by other means than its environment. Threads do not survive a fork."""
    path = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _ask(worker, job):
    """The worker's answer; {} where it died."""
    with contextlib.suppress(OSError):
        _write(worker, job)
        return _read(worker)
    return {}


def _write(connection, value):
    connection.sendall(json.dumps(value).encode() + b"\n")


def _read(connection):
    """The line that the other end wrote; {} where it is gone. It writes no other before it has an answer."""
    line = b""
    with contextlib.suppress(OSError):
        while not line.endswith(b"\n"):
            if not (piece := connection.recv(1 << 16)):
                return {}
            line += piece
        return json.loads(line)
    return {}


def _die_with(parent):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # It was faster.


def _main(module, host):
    """The server's life. Its standard output and error, and its children's, lead nowhere."""
    _die_with(int(host))
    os.nice(10)
    control = socket.socket(fileno=os.dup(0))
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    try:
        compiler = importlib.import_module(module)
        if not (told := _read(control)):
            return  # The host is gone, or never had work.
        compile_one = compiler.make_compiler(told["setup"])
    except Exception as error:  # noqa: BLE001 - whatever it is, the host compiles without help.
        _write(control, {"error": one_line(error)})
        return
    gc.collect()
    gc.freeze()  # What is never looked at again stays shared with the children.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for them.
    _write(control, {"error": ""})
    server = os.getpid()
    while True:
        word, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not word:
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
            with socket.socket(fileno=descriptor) as host:
                try:
                    is_worker = os.fork() == 0
                except OSError as error:
                    _write(host, {"error": one_line(error)})
                    continue
                if is_worker:
                    _be_worker(server, control, host, compile_one)


def _be_worker(server, control, host, compile_one):
    """A worker's life, which ends here."""
    try:
        _die_with(server)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Compilers have children, and do ask how these ended.
        control.close()
        _serve(host, compile_one)
    finally:
        os._exit(0)


def _serve(host, compile_one):
    _write(host, {"error": ""})
    while (job := _read(host)) != {}:
        try:
            compile_one(job)
            _write(host, {"error": ""})
        except Exception as error:  # noqa: BLE001 - a candidate's own; the host will meet it.
            _write(host, {"error": one_line(error)})


if __name__ == "__main__":
    _main(*sys.argv[1:])
