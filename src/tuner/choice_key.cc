#include "tuner/choice_key.h"

#include <algorithm>

namespace moetune {

CallKey::CallKey(std::string_view op, std::span<TunableRunner* const> runners,
                 const TuningConfig& config, const Tensors& arguments) noexcept
    : op_(op), runners_(runners), config_(config), arguments_(arguments) {
  usable_ = read_config();
  if (!usable_) return;
  Hash64 hash;
  hash.add(op);
  for (const TunableRunner* runner : runners) hash.add(reinterpret_cast<uintptr_t>(runner));
  hash.add(static_cast<uint64_t>(config.outputs));
  each_number([&](int64_t number) {
    hash.add(static_cast<uint64_t>(number));
    return true;
  });
  hash_ = hash.value();
}

int64_t CallKey::mark(Marks& marks, DimRef ref) noexcept {
  if (ref.tensor < 0 || static_cast<size_t>(ref.tensor) >= arguments_.size()) return -1;
  const auto tensor = static_cast<size_t>(ref.tensor);
  const Shape& shape = arguments_[tensor].shape;
  const int dim = ref.dim < 0 ? ref.dim + static_cast<int>(shape.size()) : ref.dim;
  if (dim < 0 || static_cast<size_t>(dim) >= shape.size()) return -1;
  const auto position = static_cast<size_t>(dim);
  if (marked(dynamic_[tensor] | derived_[tensor], position)) return -1;
  marks[tensor] |= uint32_t{1} << position;
  return shape[position];
}

bool CallKey::read_config() noexcept {
  if (arguments_.size() > kMaxTensors || config_.dynamic.size() > 1) return false;
  for (size_t t = 0; t < arguments_.size(); ++t) {
    if (arguments_[t].shape.size() > static_cast<size_t>(kMaxRank)) return false;
    dynamic_[t] = derived_[t] = 0;
  }
  for (const DynamicDim& dynamic : config_.dynamic) {
    if (dynamic.links.empty()) return false;
    int64_t first = -1;
    for (const DimRef& link : dynamic.links) {
      const int64_t extent = mark(dynamic_, link);
      if (extent < 0 || (first >= 0 && extent != first)) return false;
      first = extent;
    }
    size_ = std::max<int64_t>(first, 1);
  }
  return std::all_of(
      config_.constraints.begin(), config_.constraints.end(),
      [&](const ConstraintSpec& constraint) { return mark(derived_, constraint.target) >= 0; });
}

}  // namespace moetune
