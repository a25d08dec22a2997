// For which shapes tuning happens, and how: the words FlashInfer's and TensorRT-LLM's users know, with one dynamic dimension.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "moetune/result.h"
#include "moetune/tensor.h"

namespace moetune {

using Shape = std::vector<int64_t>;

enum class BucketRounding : uint8_t {
  kFloor,  ///< A size belongs to the largest bucket not above it; below the smallest, to the smallest.
  kCeil,   ///< A size belongs to the smallest bucket not below it; above the largest, to the largest.
};

/// Sorted distinct sizes at which measuring is done. Every size >= 1 maps to one that exists.
class Buckets {
 public:
  /// Sorts and removes duplicates. kInvalidArgument for an empty list or a size < 1.
  static Result<Buckets> from(std::vector<int64_t> sizes, BucketRounding rounding = BucketRounding::kFloor);
  /// 1, 2, 4, ... up to `maximum`, which is always one itself.
  static Result<Buckets> powers_of_two(int64_t maximum, BucketRounding rounding = BucketRounding::kFloor);
  /// Powers of two to 256, then steps of 256 to 2048, of 512 to 4096, then powers of two: 21 for a maximum of 8192. `maximum` is always one.
  static Result<Buckets> serving(int64_t maximum, BucketRounding rounding = BucketRounding::kFloor);

  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t maximum() const { return sizes_.back(); }
  BucketRounding rounding() const { return rounding_; }
  /// The bucket a size belongs to, and its position. Sizes outside clamp to the first or last.
  int64_t bucket(int64_t size) const { return sizes_[index(size)]; }
  size_t index(int64_t size) const;

 private:
  Buckets(std::vector<int64_t> sizes, BucketRounding rounding) : sizes_(std::move(sizes)), rounding_(rounding) {}
  std::vector<int64_t> sizes_;
  BucketRounding rounding_;
};

/// One dimension of one argument.
struct DimRef {
  int tensor = 0;  ///< Position in the argument list.
  int dim = 0;     ///< Position in its shape; negative counts from the end.
};

struct StaticDim {
  int64_t value = 0;
  bool operator==(const StaticDim&) const = default;
};

/// The dimension that changes from call to call. All `links` move together: they have the same size in one call.
struct DynamicDim {
  std::string name = "tokens";
  std::vector<DimRef> links;
  Buckets buckets;
};

/// A dimension that follows from others (third = first + 1): computed, never part of a key.
struct ConstraintSpec {
  DimRef target;
  std::function<int64_t(const std::vector<Shape>& shapes)> derive;  ///< Sees the shapes with the dynamic dimension already replaced.
};

struct TuningConfig {
  std::vector<DynamicDim> dynamic;  ///< None or one.
  std::vector<ConstraintSpec> constraints;
};

/// The shapes of all arguments as the tuner sees them: static sizes, and the dynamic one replaced by its bucket.
struct OptimizationProfile {
  std::vector<Shape> shapes;  ///< With buckets and derived sizes filled in.
  int64_t bucket = 0;         ///< Of the dynamic dimension; 0 where there is none.

  /// The profile of a call. kInvalidArgument where a link points outside of the shapes or linked sizes differ.
  static Result<OptimizationProfile> of(const TuningConfig& config, const std::vector<Shape>& shapes);
  /// The static part as text: dynamic dimensions print as '*', derived ones as '='. The same for all calls that share decisions.
  static Result<std::string> key(const TuningConfig& config, const std::vector<Shape>& shapes);

  bool operator==(const OptimizationProfile&) const = default;
};

}  // namespace moetune
