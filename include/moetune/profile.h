// For which shapes tuning happens, and how: the words FlashInfer's and TensorRT-LLM's users know,
// with one dynamic dimension.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "moetune/result.h"

namespace moetune {

using Shape = std::vector<int64_t>;

enum class BucketRounding : uint8_t {
  kFloor,  ///< A size belongs to the largest bucket not above it; below the smallest, to the
           ///< smallest.
  kCeil,   ///< A size belongs to the smallest bucket not below it; above the largest, to the
           ///< largest.
};

/// Sorted distinct sizes at which measuring is done. Every size >= 1 maps to one that exists.
class Buckets {
 public:
  /// Sorts and removes duplicates. kInvalidArgument for an empty list or a size < 1.
  static Result<Buckets> from(std::vector<int64_t> sizes,
                              BucketRounding rounding = BucketRounding::kFloor);
  /// 1, 2, 4, ... up to `maximum`, which is always one itself.
  static Result<Buckets> powers_of_two(int64_t maximum,
                                       BucketRounding rounding = BucketRounding::kFloor);
  /// Powers of two to 256, then steps of 256 to 2048, of 512 to 4096, then powers of two: 21 for a
  /// maximum of 8192. `maximum` is always one.
  static Result<Buckets> serving(int64_t maximum, BucketRounding rounding = BucketRounding::kFloor);

  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t maximum() const { return sizes_.back(); }
  BucketRounding rounding() const { return rounding_; }
  /// The bucket a size belongs to, and its position. Sizes outside clamp to the first or last.
  int64_t bucket(int64_t size) const { return sizes_[index(size)]; }
  size_t index(int64_t size) const;

  bool operator==(const Buckets&) const = default;

 private:
  Buckets(std::vector<int64_t> sizes, BucketRounding rounding)
      : sizes_(std::move(sizes)), rounding_(rounding) {}
  std::vector<int64_t> sizes_;
  BucketRounding rounding_;
};

/// One dimension of one argument.
struct DimRef {
  int tensor = 0;  ///< Position in the argument list.
  int dim = 0;     ///< Position in its shape; negative counts from the end.
};

/// The dimension that changes from call to call. All `links` move together: they have the same size
/// in one call.
struct DynamicDim {
  std::string name = "tokens";
  std::vector<DimRef> links;
  Buckets buckets;
};

/// A dimension that follows from others (third = first + 1): computed, never part of a key.
struct ConstraintSpec {
  DimRef target;
  /// Sees the shapes with the dynamic dimension, and what earlier constraints set, already
  /// replaced.
  std::function<int64_t(const std::vector<Shape>& shapes)> derive;
};

struct TuningConfig {
  std::vector<DynamicDim> dynamic;  ///< None or one.
  std::vector<ConstraintSpec> constraints;
  int outputs = 1;  ///< How many arguments, counted from the end, are written and not read.
};

/// A dimension of a profile whose size is the same in all calls that share decisions.
struct StaticDim {
  int64_t value = 0;
  bool operator==(const StaticDim&) const = default;
};

/// A dimension of a profile that is linked to the DynamicDim, at its bucket.
struct BucketDim {
  int64_t value = 0;
  bool operator==(const BucketDim&) const = default;
};

/// A dimension of a profile that a ConstraintSpec computed.
struct DerivedDim {
  int64_t value = 0;
  bool operator==(const DerivedDim&) const = default;
};

/// The arguments of a call as the tuner sees them.
struct OptimizationProfile {
  using Dim = std::variant<StaticDim, BucketDim, DerivedDim>;

  std::vector<std::vector<Dim>> arguments;
  int64_t bucket = 0;  ///< Of the dynamic dimension; 0 where there is none.

  /// The profile of a call. kInvalidArgument where a link or a constraint points outside of the
  /// shapes, two claim the same dimension, linked sizes differ, or there is more than one dynamic
  /// dimension.
  static Result<OptimizationProfile> of(const TuningConfig& config,
                                        const std::vector<Shape>& shapes);
  /// "(*,64)(64,128)(=,128)": static sizes, '*' for dynamic ones and '=' for derived ones. The same
  /// for all calls that share decisions, whatever their bucket.
  std::string key() const;
  /// The sizes at which tuning happens.
  std::vector<Shape> shapes() const;

  bool operator==(const OptimizationProfile&) const = default;
};

}  // namespace moetune
