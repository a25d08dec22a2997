// One layer's experts, repacked into the panel streams that the kernels read
// (kernels/kernel_table.h), and back.
//
// Of each expert first the panels of w13, then those of w2, then biases, in one piece of memory:
// what a token needs of an expert is one address stream. Where the activation has a gate, a panel
// of w13 holds 16 gate rows and the 16 up rows of the same outputs, so that GEMM 1's tile has both
// sides of the activation at hand.
//
// Rows are padded to whole panels and k to whole blocks of 16, with zeros, inside the packed memory
// only.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/panel_stream.h"
#include "cpu/threads.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"
#include "moetune/tensor.h"

namespace moetune::cpu {

/// Sizes of one packed matrix.
struct PanelGrid {
  int64_t panels = 0;
  int64_t k_blocks = 0;
  int64_t panel_bytes = 0;

  int64_t bytes() const { return panels * panel_bytes; }
};

/// The global scales.
struct Multipliers {
  float gate = 1.f;
  float up = 1.f;
  float down = 1.f;
};

/// Thread-compatible; reading, and packing different experts, may happen at once.
class PanelWeights {
 public:
  /// Bytes that `allocate` takes.
  static int64_t bytes(const FusedMoeSpec& spec);
  /// Room for every expert of `spec`, which must be valid, all zeros.
  static Result<PanelWeights> allocate(const FusedMoeSpec& spec);

  PanelWeights() = default;

  /// Packs one expert, once, on all threads of a pool: the tensors of moe_spec.h. kInvalidArgument
  /// where one is missing or has another type or shape, and for values that no quantiser writes
  /// (pack_panel).
  Status pack(int64_t expert, const Tensors& chunk, ThreadPool& pool);
  /// The exact inverse, into tensors as expert_tensors() lists them: the same bits.
  void unpack(int64_t expert, const Tensors& chunk) const;

  const FusedMoeSpec& spec() const { return spec_; }
  const PanelGrid& w13() const { return w13_; }
  const PanelGrid& w2() const { return w2_; }
  const uint8_t* w13(int64_t expert) const { return buffer_.data() + expert * expert_bytes_; }
  const uint8_t* w2(int64_t expert) const { return w13(expert) + w13_.bytes(); }
  /// In the order of panels' rows, zeros where those are padded; null without biases.
  const float* w13_bias(int64_t expert) const {
    if (!spec_.bias) return nullptr;
    return reinterpret_cast<const float*>(w2(expert) + w2_.bytes());
  }
  const float* w2_bias(int64_t expert) const {
    return spec_.bias ? w13_bias(expert) + w13_.panels * kPanelRows : nullptr;
  }
  const Multipliers& multipliers(int64_t expert) const {
    return multipliers_[static_cast<size_t>(expert)];
  }

 private:
  FusedMoeSpec spec_;
  PanelGrid w13_;
  PanelGrid w2_;
  int64_t expert_bytes_ = 0;
  Buffer buffer_;
  std::vector<Multipliers> multipliers_;
};

}  // namespace moetune::cpu
