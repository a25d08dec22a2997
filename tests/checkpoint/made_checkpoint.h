// Checkpoints of one layer with random weights, written the way that different families and
// quantisers do it.
#pragma once

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bf16.h"
#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/expert_weights.h"
#include "model/model_spec.h"
#include "moetune/moe_spec.h"
#include "ops/moe/format.h"
#include "ops/moe/weights.h"

namespace moetune::testing_checkpoint {

inline constexpr int64_t kLayer = 3;

enum class Style {
  kProjections,  ///< experts.E.gate_proj, quantised as ModelOpt and DeepSeek do it
  kMixtral,      ///< experts.E.w1, w3, w2
  kCompressed,   ///< compressed-tensors' names; its global scale divides
  kRows,         ///< experts.gate_up_proj [E, 2I, H]
  kColumns,      ///< experts.gate_up_proj [E, H, 2I]
  kGranite,      ///< input_linear.weight [E, 2I, H]
  kGptOss,       ///< [E, H, 2I] or _blocks, gate and up by turns, biases
};

inline const char* to_string(Style style) {
  constexpr const char* kNames[] = {"Projections", "Mixtral", "Compressed", "Rows",
                                    "Columns",     "Granite", "GptOss"};
  return kNames[static_cast<int>(style)];
}

/// A model of 7 experts whose sizes give every format at least two blocks, the last one short where
/// `is_uneven`.
inline ModelSpec small_model(WeightFormat format, Style style, bool is_uneven = true) {
  const int64_t block = format_parts(format).block_k;
  ModelSpec model;
  model.name = "made-up";
  model.family = style == Style::kGptOss    ? "gpt_oss"
                 : style == Style::kColumns ? "qwen3_vl_moe_text"
                                            : "qwen3_moe";
  model.hidden = block > 1 ? 2 * block : 48;
  model.intermediate = block > 1 ? 5 * block : 40;
  if (is_uneven && format != WeightFormat::kMxfp4) model.intermediate -= block > 1 ? block / 2 : 2;
  model.experts = 7;
  model.top_k = 4;
  model.bias = style == Style::kGptOss;
  if (model.bias) model.activation = Activation::kSwiGluClamped;
  model.weights = format;
  model.weights_text = moetune::to_string(format);
  return model;
}

/// Writes `experts` of a whole layer to `folder`/model.safetensors.
class CheckpointMaker {
 public:
  CheckpointMaker(const FusedMoeSpec& spec, Style style) : spec_(spec), style_(style) {}

  std::vector<Written> tensors(WeightSource& experts) {
    written_.clear();
    const bool is_stacked = style_ == Style::kRows || style_ == Style::kColumns ||
                            style_ == Style::kGranite || style_ == Style::kGptOss;
    for (int64_t expert = 0; expert < spec_.experts; ++expert) {
      const Tensors chunk = experts.chunk(expert).value();
      if (is_stacked) {
        stack(chunk, expert);
      } else {
        add_expert(chunk, expert);
      }
    }
    return written_;
  }

 private:
  static std::string bytes(const Tensor& tensor) {
    return {static_cast<const char*>(tensor.data), tensor.bytes()};
  }
  static std::string type_name(DataType type) {
    switch (type) {
      case DataType::kBf16: return "BF16";
      case DataType::kF16: return "F16";
      case DataType::kF8E4M3: return "F8_E4M3";
      case DataType::kF32: return "F32";
      default: return "U8";
    }
  }
  static std::vector<int64_t> stored_shape(const Tensor& tensor) {
    std::vector<int64_t> shape = tensor.shape;
    if (tensor.type == DataType::kE2M1x2) shape.back() /= 2;
    return shape;
  }
  std::string prefix() const {
    const bool is_block = style_ == Style::kMixtral || style_ == Style::kGranite;
    return fmt::format("model.layers.{}.{}.", kLayer, is_block ? "block_sparse_moe" : "mlp");
  }

