"""The operator as docs/operator.md defines it, in PyTorch and slowly; and calls of it for tests of hosts."""

import torch

from moetune.host.problem import Problem
from moetune.host.runner import Arguments

BLOCK = 128


def problem(hidden=128, intermediate=64, experts=6, top_k=2, **changes):
    usual = {"weights": "bf16", "activations": "a16", "activation": "swiglu", "output": "bf16", "given_routing": "1"}
    sizes = {"hidden": hidden, "intermediate": intermediate, "experts": experts, "top_k": top_k}
    return Problem("fused_moe", {name: str(value) for name, value in {**usual, **sizes, **changes}.items()})


def quantised(values):
    """(codes, scales) of blocks of 128 along the last dimension: each block's largest becomes 448."""
    blocks = values.float().unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1)
    scales = torch.where(largest > 0, largest / 448, torch.ones_like(largest))
    return (blocks / scales[..., None]).to(torch.float8_e4m3fn).flatten(-2), scales


def rounded(values):
    codes, scales = quantised(values)
    return (codes.double().unflatten(-1, (-1, BLOCK)) * scales.double()[..., None]).flatten(-2)


def block_weights(values):
    """(e4m3, f32 scales) of weights [experts, rows, columns], 128 x 128 values to a scale."""
    tiles = values.unflatten(2, (-1, BLOCK)).unflatten(1, (-1, BLOCK))
    scales = tiles.abs().amax((2, 4)) / 448
    codes = (tiles / scales[:, :, None, :, None]).to(torch.float8_e4m3fn)
    return codes.reshape(values.shape), scales


def block_values(codes, scales):
    return codes.double() * scales.double().repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)


def scaled(values, scale):
    """The nearest e4m3 codes of values / scale, which saturate."""
    return (values.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def made_call(moe, tokens):
    """(arguments, weights, the right output in f64)."""
    chance = torch.Generator().manual_seed(tokens)

    def normal(*shape):
        return torch.randn(*shape, generator=chance) * shape[-1] ** -0.5

    x = (normal(tokens, moe.hidden) * moe.hidden**0.5).bfloat16()
    w13 = normal(moe.experts, 2 * moe.intermediate, moe.hidden)
    w2 = normal(moe.experts, moe.hidden, moe.intermediate)
    ids = torch.stack([torch.randperm(moe.experts, generator=chance)[: moe.top_k] for _ in range(tokens)]).int()
    scale = torch.rand(tokens, moe.top_k, generator=chance).softmax(-1)
    dtype = torch.float32 if moe.output == "f32" else torch.bfloat16
    output = torch.full((tokens, moe.hidden), float("nan"), dtype=dtype)
    arguments = Arguments({"hidden": x, "topk_ids": ids, "topk_weights": scale, "output": output})
    arguments.tokens = tokens
    if moe.weights == "bf16":
        weights = {"w13": w13.bfloat16(), "w2": w2.bfloat16()}
        return arguments, weights, layer(arguments, weights["w13"].double(), weights["w2"].double())
    if moe.weights == "fp8":
        given = arguments["activation_scales"] = torch.tensor([2.0**-5, 2.0**-4])
        s13, s2 = (values.abs().amax((1, 2)) / 448 for values in (w13, w2))
        c13, c2 = scaled(w13, s13[:, None, None]), scaled(w2, s2[:, None, None])
        weights = {"w13": c13, "w13_global": s13[:, None].repeat(1, 2), "w2": c2, "w2_global": s2[:, None]}
        values = (codes.double() * scales.double()[:, None, None] for codes, scales in ((c13, s13), (c2, s2)))
        formats = (lambda each, scale=scale: scaled(each, scale).double() * scale for scale in given.tolist())
        return arguments, weights, layer(arguments, *values, *formats)
    (c13, s13), (c2, s2) = block_weights(w13), block_weights(w2)
    weights = {"w13": c13, "w13_scales": s13, "w2": c2, "w2_scales": s2}
    return arguments, weights, layer(arguments, block_values(c13, s13), block_values(c2, s2), rounded, rounded)


def layer(call, w13, w2, x_format=torch.Tensor.double, h_format=torch.Tensor.double):
    """The output in f64, of weights in f64."""
    x = x_format(call["hidden"])
    result = torch.zeros(x.shape, dtype=torch.double)
    for token, (ids, scales) in enumerate(zip(call["topk_ids"].tolist(), call["topk_weights"].double())):
        for expert, scale in zip(ids, scales):
            gate, up = (w13[expert] @ x[token]).chunk(2)
            inner = h_format((gate * torch.sigmoid(gate) * up).bfloat16())
            result[token] += scale * (w2[expert] @ inner)
    return result


def relative_rms(output, right):
    """Of the worst row."""
    return ((output.double() - right).norm(dim=-1) / right.norm(dim=-1)).max().item()
