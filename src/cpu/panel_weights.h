// One layer's experts, repacked into the panel streams that the kernels read
// (kernels/kernel_table.h), and back.
//
// Of each expert first the panels of w13, then those of w2, in one piece of memory: what a token
// needs of an expert is one address stream. Where the activation has a gate, a panel of w13 holds
// 16 gate rows and the 16 up rows of the same outputs, so that GEMM 1's tile has both sides of the
// activation at hand.
//
// Rows are padded to whole panels and k to whole blocks of 16, with zeros, inside the packed memory
// only.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/threads.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"

namespace moetune::cpu {

/// One expert's weights as checkpoints hold them, row-major: `gate` and `up` [intermediate,
/// hidden], `down` [hidden, intermediate]. bf16: 16-bit values, no scales. nvfp4: two codes a byte,
/// the low nibble the even k, rows of ceil(k / 2) bytes; scales e4m3, linear, rows of ceil(k / 16)
/// bytes. `gate` is unused without a gate (relu2).
struct ExpertWeights {
  const uint8_t* gate = nullptr;
  const uint8_t* up = nullptr;
  const uint8_t* down = nullptr;
  const uint8_t* gate_scales = nullptr;
  const uint8_t* up_scales = nullptr;
  const uint8_t* down_scales = nullptr;
  float gate_multiplier =
      1.f;  ///< The global scale as a factor: 1 / gs of formats that divide by it.
  float up_multiplier = 1.f;
  float down_multiplier = 1.f;
};

/// The same, to be written.
struct MutableExpertWeights {
  uint8_t* gate = nullptr;
  uint8_t* up = nullptr;
  uint8_t* down = nullptr;
  uint8_t* gate_scales = nullptr;
  uint8_t* up_scales = nullptr;
  uint8_t* down_scales = nullptr;
};

/// Sizes of one packed matrix.
struct PanelGrid {
  int64_t panels = 0;
  int64_t k_blocks = 0;
  int64_t panel_bytes = 0;

  int64_t bytes() const { return panels * panel_bytes; }
};

struct Multipliers {
  float gate = 1.f;
  float up = 1.f;
  float down = 1.f;
};

/// Thread-compatible; reading, and packing different experts, may happen at once.
class PanelWeights {
 public:
  /// Whether the layout exists for a specification's weight format. kUnsupported, with the formats
  /// there are.
  static Status supports(const FusedMoeSpec& spec);
  /// Bytes that `allocate` takes.
  static int64_t bytes(const FusedMoeSpec& spec);
  /// Room for every expert of `spec`, all zeros.
  static Result<PanelWeights> allocate(const FusedMoeSpec& spec);

  PanelWeights() = default;

  /// Packs one expert. kInvalidArgument for a scale that is negative or NaN, which no quantiser
  /// writes.
  Status pack(int64_t expert, const ExpertWeights& weights);
  /// The exact inverse: the same bits, in rows of the same sizes.
  void unpack(int64_t expert, const MutableExpertWeights& weights) const;

  const FusedMoeSpec& spec() const { return spec_; }
  bool is_nvfp4() const { return spec_.weights == WeightFormat::kNvfp4; }
  const PanelGrid& w13() const { return w13_; }
  const PanelGrid& w2() const { return w2_; }
  const uint8_t* w13(int64_t expert) const { return buffer_.data() + expert * expert_bytes(); }
  const uint8_t* w2(int64_t expert) const { return w13(expert) + w13_.bytes(); }
  const Multipliers& multipliers(int64_t expert) const {
    return multipliers_[static_cast<size_t>(expert)];
  }
  int64_t expert_bytes() const { return w13_.bytes() + w2_.bytes(); }

 private:
  FusedMoeSpec spec_;
  PanelGrid w13_;
  PanelGrid w2_;
  Buffer buffer_;
  std::vector<Multipliers> multipliers_;
};

/// Bytes of the stream of one panel with `k_blocks` blocks, and the offset in it at which a block
/// begins that starts a scale group.
int64_t panel_bytes(WeightFormat format, int64_t k_blocks);
inline int64_t panel_offset(WeightFormat format, int64_t block) {
  return panel_bytes(format, block);
}

}  // namespace moetune::cpu
