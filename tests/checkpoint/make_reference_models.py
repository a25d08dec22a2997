"""Makes the small checkpoints in reference_models/, each with what the model's own reference code makes of some tokens.

    python3 -m venv venv && venv/bin/pip install torch transformers numpy compressed-tensors
    venv/bin/python tests/checkpoint/make_reference_models.py [FAMILY...]

Made with transformers 5.24, compressed-tensors 0.20 and torch 2.15. A folder has config.json and the weights as `save_pretrained` writes them
(random, bf16), and example.safetensors: `hidden` bf16 [tokens, hidden] into the MoE block of layer `LAYER` of the
checkpoint, and `output` f32, what its routed experts make of it. The block computes in double precision on the
checkpoint's values, but rounds what enters an expert's second matrix to bf16, as the operator is defined: what is left
to differ is a mistake. Shared experts are taken off again: they are not part of the operator.
"""

import json
import pathlib
import sys

import torch
import transformers
from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor, unpack_fp4_from_uint8
from compressed_tensors.quantization import preset_name_to_scheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

OUT = pathlib.Path(__file__).resolve().parent / "reference_models"
TOKENS = 24
SEED = 7

SIZES = {"hidden_size": 64, "num_attention_heads": 2, "vocab_size": 8, "max_position_embeddings": 16,
         "tie_word_embeddings": True, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
         "initializer_range": 0.3, "num_hidden_layers": 1, "num_key_value_heads": 1}
DENSE_FIRST = {"num_hidden_layers": 2, "first_k_dense_replace": 1, "intermediate_size": 32, "n_shared_experts": 1,
               "routed_scaling_factor": 2.5, "n_routed_experts": 8, "num_experts_per_tok": 3}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
          "num_key_value_heads": 2}

# Model class, config class, its fields, and how large a shard may be. Expert sizes are no multiple of anything large.
FAMILIES = {
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig",
                  {"moe_intermediate_size": 40, "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": True,
                   "intermediate_size": 32, "head_dim": 8}, "40KB"),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig",
                {"intermediate_size": 40, "num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 8}, "1GB"),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config",
                    {**DENSE_FIRST, **LATENT, "moe_intermediate_size": 40, "n_group": 4, "topk_group": 2}, "1GB"),
    "glm4_moe": ("Glm4MoeForCausalLM", "Glm4MoeConfig",
                 {**DENSE_FIRST, "moe_intermediate_size": 40, "head_dim": 8}, "1GB"),
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig",
                {"intermediate_size": 96, "num_local_experts": 6, "num_experts_per_tok": 3, "head_dim": 8,
                 "layer_types": ["full_attention"]}, "1GB"),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig",
              {"intermediate_size": 40, "num_experts": 8, "num_experts_per_tok": 3}, "1GB"),
    "granitemoe": ("GraniteMoeForCausalLM", "GraniteMoeConfig",
                   {"intermediate_size": 40, "num_local_experts": 8, "num_experts_per_tok": 3}, "1GB"),
}


def made_model(family, changed=None):
    """A model whose every value is one of bf16, biases included (libraries begin with zeros there)."""
    torch.manual_seed(SEED)
    model_class, config_class, fields, _ = FAMILIES[family]
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**{**SIZES, **fields, **(changed or {})}))
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith(("bias", "_bias")):
            torch.nn.init.normal_(tensor, std=0.1 if "correction" in name else 0.5)
    model.set_experts_implementation("eager")  # Others have no double precision.
    return model.to(torch.bfloat16)


def moe_block(model):
    layer = model.model.layers[-1]
    return layer.block_sparse_moe if hasattr(layer, "block_sparse_moe") else layer.mlp


class RoundedActivations(TorchFunctionMode):
    """Rounds to bf16 what products take whose rows are as long as an expert has rows: no other size here is."""

    PRODUCTS = {"linear", "matmul", "bmm", "mm", "__matmul__"}

    def __init__(self, intermediate):
        super().__init__()
        self.intermediate = intermediate
        self.rounded = 0

    def __torch_function__(self, function, types, arguments=(), options=None):
        if getattr(function, "__name__", "") in self.PRODUCTS and arguments[0].shape[-1] == self.intermediate:
            self.rounded += 1
            arguments = (arguments[0].to(torch.bfloat16).to(arguments[0].dtype), *arguments[1:])
        return function(*arguments, **(options or {}))


def routed_output(block, hidden, intermediate):
    """What the routed experts make of hidden states, in double precision."""
    block = block.double()
    with torch.no_grad(), RoundedActivations(intermediate) as activations:
        output = block(hidden.double()[None])
        output = output[0] if isinstance(output, tuple) else output
        if getattr(block, "shared_experts", None) is not None:
            output = output - block.shared_experts(hidden.double()[None])
    assert activations.rounded > 0, "the library multiplies in another way: no activation was rounded"
    return output.reshape(hidden.shape).float()


def write_example(folder, model):
    hidden = torch.randn(TOKENS, model.config.hidden_size, generator=torch.Generator().manual_seed(SEED)).to(torch.bfloat16)
    intermediate = getattr(model.config, "moe_intermediate_size", None) or model.config.intermediate_size
    output = routed_output(moe_block(model), hidden, intermediate)
    save_file({"hidden": hidden, "output": output}, folder / "example.safetensors")


