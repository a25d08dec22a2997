#include "tuner/exploration.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace moetune {
namespace {

constexpr double kLikely = 1.1;  // Expected within this of the best: tried before exploring ends.

}  // namespace

const Contender* best_of(const std::vector<Contender>& contenders) {
  const Contender* found = nullptr;
  for (const Contender& contender : contenders) {
    if (contender.time.samples == 0 || contender.state == Contender::State::kRejected) continue;
    if (found == nullptr || contender.time.median_us < found->time.median_us) found = &contender;
  }
  return found;
}

void Exploration::update() {
  find_neighbours();
  predict();
}

bool Exploration::nothing_likely_waits() const {
  if (neighbour_of_best(std::vector<bool>(contenders_.size())) >= 0) return false;
  return std::none_of(contenders_.begin(), contenders_.end(), [](const Contender& c) {
    return c.state == Contender::State::kWaiting && c.expected > 0 && c.expected <= kLikely;
  });
}

int Exploration::next(int step, const std::vector<bool>& taken) const {
  for (size_t i = 0; i < contenders_.size(); ++i) {
    if (contenders_[i].pinned && waits(i, taken)) return static_cast<int>(i);
  }
  // Of four, one that ran well nearby, one that the model takes for the fastest, one next to the
  // best so far, one from anywhere.
  using Kind = int (Exploration::*)(const std::vector<bool>&) const;
  const auto first_of = [&](std::initializer_list<Kind> kinds) {
    for (const Kind kind : kinds) {
      if (const int index = (this->*kind)(taken); index >= 0) return index;
    }
    return -1;
  };
  int found = -1;
  switch (step % 4) {
    case 0:
      found = first_of({&Exploration::best_expected, &Exploration::best_predicted,
                        &Exploration::neighbour_of_best});
      break;
    case 1:
      found = first_of({&Exploration::best_predicted, &Exploration::best_expected,
                        &Exploration::neighbour_of_best});
      break;
    case 2: found = first_of({&Exploration::neighbour_of_best, &Exploration::best_expected}); break;
    default: break;
  }
  return found >= 0 ? found : far_off(step, taken);
}

// From what was tried here, and, for less, what ran at a neighbouring size.
void Exploration::predict() {
  constexpr double kWeightFromNearby = 0.2;
  constexpr size_t kFewest = 4;
  constexpr size_t kMostValues = 100;  // Beyond this, fitting would cost more than it tells.
  if (!has_model_ || (effects_ && effects_->values() > kMostValues)) return;
  if (!effects_) {
    std::vector<const Candidate*> points;
    for (const Contender& contender : contenders_) points.push_back(&contender.candidate);
    effects_.emplace(points);
    if (effects_->values() > kMostValues) return;
  }
  std::vector<Effects::Try> tries;
  double log_level = 0;  // Of a time here over what was expected.
  int compared = 0;
  const auto is_tried = [](const Contender& c) {
    return c.time.samples > 0 && c.state != Contender::State::kRejected;
  };
  for (size_t i = 0; i < contenders_.size(); ++i) {
    const Contender& contender = contenders_[i];
    if (!is_tried(contender)) continue;
    tries.push_back({i, contender.time.median_us});
    if (contender.expected <= 0) continue;
    log_level += std::log(contender.time.median_us / contender.expected);
    ++compared;
  }
  if (tries.empty()) return;
  const double level =
      compared > 0 ? std::exp(log_level / compared) : best_of(contenders_)->time.median_us;
  for (size_t i = 0; i < contenders_.size(); ++i) {
    const Contender& contender = contenders_[i];
    if (contender.state != Contender::State::kWaiting || contender.expected <= 0) continue;
    tries.push_back({i, level * contender.expected, kWeightFromNearby});
  }
  if (tries.size() < kFewest) return;
  effects_->fit(tries);
  predicted_us_.resize(contenders_.size());
  for (size_t i = 0; i < contenders_.size(); ++i) predicted_us_[i] = effects_->us(i);
}

int Exploration::best_predicted(const std::vector<bool>& taken) const {
  int found = -1;
  for (size_t i = 0; i < predicted_us_.size(); ++i) {
    if (contenders_[i].expected > policy_.hopeless || !waits(i, taken)) continue;
    if (found < 0 || predicted_us_[i] < predicted_us_[static_cast<size_t>(found)])
      found = static_cast<int>(i);
  }
  return found;
}

// Of those that ran within sight of the best at a neighbouring size.
int Exploration::best_expected(const std::vector<bool>& taken) const {
  int found = -1;
  for (size_t i = 0; i < contenders_.size(); ++i) {
    const Contender& contender = contenders_[i];
    const bool is_hopeless = contender.expected <= 0 || contender.expected > policy_.hopeless;
    if (is_hopeless || !waits(i, taken)) continue;
    if (found < 0 || contender.expected < contenders_[static_cast<size_t>(found)].expected) {
      found = static_cast<int>(i);
    }
  }
  return found;
}

int Exploration::neighbour_of_best(const std::vector<bool>& taken) const {
  for (const size_t i : neighbours_) {
    // What ran far behind nearby is nobody's hope, next to the best or not.
    if (waits(i, taken) && contenders_[i].expected <= policy_.hopeless) return static_cast<int>(i);
  }
  return -1;
}

void Exploration::find_neighbours() {
  const Contender* leader = best_of(contenders_);
  if (leader == nullptr || leader == neighbours_of_) return;
  neighbours_of_ = leader;
  neighbours_.clear();
  for (size_t i = 0; i < contenders_.size(); ++i) {
    if (differ_in_one_parameter(leader->candidate, contenders_[i].candidate))
      neighbours_.push_back(i);
  }
}

// Multiples of the golden ratio spread evenly over the list, however many are taken.
int Exploration::far_off(int step, const std::vector<bool>& taken) const {
  const size_t count = contenders_.size();
  const double position = std::fmod((step + 1) * 0.6180339887498949, 1.0);
  const auto first = static_cast<size_t>(position * static_cast<double>(count));
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (first + i) % count;
    if (waits(index, taken)) return static_cast<int>(index);
  }
  return -1;
}

}  // namespace moetune
