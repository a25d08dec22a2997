#include "tuner/race.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "base/statistics.h"
#include "tuner/exploration.h"

namespace moetune {
namespace {

using State = Contender::State;

constexpr double kAssumedNoise = 0.05;  // Until there are two samples of something.
constexpr double kLeastNoise = 0.005;   // No clock and no scheduler are better than this.
constexpr int kExploredPerRound = 16;   // A throttled round is repeated: this bounds what is lost.
// Tries in a row that bring no new best. Then exploring ends, if all that is likely was tried too:
// the neighbours of the best, and what ran well at a neighbouring size.
constexpr int kFruitless = 12;
constexpr size_t kLookAhead = 64;  // Tries told to the compilers before they come.
constexpr int kSeldom =
    4;  // Where nothing has to be compiled, looking ahead costs more than it tells.
constexpr int kFirmSamples = 3;  // With fewer, a stored time is worth another try.

class Race {
 public:
  Race(Meter& meter, const RaceTask& task, std::vector<Contender> contenders)
      : meter_(meter),
        task_(task),
        policy_(meter.policy()),
        contenders_(std::move(contenders)),
        exploration_(contenders_, policy_, task.is_search) {}

  RaceResult run() {
    recall();
    explore();
    if (!task_.later.empty()) meter_.prefetch(task_.later, task_.spot);
    while (!meter_.over(task_.deadline_s) && !stopped_ && !decided()) run_round();
    return finish();
  }

 private:
  void recall();
  void explore();
  int choose(int step, int wanted);
  void run_round();
  Result<Sample> take_sample(Contender& contender);
  bool sample_all(const std::vector<int>& order);
  void commit(Contender& contender, const Sample& sample);
  void drop_the_slow();
  bool is_slow(const Contender& contender, const Contender& best) const;
  double noise() const;
  double noise_band(const Contender& a, const Contender& b) const;
  const Contender* best() const { return best_of(contenders_); }
  bool decided() const;
  bool may_fit_later() const;
  std::vector<int> running() const;
  RaceResult finish();

