"""Makes the small checkpoints in reference_models/, each with what the model's own reference code makes of some tokens.

    python3 -m venv venv && venv/bin/pip install torch transformers numpy
    venv/bin/python tests/checkpoint/make_reference_models.py [FAMILY...]

Made with transformers 5.24 and torch 2.15. A folder has config.json and the weights as `save_pretrained` writes them
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
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode
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


def made_model(family):
    """A model whose every value is one of bf16, biases included (libraries begin with zeros there)."""
    torch.manual_seed(SEED)
    model_class, config_class, fields, _ = FAMILIES[family]
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**{**SIZES, **fields}))
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
    hidden = torch.randn(TOKENS, SIZES["hidden_size"], generator=torch.Generator().manual_seed(SEED)).to(torch.bfloat16)
    intermediate = getattr(model.config, "moe_intermediate_size", None) or model.config.intermediate_size
    output = routed_output(moe_block(model), hidden, intermediate)
    save_file({"hidden": hidden, "output": output}, folder / "example.safetensors")


def quantised_gpt_oss(folder):
    """gpt-oss as it is published: mxfp4, which the library turns into bf16 where it has no kernels for it."""
    model = made_model("gpt_oss")
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    block = moe_block(model)
    generator = torch.Generator().manual_seed(SEED)
    for name, rows, columns in (("gate_up_proj", 192, 64), ("down_proj", 64, 96)):
        blocks = torch.randint(0, 256, (6, rows, columns // 32, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(122, 126, (6, rows, columns // 32), dtype=torch.uint8, generator=generator)
        prefix = f"model.layers.0.mlp.experts.{name}"
        del tensors[prefix]
        tensors[prefix + "_blocks"], tensors[prefix + "_scales"] = blocks, scales
        getattr(block.experts, name).data = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return model


def main():
    for family in sys.argv[1:] or [*FAMILIES, "gpt_oss_mxfp4"]:
        folder = OUT / family
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        if family == "gpt_oss_mxfp4":
            model = quantised_gpt_oss(folder)
        else:
            model = made_model(family)
            model.save_pretrained(folder, max_shard_size=FAMILIES[family][3])
        (folder / "generation_config.json").unlink(missing_ok=True)
        write_example(folder, model)
        print(family, sorted(path.name for path in folder.iterdir()), sum(path.stat().st_size for path in folder.iterdir()))


if __name__ == "__main__":
    main()
