"""Where a host's arrays live and its kernels are timed: what the server asks of a device."""

import contextlib
import time


class Device:
    """One device. Memory is handed out as flat arrays of bytes, which view() gives a type and a shape.

    Thread-compatible. What goes wrong is raised; after an error works() says whether the device is still of use.
    """

    name = ""

    def allocate(self, count):
        """A flat array of that many bytes, aligned to 256."""
        raise NotImplementedError

    def write(self, raw, data):
        """Copies bytes in."""
        raise NotImplementedError

    def read(self, raw):
        """The bytes of a flat array."""
        raise NotImplementedError

    def fill(self, raw, byte):
        raise NotImplementedError

    def same(self, a, b):
        """Whether two flat arrays hold the same bytes."""
        raise NotImplementedError

    def view(self, raw, spec):
        """The typed array in these bytes."""
        raise NotImplementedError

    def raw(self, array, spec):
        """The flat bytes of an array that a kernel returned. Raises WrongResult where it is no such array."""
        raise NotImplementedError

    def run(self, call):
        """Runs a call to its end and returns what it returned."""
        raise NotImplementedError

    def record(self, calls, capturable):
        """The calls made ready to be timed: a function that runs them and returns microseconds per call."""
        raise NotImplementedError

    def poisoned_memory(self):
        """A context in which memory that a kernel asks for holds 0xFF bytes: what it returns without writing is NaN, and
        not what another kernel has left there."""
        return contextlib.nullcontext()

    def release(self):
        """Gives memory that nobody holds back to the system: another process may need it."""

    def works(self):
        """Whether it still does the simplest thing."""
        return True

    def state(self):
        """{"clock_mhz", "throttle_reasons", "temperature_c", "power_w"}, as far as it is known."""
        return {}


def timed_on_cpu(calls):
    """A function that runs the calls, which end before they return, and gives microseconds per call."""

    def sample_us():
        begin = time.perf_counter_ns()
        for call in calls:
            call()
        return (time.perf_counter_ns() - begin) / 1e3 / len(calls)

    return sample_us


def open_device(name):
    """The device of a name: "cpu" by NumPy, "cuda:N" and "torch:cpu" by PyTorch. Imports what it needs."""
    if name in ("cpu", "auto", ""):
        from .numpy_device import NumpyDevice

        return NumpyDevice()
    return open_torch(name.removeprefix("torch:"))


def open_torch(name):
    """The same, all of it by PyTorch."""
    from .torch_device import TorchDevice

    return TorchDevice("cpu" if name in ("auto", "") else name)
