// One call of choose_one() as a key: the operator, the runners, and the arguments' types and static
// sizes. Made on the stack from what the caller passes, so that a known call costs no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/hash.h"
#include "moetune/profile.h"
#include "moetune/runner.h"

namespace moetune {

class CallKey {
 public:
  /// Keeps references to all of them.
  CallKey(std::string_view op, std::span<TunableRunner* const> runners, const TuningConfig& config,
          const Tensors& arguments) noexcept;

  /// False where OptimizationProfile::of() has an error to report, and for more than kMaxTensors
  /// arguments of kMaxRank dimensions.
  bool usable() const { return usable_; }
  /// The size of the dynamic dimension in this call, at least 1; 1 where there is none.
  int64_t size() const { return size_; }
  uint64_t hash() const { return hash_; }

  std::string_view op() const { return op_; }
  std::span<TunableRunner* const> runners() const { return runners_; }
  const TuningConfig& config() const { return config_; }

  static constexpr size_t kMaxTensors = 32;
  static constexpr int kMaxRank = 32;

  /// Calls `visit` with a number for each argument (type and rank) and each of its dimensions,
  /// until it returns false. Two calls of one operator share decisions exactly where the numbers
  /// agree. False where `visit` was.
  template <typename Visit>
  bool each_number(Visit&& visit) const {
    for (size_t t = 0; t < arguments_.size(); ++t) {
      const Tensor& tensor = arguments_[t];
      const auto rank = static_cast<int64_t>(tensor.shape.size());
      if (!visit(static_cast<int64_t>(tensor.type) * (kMaxRank + 1) + rank)) return false;
      for (size_t d = 0; d < tensor.shape.size(); ++d) {
        if (!visit(marked(dynamic_[t], d)   ? kDynamic
                   : marked(derived_[t], d) ? kDerived
                                            : tensor.shape[d])) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  using Marks = std::array<uint32_t, kMaxTensors>;  ///< A bit per dimension of each argument.
  static constexpr int64_t kDynamic = -1;           // No sizes of arrays.
  static constexpr int64_t kDerived = -2;

  static bool marked(uint32_t marks, size_t dim) { return (marks >> dim & 1) != 0; }
  /// The size of the dimension, which is marked; -1 where there is no such dimension or it is
  /// marked already.
  int64_t mark(Marks& marks, DimRef ref) noexcept;
  bool read_config() noexcept;

  std::string_view op_;
  std::span<TunableRunner* const> runners_;
  const TuningConfig& config_;
  const Tensors& arguments_;
  Marks dynamic_;  // Only as many as there are arguments are ever written or read.
  Marks derived_;
  bool usable_ = false;
  int64_t size_ = 1;
  uint64_t hash_ = 0;
};

}  // namespace moetune
