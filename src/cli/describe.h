// The objects that --json prints, and the short texts that tables print, of what the tuner knows.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/backend.h"
#include "moetune/measuring.h"
#include "moetune/plan.h"

namespace moetune::cli {

Json describe(const DeviceProperties& device);
/// Attributes that are numbers become numbers.
Json describe(const Problem& problem);
Json describe(const Ceilings& ceilings);
/// [{"name", "runner", "tactic": {...}}]
Json describe_stages(const Candidate& candidate);
Json describe(const TimeSummary& time);

/// "20.1 GB/s (how it was measured), 95.3 GFLOP/s (how)".
std::string ceilings_text(const Ceilings& ceilings);

/// The candidate without its runner where that is `usual_runner`.
std::string short_text(const Candidate& candidate, std::string_view usual_runner);

/// What a candidate has otherwise than the default: "gemm1{token_tile=1} gemm2{feed=staged}"; all
/// of it where runner or scheme are others.
std::string difference_text(const Candidate& candidate, const Candidate& fallback);

/// "12.3 us", "4.56 ms"; "-" for 0.
std::string time_text(double us);

/// Which of the machine's two limits a call could meet at the least, and how near it came.
struct Roofline {
  const char* bound = "";  ///< "memory" or "compute"; empty: not known.
  double fraction = 0;     ///< Of the ceiling.
  std::string ceiling;     ///< Which one, by name.
};
Roofline roofline(const Work& work, const Ceilings& ceilings, double us);

/// A ceiling is what the machine can do at best. Where a call did more (the machine was slower when
/// the ceiling was measured), that is the ceiling, and its name says so.
void raise_to_seen(Ceilings& ceilings, const Work& work, double us);

}  // namespace moetune::cli
