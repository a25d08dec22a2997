"""Triton's interpreter on the CPU, with bf16 as GPUs have it. Import before anything that imports Triton."""

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.runtime import interpreter  # noqa: E402


def _widened(handle):
    """The interpreter holds bf16 as the bits, and (up to Triton 3.9) multiplies these as if they were numbers."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return interpreter.TensorHandle((handle.data.astype(numpy.uint32) << 16).view(numpy.float32), tl.float32)


def correct():
    """Products of bf16, and rounding to bf16, which it does by dropping bits."""
    dot, convert = interpreter.InterpreterBuilder.create_dot, interpreter._convert_float

    def right_dot(self, a, b, *others):
        return dot(self, _widened(a), _widened(b), *others)

    def right_convert(values, source, target, rounding):
        if source != tl.float32 or target != tl.bfloat16:
            return convert(values, source, target, rounding)
        bits = numpy.ascontiguousarray(values).view(numpy.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)

    interpreter.InterpreterBuilder.create_dot = right_dot
    interpreter._convert_float = right_convert
