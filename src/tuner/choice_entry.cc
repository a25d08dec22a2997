#include "tuner/choice_entry.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/status_macros.h"

namespace moetune {
namespace {

std::vector<int64_t> numbers_of(const CallKey& key) {
  std::vector<int64_t> numbers;
  key.each_number([&](int64_t number) {
    numbers.push_back(number);
    return true;
  });
  return numbers;
}

// The least power of two that is not below; ranges beyond the last bucket end there, so that they
// are few.
int64_t power_of_two_from(int64_t size) {
  constexpr int64_t kLargest = int64_t{1} << 62;
  return size > kLargest ? std::numeric_limits<int64_t>::max()
                         : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
}

}  // namespace

SizeRange sizes_of(const Buckets& buckets, size_t bucket) {
  const std::vector<int64_t>& sizes = buckets.sizes();
  if (buckets.rounding() == BucketRounding::kCeil) {
    return {bucket == 0 ? 1 : sizes[bucket - 1] + 1, sizes[bucket]};
  }
  return {bucket == 0 ? 1 : sizes[bucket],
          bucket + 1 < sizes.size() ? sizes[bucket + 1] - 1 : sizes[bucket]};
}

/// What a size asks for.
struct ChoiceEntry::Wish {
  Candidate fallback;
  const Candidate* tuned = nullptr;  ///< Null: the default.
  TunableRunner* tuned_runner = nullptr;
  bool tuned_fits = false;
  Provenance provenance = Provenance::kDefault;
  SizeRange within;  ///< Of the bucket and of the plan's interval.
};

ChoiceEntry::ChoiceEntry(const CallKey& key, Buckets buckets, PlanSlot& slot)
    : op_(key.op()),
      runners_(key.runners().begin(), key.runners().end()),
      numbers_(numbers_of(key)),
      buckets_(std::move(buckets)),
      hash_(key.hash()),
      slot_(slot) {}

bool ChoiceEntry::matches(const CallKey& key) const noexcept {
  if (hash_ != key.hash() || op_ != key.op()) return false;
  if (!std::equal(runners_.begin(), runners_.end(), key.runners().begin(), key.runners().end())) {
    return false;
  }
  if (!key.config().dynamic.empty() && key.config().dynamic.front().buckets != buckets_) {
    return false;
  }
  size_t position = 0;
  const bool all_equal = key.each_number(
      [&](int64_t number) { return position < numbers_.size() && numbers_[position++] == number; });
  return all_equal && position == numbers_.size();
}

const ChoiceRange* ChoiceEntry::find(int64_t size) const noexcept {
  const Ranges* now = now_.load(std::memory_order_acquire);
  if (now == nullptr || now->basis != slot_.table.load(std::memory_order_acquire)) return nullptr;
  const auto after =
      std::upper_bound(now->ranges.begin(), now->ranges.end(), size,
                       [](int64_t s, const ChoiceRange* range) { return s < range->sizes.from; });
  if (after == now->ranges.begin()) return nullptr;
  const ChoiceRange* range = *std::prev(after);
  return size <= range->sizes.to ? range : nullptr;
}

// The interval of a plan that answers for a size. Sizes above the last bucket belong to it; those
// that a plan does not reach for another reason were not measured.
std::optional<size_t> ChoiceEntry::interval(const LookupTable& basis, int64_t size) const {
  if (size <= basis.maximum()) return basis.index(size);
  const bool above_all_buckets = size > buckets_.maximum() && basis.maximum() >= buckets_.maximum();
  return above_all_buckets ? std::optional(basis.size() - 1) : std::nullopt;
}

bool ChoiceEntry::settled(int64_t size) const {
  const LookupTable* basis = slot_.table.load(std::memory_order_acquire);
  if (basis == nullptr) return false;
  const std::optional<size_t> index = interval(*basis, size);
  return index && basis->settled(*index);
}

ChoiceEntry::Wish ChoiceEntry::look_up(const LookupTable* basis, int64_t size) const {
  Wish wish;
  wish.fallback = runners_.front()->default_candidate(size);
  wish.within = size <= buckets_.maximum()
                    ? sizes_of(buckets_, buckets_.index(size))
                    : SizeRange{buckets_.maximum() + 1, power_of_two_from(size)};
  if (basis == nullptr) return wish;
  if (size > basis->maximum()) {
    wish.within.from = std::max(wish.within.from, basis->maximum() + 1);
  }
  const std::optional<size_t> index = interval(*basis, size);
  if (!index) return wish;
  if (size <= basis->maximum()) {
    wish.within.from = std::max(wish.within.from, basis->from(*index));
    wish.within.to = std::min(wish.within.to, basis->to(*index));
  }
  const Lookup& answer = basis->answer(*index);
  wish.provenance = answer.provenance;
  if (answer.decision == nullptr) return wish;
  wish.tuned = &answer.decision->candidate;
  wish.tuned_runner = find_runner(runners_, wish.tuned->runner);
  wish.tuned_fits = wish.tuned_runner != nullptr &&
                    wish.tuned_runner->version() == wish.tuned->runner_version &&
                    why_unfit(*wish.tuned_runner, *wish.tuned, size).empty();
  return wish;
}

// The neighbours of a size for which everything is the same: their default, and whether the tuned
// candidate fits.
SizeRange ChoiceEntry::extent(const Wish& wish, int64_t size) const {
  constexpr int64_t kSteps = 1024;
  const bool may_fit =
      wish.tuned_runner != nullptr && wish.tuned_runner->version() == wish.tuned->runner_version;
  const auto same = [&](int64_t other) {
    if (runners_.front()->default_candidate(other) != wish.fallback) return false;
    return !may_fit || why_unfit(*wish.tuned_runner, *wish.tuned, other).empty() == wish.tuned_fits;
  };
  SizeRange sizes{size, size};
  for (int64_t i = 0; i < kSteps && sizes.from > wish.within.from && same(sizes.from - 1); ++i) {
    --sizes.from;
  }
  for (int64_t i = 0; i < kSteps && sizes.to < wish.within.to && same(sizes.to + 1); ++i) {
    ++sizes.to;
  }
  return sizes;
}

Result<Choice> ChoiceEntry::compiled(TunableRunner& runner, const Candidate& candidate,
                                     int64_t max_tokens) {
  const auto choice = [](const Compiled& ready) {
    return Choice{ready.runner, &ready.candidate, ready.executable.get(), Provenance::kDefault};
  };
  for (const auto& ready : compiled_) {
    if (ready->runner == &runner && ready->max_tokens >= max_tokens &&
        ready->candidate == candidate) {
      return choice(*ready);
    }
  }
  MOETUNE_ASSIGN_OR_RETURN(auto executable, runner.compile(candidate, max_tokens));
  compiled_.push_back(std::make_unique<const Compiled>(
      Compiled{candidate, &runner, std::move(executable), max_tokens}));
  return choice(*compiled_.back());
}

Result<const ChoiceRange*> ChoiceEntry::resolve(int64_t size, bool settled) {
  const std::lock_guard lock(mutex_);
  if (const ChoiceRange* range = find(size); range != nullptr && range->settled == settled) {
    return range;
  }
  const LookupTable* basis = slot_.table.load(std::memory_order_acquire);
  const Wish wish = look_up(basis, size);
  ChoiceRange range;
  range.sizes = extent(wish, size);
  range.settled = settled;
  MOETUNE_ASSIGN_OR_RETURN(range.fallback,
                           compiled(*runners_.front(), wish.fallback, range.sizes.to));
  range.chosen = range.fallback;
  if (wish.tuned == nullptr) {
    range.chosen.provenance = wish.provenance;
  } else if (wish.tuned_fits) {
    if (auto tuned = compiled(*wish.tuned_runner, *wish.tuned, range.sizes.to); tuned.ok()) {
      range.chosen = *tuned;
      range.chosen.provenance = wish.provenance;
    }
  }
  return publish(basis, range);
}

const ChoiceRange* ChoiceEntry::publish(const LookupTable* basis, ChoiceRange range) {
  ranges_.push_back(std::make_unique<const ChoiceRange>(range));
  const ChoiceRange* added = ranges_.back().get();
  auto next = std::make_unique<Ranges>();
  next->basis = basis;
  const Ranges* before = now_.load(std::memory_order_relaxed);
  if (before != nullptr && before->basis == basis) {
    for (const ChoiceRange* old : before->ranges) {
      const bool apart = old->sizes.to < range.sizes.from || old->sizes.from > range.sizes.to;
      if (apart) next->ranges.push_back(old);
    }
  }
  next->ranges.push_back(added);
  std::sort(
      next->ranges.begin(), next->ranges.end(),
      [](const ChoiceRange* a, const ChoiceRange* b) { return a->sizes.from < b->sizes.from; });
  all_.push_back(std::move(next));
  now_.store(all_.back().get(), std::memory_order_release);
  return added;
}

}  // namespace moetune
