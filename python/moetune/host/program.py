"""The life of a host's process: started by moetune with a socket, it ends with its parent."""

import argparse
import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import sys
import threading

from .devices import open_device
from .errors import WireBroken
from .server import PROTOCOL, Host, Server
from .wire import Wire

SOCKET = 3
PR_SET_PDEATHSIG = 1


def serve(name, operators, version="1", versions=None, arguments=None, open_device=open_device):
    """Serves `operators` (see Host) to the moetune that started this process, and ends the process.

    Started by hand it says what it is, and exits with 2.
    """
    sys.exit(_serve(Host(name, operators, version, versions, open_device), arguments))


def _serve(host, arguments):
    parser = argparse.ArgumentParser(prog=host.name)
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--memory-bytes", type=int, default=0)
    given = parser.parse_args(arguments)
    connection = _take_socket() if given.parent > 0 else None
    if connection is None:
        print(
            f"{host.name} {host.version} is a host of kernels for moetune (worker protocol {PROTOCOL}); moetune starts it: "
            f"moetune tune MODEL --host {host.name}",
            file=sys.stderr,
        )
        return 2
    _behave(given.memory_bytes)
    _end_with_parent(given.parent, connection)
    try:
        Server(Wire(connection), host).run()
    except (WireBroken, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _take_socket():
    """The parent's socket, moved away from where a kernel's stray write may hit it."""
    try:
        connection = socket.socket(fileno=os.dup(SOCKET))
        connection.getpeername()
    except OSError:
        return None
    os.set_inheritable(connection.fileno(), False)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, SOCKET, inheritable=False)
    os.close(nowhere)
    return connection


def _behave(memory_bytes):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which saves first.
    _limit(resource.RLIMIT_CORE, 1)
    if memory_bytes > 0:
        _limit(resource.RLIMIT_DATA, memory_bytes)


def _limit(what, most):
    """Lowers a limit. One that is lower already stays."""
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(what, (most, most))


def _end_with_parent(parent, connection):
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        _end_group()  # It was faster.
    threading.Thread(target=_end_at_hangup, args=(connection.fileno(),), daemon=True).start()


def _end_at_hangup(descriptor):
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    for _, events in poll.poll():
        if not events & select.POLLNVAL:
            _end_group()


def _end_group():
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
