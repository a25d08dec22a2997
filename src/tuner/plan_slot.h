// All that is known of one problem: the plans of every source, and the look-up table of the one in
// force.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "moetune/autotuner.h"
#include "tuner/fit.h"
#include "tuner/lookup_counters.h"
#include "tuner/lookup_table.h"

namespace moetune {

/// Sources of plans. The first that has one with a decision that fits wins; where none has, the
/// first that has one says why.
enum class Layer : uint8_t { kTunedHere, kUser, kShipped, kUserSibling, kShippedSibling };
inline constexpr size_t kLayers = 5;

/// The reading side is find(), for any thread. Everything else is called under the tuner's lock.
struct PlanSlot {
  PlanSlot(Problem of, const std::atomic<bool>& off, LookupCounters& counts,
           bool only_deterministic = false)
      : problem(std::move(of)),
        switched_off(off),
        counters(counts),
        deterministic(only_deterministic) {}

  Lookup find(int64_t tokens) const noexcept {
    const Lookup answer = peek(tokens);
    counters.add(answer.provenance);
    return answer;
  }
  /// The same, not counted.
  Lookup peek(int64_t tokens) const noexcept {
    if (switched_off.load(std::memory_order_relaxed)) return kSwitchedOff;
    const LookupTable* now = table.load(std::memory_order_acquire);
    return now == nullptr ? kNothingKnown : now->find(tokens);
  }

  /// Takes in a plan that is not checked yet; it is in force after validate(). Nothing once pinned.
  void load(Layer layer, Plan plan);
  /// Takes in a plan that was tuned here and publishes it. Nothing once pinned.
  void tuned(Plan plan);
  /// Publishes a plan that pin_mismatches() had nothing against, in place of all others, for good.
  void pin(Plan plan);
  bool is_pinned() const { return is_pinned_; }
  /// Checks loaded plans; publishes where that changes what is in force. Returns what does not fit.
  std::vector<std::string> validate(std::span<TunableRunner* const> runners);

  /// Whether load() brought something that validate() has not seen.
  bool needs_validation() const;
  /// The plan in force, with its layer; null where there is none.
  struct InForce {
    const Plan* plan = nullptr;
    Layer layer = Layer::kTunedHere;
    const std::vector<Fit>* fits = nullptr;
  };
  InForce in_force() const;

  const Problem problem;
  const std::atomic<bool>& switched_off;
  LookupCounters& counters;
  const bool deterministic;  ///< Others are never in force.
  std::atomic<const LookupTable*> table{nullptr};

 private:
  struct Known {
    Plan plan;
    bool checked = false;
    std::vector<Fit> fits;  ///< One per decision once checked.
  };
  /// A table and the decisions that it points to.
  struct Published {
    Published(Plan of, std::vector<Fit> fits_of, Provenance from);
    Plan plan;
    std::vector<Fit> fits;
    Provenance provenance;
    LookupTable table;
  };

  void publish();

  bool is_pinned_ = false;
  std::array<std::optional<Known>, kLayers> known_;
  std::vector<std::unique_ptr<const Published>> published_;  ///< All ever: readers may hold any.
};

}  // namespace moetune
