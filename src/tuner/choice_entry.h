// What choose_one() answers for one operator with one set of static sizes: ranges of the dynamic
// size, each with the tuned choice and the default, both compiled.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "moetune/autotuner.h"
#include "tuner/choice_key.h"
#include "tuner/plan_slot.h"

namespace moetune {

/// An inclusive range of sizes.
struct SizeRange {
  int64_t from = 1;
  int64_t to = 1;
};

/// The sizes that belong to a bucket. The last one's range ends at its own size, though larger
/// sizes map to it too.
SizeRange sizes_of(const Buckets& buckets, size_t bucket);

/// The same choices hold for all of `sizes`.
struct ChoiceRange {
  SizeRange sizes;
  Choice chosen;
  Choice fallback;  ///< The default.
  bool settled = false;
};

class ChoiceEntry {
 public:
  ChoiceEntry(const CallKey& key, Buckets buckets, PlanSlot& slot);

  bool matches(const CallKey& key) const noexcept;
  uint64_t hash() const { return hash_; }
  PlanSlot& slot() const { return slot_; }
  const Buckets& buckets() const { return buckets_; }

  /// The range of a size, nullptr where it was not resolved since the slot last published. No lock,
  /// no allocation.
  const ChoiceRange* find(int64_t size) const noexcept;

  /// Whether what is known now of `size` was measured here.
  bool settled(int64_t size) const;

  /// Looks up, compiles and remembers what `size` needs; its errors are those of compiling the
  /// default.
  Result<const ChoiceRange*> resolve(int64_t size, bool settled);

 private:
  struct Ranges {
    const LookupTable* basis = nullptr;
    std::vector<const ChoiceRange*> ranges;  ///< Ascending, without overlap, with gaps.
  };
  struct Compiled {
    Candidate candidate;
    TunableRunner* runner = nullptr;
    std::shared_ptr<Executable> executable;
    int64_t max_tokens = 0;
  };
  struct Wish;

  std::optional<size_t> interval(const LookupTable& basis, int64_t size) const;
  Wish look_up(const LookupTable* basis, int64_t size) const;
  SizeRange extent(const Wish& wish, int64_t size) const;
  Result<Choice> compiled(TunableRunner& runner, const Candidate& candidate, int64_t max_tokens);
  const ChoiceRange* publish(const LookupTable* basis, ChoiceRange range);

  const std::string op_;
  const std::vector<TunableRunner*> runners_;
  const std::vector<int64_t> numbers_;
  const Buckets buckets_;
  const uint64_t hash_;
  PlanSlot& slot_;
  std::atomic<const Ranges*> now_{nullptr};

  std::mutex mutex_;  ///< Guards what follows, and serialises compiling.
  // Whatever was handed out or may be read stays.
  std::vector<std::unique_ptr<const Ranges>> all_;
  std::vector<std::unique_ptr<const ChoiceRange>> ranges_;
  std::vector<std::unique_ptr<const Compiled>> compiled_;
};

}  // namespace moetune
