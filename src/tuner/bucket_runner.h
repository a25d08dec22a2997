// A runner whose candidates must do for a whole bucket, though they are measured at one size of it.
#pragma once

#include <string>

#include "tuner/choice_entry.h"
#include "tuner/forwarding_runner.h"

namespace moetune {

/// The runner it is made from, except that it excludes what cannot run at every size of the bucket.
/// Its own default is measured all the same: where another size has another default, that one runs
/// there.
class BucketRunner final : public ForwardingRunner {
 public:
  BucketRunner(TunableRunner& runner, SizeRange sizes) : ForwardingRunner(runner), sizes_(sizes) {}

  std::string why_excluded(const Candidate& candidate, int64_t tokens) const override;

 private:
  SizeRange sizes_;
};

}  // namespace moetune
