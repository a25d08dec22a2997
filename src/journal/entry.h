// What a journal holds beside measurements: who took them, and the plans that followed.
#pragma once

#include <map>
#include <string>

#include "moetune/measuring.h"
#include "moetune/plan.h"

namespace moetune::journal {

/// What measured. Kept with everything, reported, never matched.
struct Origin {
  std::string program;                           ///< "moetune 0.1.0".
  std::map<std::string, std::string> toolchain;  ///< As DeviceProperties has it.
  bool operator==(const Origin&) const = default;
};

/// A plan as tuning ended with it: the decisions and their evidence.
struct PlanRecord {
  Plan plan;
  DeviceProperties device;
  int64_t unix_ms = 0;
};

}  // namespace moetune::journal
