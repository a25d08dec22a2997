"""What can go wrong in a host, as the worker protocol names it (docs/worker-protocol.md)."""


class HostError(Exception):
    """An answer to a request: `code` is one of the protocol's, `hint` says what to do about it."""

    code = "internal"

    def __init__(self, message, hint=""):
        super().__init__(message)
        self.hint = hint


class BadRequest(HostError):
    """The request makes no sense."""

    code = "invalid_argument"


class NotFound(HostError):
    """There is no such session, runner or layout."""

    code = "not_found"


class Unsupported(HostError):
    """This host does not have that: raise it where a problem or a device cannot be served, with the reason."""

    code = "unsupported"


class CompileFailed(HostError):
    """One candidate cannot be made runnable."""

    code = "compile"


class RunFailed(HostError):
    """One candidate failed while it ran."""

    code = "run"


class WrongResult(HostError):
    """What a kernel returned is no output of the operator."""

    code = "wrong_result"


class OutOfMemory(HostError):
    """It does not fit."""

    code = "out_of_memory"


class WireBroken(Exception):
    """The conversation itself makes no sense any more, and ends."""


def one_line(error, limit=400):
    """An exception as one line for people: its type where that says something, and the start of its text."""
    text = " ".join(str(error).split()) or "no message"
    if not isinstance(error, HostError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= limit else text[: limit - 3] + "..."
