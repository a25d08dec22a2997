"""A parent in the worker protocol (docs/worker-protocol.md): starts a host and asks it things. For tests of hosts."""

import array
import json
import os
import signal
import socket
import time


class HostGone(Exception):
    """The host ended, or closed its socket, before it answered."""


class Silent(Exception):
    """The host did not answer in time."""


class Refused(Exception):
    """The host answered with an error: its `code` and words."""

    def __init__(self, error):
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code = error.get("code")


class Parent:
    """One host process and the conversation with it. Ends the process when closed."""

    def __init__(self, command, patience_s=60):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.output = os.memfd_create("output")
        null = os.open(os.devnull, os.O_RDWR)
        actions = [
            (os.POSIX_SPAWN_DUP2, null, 0),
            (os.POSIX_SPAWN_DUP2, self.output, 1),
            (os.POSIX_SPAWN_DUP2, self.output, 2),
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
        ]
        arguments = [*command, "--parent", str(os.getpid())]
        self.pid = os.posix_spawnp(arguments[0], arguments, os.environ, file_actions=actions, setpgroup=0)
        os.close(null)
        theirs.close()
        self.status = None
        self.socket = ours
        self.socket.settimeout(patience_s)
        self.phases = []
        self.files = []
        self._received = b""
        self._waiting = []
        self._last_id = 0

    def close(self):
        """Hangs up, and kills what does not end by itself."""
        self.socket.close()
        if self.wait(2) is None:
            self.kill()
        for file in [*self.files, *self._waiting]:
            os.close(file)
        self.files, self._waiting = [], []
        os.close(self.output)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def kill(self):
        for target in (-self.pid, self.pid):
            try:
                os.kill(target, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.wait(10)

    def wait(self, patience_s):
        """The exit status, negative for a signal; None where it goes on."""
        deadline = time.monotonic() + patience_s
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                break
            else:
                time.sleep(0.005)
        return self.status

    def printed(self):
        """What it has printed so far."""
        length = os.fstat(self.output).st_size
        return os.pread(self.output, length, 0).decode(errors="replace")

    def send(self, message, files=()):
        if files:
            message = {**message, "files": len(files)}
        data = json.dumps(message).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        try:
            sent = self.socket.sendmsg([data], rights)
            self.socket.sendall(data[sent:])
        except (BrokenPipeError, ConnectionResetError):
            raise HostGone(self.last_words()) from None

    def send_raw(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def line(self):
        """The next message; its files are `self.files`, until the next one."""
        while b"\n" not in self._received:
            try:
                data, files, _, _ = socket.recv_fds(self.socket, 1 << 16, 64)
            except TimeoutError:
                raise Silent(f"nothing was heard for {self.socket.gettimeout():g} s; {self.last_words()}") from None
            except ConnectionResetError:
                data, files = b"", []
            if not data:
                raise HostGone(self.last_words())
            self._received += data
            self._waiting += files
        text, _, self._received = self._received.partition(b"\n")
        message = json.loads(text)
        for file in self.files:
            os.close(file)
        count = message.get("files", 0)
        self.files, self._waiting = self._waiting[:count], self._waiting[count:]
        return message

    def ask(self, what, files=(), **fields):
        """The answer to a request. Raises Refused for an error."""
        self._last_id += 1
        self.phases = []
        self.send({"do": what, "id": self._last_id, **fields}, files)
        while True:
            answer = self.line()
            if answer.get("id") != self._last_id:
                raise AssertionError(f"an answer to request {answer.get('id')}, not {self._last_id}: {answer}")
            if "at" in answer:
                self.phases.append(answer["at"])
            elif "error" in answer:
                raise Refused(answer["error"])
            else:
                return answer

    def tell(self, what, **fields):
        """A hint: nobody answers."""
        self.send({"do": what, **fields})

    def file(self, number=0):
        """The bytes of a file of the latest message."""
        length = os.fstat(self.files[number]).st_size
        return os.pread(self.files[number], length, 0)

    def last_words(self):
        status = self.wait(1)
        how = "it goes on" if status is None else f"it ended with status {status}"
        return f"{how}; it printed: {' '.join(self.printed().split())[-400:]}"


def file_with(*pieces):
    """A descriptor of a file with these bytes, to be closed by the caller."""
    file = os.memfd_create("data")
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while view:
            view = view[os.write(file, view):]
    return file
