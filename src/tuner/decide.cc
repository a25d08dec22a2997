#include "tuner/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/status_macros.h"
#include "tuner/race.h"

namespace moetune {
namespace {

class DuelRunner {
 public:
  DuelRunner(Meter& meter, const Duel& duel) : meter_(meter), duel_(duel) {}

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
  PairedTest* test_ = nullptr;  // Set once it has begun.
  DuelResult result_;
  double sample_s_ = 0;  // What one sample takes, everything included.
};

bool DuelRunner::recall() {
  const MeasurementRecord* record =
      meter_.known().compared(duel_.challenger, duel_.fallback, duel_.spot, duel_.phase);
  if (record == nullptr) return false;
  // What ran out of time is worth another try, what ran out of rounds is not.
  const bool is_unresolved = record->versus->outcome == to_string(Outcome::kUnresolved);
  const int most_rounds = PairedTest(duel_.goal, meter_.policy()).max_rounds();
  const bool may_go_on = meter_.may_measure() && record->versus->rounds < most_rounds;
  if (is_unresolved && may_go_on) return false;
  for (Outcome outcome :
       {Outcome::kBetter, Outcome::kNotBetter, Outcome::kNoLoss, Outcome::kLoss}) {
    if (record->versus->outcome == to_string(outcome)) result_.outcome = outcome;
  }
  result_.versus = *record->versus;
  result_.time = record->time;
  return true;
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
  // The default's rows are what a challenger's are compared with, and a bench keeps them only for a
  // while.
  if (!meter_.has_passed(duel_.challenger, duel_.spot))
    meter_.forget_check(duel_.fallback, duel_.spot);
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
  // What was begun and cut short goes on.
  const std::string key = fmt::format("{}|{}|{}|{}", identity(duel_.challenger),
                                      identity(duel_.fallback), duel_.spot.text(), duel_.phase);
  const auto [known, is_new] = meter_.duels().try_emplace(
      key, duel_.goal, policy, affordable < 2 * policy.min_confirm_rounds);
  PairedTest& test = known->second;
  test_ = &test;
  if (affordable < test.first_look() - test.rounds()) return Outcome::kUnresolved;
  while (meter_.left_s(duel_.deadline_s) >= 4 * sample_s_ && take_round()) {
    if (is_gain && meter_.elapsed_s() - start < policy.min_confirm_s) continue;
    if (const auto outcome = test.look()) return *outcome;
  }
  return result_.challenger_failed || result_.fallback_error ? Outcome::kUnresolved
                                                             : test.last_look();
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
    test_->add_round(samples[0].us, samples[1].us, samples[2].us, samples[3].us);
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
  if (test_ == nullptr || test_->rounds() == 0) return result_;
  const PairedTest& test = *test_;
  const Estimate speedup = test.speedup();
  result_.time = summary_of(test.challenger_us());
  result_.versus = {duel_.fallback.text(),
                    duel_.fallback.runner_version,
                    summary_of(test.fallback_us()),
                    speedup.value,
                    speedup.low,
                    speedup.high,
                    test.rounds(),
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
