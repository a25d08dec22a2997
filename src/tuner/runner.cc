#include "moetune/runner.h"

#include <fmt/format.h>

#include "tuner/text.h"

namespace moetune {

std::string Problem::key() const { return key_text(op, attributes); }

Result<std::shared_ptr<PackedWeights>> TunableRunner::pack(const std::string& layout,
                                                           WeightSource& source) {
  if (source.chunks() == 0) return std::shared_ptr<PackedWeights>();
  return Error{ErrorCode::kUnsupported,
               fmt::format("{} cannot pack weights in layout {}", name(), layout),
               "a runner of an operator with weights overrides pack()"};
}

Status TunableRunner::unpack(const PackedWeights&, WeightSink&) const {
  return Error{ErrorCode::kUnsupported, fmt::format("{} cannot unpack weights", name()),
               "a runner of an operator with weights overrides unpack()"};
}

}  // namespace moetune
