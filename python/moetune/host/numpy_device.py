"""Arrays of NumPy on the CPU. bf16 values are uint16 bits; formats of a byte or less are uint8."""

import numpy

from .devices import Device, timed_on_cpu
from .errors import WrongResult

DTYPES = {"f32": numpy.float32, "f16": numpy.float16, "bf16": numpy.uint16, "i32": numpy.int32}


def bf16_to_f32(bits):
    """The values of bf16 bits, exactly."""
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def f32_to_bf16(values):
    """bf16 bits of values, to nearest with ties to even. NaN stays NaN."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
    return numpy.where(numpy.isnan(values), numpy.uint16(0x7FC0), rounded)


class NumpyDevice(Device):
    """The CPU, by NumPy."""

    name = "cpu (NumPy)"

    def allocate(self, count):
        memory = numpy.empty(count + 256, numpy.uint8)
        begin = -memory.ctypes.data % 256
        return memory[begin : begin + count]

    def write(self, raw, data):
        raw[:] = numpy.frombuffer(data, numpy.uint8)

    def read(self, raw):
        return raw.tobytes()

    def fill(self, raw, byte):
        raw[:] = byte

    def same(self, a, b):
        return bool(numpy.array_equal(a, b))

    def view(self, raw, spec):
        if spec.type == "e2m1x2":
            return raw.reshape(*spec.shape[:-1], -1) if spec.shape else raw
        return raw.view(DTYPES.get(spec.type, numpy.uint8)).reshape(spec.shape)

    def raw(self, array, spec):
        wanted = DTYPES.get(spec.type, numpy.uint8)
        if not isinstance(array, numpy.ndarray) or array.dtype != wanted or array.shape != tuple(spec.shape):
            raise WrongResult(f"the kernel returned {_words(array)} where {spec} was due")
        return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)

    def run(self, call):
        return call()

    def record(self, calls, capturable):
        return timed_on_cpu(calls)


def _words(array):
    if not isinstance(array, numpy.ndarray):
        return f"a {type(array).__name__}"
    return f"{array.dtype} {list(array.shape)}"
