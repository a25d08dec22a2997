// What an AutoTuner holds. Locks are taken in the order of their declaration.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "moetune/autotuner.h"
#include "tuner/choice_table.h"
#include "tuner/lookup_counters.h"
#include "tuner/plan_slot.h"

namespace moetune {

class autotune::Pause {
 public:
  Pause();
  ~Pause();
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  const autotune* paused_;
};

struct AutoTuner::State {
  State(DeviceProperties of, AutoTunerOptions with) : device(std::move(of)), mode(with) {}

  /// The slot of a problem, made where there is none. Takes `plans`.
  PlanSlot& slot(const Problem& problem);
  /// Adds a report to the statistics.
  void count(const TuneReport& report);

  // Of choose_one(), in choose_one.cc.
  /// What a known call gets, counted.
  Choice answer(const ChoiceRange& range);
  /// Makes a call known, tuning it first where `options` are given and it was not tuned yet.
  Result<Choice> learn(const CallKey& key, const Tensors& arguments,
                       const autotune::Options* options, Device& on);
  /// The plan of a call's problem with what tuning found for its bucket. Under `tuning`.
  Result<Plan> tune_call(const CallKey& key, const ChoiceEntry& entry, const Tensors& arguments,
                         const autotune::Options& options, Device& on);

  const DeviceProperties device;
  const AutoTunerOptions mode;
  std::atomic<bool> defaults_only{false};
  LookupCounters counters;
  std::atomic<uint64_t> tuned_problems{0};
  std::atomic<uint64_t> measurements{0};
  std::atomic<uint64_t> rejected_candidates{0};
  std::unique_ptr<MeasurementStore> store = make_memory_store();

  std::mutex tuning;  ///< Held for a whole tune() or load(): seconds.
  std::mutex plans;   ///< Guards `slots` and everything but the reading side of each: microseconds.
  std::map<std::string, std::unique_ptr<PlanSlot>> slots;
  ChoiceTable choices;
};

}  // namespace moetune
