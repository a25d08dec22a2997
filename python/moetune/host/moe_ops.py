"""The small kernels around an engine's grouped products, of moetune's own, for where the engine's are missing.

Written for this: plain Triton, nothing waits for the host, sorts are stable. A time taken with these is not the whole
engine's, and a host that uses them says so in its versions. A kernel is the same for as many sizes as can be: one that
is new costs half a second of compiling.
"""

import torch
import triton
import triton.language as tl

E4M3_MAX = 448.0


@triton.jit
def _bucket(ids, begin, count, offset, buckets, BLOCK: tl.constexpr):
    """The bucket of each id in a block, `buckets` where it has none; and which ids these are."""
    at = begin + tl.arange(0, BLOCK)
    inside = at < count
    bucket = tl.load(ids + at, mask=inside, other=-1).to(tl.int32) + offset
    inside = inside & (bucket >= 0) & (bucket < buckets)
    return tl.where(inside, bucket, buckets), inside, at


@triton.jit(do_not_specialize=["count"])
def _align_kernel(
    ids, rows, experts, total, count, buckets, offset,
    ROWS: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr, FILL: tl.constexpr,
):  # fmt: skip
    """One program per bucket: counts everybody's ids to know where its own rows begin, then places them in order."""
    mine = tl.program_id(0)
    bins = tl.arange(0, BINS)
    sizes = tl.zeros((BINS,), tl.int32)
    for begin in range(0, count, BLOCK):
        bucket, _, _ = _bucket(ids, begin, count, offset, buckets, BLOCK)
        sizes += tl.histogram(bucket, BINS).to(tl.int32)
    padded = (sizes + ROWS - 1) // ROWS * ROWS
    padded = tl.where(bins < buckets, padded, 0)
    first = tl.sum(tl.where(bins < mine, padded, 0))
    length = tl.sum(tl.where(bins == mine, padded, 0))
    size = tl.sum(tl.where(bins == mine, sizes, 0))
    if mine == 0:
        tl.store(total, tl.sum(padded))
    placed = first
    for begin in range(0, count, BLOCK):
        bucket, inside, at = _bucket(ids, begin, count, offset, buckets, BLOCK)
        chosen = inside & (bucket == mine)
        ones = chosen.to(tl.int32)
        tl.store(rows + placed + tl.cumsum(ones, 0) - 1, at.to(tl.int32), mask=chosen)
        placed += tl.sum(ones)
    for begin in range(0, length, FILL):
        at = begin + tl.arange(0, FILL)
        tl.store(rows + first + at, tl.zeros((FILL,), tl.int32) + count, mask=(at >= size) & (at < length))
    for begin in range(0, length // ROWS, FILL):
        at = begin + tl.arange(0, FILL)
        tl.store(experts + first // ROWS + at, tl.zeros((FILL,), tl.int32) + mine - offset, mask=at < length // ROWS)


def align_blocks(ids, buckets, block_rows, rows, experts, total, offset=0):
    """Positions in `ids` ordered by expert, each expert's padded with ids.numel() to whole blocks of `block_rows`.

    Bucket id + offset; others are left out. `experts` is the id of each block, `total` the number of padded rows; what
    lies behind in `rows` and `experts` is not written.
    """
    count = ids.numel()
    block = 128 if count <= 256 else 1024
    bins = triton.next_power_of_2(buckets + 1)
    _align_kernel[(buckets,)](
        ids, rows, experts, total, count, buckets, offset, ROWS=block_rows, BINS=bins, BLOCK=block, FILL=128
    )


@triton.jit
def _silu_and_mul_kernel(out, both, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    gate = tl.load(both + row * 2 * width + at, mask=inside).to(tl.float32)
    up = tl.load(both + row * 2 * width + width + at, mask=inside).to(tl.float32)
    tl.store(out + row * width + at, (gate / (1 + tl.exp(-gate)) * up).to(out.dtype.element_ty), mask=inside)


def silu_and_mul(out, both):
    """out [n, I] = silu(gate) * up, of both [n, 2I]."""
    width = out.shape[-1]
    block = min(1024, triton.next_power_of_2(width))
    _silu_and_mul_kernel[(out.numel() // width, triton.cdiv(width, block))](out, both, width, BLOCK=block)


@triton.jit
def _sum_kernel(out, rows, width, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    result = tl.zeros((BLOCK,), tl.float32)
    for slot in range(SLOTS):
        result += tl.load(rows + (token * SLOTS + slot) * width + at, mask=inside).to(tl.float32)
    tl.store(out + token * width + at, result.to(out.dtype.element_ty), mask=inside)


def sum_slots(rows, out):
    """out [T, H] = the sum of rows [T, k, H] over k, in f32."""
    tokens, slots, width = rows.shape
    block = min(1024, triton.next_power_of_2(width))
    _sum_kernel[(tokens, triton.cdiv(width, block))](out, rows, width, SLOTS=slots, BLOCK=block)


@triton.jit
def _quantise_kernel(codes, scales, values, GROUP: tl.constexpr, LARGEST: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    at = group * GROUP + tl.arange(0, GROUP)
    value = tl.load(values + at).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value)), 1e-10) / LARGEST
    code = tl.minimum(tl.maximum(value / scale, -LARGEST), LARGEST)
    tl.store(codes + at, code.to(codes.dtype.element_ty))
    tl.store(scales + group, scale)


def quantise_groups(values, group):
    """(e4m3 codes, f32 scales [..., K / group]) of values [..., K]: each group's largest becomes 448."""
    codes, scales = empty_groups(values, group)
    _quantise_kernel[(scales.numel(),)](codes, scales, values.contiguous(), GROUP=group, LARGEST=E4M3_MAX)
    return codes, scales


def empty_groups(values, group):
    """Where quantise_groups() puts its results."""
    codes = torch.empty(values.shape, dtype=torch.float8_e4m3fn, device=values.device)
    scales = torch.empty((*values.shape[:-1], values.shape[-1] // group), dtype=torch.float32, device=values.device)
    return codes, scales


@triton.jit(do_not_specialize=["count"])
def _scale_kernel(codes, scale, values, count, BLOCK: tl.constexpr, LARGEST: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(values + at, mask=inside).to(tl.float32) / tl.load(scale)
    code = tl.minimum(tl.maximum(value, -LARGEST), LARGEST)
    tl.store(codes + at, code.to(codes.dtype.element_ty), mask=inside)


def quantise_given(values, scale):
    """(e4m3 codes of values / scale, scale): one scale [1] for all, beyond 448 of which codes saturate."""
    codes, _ = empty_given(values, scale)
    count = values.numel()
    _scale_kernel[(triton.cdiv(count, 1024),)](codes, scale, values.contiguous(), count, BLOCK=1024, LARGEST=E4M3_MAX)
    return codes, scale


def empty_given(values, scale):
    """Where quantise_given() puts its results."""
    return torch.empty(values.shape, dtype=torch.float8_e4m3fn, device=values.device), scale


def ignore(*args, **kwargs):
    """In place of what is not to be done."""


KERNELS = {"_align_kernel", "_silu_and_mul_kernel", "_sum_kernel", "_quantise_kernel", "_scale_kernel"}


class AheadOps:
    """The same, for where arguments have no memory, and kernels are compiled and not launched."""

    align_blocks = staticmethod(align_blocks)
    silu_and_mul = staticmethod(silu_and_mul)
    sum_slots = staticmethod(sum_slots)
    quantise_groups = staticmethod(quantise_groups)
    quantise_given = staticmethod(quantise_given)


class DryOps:
    """The same names for where nothing runs and only sizes matter."""

    align_blocks = silu_and_mul = sum_slots = staticmethod(ignore)
    quantise_groups = staticmethod(empty_groups)
    quantise_given = staticmethod(empty_given)
