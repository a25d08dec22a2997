"""Small layers of PyTorch's tensors for tests: random weights of a format, calls, and what a layer on the CPU makes of them.

Needs PyTorch. Weights lie in host memory; types that a PyTorch may not export by DLPack are handed over as their bits.
"""

import ctypes
import os
from ctypes import byref

import torch

from moetune import capi

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, MOST = 512, 256, 8, 2, 64

# In rows and along k; 0: without scales.
BLOCKS = {capi.FP8_BLOCK: (128, 128), capi.NVFP4: (1, 16), capi.MXFP4: (1, 32)}

moetune = capi.Library(os.environ.get("MOETUNE_LIBRARY"))


def dl(tensor):
    """Its DLTensor. Without waiting for anything: what the tensor holds is the business of the caller's stream."""
    capsule = tensor.__dlpack__(stream=-1) if tensor.is_cuda else tensor.__dlpack__()
    made = capi.tensor_of(capsule)
    made.keep = capsule
    return made


def relative_error(output, expected):
    """RMS of the difference over the RMS of what is right, of the worst row."""
    output, expected = output.double().cpu(), expected.double().cpu()
    return ((output - expected).norm(dim=1) / expected.norm(dim=1)).max().item()


class Weights:
    """Of one format, as stacked tensors, for gate and up (w13) and down (w2) of sizes that keep values near 1."""

    def __init__(self, format_=capi.BF16, seed=1, **members):
        self.spec = capi.Spec()
        moetune.spec_init(byref(self.spec), ctypes.sizeof(self.spec))
        spec = self.spec
        spec.hidden, spec.intermediate, spec.top_k, spec.weights = HIDDEN, INTERMEDIATE, TOP_K, format_
        spec.experts = spec.global_experts = EXPERTS
        for name, value in members.items():
            setattr(spec, name, value)
        self.random = torch.Generator().manual_seed(seed)
        self.parts = {}
        for name, parts, rows, k in (("w13", 2, INTERMEDIATE, HIDDEN), ("w2", 1, HIDDEN, INTERMEDIATE)):
            self.parts[name] = self.values(format_, parts * rows, k)
            if format_ in BLOCKS:
                block_rows, block_k = BLOCKS[format_]
                self.parts[name + "_scales"] = self.scales(format_, parts * rows // block_rows, k // block_k)
            if format_ in (capi.FP8, capi.NVFP4):
                self.parts[name + "_global"] = 0.04 + 0.02 * torch.rand(EXPERTS, parts, generator=self.random)

    def values(self, format_, rows, k):
        if format_ in (capi.NVFP4, capi.MXFP4):
            return torch.randint(256, (EXPERTS, rows, k // 2), generator=self.random, dtype=torch.uint8)
        normal = torch.randn(EXPERTS, rows, k, generator=self.random)
        if format_ in (capi.FP8, capi.FP8_BLOCK):
            return normal.to(torch.float8_e4m3fn).view(torch.uint8)
        return (0.05 * normal).to(torch.bfloat16 if format_ == capi.BF16 else torch.float16)

    def scales(self, format_, rows, columns):
        if format_ == capi.MXFP4:  # 2^-7 to 2^-5
            return torch.randint(120, 123, (EXPERTS, rows, columns), generator=self.random, dtype=torch.uint8)
        uniform = torch.rand(EXPERTS, rows, columns, generator=self.random)
        if format_ == capi.NVFP4:
            return (0.25 + 0.25 * uniform).to(torch.float8_e4m3fn).view(torch.uint8)
        return 0.04 + 0.02 * uniform

    def dl(self, device="cpu"):
        """A DlWeights of them."""
        weights = capi.DlWeights(count=1)
        weights.keep = []
        for name, part in self.parts.items():
            pointer, kept = capi.tensors(dl(part.to(device)))
            setattr(weights, name, pointer)
            weights.keep.append(kept)
        return weights


class Layer:
    """A layer of those weights, whose runs are for tensors of its device."""

    def __init__(self, weights, device="cuda:0", **options):
        options = {"max_tokens": MOST, "defaults_only": 1, **options}
        self.spec = weights.spec
        self.options = capi.LayerOptions(device=device.encode(), **options)
        self.handle = moetune.make_layer(self.spec, weights.dl(), self.options, "layer_create_dl")

    def free(self):
        moetune.layer_free(self.handle)

    def run(self, inputs, output, stream=None):
        """By pointers; `stream` as PyTorch's cuda_stream, whose default stream is 0."""
        function = moetune.layer_run_routed if self.spec.given_routing else moetune.layer_run
        function(self.handle, len(output), *(each.data_ptr() for each in (*inputs, output)), stream or None)

    def run_dl(self, inputs, output, stream=None):
        function = moetune.layer_run_routed_dl if self.spec.given_routing else moetune.layer_run_dl
        function(self.handle, *(byref(dl(each)) for each in (*inputs, output)), stream or None)

    def selected(self, tokens):
        selected = capi.Selected()
        moetune.layer_selected(self.handle, tokens, byref(selected))
        return selected


def make_inputs(tokens, seed=1, given_routing=False, device="cuda:0"):
    """hidden and logits, or hidden, ids and weights, some of whose slots are skipped."""
    random = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(tokens, HIDDEN, generator=random).to(torch.bfloat16)]
    logits = torch.randn(tokens, EXPERTS, generator=random)
    if given_routing:
        weights, ids = logits.softmax(-1).topk(TOP_K)
        ids[::3, -1] = -1
        inputs += [ids.to(torch.int32), weights]
    else:
        inputs.append(logits)
    return [each.contiguous().to(device) for each in inputs]


def nans(tokens, device="cuda:0", dtype=torch.bfloat16):
    """An output nobody has written to."""
    return torch.full((tokens, HIDDEN), float("nan"), dtype=dtype, device=device)
