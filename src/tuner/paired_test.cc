#include "tuner/paired_test.h"

#include <algorithm>
#include <array>
#include <limits>

namespace moetune {
namespace {

// Rounds at which a test looks, each about 1.6 times the one before: finer steps would save few
// samples and cost level.
constexpr std::array kLooks = {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610};

// Six pairs, all of which must agree (two-sided 3.1 %), may be all that a dear bucket can afford.
// Every other look for a gain has to be this sure, so that all of them together are wrong in 5 % of
// cases at most.
constexpr double kEarlyLookConfidence = 0.95;
constexpr double kLookConfidence = 0.995;
// Not losing is a safety check on a candidate already shown to gain elsewhere.
constexpr double kNoLossConfidence = 0.95;
constexpr int kNoLossRounds = 34;
constexpr int kLeastNoLossRounds = 1;
constexpr int kFirmNoLossRounds = 3;  // With fewer, being cut short settles nothing.

}  // namespace

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kBetter: return "better";
    case Outcome::kNotBetter: return "not_better";
    case Outcome::kNoLoss: return "no_loss";
    case Outcome::kLoss: return "loss";
    case Outcome::kUnresolved: return "unresolved";
  }
  return "unresolved";
}

void PairedTest::add_round(double fallback1, double challenger1, double challenger2,
                           double fallback2) {
  fallback_.insert(fallback_.end(), {fallback1, fallback2});
  challenger_.insert(challenger_.end(), {challenger1, challenger2});
}

int PairedTest::first_look() const {
  if (goal_ == Goal::kNoLoss) return kLeastNoLossRounds;
  return is_dear_ ? policy_->least_confirm_rounds : policy_->min_confirm_rounds;
}

int PairedTest::max_rounds() const {
  return goal_ == Goal::kGain ? policy_->max_confirm_rounds : kNoLossRounds;
}

Estimate PairedTest::speedup() const {
  if (fallback_.empty()) return {1, 0, std::numeric_limits<double>::infinity()};
  const bool is_early = is_dear_ && rounds() <= policy_->least_confirm_rounds;
  const double confidence = goal_ == Goal::kNoLoss ? kNoLossConfidence
                            : is_early             ? kEarlyLookConfidence
                                                   : kLookConfidence;
  return paired_ratio(fallback_, challenger_, confidence);
}

std::optional<Outcome> PairedTest::look() const {
  if (rounds() >= max_rounds()) return last_look();
  const bool is_look =
      rounds() == first_look() || std::find(kLooks.begin(), kLooks.end(), rounds()) != kLooks.end();
  if (!is_look) return std::nullopt;
  return goal_ == Goal::kGain ? look_for_gain() : look_for_no_loss();
}

Outcome PairedTest::last_look() const {
  if (goal_ == Goal::kGain) return look_for_gain().value_or(Outcome::kUnresolved);
  if (rounds() < first_look()) return Outcome::kUnresolved;
  if (const auto shown = look_for_no_loss()) return *shown;
  if (rounds() < kFirmNoLossRounds) return Outcome::kUnresolved;
  return speedup().value >= 1 ? Outcome::kNoLoss : Outcome::kLoss;
}

std::optional<Outcome> PairedTest::look_for_gain() const {
  if (rounds() < first_look()) return std::nullopt;
  const Estimate shown = speedup();
  // Sure of half the least gain, not only of some gain: what is faster by less should not look
  // worth it by luck.
  if (shown.low > 1 + policy_->min_gain / 2 && shown.value >= 1 + policy_->min_gain)
    return Outcome::kBetter;
  // Keeping the default needs no protection against looking often.
  const Estimate plain = paired_ratio(fallback_, challenger_, kEarlyLookConfidence);
  if (plain.high < 1 + policy_->min_gain) return Outcome::kNotBetter;
  return std::nullopt;
}

// In every pair. One round alone has to leave as much room as a loss may take.
bool PairedTest::never_slower() const {
  const double room = rounds() == 1 ? 1 + policy_->veto_loss : 1;
  for (size_t i = 0; i < fallback_.size(); ++i) {
    if (challenger_[i] * room > fallback_[i]) return false;
  }
  return true;
}

std::optional<Outcome> PairedTest::look_for_no_loss() const {
  if (rounds() < first_look()) return std::nullopt;
  const Estimate shown = speedup();
  if (never_slower() || shown.low > 1 - policy_->veto_loss) return Outcome::kNoLoss;
  if (shown.high < 1) return Outcome::kLoss;
  return std::nullopt;
}

}  // namespace moetune
