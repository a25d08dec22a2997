// What a journal holds beside measurements: who took them, and the plans that followed.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "moetune/measuring.h"
#include "moetune/plan.h"

namespace moetune::journal {

/// Milliseconds since 1970, now.
inline int64_t unix_ms_now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
}

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

/// A run as it moves between journals: its plan is an entry of its own, known by its time.
struct RunRecord {
  TuneRun run;               ///< Without the plan, and without the device's properties.
  int64_t plan_unix_ms = 0;  ///< 0: it has none.
};

/// What a device can do at best, measured with what a layer calls for.
struct CeilingRecord {
  std::string device;  ///< DeviceProperties::key()
  std::string what;    ///< What was asked for, compared as text.
  int64_t read_bytes = 0;
  double read_bytes_per_s = 0;
  std::string read_name;  ///< How it was measured.
  double operations_per_s = 0;
  std::string operations_name;
  int64_t unix_ms = 0;
};

}  // namespace moetune::journal
