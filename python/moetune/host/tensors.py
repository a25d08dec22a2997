"""Arrays as the protocol describes them: a name, a type, a shape in values; dense and row-major."""

import math
import mmap
import os
from dataclasses import dataclass

from .errors import BadRequest

# Bits of one value. e2m1x2 holds two values a byte.
BITS = {"f32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "ue8m0": 8, "e2m1x2": 4, "i32": 32, "u8": 8}
MAX_TENSORS = 64
MAX_DIMENSIONS = 8
MAX_BYTES = 1 << 38


@dataclass(frozen=True)
class TensorSpec:
    """One array's name, type and shape (outermost first, in values)."""

    name: str
    type: str
    shape: tuple

    @property
    def values(self):
        return math.prod(self.shape)

    @property
    def bytes(self):
        return (self.values * BITS[self.type] + 7) // 8

    @property
    def row_bytes(self):
        """Of one position in the outermost dimension."""
        return (math.prod(self.shape[1:]) * BITS[self.type] + 7) // 8

    def to_json(self, rows=None):
        shape = list(self.shape) if rows is None else [rows, *self.shape[1:]]
        return {"name": self.name, "type": self.type, "shape": shape}

    def __str__(self):
        return f"{self.name}: {self.type} {list(self.shape)}"


def read_tensors(value, place):
    """TensorSpecs of a message's array. Raises BadRequest naming the place."""
    if not isinstance(value, list) or len(value) > MAX_TENSORS:
        raise BadRequest(f"{place}: expected an array of at most {MAX_TENSORS} tensors")
    specs = [_read_tensor(item, f"{place}[{i}]") for i, item in enumerate(value)]
    if sum(spec.bytes for spec in specs) > MAX_BYTES:
        raise BadRequest(f"{place}: larger than any call's arguments")
    return specs


def _read_tensor(item, place):
    if not isinstance(item, dict):
        raise BadRequest(f"{place}: expected an object")
    name, kind, shape = item.get("name"), item.get("type"), item.get("shape")
    if not isinstance(name, str):
        raise BadRequest(f"{place}.name: expected a string")
    if not isinstance(kind, str) or kind not in BITS:
        raise BadRequest(f"{place}.type: {kind!r} is no type")
    good = isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS
    if not good or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise BadRequest(f"{place}.shape: expected a short array of integers")
    if math.prod(shape) > MAX_BYTES:
        raise BadRequest(f"{place}.shape: not the shape of an array")
    return TensorSpec(name, kind, tuple(shape))


def map_file(file, specs, what):
    """The bytes of each tensor in a file that holds exactly these, without copying: {name: memoryview}.

    Private and writable: some libraries refuse read-only memory; what is written is seen by nobody else.
    """
    length = sum(spec.bytes for spec in specs)
    if os.fstat(file).st_size != length:
        raise BadRequest(f"{what}: the file has {os.fstat(file).st_size} bytes, not {length}")
    if length == 0:
        return {spec.name: memoryview(b"") for spec in specs}
    data = memoryview(mmap.mmap(file, length, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    found, begin = {}, 0
    for spec in specs:
        found[spec.name] = data[begin : begin + spec.bytes]
        begin += spec.bytes
    return found
