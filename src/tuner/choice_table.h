// All entries of choose_one(), found by hash without a lock. Entries are added and never removed.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "tuner/choice_entry.h"

namespace moetune {

class ChoiceTable {
 public:
  /// No lock, no allocation; any thread.
  ChoiceEntry* find(const CallKey& key) const noexcept;

  /// The entry of a call, made where there is none.
  ChoiceEntry& find_or_add(const CallKey& key, const Buckets& buckets, PlanSlot& slot);

 private:
  /// Open addressing, a power of two of places, at most half of them taken.
  struct Places {
    explicit Places(size_t count) : entries(count) {}
    std::vector<std::atomic<ChoiceEntry*>> entries;
  };

  static void place(Places& places, ChoiceEntry* entry);
  void grow();

  std::atomic<const Places*> now_{nullptr};
  std::mutex mutex_;
  // Readers may be in an older array; all of them together are no larger than the newest.
  std::vector<std::unique_ptr<Places>> all_;
  std::vector<std::unique_ptr<ChoiceEntry>> entries_;
};

}  // namespace moetune
