// Where a tuned configuration goes, and that it can go there, known before any time is spent.
#pragma once

#include <string>

#include "moetune/autotuner.h"
#include "moetune/plan.h"
#include "moetune/result.h"

namespace moetune::cli {

/// The file to write: `out`, or `usual` (whose folder is made) where it is empty. Fails
/// where a file could not be made there, or where one is that save_merged() would refuse (another
/// device's, a newer format, no configuration at all).
Result<std::string> prepare_output(const std::string& out, const std::string& usual,
                                   const DeviceProperties& device);

/// That a file can be made at `path`: its folder is there and takes new files, and `path` is no
/// folder itself.
Status check_can_write(const std::string& path);

/// Whether a run that ended early decided less than what the file holds of the same problem
/// already: then the file is better left alone.
bool knows_less(const TuneReport& report, const std::string& path);

}  // namespace moetune::cli
