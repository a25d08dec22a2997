#include "moetune/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/status_macros.h"

namespace moetune {
namespace {

using Dim = OptimizationProfile::Dim;

Error invalid(std::string message, std::string hint = {}) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(hint)};
}

Status check_maximum(int64_t maximum) {
  if (maximum >= 1) return {};
  return invalid(fmt::format("the largest bucket is {}", maximum), "it must be at least 1");
}

int64_t value_of(const Dim& dim) {
  return std::visit([](const auto& kind) { return kind.value; }, dim);
}

char* append(char* out, const Dim& dim) {
  if (std::holds_alternative<BucketDim>(dim)) return fmt::format_to(out, "*");
  if (std::holds_alternative<DerivedDim>(dim)) return fmt::format_to(out, "=");
  return fmt::format_to(out, "{}", std::get<StaticDim>(dim).value);
}

// The dimension that a reference means; an error where it points outside or the dimension is taken
// already.
Result<Dim*> claim(std::vector<std::vector<Dim>>& arguments, DimRef ref, const std::string& who) {
  if (ref.tensor < 0 || static_cast<size_t>(ref.tensor) >= arguments.size()) {
    return invalid(fmt::format("{} points to argument {} of {}", who, ref.tensor, arguments.size()),
                   "arguments are counted from 0");
  }
  std::vector<Dim>& argument = arguments[static_cast<size_t>(ref.tensor)];
  const auto rank = static_cast<int>(argument.size());
  const int position = ref.dim < 0 ? ref.dim + rank : ref.dim;
  if (position < 0 || position >= rank) {
    return invalid(fmt::format("{} points to dimension {} of argument {}, which has {}", who,
                               ref.dim, ref.tensor, rank));
  }
  Dim& dim = argument[static_cast<size_t>(position)];
  if (!std::holds_alternative<StaticDim>(dim)) {
    return invalid(
        fmt::format("{} points to dimension {} of argument {}, which is linked or "
                    "derived already",
                    who, position, ref.tensor));
  }
  return &dim;
}

// Replaces all linked dimensions by their bucket, which is returned.
Result<int64_t> place_bucket(const DynamicDim& dynamic, std::vector<std::vector<Dim>>& arguments) {
  const std::string who = fmt::format("dynamic dimension '{}'", dynamic.name);
  std::optional<int64_t> size;
  int64_t bucket = 0;
  for (const DimRef& link : dynamic.links) {
    MOETUNE_ASSIGN_OR_RETURN(Dim * dim, claim(arguments, link, who));
    const int64_t here = value_of(*dim);
    if (size && *size != here) {
      return invalid(fmt::format("{} is {} in argument {} and {} in argument {}", who, *size,
                                 dynamic.links.front().tensor, here, link.tensor),
                     "linked dimensions have one size in one call");
    }
    size = here;
    bucket = dynamic.buckets.bucket(here);
    *dim = BucketDim{bucket};
  }
  if (!size) return invalid(who + " is linked to no dimension");
  return bucket;
}

}  // namespace

Result<Buckets> Buckets::from(std::vector<int64_t> sizes, BucketRounding rounding) {
  if (sizes.empty()) return invalid("an empty list of buckets", "name at least one size");
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  if (sizes.front() < 1) {
    return invalid(fmt::format("bucket {} is less than 1", sizes.front()),
                   "sizes are counts of at least 1");
  }
  return Buckets(std::move(sizes), rounding);
}

Result<Buckets> Buckets::powers_of_two(int64_t maximum, BucketRounding rounding) {
  MOETUNE_RETURN_IF_ERROR(check_maximum(maximum));
  std::vector<int64_t> sizes = {maximum};
  for (int64_t size = 1; size<maximum; size = size> maximum / 2 ? maximum : size * 2) {
    sizes.push_back(size);
  }
  return from(std::move(sizes), rounding);
}

Result<Buckets> Buckets::serving(int64_t maximum, BucketRounding rounding) {
  MOETUNE_RETURN_IF_ERROR(check_maximum(maximum));
  std::vector<int64_t> sizes = {maximum};
  for (int64_t size = 1; size < maximum;) {
    sizes.push_back(size);
    if (size < 256 || size >= 4096) {
      size = size > maximum / 2 ? maximum : size * 2;
    } else {
      size += size < 2048 ? 256 : 512;
    }
  }
  return from(std::move(sizes), rounding);
}

size_t Buckets::index(int64_t size) const {
  if (rounding_ == BucketRounding::kFloor) {
    const auto above = std::upper_bound(sizes_.begin(), sizes_.end(), size);
    return above == sizes_.begin() ? 0 : static_cast<size_t>(above - sizes_.begin()) - 1;
  }
  const auto at_least = std::lower_bound(sizes_.begin(), sizes_.end(), size);
  return std::min(static_cast<size_t>(at_least - sizes_.begin()), sizes_.size() - 1);
}

Result<OptimizationProfile> OptimizationProfile::of(const TuningConfig& config,
                                                    const std::vector<Shape>& shapes) {
  if (config.dynamic.size() > 1) {
    return invalid(fmt::format("{} dynamic dimensions", config.dynamic.size()),
                   "link all tensors that change together to one");
  }
  OptimizationProfile profile;
  for (const Shape& shape : shapes) {
    auto& argument = profile.arguments.emplace_back();
    for (int64_t extent : shape) argument.emplace_back(StaticDim{extent});
  }
  for (const DynamicDim& dynamic : config.dynamic) {
    MOETUNE_ASSIGN_OR_RETURN(profile.bucket, place_bucket(dynamic, profile.arguments));
  }
  for (const ConstraintSpec& constraint : config.constraints) {
    const int64_t derived = constraint.derive(profile.shapes());
    MOETUNE_ASSIGN_OR_RETURN(Dim * dim,
                             claim(profile.arguments, constraint.target, "a constraint"));
    *dim = DerivedDim{derived};
  }
  return profile;
}

std::string OptimizationProfile::key() const {
  std::string text;
  for (const auto& argument : arguments) {
    text += '(';
    for (size_t i = 0; i < argument.size(); ++i) {
      if (i > 0) text += ',';
      char digits[24];
      text.append(digits, append(digits, argument[i]));
    }
    text += ')';
  }
  return text;
}

std::vector<Shape> OptimizationProfile::shapes() const {
  std::vector<Shape> shapes;
  for (const auto& argument : arguments) {
    Shape& shape = shapes.emplace_back();
    for (const Dim& dim : argument) shape.push_back(value_of(dim));
  }
  return shapes;
}

}  // namespace moetune
