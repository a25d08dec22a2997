#include "worker/registry.h"

#include <fmt/format.h>

#include <exception>

namespace moetune::worker {

Result<std::unique_ptr<Place>> Registry::make(const Problem& problem,
                                              const PlaceOptions& options) const {
  const auto maker = makers_.find(problem.op);
  if (maker == makers_.end()) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("this helper has no operator '{}'", problem.op)};
  }
  try {
    return maker->second(problem, options);
  } catch (const std::exception& e) {
    return Error{ErrorCode::kRun, fmt::format("making {} threw: {}", problem.op, e.what())};
  }
}

}  // namespace moetune::worker
