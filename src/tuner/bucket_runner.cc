#include "tuner/bucket_runner.h"

#include "tuner/fit.h"

namespace moetune {

std::string BucketRunner::why_excluded(const Candidate& candidate, int64_t tokens) const {
  std::string reason = runner_.why_excluded(candidate, tokens);
  if (!reason.empty() || candidate == runner_.default_candidate(tokens)) return reason;
  return why_unfit(runner_, candidate, sizes_.from, sizes_.to);
}

}  // namespace moetune
