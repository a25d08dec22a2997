#include "tuner/choice_table.h"

namespace moetune {

ChoiceEntry* ChoiceTable::find(const CallKey& key) const noexcept {
  const Places* places = now_.load(std::memory_order_acquire);
  if (places == nullptr) return nullptr;
  const size_t mask = places->entries.size() - 1;
  for (size_t i = key.hash() & mask; true; i = (i + 1) & mask) {
    ChoiceEntry* entry = places->entries[i].load(std::memory_order_acquire);
    if (entry == nullptr || entry->matches(key)) return entry;
  }
}

ChoiceEntry& ChoiceTable::find_or_add(const CallKey& key, const Buckets& buckets, PlanSlot& slot) {
  const std::lock_guard lock(mutex_);
  if (ChoiceEntry* entry = find(key)) return *entry;
  entries_.push_back(std::make_unique<ChoiceEntry>(key, buckets, slot));
  if (all_.empty() || entries_.size() * 2 > all_.back()->entries.size()) {
    grow();
  } else {
    place(*all_.back(), entries_.back().get());
  }
  return *entries_.back();
}

void ChoiceTable::place(Places& places, ChoiceEntry* entry) {
  const size_t mask = places.entries.size() - 1;
  size_t i = entry->hash() & mask;
  while (places.entries[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & mask;
  places.entries[i].store(entry, std::memory_order_release);
}

void ChoiceTable::grow() {
  constexpr size_t kFirst = 64;
  auto larger = std::make_unique<Places>(all_.empty() ? kFirst : all_.back()->entries.size() * 2);
  for (const auto& entry : entries_) place(*larger, entry.get());
  all_.push_back(std::move(larger));
  now_.store(all_.back().get(), std::memory_order_release);
}

}  // namespace moetune
