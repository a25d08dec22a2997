#include "tuner/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "tuner/race.h"

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

namespace {

class DuelRunner {
 public:
  DuelRunner(Meter& meter, const Duel& duel)
      : meter_(meter), duel_(duel), test_(duel.goal, meter.policy()) {}

  DuelResult run() {
    if (recall()) return result_;
    if (prepare()) result_.outcome = fight();
    return finish();
  }

 private:
  bool recall();
  bool prepare();
  Outcome fight();
  // False where a sample failed or time ran out.
  bool take_round();
  bool take(const Candidate& who, Sample& sample);
  void blame(const Candidate& who, const Error& error);
  DuelResult finish();

  Meter& meter_;
  const Duel& duel_;
  PairedTest test_;
  DuelResult result_;
  double sample_s_ = 0;  // What one sample takes, everything included.
};

bool DuelRunner::recall() {
  const MeasurementRecord* record =
      meter_.known().compared(duel_.challenger, duel_.fallback, duel_.spot, duel_.phase);
  if (record == nullptr) return false;
  for (Outcome outcome :
       {Outcome::kBetter, Outcome::kNotBetter, Outcome::kNoLoss, Outcome::kLoss}) {
    if (record->versus->outcome == to_string(outcome)) result_.outcome = outcome;
  }
  result_.versus = *record->versus;
  result_.time = record->time;
  return result_.outcome != Outcome::kUnresolved;
}

bool DuelRunner::prepare() {
  if (const MeasurementRecord* out = meter_.known().rejected(duel_.challenger, duel_.spot)) {
    (void)out;
    result_.challenger_failed = true;
    return false;
  }
  const auto setting = meter_.setting(duel_.spot, duel_.fallback, duel_.expected_us);
  if (!setting.ok()) {
    blame(duel_.fallback, setting.error());
    return false;
  }
  for (const Candidate* who : {&duel_.fallback, &duel_.challenger}) {
    // Where the default is only the yardstick for a safety check, it was proven right before.
    if (who == &duel_.fallback && duel_.goal == Goal::kNoLoss) continue;
    if (Status status = meter_.check(*who, duel_.spot, "check"); !status.ok()) {
      blame(*who, status.error());
      return false;
    }
  }
  sample_s_ = setting->fallback_us * setting->calls * 1e-6;
  return true;
}

Outcome DuelRunner::fight() {
  const double start = meter_.elapsed_s();
  const MeasurementPolicy& policy = meter_.policy();
  const double affordable = meter_.left_s(duel_.deadline_s) / (4 * sample_s_);
  const bool is_gain = duel_.goal == Goal::kGain;
  if (affordable < (is_gain ? policy.least_confirm_rounds : kLeastNoLossRounds)) {
    return Outcome::kUnresolved;
  }
  test_ = PairedTest(duel_.goal, policy, affordable < 2 * policy.min_confirm_rounds);
  while (meter_.left_s(duel_.deadline_s) >= 4 * sample_s_ && take_round()) {
    if (is_gain && meter_.elapsed_s() - start < policy.min_confirm_s) continue;
    if (const auto outcome = test_.look()) return *outcome;
  }
  return result_.challenger_failed || result_.fallback_error ? Outcome::kUnresolved
                                                             : test_.last_look();
}

bool DuelRunner::take_round() {
  const Candidate* const order[] = {&duel_.fallback, &duel_.challenger, &duel_.challenger,
                                    &duel_.fallback};
  std::array<Sample, 4> samples;
  std::array<DeviceState, 4> states;
  const double start = meter_.elapsed_s();
  for (size_t i = 0; i < samples.size(); ++i) {
    if (meter_.over(duel_.deadline_s) || !take(*order[i], samples[i])) return false;
    states[i] = samples[i].state;
  }
  sample_s_ = (meter_.elapsed_s() - start) / 4;
  if (meter_.clocks().throttled(states)) {
    ++meter_.report().dropped_rounds;
  } else {
    test_.add_round(samples[0].us, samples[1].us, samples[2].us, samples[3].us);
  }
  return true;
}

bool DuelRunner::take(const Candidate& who, Sample& sample) {
  auto taken = meter_.sample(who, duel_.spot, -1);
  if (!taken.ok()) {
    blame(who, taken.error());
    return false;
  }
  sample = *taken;
  return true;
}

void DuelRunner::blame(const Candidate& who, const Error& error) {
  if (error.code == ErrorCode::kInterrupted) return;
  if (who == duel_.challenger) {
    result_.challenger_failed = true;
    meter_.reject(who, duel_.spot, error, duel_.phase);
  } else {
    result_.fallback_error = error;
  }
}

DuelResult DuelRunner::finish() {
  if (test_.rounds() == 0) return result_;
  const Estimate speedup = test_.speedup();
  result_.time = summary_of(test_.challenger_us());
  result_.versus = {duel_.fallback.text(),
                    duel_.fallback.runner_version,
                    summary_of(test_.fallback_us()),
                    speedup.value,
                    speedup.low,
                    speedup.high,
                    test_.rounds(),
                    to_string(result_.outcome)};
  MeasurementRecord record;
  record.candidate = duel_.challenger;
  record.layout = meter_.layout_of(duel_.challenger);
  record.what = duel_.spot.what;
  record.scale = duel_.spot.scale;
  record.time = result_.time;
  record.phase = duel_.phase;
  record.versus = result_.versus;
  meter_.known().put(std::move(record));
  return result_;
}

}  // namespace

DuelResult compare(Meter& meter, const Duel& duel) { return DuelRunner(meter, duel).run(); }

}  // namespace moetune
