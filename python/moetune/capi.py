"""moetune/moetune.h by ctypes: its structures under their names without moetune_, and its functions as methods of Library.

    from ctypes import byref, sizeof
    from moetune import capi

    moetune = capi.Library()
    spec = capi.Spec()
    moetune.spec_from_model(b"qwen3-30b-a3b", None, byref(spec))

docs/c-api.md has a whole layer. Needs nothing but Python; what has __dlpack__() (NumPy, PyTorch, JAX) becomes a DLTensor
by tensor_of(). The objects here only point to data: whoever makes them keeps it alive, as in C. A call lets other Python
threads run, and one layer is used by one thread at a time.
"""

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint8
from ctypes import c_uint16, c_uint64, c_void_p

from . import library_path

OK, INVALID_ARGUMENT, NOT_FOUND, UNSUPPORTED = range(4)
BF16, FP16, FP8, FP8_BLOCK, NVFP4, MXFP4 = range(6)
ACTIVATIONS_BF16, ACTIVATIONS_FP8_BLOCK, ACTIVATIONS_FP8 = range(3)


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
                    (name, c_int32) for name in "deterministic pinned defaults_only caller_workspace".split()] + [
                        ("activation_scales", c_void_p)]


class Selected(Sized):
    _fields_ = [("struct_size", c_size_t), ("provenance", c_int32), ("reserved", c_int32),
                ("provenance_name", c_char_p), ("candidate", c_char_p), ("reason", c_char_p)]


class PlanInfo(Sized):
    _fields_ = [("struct_size", c_size_t), ("problem", c_char_p), ("runner", c_char_p), ("layout", c_char_p),
                ("max_tokens", c_int64), ("decisions", c_size_t)]


class Decision(Sized):
    _fields_ = [("struct_size", c_size_t), ("tokens", c_int64), ("from_tokens", c_int64), ("to_tokens", c_int64),
                ("is_default", c_int32), ("resolved", c_int32)] + [(name, c_double) for name in (
                    "speedup speedup_low speedup_high median_us default_median_us").split()] + [
                        (name, c_char_p) for name in "candidate workload note date".split()]


# Of the ABI; never less.
SIZES = {Spec: 112, ModelOptions: 32, Expert: 184, Weights: 32, DlWeights: 80, LayerOptions: 72, Selected: 40,
         DLTensor: 48, PlanInfo: 48, Decision: 112}


class Failed(Exception):
    """A function's code that is not OK, and the texts of moetune_last_error() and moetune_last_error_hint()."""

    def __init__(self, status, message, hint):
        super().__init__(f"{status}: {message} ({hint})")
        self.status, self.message, self.hint = status, message, hint


# What each function returns (a status where nothing is said) and takes; P stands for any pointer.
P, TEXT, STATUS = c_void_p, c_char_p, c_int32
FUNCTIONS = {
    "abi_version": (c_int32, []), "version": (TEXT, []), "status_name": (TEXT, [c_int32]),
    "last_error": (TEXT, []), "last_error_hint": (TEXT, []),
    "spec_init": (STATUS, [P, c_size_t]), "model_options_init": (STATUS, [P, c_size_t]),
    "spec_from_model": (STATUS, [TEXT, P, P]), "spec_check": (STATUS, [P]),
    "spec_first_expert": (STATUS, [P, c_int32, P]),
    "weights_init": (STATUS, [P, c_size_t]), "dl_weights_init": (STATUS, [P, c_size_t]),
    "layer_options_init": (STATUS, [P, c_size_t]),
    "layer_create": (STATUS, [P, P, P, P]), "layer_create_dl": (STATUS, [P, P, P, P]),
    "layer_create_from_checkpoint": (STATUS, [P, TEXT, c_int64, c_int32, P, P]),
    "layer_free": (None, [P]), "layer_workspace_bytes": (c_size_t, [P]),
    "layer_set_workspace": (STATUS, [P, P, c_size_t]),
    "layer_run": (STATUS, [P, c_int64, P, P, P, P]), "layer_run_routed": (STATUS, [P, c_int64, P, P, P, P, P]),
    "layer_run_dl": (STATUS, [P, P, P, P, P]), "layer_run_routed_dl": (STATUS, [P, P, P, P, P, P]),
    "layer_selected": (STATUS, [P, c_int64, P]), "layer_note": (TEXT, [P, c_size_t]), "layer_device": (TEXT, [P]),
    "layer_use_defaults": (STATUS, [P, c_int32]),
    "plans_load": (STATUS, [TEXT, P]), "plans_free": (None, [P]), "plans_device": (TEXT, [P]),
    "plans_count": (c_size_t, [P]), "plans_find": (STATUS, [P, P, P]), "plans_get": (STATUS, [P, c_size_t, P]),
    "plans_decision": (STATUS, [P, c_size_t, c_size_t, P]),
}
OF_NO_STATUS = {"abi_version"}  # though it is an int32, too


class Library:
    """The functions by their names without moetune_, with the arguments of C; those that return a status raise Failed.

    `path` is that of another libmoetune.so than the wheel's.
    """

    def __init__(self, path=None):
        self.library = ctypes.CDLL(str(path or library_path()))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(self.library, "moetune_" + name)
            function.restype, function.argtypes = result, arguments
            raises = result is STATUS and name not in OF_NO_STATUS
            setattr(self, name, self._raising(function) if raises else function)

    def _raising(self, function):
        def call(*arguments):
            status = function(*arguments)
            if status != OK:
                raise Failed(status, self.last_error().decode(), self.last_error_hint().decode())

        return call

    def make_layer(self, spec, weights, options=None, create="layer_create"):
        """The handle of a new layer, for layer_free() in the end."""
        handle = c_void_p()
        getattr(self, create)(byref(spec), byref(weights), options and byref(options), byref(handle))
        return handle


def tensor(buffer, shape, dtype, strides=None, device=(1, 0), byte_offset=0):
    """A DLTensor of a ctypes array (or an address); dtype is DLPack's (code, bits, lanes), bf16 (4, 16, 1), and device its
    (type, number), a CPU's (1, 0)."""
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
