// An operator for tests of what candidates can do wrong: y = 2 x, by kernels each of which
// misbehaves in its own way. Times are virtual: a kernel takes what it says it takes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "moetune/measuring.h"

namespace moetune::testing {

/// What the runner's one parameter, "kind", can be.
struct FaultyKind {
  const char* name;
  double us;          ///< Of one call, as it says. Faults claim to be fast.
  bool right = true;  ///< Whether it may win.
};

/// The default first. The fastest right one is "fast".
const std::vector<FaultyKind>& faulty_kinds();

/// A host device with virtual time that can be lost, as a GPU is after an illegal access.
class FaultyDevice : public Device {
 public:
  /// Nothing works from now on.
  virtual void lose() = 0;
  /// Moves the clock.
  virtual void spend_us(double us) = 0;
};
std::unique_ptr<FaultyDevice> make_faulty_device();

/// "faulty.kinds". Without a device it cannot compile, only describe itself.
std::unique_ptr<TunableRunner> make_faulty_runner(FaultyDevice* device);
/// The candidate of that kind.
Candidate faulty(std::string_view kind);

/// Inputs follow from (case, sample); outputs must be exactly twice as large.
std::unique_ptr<Workbench> make_doubling_bench();

/// The name of the operator.
inline constexpr const char* kFaultyOp = "faulty";

}  // namespace moetune::testing