  Meter& meter_;
  const RaceTask& task_;
  const MeasurementPolicy& policy_;
  std::vector<Contender> contenders_;
  Exploration exploration_;
  int round_ = 0;
  bool stopped_ = false;
  bool converged_ = false;  // Exploring came to an end of its own.
  bool settled_ = false;    // It did in an earlier race like this one, whose winner leads here.
  double noise_ = kAssumedNoise;
};

// One standard deviation of the samples behind a summary, relative, as their quartiles tell it.
double noise_of(const TimeSummary& time) {
  constexpr double kQuartilesPerSigma = 1.349;
  if (time.samples < kFirmSamples) return kAssumedNoise;
  return std::max(kLeastNoise, (time.q3_us - time.q1_us) / (kQuartilesPerSigma * time.median_us));
}

// What the store knows is not measured again, unless it has hardly been measured and may still win.
void Race::recall() {
  for (Contender& contender : contenders_) {
    if (meter_.is_out(contender.candidate, task_.spot)) {
      contender.state = State::kRejected;
    } else if (const MeasurementRecord* record =
                   meter_.known().timed(contender.candidate, task_.spot, task_.stage)) {
      contender.time = record->time;
      contender.state = State::kDropped;
    }
  }
  const Contender* known = best();
  if (known == nullptr) return;
  const Contender leader = *known;
  settled_ = task_.is_search && meter_.known().settled(leader.candidate, task_.spot, task_.stage);
  if (settled_ || !meter_.may_measure()) return;
  noise_ = noise_of(leader.time);
  for (Contender& contender : contenders_) {
    const TimeSummary& time = contender.time;
    const bool is_vague = contender.state == State::kDropped && time.samples < kFirmSamples &&
                          time.median_us < leader.time.median_us * policy_.drop_after_10;
    if (is_vague && !is_slow(contender, leader)) {
      contender.time = {};
      contender.state = State::kWaiting;
    }
  }
}

void Race::explore() {
  const double start = meter_.elapsed_s();
  const double until = start + policy_.explore_share * (task_.deadline_s - start);
  const std::vector<bool> none(contenders_.size());
  // What an earlier race tried counts: it ended where it had converged.
  auto fruitless = static_cast<int>(
      std::count_if(contenders_.begin(), contenders_.end(),
                    [](const Contender& c) { return c.state == State::kDropped; }));
  for (int step = 0; !stopped_;) {
    int explored = 0;
    while (explored < kExploredPerRound && !meter_.over(until)) {
      exploration_.update();
      const int index = exploration_.next(step, none);
      converged_ = index < 0 || (fruitless >= kFruitless && exploration_.nothing_likely_waits()) ||
                   (settled_ && !contenders_[static_cast<size_t>(index)].pinned);
      if (converged_) break;
      const int chosen = choose(step, index);
      ++step;
      ++explored;
      // One at a time, so that the next choice knows this one's result.
      const Contender* before = best();
      const double best_us = before == nullptr ? 0 : before->time.median_us;
      if (!sample_all({chosen})) break;
      const Contender* after = best();
      const bool is_better =
          after != nullptr &&
          (best_us == 0 || after->time.median_us < best_us * (1 - policy_.min_gain));
      fruitless = is_better ? 0 : fruitless + 1;
    }
    if (explored == 0) return;
    drop_the_slow();
  }
}

// Of those that are next in turn, `wanted` the first, the first that is compiled: while it runs,
// the compilers are at those before it, which then come first.
int Race::choose(int step, int wanted) {
  if (!meter_.compiles() && step % kSeldom != 0) return wanted;
  std::vector<bool> taken(contenders_.size());
  std::vector<int> turn;
  std::vector<Candidate> ahead;
  for (int index = wanted; index >= 0 && turn.size() < kLookAhead;
       index = exploration_.next(step + static_cast<int>(turn.size()), taken)) {
    taken[static_cast<size_t>(index)] = true;
    turn.push_back(index);
    ahead.push_back(contenders_[static_cast<size_t>(index)].candidate);
  }
  ahead.insert(ahead.end(), task_.later.begin(), task_.later.end());
  const auto first = static_cast<size_t>(std::max(0, meter_.prefetch(ahead, task_.spot)));
  return first < turn.size() ? turn[first] : wanted;
}

std::vector<int> Race::running() const {
  std::vector<int> indices;
  for (size_t i = 0; i < contenders_.size(); ++i) {
    if (contenders_[i].state == State::kRunning) indices.push_back(static_cast<int>(i));
  }
  return indices;
}

void Race::run_round() {
  std::vector<int> order = running();
  Random random(task_.seed, static_cast<uint64_t>(++round_));
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.below(static_cast<uint32_t>(i))]);
  }
  sample_all(order);
  drop_the_slow();
}

// Checked, timed, and charged for both. Who fails for anything but the lack of time is out.
Result<Sample> Race::take_sample(Contender& contender) {
  const auto out = [&](Error error, const char* phase) {
    if (error.code == ErrorCode::kInterrupted) return error;
    contender.state = State::kRejected;
    meter_.reject(contender.candidate, task_.spot, error, phase);
    return error;
  };
  const double before = meter_.worked_s();
  Status status = task_.stage < 0 ? meter_.check(contender.candidate, task_.spot, "look")
                                  : meter_.check_before_exploring(contender.candidate, task_.spot);
  if (!status.ok()) return out(std::move(status).error(), "race");
  const double checked = meter_.worked_s();
  status = meter_.charge(contender.candidate, task_.spot, checked - before);
  if (!status.ok()) return out(std::move(status).error(), kOwnBudgetPhase);
  auto sample = meter_.sample(contender.candidate, task_.spot, task_.stage);
  if (!sample.ok()) return out(std::move(sample).error(), "race");
  status = meter_.charge(contender.candidate, task_.spot, meter_.worked_s() - checked);
  if (!status.ok()) return out(std::move(status).error(), kOwnBudgetPhase);
  return sample;
}

