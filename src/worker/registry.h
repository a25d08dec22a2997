// What a helper process can run: operators by name, each with a function that makes everything it
// takes to run candidates of one problem.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "moetune/measuring.h"
#include "moetune/result.h"
#include "tuner/ceilings.h"

namespace moetune::worker {

/// What the parent says about a problem beside its attributes: {"device", "cpu"}, {"seed", "0"},
/// ... Which there are is between the maker of places and whoever asks for one.
using PlaceOptions = std::map<std::string, std::string>;

/// One problem in a helper: a device, data, and runners. Not thread-safe.
class Place {
 public:
  virtual ~Place() = default;
  virtual Device& device() = 0;
  /// Makes the same inputs and weights as the parent's workbench. Judges nothing.
  virtual Workbench& bench() = 0;
  virtual std::vector<TunableRunner*> runners() = 0;
  /// What the device can do at best, `read_bytes` read at a time, with the operations that the
  /// problem is computed with. May take some seconds. kUnsupported: nobody measures that here.
  virtual Result<Ceilings> measure_ceilings(size_t /*read_bytes*/) {
    return Error{ErrorCode::kUnsupported, "this helper measures no ceilings"};
  }
};

/// Makers of places by the name of the operator. Thread-compatible.
class Registry {
 public:
  using Maker = std::function<Result<std::unique_ptr<Place>>(const Problem&, const PlaceOptions&)>;

  /// Adds an operator, or replaces it.
  void add(std::string op, Maker maker) { makers_[std::move(op)] = std::move(maker); }
  /// kUnsupported for an operator that is not there; else what its maker says. What a maker throws
  /// becomes an error.
  Result<std::unique_ptr<Place>> make(const Problem& problem, const PlaceOptions& options) const;

 private:
  std::map<std::string, Maker> makers_;
};

}  // namespace moetune::worker
