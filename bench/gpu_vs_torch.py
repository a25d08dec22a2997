"""moetune beside PyTorch's MoE block on one GPU, in one run.

PyTorch's side is the block as one writes it with torch._grouped_mm, timed from given ids and weights to output. moetune's is
`moetune bench`, timed from router logits to output, so that it does the router's work on top. Both replay CUDA graphs whose calls
have routings of their own, with uniform traffic, so that weights come from memory where the layer is larger than the cache. PyTorch
runs before and after moetune; its better time counts.

    python3 bench/gpu_vs_torch.py build/dev/bin/moetune [--tokens 1,8,64] [--random 10]

One JSON object a line on stdout, a table and the geometric mean of the ratios on stderr. Exit status 1 where moetune was slower anywhere.
"""

import argparse
import json
import math
import random
import subprocess
import sys

import torch
import torch.nn.functional as F

DEVICE = "cuda"
SIZES = [1, 4, 16, 64, 256, 512, 1024, 2048, 4096, 8192]
# moetune's name and flags for a layer, and its hidden size, intermediate size per rank, experts and experts per token.
LAYERS = {
    "qwen3-30b-a3b": ([], (2048, 768, 128, 8)),
    "glm-5": (["--tp", "8"], (6144, 256, 256, 8)),
}


class TorchBlock:
    """One layer with random weights; calls differ in routing and activations."""

    def __init__(self, hidden, intermediate, experts, top_k):
        self.experts, self.top_k, self.hidden = experts, top_k, hidden
        self.w13 = torch.randn(experts, 2 * intermediate, hidden, device=DEVICE, dtype=torch.bfloat16) / hidden**0.5
        self.w2 = torch.randn(experts, hidden, intermediate, device=DEVICE, dtype=torch.bfloat16) / intermediate**0.5

    def forward(self, x, ids, weights):
        flat = ids.flatten()
        order = flat.argsort(stable=True)
        token = order // self.top_k
        ones = torch.ones_like(flat, dtype=torch.int32)
        counts = torch.zeros(self.experts, dtype=torch.int32, device=DEVICE).index_add_(0, flat, ones)
        offsets = counts.cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(x[token], self.w13.transpose(1, 2), offs=offsets).chunk(2, dim=1)
        y = torch._grouped_mm(F.silu(gate) * up, self.w2.transpose(1, 2), offs=offsets)
        y = y * weights.flatten()[order, None].to(y.dtype)
        return torch.zeros_like(x).index_add_(0, token, y)

    def call(self, tokens):
        x = torch.randn(tokens, self.hidden, device=DEVICE, dtype=torch.bfloat16)
        scores = torch.randn(tokens, self.experts, device=DEVICE).softmax(dim=1)
        weights, ids = scores.topk(self.top_k, dim=1)
        weights = weights / weights.sum(dim=1, keepdim=True)
        return lambda: self.forward(x, ids, weights)

    def median_us(self, tokens, replays=20):
        calls = [self.call(tokens) for _ in range(8 if tokens <= 1024 else 2)]
        for call in calls:
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        times = []
        for _ in range(replays + 3):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1000 / len(calls))
        return sorted(times[3:])[replays // 2]


def torch_times(shape, sizes):
    block = TorchBlock(*shape)
    times = {tokens: block.median_us(tokens) for tokens in sizes}
    del block
    torch.cuda.empty_cache()
    return times


def moetune_times(program, model, flags, sizes):
    command = [program, "bench", model, *flags, "--weights", "bf16", "--device", "cuda:0", "--workload", "uniform",
               "--tokens", ",".join(map(str, sizes)), "--json"]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {row["tokens"]: row.get("tuned_us") or row["default_us"] for row in answer["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("moetune")
    parser.add_argument("--tokens", help="sizes, comma-separated; default: ten from 1 to 8192")
    parser.add_argument("--random", type=int, default=10, help="as many more sizes drawn from 1..8192")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    sizes = [int(t) for t in options.tokens.split(",")] if options.tokens else list(SIZES)
    while len(sizes) < 8192 and options.random > 0:
        tokens = round(2 ** draw.uniform(0, 13))
        if tokens not in sizes:
            sizes.append(tokens)
            options.random -= 1
    sizes.sort()

    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}))
    ratios, slower = [], 0
    for model, (flags, shape) in LAYERS.items():
        before = torch_times(shape, sizes)
        ours = moetune_times(options.moetune, model, flags, sizes)
        after = torch_times(shape, sizes)
        for tokens in sizes:
            theirs = min(before[tokens], after[tokens])
            ratio = theirs / ours[tokens]
            ratios.append(ratio)
            slower += ratio < 1
            print(json.dumps({"layer": model, "tokens": tokens, "moetune_us": round(ours[tokens], 1),
                              "torch_us": round(theirs, 1), "ratio": round(ratio, 3)}))
            print(f"{model:16} T={tokens:<5} moetune {ours[tokens]:9.1f} us   torch {theirs:9.1f} us   {ratio:5.2f}x",
                  file=sys.stderr)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(json.dumps({"geometric_mean": round(mean, 3), "slower": slower, "compared": len(ratios)}))
    print(f"geometric mean {mean:.2f}x over {len(ratios)}, slower at {slower}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
