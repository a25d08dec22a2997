#!/usr/bin/env python3
"""Writes a model folder with random experts, as large as real ones, for bench_pack.

    python3 bench/pack_model.py /tmp/qwen3-nvfp4 --weights nvfp4 --layers 4
    build/release/bin/bench_pack /tmp/qwen3-nvfp4 --layers 48

One safetensors file a layer, names and types as checkpoints have them (Qwen3-MoE; nvfp4 as ModelOpt stores it).
"""
import argparse
import json
import os
import random
import struct

parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
parser.add_argument("folder")
parser.add_argument("--weights", choices=["bf16", "fp8-block", "nvfp4"], default="nvfp4")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--hidden", type=int, default=2048)
parser.add_argument("--intermediate", type=int, default=768)
parser.add_argument("--experts", type=int, default=128)
options = parser.parse_args()

SCALE = (0.01).hex()  # any size will do: nothing is computed

def blocks(n, size):
    return (n + size - 1) // size

def noise(count, values):
    """`count` random bytes out of `values`: a piece, again and again."""
    piece = bytes(random.choices(values, k=min(count, 1 << 16)))
    return (piece * (count // len(piece) + 1))[:count] if count else b""

def f32(values):
    return struct.pack(f"<{len(values)}f", *values)

def matrix(rows, k):
    """Tensors of one matrix: suffix, dtype, shape, bytes."""
    if options.weights == "bf16":
        return [("weight", "BF16", [rows, k], noise(rows * k * 2, range(0x20, 0x3F)))]
    if options.weights == "fp8-block":
        scales = [blocks(rows, 128), blocks(k, 128)]
        return [("weight", "F8_E4M3", [rows, k], noise(rows * k, range(0x7F))),
                ("weight_scale_inv", "F32", scales, f32([0.01] * (scales[0] * scales[1])))]
    return [("weight", "U8", [rows, k // 2], noise(rows * k // 2, range(256))),
            ("weight_scale", "F8_E4M3", [rows, k // 16], noise(rows * k // 16, range(1, 0x7F))),
            ("weight_scale_2", "F32", [], f32([0.01]))]

os.makedirs(options.folder, exist_ok=True)
config = {"model_type": "qwen3_moe", "hidden_size": options.hidden, "moe_intermediate_size": options.intermediate,
          "num_experts": options.experts, "num_experts_per_tok": min(8, options.experts), "norm_topk_prob": True,
          "num_hidden_layers": options.layers, "torch_dtype": "bfloat16", "hidden_act": "silu"}
if options.weights == "fp8-block":
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
if options.weights == "nvfp4":
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
with open(os.path.join(options.folder, "config.json"), "w", encoding="utf-8") as file:
    json.dump(config, file)

where = {}
for layer in range(options.layers):
    name = f"model-{layer + 1:05}-of-{options.layers:05}.safetensors"
    header, data, at = {}, [], 0
    tensors = [(f"model.layers.{layer}.mlp.gate.weight", "BF16", [options.experts, options.hidden],
                noise(options.experts * options.hidden * 2, range(0x20, 0x3F)))]
    shapes = (("gate_proj", options.intermediate, options.hidden), ("up_proj", options.intermediate, options.hidden),
              ("down_proj", options.hidden, options.intermediate))
    made = {projection: matrix(rows, k) for projection, rows, k in shapes}
    for expert in range(options.experts):
        for projection, *_ in shapes:
            tensors += [(f"model.layers.{layer}.mlp.experts.{expert}.{projection}.{suffix}", *rest)
                        for suffix, *rest in made[projection]]
    for tensor, dtype, shape, values in tensors:
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(values)]}
        data.append(values)
        at += len(values)
        where[tensor] = name
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(options.folder, name), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(data)
with open(os.path.join(options.folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
    json.dump({"metadata": {}, "weight_map": where}, file)
print(f"{options.folder}: {options.layers} layers in {options.weights}")
