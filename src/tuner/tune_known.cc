#include "tuner/tune_known.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace moetune {
namespace {

std::string key(const Candidate& candidate, const Spot& spot, int stage, const std::string& phase) {
  return fmt::format("{}|{}|{}|{}", identity(candidate), spot.text(), stage, phase);
}

const MeasurementRecord* look_up(const std::map<std::string, MeasurementRecord>& records,
                                 const std::string& key) {
  const auto found = records.find(key);
  return found == records.end() ? nullptr : &found->second;
}

}  // namespace

int64_t unix_ms_now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
}

std::string Spot::text() const {
  return fmt::format("{} tokens of {} seed {}{}", what.tokens, what.workload, what.seed,
                     scale == Scale::kSubset ? " on a subset" : "");
}

std::string identity(const Candidate& candidate) {
  return fmt::format("{}@{}", candidate.text(), candidate.runner_version);
}

bool holds_everywhere(ErrorCode code) {
  return code != ErrorCode::kOutOfMemory && code != ErrorCode::kDeadline;
}

Known::Known(MeasurementStore& store, std::string problem, std::string device)
    : store_(store), problem_(std::move(problem)), device_(std::move(device)) {
  auto found = store_.find(problem_, device_);
  if (!found.ok()) {
    trouble_ = fmt::format("what was measured before could not be read: {}", found.error().message);
    return;
  }
  for (MeasurementRecord& record : found.value()) {
    // What did not fit in an earlier run, into memory or its own budget, may fit now.
    const bool may_fit_now =
        !record.rejected.empty() &&
        (record.rejected_as == ErrorCode::kOutOfMemory || record.phase == kOwnBudgetPhase);
    if (!may_fit_now) index(std::move(record));
  }
}

void Known::index(MeasurementRecord record) {
  const Spot spot{record.what, record.scale};
  if (!record.rejected.empty()) {
    const std::string who = identity(record.candidate);
    rejections_[holds_everywhere(record.rejected_as) ? who : who + spot.text()] = std::move(record);
    return;
  }
  std::string place = key(record.candidate, spot, record.stage, record.phase);
  if (record.versus) {
    place += fmt::format("|{}@{}", record.versus->against, record.versus->against_version);
  }
  records_[place] = std::move(record);
}

const MeasurementRecord* Known::timed(const Candidate& candidate, const Spot& spot,
                                      int stage) const {
  return look_up(records_, key(candidate, spot, stage, "race"));
}

bool Known::settled(const Candidate& candidate, const Spot& spot, int stage) const {
  return look_up(records_, key(candidate, spot, stage, "settled")) != nullptr;
}

const MeasurementRecord* Known::rejected(const Candidate& candidate, const Spot& spot) const {
  const std::string who = identity(candidate);
  const MeasurementRecord* everywhere = look_up(rejections_, who);
  return everywhere != nullptr ? everywhere : look_up(rejections_, who + spot.text());
}

bool Known::passed(const Candidate& candidate, const Spot& spot, const std::string& phase) const {
  return look_up(records_, key(candidate, spot, -1, phase)) != nullptr;
}

const MeasurementRecord* Known::compared(const Candidate& candidate, const Candidate& against,
                                         const Spot& spot, const std::string& phase) const {
  return look_up(records_, key(candidate, spot, -1, phase) + "|" + identity(against));
}

void Known::put(MeasurementRecord record) {
  const auto start = std::chrono::steady_clock::now();
  record.problem = problem_;
  record.device = device_;
  record.unix_ms = unix_ms_now();
  if (Status status = store_.put(record); !status.ok() && trouble_.empty()) {
    trouble_ = fmt::format("measurements are not kept: {}", status.error().message);
  }
  index(std::move(record));
  put_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace moetune
