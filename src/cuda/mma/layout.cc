#include "cuda/mma/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/integers.h"

namespace moetune::cuda {
namespace {

// What src/cuda/kernels/route.cuh holds: a thread per expert in one block, a lane per slot, a bit
// per group.
constexpr int64_t kMostExperts = kernels::kGroupThreads;
constexpr int kMostTopK = 32;
constexpr int kMostGroups = 32;

MatrixLayout matrix_layout(int64_t rows, int64_t k, bool gated, int format) {
  MatrixLayout m;
  m.rows = static_cast<int>(rows);
  m.k = static_cast<int>(k);
  m.gated = gated;
  m.groups = static_cast<int>(gated ? ceil_div(rows / 2, kernels::kGroupRows / 2)
                                    : ceil_div(rows, kernels::kGroupRows));
  m.units = static_cast<int>(ceil_div(k, kernels::kUnitK));
  m.expert_bytes = int64_t{m.groups} * m.units * kernels::unit_bytes(format);
  return m;
}

kernels::Format format_of(const FusedMoeSpec& spec) {
  switch (spec.weights) {
    case WeightFormat::kBf16: return kernels::kBf16;
    case WeightFormat::kFp16: return kernels::kFp16;
    case WeightFormat::kFp8: return kernels::kFp8;
    case WeightFormat::kFp8Block:
      return spec.activations == ActivationFormat::kA16 ? kernels::kFp8Block : kernels::kFp8Rounded;
    case WeightFormat::kNvfp4: return kernels::kNvfp4;
    case WeightFormat::kMxfp4: return kernels::kMxfp4;
  }
  return kernels::kBf16;
}

kernels::Epilogue epilogue_of(Activation activation) {
  switch (activation) {
    case Activation::kSwiGlu: return kernels::kSwiGlu;
    case Activation::kSwiGluClamped: return kernels::kSwiGluClamped;
    case Activation::kRelu2: return kernels::kRelu2;
    case Activation::kGatePlusUp: return kernels::kGatePlusUp;
  }
  return kernels::kSwiGlu;
}

}  // namespace

WeightLayout weight_layout(const FusedMoeSpec& spec) {
  WeightLayout layout;
  layout.format = format_of(spec);
  layout.w13 = matrix_layout(spec.w13_rows(), spec.hidden, spec.gated(), layout.format);
  layout.w2 = matrix_layout(spec.hidden, spec.intermediate, false, layout.format);
  layout.activation_columns =
      layout.w13.groups * (spec.gated() ? kernels::kGroupRows / 2 : kernels::kGroupRows);
  layout.epilogue = epilogue_of(spec.activation);
  layout.bias = spec.bias;
  return layout;
}

std::string why_unsupported(const FusedMoeSpec& spec) {
  if (spec.activations == ActivationFormat::kFp8)
    return "cuda.mma rounds no activations under one scale: fp8 weights run with a16";
  if (std::max(spec.global_experts, spec.held_experts()) > kMostExperts) {
    return fmt::format("cuda.mma routes among {} experts at the most, not {}", kMostExperts,
                       std::max(spec.global_experts, spec.held_experts()));
  }
  if (spec.slots() > kMostTopK) {
    return fmt::format("cuda.mma takes {} experts a token at the most, not {}", kMostTopK,
                       spec.slots());
  }
  if (!spec.given_routing && spec.router.groups > kMostGroups) {
    return fmt::format("cuda.mma routes among {} expert groups at the most, not {}", kMostGroups,
                       spec.router.groups);
  }
  return {};
}

}  // namespace moetune::cuda
