"""moetune/moetune.h for Python, by ctypes: as much of it as the tests use."""

import ctypes
import os
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint8
from ctypes import c_uint16, c_uint64, c_void_p

OK, INVALID_ARGUMENT, NOT_FOUND, UNSUPPORTED = range(4)
BF16, FP16, FP8, FP8_BLOCK, NVFP4, MXFP4 = range(6)


class Sized(Structure):
    """A structure that says its size in its first member."""

    def __init__(self, **members):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)


class Spec(Sized):
    _fields_ = [("struct_size", c_size_t), ("hidden", c_int64), ("intermediate", c_int64), ("experts", c_int64),
                ("global_experts", c_int64)] + [(name, c_int32) for name in (
                    "top_k shared_experts weights activations output activation bias given_routing tp ep score "
                    "selection_bias groups top_groups score_after_top_k renormalise").split()] + [
                        ("scale", c_float), ("reserved", c_int32)]


class ModelOptions(Sized):
    _fields_ = [("struct_size", c_size_t)] + [(name, c_int32) for name in (
        "weights activations tp ep rank shared_experts").split()]


class Matrix(Structure):
    _fields_ = [("data", c_void_p), ("row_stride", c_int64), ("column_stride", c_int64)]


class Expert(Structure):
    _fields_ = [(name, Matrix) for name in "gate up down gate_scales up_scales down_scales".split()] + [
        (name, c_void_p) for name in "gate_bias up_bias down_bias".split()] + [
            (name, c_float) for name in "gate_global up_global down_global".split()] + [("reserved", c_int32)]


class Weights(Sized):
    _fields_ = [("struct_size", c_size_t), ("experts", POINTER(Expert)), ("count", c_int64), ("expert_size", c_size_t)]


class DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


DLTensors = POINTER(POINTER(DLTensor))


class DlWeights(Sized):
    _fields_ = [("struct_size", c_size_t), ("count", c_int64)] + [(name, DLTensors) for name in (
        "w13 w2 w13_scales w2_scales w13_global w2_global w13_bias w2_bias").split()]


class LayerOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("device", c_char_p), ("config", c_char_p), ("max_tokens", c_int64),
                ("threads", c_int32), ("first_expert", c_int32), ("router_bias", c_void_p)] + [
                    (name, c_int32) for name in "deterministic pinned defaults_only caller_workspace".split()]


class Selected(Sized):
    _fields_ = [("struct_size", c_size_t), ("provenance", c_int32), ("reserved", c_int32),
                ("provenance_name", c_char_p), ("candidate", c_char_p), ("reason", c_char_p)]


SIZES = {Spec: 112, ModelOptions: 32, Expert: 184, Weights: 32, DlWeights: 80, LayerOptions: 64, Selected: 40,
         DLTensor: 48}


class Failed(Exception):
    def __init__(self, status, message, hint):
        super().__init__(f"{status}: {message} ({hint})")
        self.status, self.message, self.hint = status, message, hint


class Library:
    """The functions by their names without moetune_; those that return a status raise Failed."""

    OTHERS = {"abi_version": c_int32, "version": c_char_p, "status_name": c_char_p, "last_error": c_char_p,
              "last_error_hint": c_char_p, "layer_free": None, "layer_workspace_bytes": c_size_t,
              "layer_note": c_char_p, "layer_device": c_char_p}

    def __init__(self, path=None):
        self.library = ctypes.CDLL(path or os.environ.get("MOETUNE_LIBRARY", "libmoetune.so.1"))

    def __getattr__(self, name):
        function = getattr(self.library, "moetune_" + name)
        if name in self.OTHERS:
            function.restype = self.OTHERS[name]
            return function
        function.restype = c_int32

        def call(*arguments):
            status = function(*arguments)
            if status != OK:
                raise Failed(status, self.last_error().decode(), self.last_error_hint().decode())

        return call

    def make_layer(self, spec, weights, options, create="layer_create"):
        handle = c_void_p()
        getattr(self, create)(byref(spec), byref(weights), byref(options), byref(handle))
        return handle


def tensor(buffer, shape, dtype, strides=None, device=(1, 0), byte_offset=0):
    """A DLTensor of a ctypes array (or an address); dtype is (code, bits, lanes)."""
    address = buffer if isinstance(buffer, int) else ctypes.addressof(buffer)
    made = DLTensor(address, *device, len(shape), *dtype, (c_int64 * len(shape))(*shape),
                    (c_int64 * len(shape))(*strides) if strides else None, byte_offset)
    made.keep = buffer
    return made


def tensors(*many):
    """An array of pointers to them."""
    array = (POINTER(DLTensor) * len(many))(*(ctypes.pointer(one) for one in many))
    array.keep = many
    return ctypes.cast(array, DLTensors), array


def tensor_of(capsule):
    """The DLTensor in what __dlpack__() returns. The capsule must live as long."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, [ctypes.py_object, c_char_p]
    return DLTensor.from_address(get(capsule, b"dltensor"))
