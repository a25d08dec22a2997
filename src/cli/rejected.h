// Candidates that were rejected, as people want to read of them: a line first, a table on request.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "moetune/autotuner.h"
#include "moetune/measuring.h"

namespace moetune::cli {

/// One candidate that is out, and one kind of reason for it.
struct RejectedCandidate {
  Candidate candidate;
  std::set<int64_t> tokens;  ///< Numbers of tokens at which it was rejected for that.
  ErrorCode kind = ErrorCode::kInternal;
  std::string reason;  ///< The latest, where there were several.
};

/// The rejections among records that come oldest first: a candidate is listed once for each kind of
/// reason, in the order of the kinds, then of the candidates' texts. Versions of a runner are
/// candidates of their own.
std::vector<RejectedCandidate> collect_rejected(const std::vector<MeasurementRecord>& records);
/// The same of what one run rejected.
std::vector<RejectedCandidate> collect_rejected(const std::vector<Rejection>& rejections);

/// A kind in words: "wrong result", "crashed", "did not compile", "too slow to finish", ...
const char* kind_text(ErrorCode kind);

/// "12 candidates rejected: 9 wrong result, 2 crashed, 1 too slow to finish"; "no candidate
/// rejected". A candidate that is out for several kinds of reasons counts once, for the first.
std::string rejected_line(const std::vector<RejectedCandidate>& rejected);

/// At most `most` rows, then how many more there are. Reasons are cut to one line.
std::string rejected_table(const std::vector<RejectedCandidate>& rejected, size_t most);

/// [{"runner", "version", "scheme", "stages", "tactic", "tokens", "kind", "reason"}], reasons
/// whole.
Json describe(const std::vector<RejectedCandidate>& rejected);

}  // namespace moetune::cli