// One sample of each, kept only if the clock held. False where time ran out before the end.
bool Race::sample_all(const std::vector<int>& order) {
  std::vector<std::pair<int, Sample>> taken;
  std::vector<DeviceState> states;
  for (int index : order) {
    Contender& contender = contenders_[static_cast<size_t>(index)];
    if (meter_.over(task_.deadline_s)) {
      stopped_ = true;
      break;
    }
    auto sample = take_sample(contender);
    if (sample.ok()) {
      taken.emplace_back(index, *sample);
      states.push_back(sample->state);
      continue;
    }
    if (sample.error().code == ErrorCode::kInterrupted) {
      stopped_ = true;
      break;
    }
  }
  if (meter_.clocks().throttled(states)) {
    ++meter_.report().dropped_rounds;
    return !stopped_;
  }
  for (const auto& [index, sample] : taken) commit(contenders_[static_cast<size_t>(index)], sample);
  return !stopped_;
}

void Race::commit(Contender& contender, const Sample& sample) {
  contender.state = State::kRunning;
  contender.us.push_back(sample.us);
  contender.time = summary_of(contender.us);
  contender.last_state = sample.state;
  // At once where a sample is dear or the last for now; the summary of many is put down as it
  // grows.
  const int count = contender.time.samples;
  if (count == 1 || count == 3 || count == 10) {
    meter_.put_time(contender.candidate, task_.spot, task_.stage, contender.time, sample.state);
  }
}

double Race::noise() const {
  double weighted = 0;
  double weight = 0;
  for (const Contender& contender : contenders_) {
    if (contender.us.size() < 2) continue;
    const auto steps = static_cast<double>(contender.us.size() - 1);
    weighted += steps * neighbour_noise(contender.us);
    weight += steps;
  }
  return weight == 0 ? kAssumedNoise : std::max(kLeastNoise, weighted / weight);
}

// How far apart two medians may be by noise alone.
double Race::noise_band(const Contender& a, const Contender& b) const {
  const double spread = noise_ * std::sqrt(1.0 / a.time.samples + 1.0 / b.time.samples);
  return std::max(2 * policy_.min_gain, policy_.drop_sigmas * spread);
}

bool Race::is_slow(const Contender& contender, const Contender& best) const {
  const TimeSummary& time = contender.time;
  const double reference = best.time.median_us;
  if (time.median_us > policy_.drop_after_1 * reference) return true;
  if (time.samples >= 3 && time.min_us > policy_.drop_after_3 * reference) return true;
  if (time.samples >= 10 && time.median_us > policy_.drop_after_10 * reference) return true;
  return time.median_us > reference * (1 + noise_band(contender, best));
}

void Race::drop_the_slow() {
  const Contender* leader = best();
  if (leader == nullptr) return;
  noise_ = noise();
  std::vector<Contender*> left;
  for (int index : running()) {
    Contender& contender = contenders_[static_cast<size_t>(index)];
    if (contender.pinned) continue;
    if (is_slow(contender, *leader)) {
      contender.state = State::kDropped;
    } else if (contender.time.samples >= 10) {
      left.push_back(&contender);
    }
  }
  std::sort(left.begin(), left.end(), [](const Contender* a, const Contender* b) {
    return a->time.median_us < b->time.median_us;
  });
  for (size_t i = static_cast<size_t>(policy_.finalists); i < left.size(); ++i) {
    left[i]->state = State::kDropped;
  }
  meter_.set_candidates_left(static_cast<int>(running().size()));
}