def replace_experts(folder, model, prefix, tensors):
    """Writes quantised experts in place of the model's own."""
    stored = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if not name.startswith(prefix)}
    save_file({**stored, **tensors}, folder / "model.safetensors", metadata={"format": "pt"})


def add_quantisation(folder, fields):
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = fields
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def quantised_gpt_oss(folder):
    """gpt-oss as it is published: mxfp4, which the library turns into bf16 where it has no kernels for it."""
    model = made_model("gpt_oss")
    model.save_pretrained(folder)
    experts = moe_block(model).experts
    generator = torch.Generator().manual_seed(SEED)
    prefix = "model.layers.0.mlp.experts."
    biases = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if name.endswith("proj_bias")}
    tensors = {name: tensor for name, tensor in biases.items() if name.startswith(prefix)}
    for name, rows, columns in (("gate_up_proj", 192, 64), ("down_proj", 64, 96)):
        blocks = torch.randint(0, 256, (6, rows, columns // 32, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(122, 126, (6, rows, columns // 32), dtype=torch.uint8, generator=generator)
        tensors[prefix + name + "_blocks"], tensors[prefix + name + "_scales"] = blocks, scales
        getattr(experts, name).data = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).clone()
    replace_experts(folder, model, prefix, tensors)
    add_quantisation(folder, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})
    return model


def quantised_qwen3(folder, fields, quantise):
    """Qwen3-MoE, whose experts' matrices `quantise` turns into tensors to store and the values that they stand for."""
    model = made_model("qwen3_moe", fields).float()
    model.to(torch.bfloat16).save_pretrained(folder)
    model = model.float()
    experts = moe_block(model).experts
    prefix = "model.layers.0.mlp.experts."
    tensors = {}
    for expert in range(experts.gate_up_proj.shape[0]):
        gate, up = experts.gate_up_proj.data[expert].chunk(2)
        for name, matrix in (("gate_proj", gate), ("up_proj", up), ("down_proj", experts.down_proj.data[expert])):
            parts, values = quantise(matrix.clone())
            tensors.update({f"{prefix}{expert}.{name}.{part}": tensor for part, tensor in parts.items()})
            matrix.copy_(values)
    replace_experts(folder, model, prefix, tensors)
    return model


def fp8_by_blocks(matrix):
    """As DeepSeek stores it; what it stands for is the library's word."""
    blocks = matrix.unfold(0, 128, 128).unfold(1, 128, 128)
    scales = blocks.abs().amax(dim=(2, 3)) / 448
    codes = (matrix / scales.repeat_interleave(128, 0).repeat_interleave(128, 1)).to(torch.float8_e4m3fn)
    return ({"weight": codes, "weight_scale_inv": scales}, Fp8Dequantize(None)._dequantize_one(codes, scales, torch.float32))


def nvfp4(matrix):
    """As compressed-tensors stores it, by its own code."""
    scheme = preset_name_to_scheme("NVFP4A16", ["Linear"])
    low, high = matrix.aminmax()
    global_scale = generate_gparam(low, high)
    groups = matrix.unflatten(1, (-1, 16))
    scale, _ = calculate_qparams(groups.amin(2), groups.amax(2), scheme.weights, global_scale)
    stored = NVFP4PackedCompressor.compress(
        {"weight": matrix, "weight_scale": scale, "weight_global_scale": global_scale}, scheme)
    codes = unpack_fp4_from_uint8(stored["weight_packed"], *matrix.shape).float()
    return stored, dequantize(codes, stored["weight_scale"].float(), args=scheme.weights, global_scale=global_scale,
                              dtype=torch.float32)


def quantised_model(family, folder):
    if family == "gpt_oss_mxfp4":
        return quantised_gpt_oss(folder)
    if family == "qwen3_moe_fp8":
        model = quantised_qwen3(folder, {"hidden_size": 128, "moe_intermediate_size": 256, "num_experts": 3,
                                         "num_experts_per_tok": 2}, fp8_by_blocks)
        add_quantisation(folder, {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3",
                                  "activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"]})
        return model
    model = quantised_qwen3(folder, {"moe_intermediate_size": 80}, nvfp4)
    add_quantisation(folder, {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16,
                                                       "strategy": "tensor_group"}}}})
    return model


QUANTISED = ["gpt_oss_mxfp4", "qwen3_moe_fp8", "qwen3_moe_nvfp4"]


def main():
    for family in sys.argv[1:] or [*FAMILIES, *QUANTISED]:
        folder = OUT / family
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        if family in QUANTISED:
            model = quantised_model(family, folder)
        else:
            model = made_model(family)
            model.save_pretrained(folder, max_shard_size=FAMILIES[family][3])
        (folder / "generation_config.json").unlink(missing_ok=True)
        write_example(folder, model)
        print(family, sorted(path.name for path in folder.iterdir()), sum(path.stat().st_size for path in folder.iterdir()))


if __name__ == "__main__":
    main()
