// Where a layer's experts are in a checkpoint: what families call their tensors, and how a format's
// parts are called.
//
//   one tensor an expert    experts.E.{gate,up,down}_proj (most), experts.E.{w1,w3,w2} (Mixtral)
//   stacked, rows           experts.gate_up_proj [E, 2I, H], input_linear (Granite): gate then up
//   stacked, gpt-oss        experts.gate_up_proj [E, H, 2I], or its 4-bit _blocks [E, 2I, H/32,
//   16]:
//                           gate and up take turns
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "checkpoint/checkpoint.h"
#include "model/model_spec.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"

namespace moetune::checkpoint {

enum Role : uint8_t { kGate, kUp, kDown };
inline constexpr int kRoles = 3;

/// How the matrices of a layer's experts are called and arranged, apart from their format.
struct LayerNames {
  std::string prefix;                   ///< "model.layers.3.mlp."
  std::array<std::string, kRoles> own;  ///< "gate_proj"; one name for gate and up where stacked.
  bool is_stacked = false;              ///< One tensor for all experts, ...
  bool takes_turns = false;             ///< ... rows of gate and up by turns, not gate's first, ...
  bool is_transposed = false;           ///< ... [E, columns, rows].

  /// "model.layers.3.mlp.experts.5.gate_proj": what a format's suffixes are added to.
  std::string matrix(int64_t expert, Role role) const;
};

/// kNotFound where the checkpoint has no such layer, or no experts in it; errors of find().
Result<LayerNames> find_layer(Checkpoint& checkpoint, const ModelSpec& model, int64_t layer);

/// What is added to a matrix' name for its parts in some format. Empty: there is no such part, or,
/// for values, the name stands by itself.
struct StoredFormat {
  WeightFormat format = WeightFormat::kBf16;
  std::string values;
  std::string scales;
  std::string global;
  bool global_divides = false;  ///< compressed-tensors: its inverse is what multiplies.
  std::string evidence;         ///< What tells the format, for messages: a tensor's text().
};

/// The format of one expert's down matrix. kUnsupported for one that moetune does not have, naming
/// the tensor; errors of find().
Result<StoredFormat> find_format(Checkpoint& checkpoint, const LayerNames& names, int64_t expert);

}  // namespace moetune::checkpoint