  /// Rows of gate (part 0), of up (1), or all of w2 (2).
  void add_matrix(const std::string& name, const Tensors& chunk, int part) {
    const std::string which = part == 2 ? "w2" : "w13";
    const Tensor& values = *find(chunk, which);
    const bool packed = style_ == Style::kCompressed && values.type == DataType::kE2M1x2;
    add_half(name + (packed ? ".weight_packed" : ".weight"), values, part);
    const bool is_block = spec_.weights == WeightFormat::kFp8Block;
    if (const Tensor* scales = find(chunk, which + "_scales")) {
      const bool inverse_name = is_block && style_ != Style::kCompressed;
      add_half(name + (inverse_name ? ".weight_scale_inv" : ".weight_scale"), *scales, part);
    }
    if (const Tensor* global = find(chunk, which + "_global")) {
      float value = global->as<float>()[part == 2 ? 0 : part];
      const bool divides = style_ == Style::kCompressed && spec_.weights == WeightFormat::kNvfp4;
      if (divides) value = 1 / value;
      const char* suffix = spec_.weights == WeightFormat::kFp8 ? ".weight_scale"
                           : divides                           ? ".weight_global_scale"
                                                               : ".weight_scale_2";
      written_.push_back({name + suffix, "F32",
                          divides ? std::vector<int64_t>{1} : std::vector<int64_t>{},
                          bytes_of<float>({value})});
    }
    if (const Tensor* bias = find(chunk, which + "_bias")) add_half(name + ".bias", *bias, part);
  }
  void add_half(const std::string& name, const Tensor& tensor, int part) {
    std::string all = bytes(tensor);
    std::vector<int64_t> shape = stored_shape(tensor);
    if (part != 2) {
      const size_t half = all.size() / 2;
      all = all.substr(part == 0 ? 0 : half, half);
      shape[0] /= 2;
    }
    written_.push_back({name, type_name(tensor.type), shape, all});
  }
  void add_expert(const Tensors& chunk, int64_t expert) {
    const bool is_mixtral = style_ == Style::kMixtral;
    const char* names[] = {is_mixtral ? "w1" : "gate_proj", is_mixtral ? "w3" : "up_proj",
                           is_mixtral ? "w2" : "down_proj"};
    for (const int part : {2, 0, 1})  // In the alphabet's order, as libraries write them.
      add_matrix(fmt::format("{}experts.{}.{}", prefix(), expert, names[part]), chunk, part);
  }

  Written& stacked(const std::string& name, const std::string& type, std::vector<int64_t> shape) {
    for (Written& tensor : written_) {
      if (tensor.name == name) return tensor;
    }
    shape.insert(shape.begin(), spec_.experts);
    return written_.emplace_back(Written{name, type, std::move(shape), ""});
  }
  /// Rows in the order in which the style has them: gate's and up's by turns, or as they are.
  std::string arranged(const Tensor& tensor, bool is_w13) const {
    const std::string all = bytes(tensor);
    if (!is_w13 || style_ != Style::kGptOss) return all;
    const auto rows = static_cast<size_t>(tensor.shape[0]);
    const size_t each = all.size() / rows;
    std::string result;
    for (size_t row = 0; row < rows; ++row)
      result += all.substr((row / 2 + row % 2 * (rows / 2)) * each, each);
    return result;
  }
  static std::string transposed(const std::string& all, int64_t rows, size_t element) {
    const size_t columns = all.size() / element / static_cast<size_t>(rows);
    std::string result;
    for (size_t column = 0; column < columns; ++column) {
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row)
        result += all.substr((row * columns + column) * element, element);
    }
    return result;
  }
  void stack(const Tensors& chunk, int64_t) {
    for (const bool is_w13 : {true, false}) {
      const std::string which = is_w13 ? "w13" : "w2";
      const Tensor& values = *find(chunk, which);
      std::string name = prefix() + (is_w13 ? "experts.gate_up_proj" : "experts.down_proj");
      if (style_ == Style::kGranite)
        name = prefix() + (is_w13 ? "input_linear.weight" : "output_linear.weight");
      std::vector<int64_t> shape = stored_shape(values);
      if (values.type == DataType::kE2M1x2) {
        shape = {shape[0], shape[1] / 16, 16};
        stacked(name + "_blocks", "U8", shape).bytes += arranged(values, is_w13);
        const Tensor& scales = *find(chunk, which + "_scales");
        stacked(name + "_scales", "U8", scales.shape).bytes += arranged(scales, is_w13);
      } else if (style_ == Style::kColumns || style_ == Style::kGptOss) {
        stacked(name, type_name(values.type), {shape[1], shape[0]}).bytes +=
            transposed(arranged(values, is_w13), shape[0], 2);
      } else {
        stacked(name, type_name(values.type), shape).bytes += arranged(values, is_w13);
      }
      if (const Tensor* bias = find(chunk, which + "_bias")) {
        const std::string all = arranged(*bias, is_w13);
        std::vector<float> floats(all.size() / sizeof(float));
        std::memcpy(floats.data(), all.data(), all.size());
        std::vector<uint16_t> rounded;
        for (float value : floats) rounded.push_back(float_to_bf16(value));
        stacked(name + "_bias", "BF16", bias->shape).bytes += bytes_of(rounded);
      }
    }
  }

  FusedMoeSpec spec_;
  Style style_;
  std::vector<Written> written_;
};

/// The specification of a whole layer.
inline FusedMoeSpec whole(const ModelSpec& model) {
  return layer_spec(model, std::nullopt, {}).value();
}

inline std::shared_ptr<checkpoint::Checkpoint> opened(const Folder& folder,
                                                      const std::vector<Written>& tensors) {
  folder.write("model.safetensors", safetensors(tensors));
  return std::move(checkpoint::Checkpoint::open(folder.path())).value();
}

}  // namespace moetune::testing_checkpoint
