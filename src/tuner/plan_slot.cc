#include "tuner/plan_slot.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune {
namespace {

constexpr const char* kNotFaster = "nothing was shown to be faster than the default";
constexpr const char* kNotMeasured = "nothing was measured at this size";
constexpr const char* kNoLongerFits = "the tuned tactic no longer fits";
constexpr const char* kNotDeterministic = "the tuned tactic is not deterministic";
constexpr const char* kOtherVersion = "measured with another version of the runner";

bool was_measured(const Decision& decision) {
  return decision.evidence.candidates > 0 || decision.evidence.fallback.samples > 0;
}

LookupTable::Interval interval(const Decision& decision, const Fit& fit, Provenance provenance) {
  LookupTable::Interval result{decision.to, kNothingKnown, false};
  switch (fit.kind) {
    case Fit::Kind::kStale:
      result.answer = {nullptr, Provenance::kStale, kOtherVersion};
      return result;
    case Fit::Kind::kDropped:
      result.answer = {nullptr, Provenance::kDefault, kNoLongerFits};
      return result;
    case Fit::Kind::kNotDeterministic:
      result.answer = {nullptr, Provenance::kDefault, kNotDeterministic};
      return result;
    case Fit::Kind::kFits: break;
  }
  if (decision.is_default) {
    const bool measured = was_measured(decision);
    result.answer = {nullptr, Provenance::kDefault, measured ? kNotFaster : kNotMeasured};
    result.settled = measured && provenance == Provenance::kTuned;
  } else {
    result.answer = {&decision, provenance, ""};
    result.settled = provenance == Provenance::kTuned;
  }
  return result;
}

LookupTable make_table(const Plan& plan, const std::vector<Fit>& fits, Provenance provenance) {
  std::vector<LookupTable::Interval> intervals;
  for (size_t i = 0; i < plan.decisions.size(); ++i) {
    intervals.push_back(interval(plan.decisions[i], fits[i], provenance));
  }
  return LookupTable(intervals);
}

Provenance provenance_of(Layer layer) {
  const bool sibling = layer == Layer::kUserSibling || layer == Layer::kShippedSibling;
  return sibling ? Provenance::kNearest : Provenance::kTuned;
}

bool same(const std::vector<Fit>& a, const std::vector<Fit>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].kind != b[i].kind) return false;
  }
  return true;
}

}  // namespace

PlanSlot::Published::Published(Plan of, std::vector<Fit> fits_of, Provenance from)
    : plan(std::move(of)),
      fits(std::move(fits_of)),
      provenance(from),
      table(make_table(plan, fits, provenance)) {}

void PlanSlot::load(Layer layer, Plan plan) {
  if (is_pinned_) return;
  known_[static_cast<size_t>(layer)] = Known{std::move(plan), false, {}};
  publish();
}

void PlanSlot::pin(Plan plan) {
  std::vector<Fit> fits(plan.decisions.size());
  for (auto& other : known_) other.reset();
  known_[static_cast<size_t>(Layer::kUser)] = Known{std::move(plan), true, std::move(fits)};
  is_pinned_ = true;
  publish();
}

void PlanSlot::tuned(Plan plan) {
  if (is_pinned_) return;
  std::vector<Fit> fits(plan.decisions.size());
  known_[static_cast<size_t>(Layer::kTunedHere)] = Known{std::move(plan), true, std::move(fits)};
  publish();
}

std::vector<std::string> PlanSlot::validate(std::span<TunableRunner* const> runners) {
  std::vector<std::string> reasons;
  if (is_pinned_) return reasons;
  for (size_t layer = static_cast<size_t>(Layer::kUser); layer < kLayers; ++layer) {
    if (!known_[layer]) continue;
    Known& known = *known_[layer];
    known.fits = check_fit(known.plan, runners, deterministic);
    known.checked = true;
    for (size_t i = 0; i < known.fits.size(); ++i) {
      if (known.fits[i].kind == Fit::Kind::kFits) continue;
      const Decision& decision = known.plan.decisions[i];
      reasons.push_back(fmt::format("{}: {}..{} tokens: {} is not used: {}", problem.key(),
                                    decision.from, decision.to, decision.candidate.text(),
                                    known.fits[i].reason));
    }
  }
  publish();
  return reasons;
}

bool PlanSlot::needs_validation() const {
  for (const auto& known : known_) {
    if (known && !known->checked) return true;
  }
  return false;
}

PlanSlot::InForce PlanSlot::in_force() const {
  InForce first;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const auto& known = known_[layer];
    if (!known || !known->checked) continue;
    const InForce here{&known->plan, static_cast<Layer>(layer), &known->fits};
    const bool any_fits = std::any_of(known->fits.begin(), known->fits.end(),
                                      [](const Fit& fit) { return fit.kind == Fit::Kind::kFits; });
    if (any_fits) return here;
    if (first.plan == nullptr) first = here;
  }
  return first;
}

void PlanSlot::publish() {
  const InForce now = in_force();
  if (now.plan == nullptr) {
    table.store(nullptr, std::memory_order_release);
    return;
  }
  // The same again must not make another table: the old ones stay for ever.
  const Provenance provenance = provenance_of(now.layer);
  for (const auto& earlier : published_) {
    if (earlier->plan == *now.plan && same(earlier->fits, *now.fits) &&
        earlier->provenance == provenance) {
      table.store(&earlier->table, std::memory_order_release);
      return;
    }
  }
  published_.push_back(std::make_unique<const Published>(*now.plan, *now.fits, provenance));
  table.store(&published_.back()->table, std::memory_order_release);
}

}  // namespace moetune
