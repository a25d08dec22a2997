"""Messages of the worker protocol: one JSON object a line, with files as descriptors beside it."""

import array
import json
import os
import socket

from .errors import WireBroken

MAX_LINE = 16 << 20
MAX_FILES = 64


class Wire:
    """One end of the socket. Not thread-safe."""

    def __init__(self, connection):
        self.connection = connection
        self._received = bytearray()
        self._searched = 0  # Bytes of it that are known to hold no end of line.
        self._files = []

    def receive(self):
        """The next message and its files, which the caller closes; None where the other end hung up."""
        while True:
            end = self._received.find(b"\n", self._searched)
            if end >= 0:
                return self._take(end)
            self._searched = len(self._received)
            if self._searched > MAX_LINE:
                raise WireBroken("a line is longer than 16 MiB")
            data, files, _, _ = socket.recv_fds(self.connection, 1 << 16, MAX_FILES)
            self._files += files
            if not data:
                return None
            self._received += data

    def _take(self, end):
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        self._searched = 0
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise WireBroken(f"a line is no JSON: {error}") from None
        if not isinstance(message, dict):
            raise WireBroken("a line is no JSON object")
        count = message.get("files", 0)
        if not isinstance(count, int) or not 0 <= count <= len(self._files):
            raise WireBroken(f"a line announces {count} files, and {len(self._files)} came")
        files, self._files = self._files[:count], self._files[count:]
        return message, files

    def send(self, message, files=()):
        if files:
            message = {**message, "files": len(files)}
        data = json.dumps(message, allow_nan=False).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        sent = self.connection.sendmsg([data], rights)
        self.connection.sendall(data[sent:])


def memory_file(pieces):
    """A file with these bytes, one after the other."""
    file = os.memfd_create("moetune", os.MFD_CLOEXEC)
    try:
        for piece in pieces:
            view = memoryview(piece).cast("B")
            while view:
                view = view[os.write(file, view):]
    except BaseException:
        os.close(file)
        raise
    return file
