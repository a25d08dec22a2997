"""Tensors of PyTorch on a GPU or the CPU. On a GPU a sequence of calls is captured in a graph and replayed."""

import ctypes
import gc

import torch

from .devices import Device, timed_on_cpu
from .errors import OutOfMemory, Unsupported, WrongResult

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": getattr(torch, "float8_e4m3fn", torch.uint8),
    "i32": torch.int32,
}


# Of the GPU's clock, about 2 GHz: some 100 us, and 5 us for the nodes of a call.
GATE_CYCLES = 200_000
GATE_CYCLES_PER_CALL = 10_000


class _Poisoning(torch.overrides.TorchFunctionMode):
    """Fills what PyTorch's functions for memory without contents return."""

    FUNCTIONS = {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty, torch.Tensor.new_empty_strided}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if function in self.FUNCTIONS and made.numel() and made.device.type != "meta":
            storage = made.untyped_storage()
            torch.tensor([], dtype=torch.uint8, device=made.device).set_(storage).fill_(0xFF)
        return made


class TorchDevice(Device):
    """One device of PyTorch: "cuda:0" or "cpu"."""

    def __init__(self, name):
        try:
            self.device = torch.device(name)
        except RuntimeError:
            raise Unsupported(f"'{name}' is no device of PyTorch {torch.__version__}") from None
        self.is_cuda = self.device.type == "cuda"
        if self.is_cuda and not torch.cuda.is_available():
            raise Unsupported(f"PyTorch {torch.__version__} sees no GPU", "is it a build for CPUs?")
        if self.is_cuda and (self.device.index or 0) >= torch.cuda.device_count():
            raise Unsupported(f"PyTorch sees {torch.cuda.device_count()} GPUs, and none is {name}")
        self.name = "cpu (PyTorch)"
        self._monitor = None
        self._is_broken = False
        if self.is_cuda:
            torch.cuda.set_device(self.device)
            self.name = torch.cuda.get_device_name(self.device)
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(self.device)
            self._monitor = _open_monitor(self.device)

    def allocate(self, count):
        try:
            memory = torch.empty(count + 256, dtype=torch.uint8, device=self.device)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(f"{count} bytes on {self.name}: {str(error).splitlines()[0]}") from None
        begin = -memory.data_ptr() % 256
        return memory[begin : begin + count]

    def write(self, raw, data):
        raw.copy_(torch.frombuffer(data, dtype=torch.uint8) if len(data) else torch.empty(0, dtype=torch.uint8))
        self._wait()

    def read(self, raw):
        host = raw.cpu().contiguous()
        return ctypes.string_at(host.data_ptr(), host.numel())

    def fill(self, raw, byte):
        raw.fill_(byte)

    def same(self, a, b):
        return bool(torch.equal(a, b))

    def view(self, raw, spec):
        if spec.type == "e2m1x2":
            return raw.view(*spec.shape[:-1], -1) if spec.shape else raw
        return raw.view(DTYPES.get(spec.type, torch.uint8)).view(spec.shape)

    def raw(self, array, spec):
        wanted = DTYPES.get(spec.type, torch.uint8)
        if not isinstance(array, torch.Tensor) or array.dtype != wanted or tuple(array.shape) != tuple(spec.shape):
            raise WrongResult(f"the kernel returned {_words(array)} where {spec} was due")
        if array.device.type != self.device.type:
            raise WrongResult(f"the kernel returned a tensor on {array.device}")
        return array.contiguous().view(-1).view(torch.uint8)

    def run(self, call):
        returned = call()
        self._wait()
        return returned

    def record(self, calls, capturable):
        if not self.is_cuda:
            return timed_on_cpu(calls)
        return self._timed_graph(calls) if capturable else self._timed_stream(calls)

    def poisoned_memory(self):
        return _Poisoning()

    def release(self):
        if self.is_cuda:
            gc.collect()
            torch.cuda.empty_cache()

    def _timed_graph(self, calls):
        # Lazy initialisation of libraries must not be captured.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            calls[0]()
        self._wait()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                for call in calls:
                    call()
        except BaseException:
            # A capture that broke off may leave allocator and stream in it: this process is of no further use.
            self._is_broken = True
            raise
        graph.replay()
        self._wait()
        return self._timed(graph.replay, len(calls))

    def _timed_stream(self, calls):
        def every_call():
            for call in calls:
                call()

        every_call()
        self._wait()
        return self._timed(every_call, len(calls))

    def _timed(self, run, count):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)

        # The GPU waits until everything is queued, so that no launch is timed, as moetune's own kernels are.
        wait_cycles = GATE_CYCLES + GATE_CYCLES_PER_CALL * count

        def sample_us():
            torch.cuda._sleep(wait_cycles)
            begin.record()
            run()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) * 1e3 / count

        return sample_us

    def works(self):
        if self._is_broken:
            return False
        if not self.is_cuda:
            return True
        try:
            return int(torch.full((1,), 7, dtype=torch.uint8, device=self.device).cpu()[0]) == 7
        except RuntimeError:
            return False

    def state(self):
        return self._monitor() if self._monitor else {}

    def _wait(self):
        if self.is_cuda:
            torch.cuda.synchronize(self.device)


def _words(array):
    if not isinstance(array, torch.Tensor):
        return f"a {type(array).__name__}"
    return f"{array.dtype} {list(array.shape)}"


def _open_monitor(device):
    """A function that reads the GPU's state by NVML's Python package; None where that is not installed."""
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID((uuid if uuid.startswith("GPU-") else "GPU-" + uuid).encode())
    except Exception:  # noqa: BLE001 - whatever is wrong with it, times are taken without.
        return None
    idle = 0x1  # "Nothing is running" is no throttling.

    def state():
        try:
            return {
                "clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
                "throttle_reasons": pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & ~idle,
                "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
                "power_w": pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            }
        except pynvml.NVMLError:
            return {}

    return state