// Nothing to tell apart any more: everybody else has had all its samples, is behind by more than
// noise, or ties.
bool Race::decided() const {
  const Contender* leader = best();
  if (leader == nullptr) return true;
  const bool is_vague = leader->state == State::kRunning && leader->time.samples < kFirmSamples;
  if (is_vague) return false;
  for (int index : running()) {
    const Contender& contender = contenders_[static_cast<size_t>(index)];
    if (contender.time.samples >= policy_.max_race_samples) continue;
    const bool is_tie = contender.time.samples >= 10 &&
                        contender.time.median_us <= leader->time.median_us * (1 + policy_.min_gain);
    if (is_tie) continue;
    if (&contender == leader || is_slow(contender, *leader)) continue;
    return false;
  }
  return true;
}

// Best first. Among those that tie with the best: pinned, then fewer resources, then the lower
// text.
void rank(std::vector<Contender>& contenders, double tie) {
  std::stable_sort(
      contenders.begin(), contenders.end(),
      [](const Contender& a, const Contender& b) { return a.time.median_us < b.time.median_us; });
  if (contenders.empty()) return;
  const double limit = contenders.front().time.median_us * (1 + tie);
  const auto end = std::find_if(contenders.begin(), contenders.end(),
                                [limit](const Contender& c) { return c.time.median_us > limit; });
  const auto winner =
      std::min_element(contenders.begin(), end, [](const Contender& a, const Contender& b) {
        if (a.pinned != b.pinned) return a.pinned;
        if (a.resources != b.resources) return a.resources < b.resources;
        return a.candidate.text() < b.candidate.text();
      });
  std::rotate(contenders.begin(), winner, winner + 1);
}

// Whether a later run may try what had no room in this one, or not time enough of its own.
bool Race::may_fit_later() const {
  return std::any_of(contenders_.begin(), contenders_.end(), [this](const Contender& c) {
    if (c.state != State::kRejected) return false;
    const MeasurementRecord* record = meter_.known().rejected(c.candidate, task_.spot);
    return record != nullptr &&
           (record->rejected_as == ErrorCode::kOutOfMemory || record->phase == kOwnBudgetPhase);
  });
}

RaceResult Race::finish() {
  RaceResult result;
  result.noise = noise();
  result.complete = decided() && converged_;
  const Contender* leader = best();
  if (task_.is_search && result.complete && leader != nullptr && !may_fit_later())
    meter_.put_settled(leader->candidate, task_.spot, task_.stage);
  for (Contender& contender : contenders_) {
    if (contender.us.size() > 1) {
      meter_.put_time(contender.candidate, task_.spot, task_.stage, contender.time,
                      contender.last_state);
    }
    if (contender.state != State::kWaiting) ++result.tried;
    if (contender.state == State::kRejected) {
      result.rejected.push_back(std::move(contender.candidate));
    } else if (contender.time.samples > 0) {
      result.ranking.push_back(std::move(contender));
    }
  }
  rank(result.ranking, policy_.tie);
  return result;
}

}  // namespace

TimeSummary summary_of(std::span<const double> us) {
  if (us.empty()) return {};
  const Quartiles q = quartiles(us);
  return {q.median, *std::min_element(us.begin(), us.end()), q.q1, q.q3,
          static_cast<int>(us.size())};
}

bool differ_in_one_parameter(const Candidate& a, const Candidate& b) {
  if (a.runner != b.runner || a.scheme != b.scheme || a.stages.size() != b.stages.size()) {
    return false;
  }
  int differences = 0;
  for (size_t s = 0; s < a.stages.size(); ++s) {
    const Tactic::Parameters& mine = a.stages[s].tactic.parameters();
    const Tactic::Parameters& other = b.stages[s].tactic.parameters();
    if (mine.size() != other.size()) return false;
    for (size_t p = 0; p < mine.size(); ++p) differences += mine[p] != other[p];
  }
  return differences == 1;
}

RaceResult race(Meter& meter, const RaceTask& task, std::vector<Contender> contenders) {
  return Race(meter, task, std::move(contenders)).run();
}

}  // namespace moetune
