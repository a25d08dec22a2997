"""A host whose kernels misbehave, each in its own way: all but two of them would win if nobody looked."""

import os
import signal
import time

import numpy

from moetune.host import MoeProblem, serve
from moetune.host.numpy_moe import NumpyMoe


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def hang():
    while True:
        time.sleep(0.01)


def flood():
    for number in range(2000):
        print(number, "x" * 1000, flush=True)


def scribble():
    """Onto every descriptor that a parent's socket could be."""
    for number in range(3, 64):
        try:
            os.write(number, b'{"id": this is not JSON\n')
        except OSError:
            pass


def allocate():
    numpy.ones(1 << 42, numpy.uint8)


# Before the kernel runs.
BEFORE = {
    "crashes": crash,
    "aborts": os.abort,
    "hangs": hang,
    "exits": lambda: os._exit(0),
    "raises": lambda: 1 / 0,
    "allocates": allocate,
    "floods": flood,
    "scribbles": scribble,
    "sleeps": lambda: time.sleep(0.05),
}


def beyond(output):
    """The byte after its last one."""
    whole = numpy.lib.stride_tricks.as_strided(output.reshape(-1), (output.size + 1,), (output.itemsize,))
    whole[-1] = 0


def spoil(kind, call, calls):
    """After it has run."""
    output = call["output"]
    if kind == "not_a_number":
        output[-1, 0] = 0x7FC0
    elif kind == "slightly_wrong":
        output[-1] = numpy.where(output[-1] & 0x7FFF, output[-1] + 8, output[-1])
    elif kind == "wrong_later" and calls > 1:
        output[:, ::2] = 0
    elif kind == "past_the_end":
        beyond(output)
    elif kind == "changes_its_input":
        call["hidden"][0, 0] ^= 1


RETURNS = {
    "wrong_shape": lambda output: output[:, :-1].copy(),
    "wrong_type": lambda output: output.astype(numpy.float32),
    "two_outputs": lambda output: [output, output],
    "a_word": lambda output: "done",
}
AFTER = ["not_a_number", "slightly_wrong", "wrong_later", "past_the_end", "changes_its_input"]
NOT_RUN = ["unwritten", "half_written"]
KINDS = ["slow", "fast", "does_not_compile", *BEFORE, *AFTER, *RETURNS, *NOT_RUN]


class Unruly(NumpyMoe):
    """The default is right and slow, "fast" is right and fast."""

    name = "unruly.kinds"
    parameters = {"kind": KINDS}

    def __init__(self, problem):
        super().__init__(problem)
        self.moe = MoeProblem.of(problem)

    def default(self, tokens):
        return {"kind": "slow"}

    def excluded(self, tactic, tokens):
        return ""

    def compile(self, tactic, arguments):
        kind = tactic["kind"]
        if kind == "does_not_compile":
            raise SyntaxError("a tile of 3 is no power of two")
        calls = 0

        def kernel(call, weights):
            nonlocal calls
            calls += 1
            BEFORE.get(kind, lambda: None)()
            if kind == "unwritten":
                return None
            self._run({"block": 256, "order": "expert"}, call, weights)
            if kind == "slow":
                time.sleep(0.02)
            if kind == "half_written":
                call["output"][len(call["output"]) // 2 :] = 0xFFFF
            spoil(kind, call, calls)
            return RETURNS[kind](call["output"]) if kind in RETURNS else None

        return kernel


serve("unruly", {"fused_moe": lambda problem, device: [Unruly(problem)]})
