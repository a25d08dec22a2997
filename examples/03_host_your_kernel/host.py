"""A host of one's own Triton kernel: the class at the end is all that moetune has to know of it. See README.md."""

import torch
import triton
import triton.language as tl

from moetune.host import MoeProblem, Runner, require, serve
from moetune.host.moe_ops import align_blocks, sum_slots


@triton.jit
def grouped_product(
    x, w, out, scale, rows, experts, total, K, N, pairs,
    ROWS_PER_X: tl.constexpr, GATED: tl.constexpr, M: tl.constexpr, N_TILE: tl.constexpr, K_TILE: tl.constexpr,
):  # fmt: skip
    """A tile of out[row] = x[row // ROWS_PER_X] · w[expert]ᵀ: silu(gate) * up where GATED, else times scale[row]."""
    begin = tl.program_id(0) * M
    if begin >= tl.load(total):
        return
    row = tl.load(rows + begin + tl.arange(0, M)).to(tl.int64)
    expert = tl.load(experts + tl.program_id(0)).to(tl.int64)
    column = tl.program_id(1) * N_TILE + tl.arange(0, N_TILE)
    is_row, is_column = (row < pairs)[:, None], (column < N)[None, :]
    x_row = x + (row // ROWS_PER_X)[:, None] * K
    w_row = w + expert * (2 * N if GATED else N) * K + column[None, :].to(tl.int64) * K
    result = tl.zeros((M, N_TILE), tl.float32)
    up = tl.zeros((M, N_TILE), tl.float32)
    for k in range(0, K, K_TILE):
        at = k + tl.arange(0, K_TILE)
        a = tl.load(x_row + at[None, :], mask=is_row & (at < K)[None, :], other=0.0)
        is_weight = (at < K)[:, None] & is_column
        result = tl.dot(a, tl.load(w_row + at[:, None], mask=is_weight, other=0.0), acc=result)
        if GATED:
            up = tl.dot(a, tl.load(w_row + N * K + at[:, None], mask=is_weight, other=0.0), acc=up)
    if GATED:
        result = result / (1 + tl.exp(-result)) * up
    else:
        result *= tl.load(scale + row, mask=row < pairs, other=0.0)[:, None]
    tl.store(out + row[:, None] * N + column[None, :], result.to(out.dtype.element_ty), mask=is_row & is_column)


def fused_moe(call, weights, M, N, K, warps, stages):
    """From given ids to output; nothing waits for the host, so that it can be captured in a CUDA graph."""
    hidden, ids, scale = call["hidden"], call["topk_ids"], call["topk_weights"]
    w13, w2 = weights["w13"], weights["w2"]
    pairs, experts = ids.numel(), len(w13)
    blocks = min(pairs, pairs // M + experts)  # At most: each expert's last block may be short.
    new = lambda *shape, dtype=torch.int32: torch.empty(shape, dtype=dtype, device=hidden.device)  # noqa: E731
    rows, block_experts, total = new(blocks * M), new(blocks), new(1)
    align_blocks(ids, experts, M, rows, block_experts, total)
    inner = new(pairs, w2.shape[2], dtype=torch.bfloat16)
    parts = new(*ids.shape, w2.shape[1], dtype=torch.float32)
    for x, w, out, top_k, gated in ((hidden, w13, inner, ids.shape[1], True), (inner, w2, parts, 1, False)):
        width = out.shape[-1]
        grouped_product[(blocks, triton.cdiv(width, N))](
            x, w, out, scale, rows, block_experts, total, w.shape[2], width, pairs,
            ROWS_PER_X=top_k, GATED=gated, M=M, N_TILE=N, K_TILE=K, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    sum_slots(parts, call["output"])


class MyMoe(Runner):
    name = "example.triton"
    version = 1  # Raise it when the kernel changes: what was measured before is then stale.
    parameters = {"M": [16, 32, 64, 128], "N": [32, 64, 128], "K": [32, 64, 128], "warps": [4, 8], "stages": [2, 3, 4]}
    meanings = {"M": "rows of a tile", "N": "columns of a tile", "K": "depth of a step"}
    compiles_on_first_run = True  # As every kernel in Triton does.

    def __init__(self, problem):
        self.moe = MoeProblem.of(problem)
        require(self.moe.require(weights="bf16", activations="a16", activation="swiglu", bias=False))
        require(self.moe.require(given_routing=True, shared_experts=0, ep=1))

    def default(self, tokens):
        return {"M": 16 if tokens <= 64 else 64, "N": 64, "K": 64, "warps": 4, "stages": 3}

    def excluded(self, tactic, tokens):
        if tactic["M"] > 16 and tactic["M"] >= 2 * tokens:
            return "more rows than an expert can have"
        if tactic["M"] * tactic["N"] > 128 * 32 * tactic["warps"]:
            return "its sums, two of them, do not fit into registers"
        return ""

    def compile(self, tactic, arguments):
        return lambda call, weights: fused_moe(call, weights, *tactic.values())


if __name__ == "__main__":
    serve("example", {"fused_moe": lambda problem, device: [MyMoe(problem)]}, versions={"triton": triton.__version__})
