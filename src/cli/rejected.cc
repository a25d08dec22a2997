#include "cli/rejected.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "cli/describe.h"
#include "cli/table.h"

namespace moetune::cli {
namespace {

// How many characters of a reason a table shows: helpers add the end of what a candidate printed.
constexpr size_t kReasonWidth = 90;

/// Collects one rejection after the other, the oldest first.
class Collection {
 public:
  void add(const Candidate& candidate, int64_t tokens, ErrorCode kind, const std::string& reason) {
    RejectedCandidate& entry = entries_[{kind, candidate.text(), candidate.runner_version}];
    entry.candidate = candidate;
    entry.tokens.insert(tokens);
    entry.kind = kind;
    entry.reason = reason;
  }
  std::vector<RejectedCandidate> list() && {
    std::vector<RejectedCandidate> all;
    for (auto& [key, entry] : entries_) all.push_back(std::move(entry));
    return all;
  }

 private:
  std::map<std::tuple<ErrorCode, std::string, int>, RejectedCandidate> entries_;
};

std::string identity(const Candidate& candidate) {
  return fmt::format("{}@{}", candidate.text(), candidate.runner_version);
}

std::string scheme_and_tactics(const Candidate& candidate) {
  return short_text(candidate, candidate.runner);
}

/// The reason on one line of ASCII: what a candidate printed may hold anything. Messages of helpers
/// and in-process runs begin with the candidate, which has a column of its own.
std::string one_line(const RejectedCandidate& rejected) {
  std::string text = rejected.reason;
  const std::string prefix = rejected.candidate.text() + ": ";
  if (text.starts_with(prefix)) text.erase(0, prefix.size());
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, ' ');
  if (text.size() > kReasonWidth) text = text.substr(0, kReasonWidth - 3) + "...";
  return text;
}

}  // namespace

std::vector<RejectedCandidate> collect_rejected(const std::vector<MeasurementRecord>& records) {
  Collection found;
  for (const MeasurementRecord& record : records) {
    if (!record.rejected.empty())
      found.add(record.candidate, record.what.tokens, record.rejected_as, record.rejected);
  }
  return std::move(found).list();
}

std::vector<RejectedCandidate> collect_rejected(const std::vector<Rejection>& rejections) {
  Collection found;
  for (const Rejection& rejection : rejections) {
    found.add(rejection.candidate, rejection.tokens, rejection.error.code, rejection.error.message);
  }
  return std::move(found).list();
}

const char* kind_text(ErrorCode kind) {
  switch (kind) {
    case ErrorCode::kWrongResult: return "wrong result";
    case ErrorCode::kRun: return "crashed";
    case ErrorCode::kCompile: return "did not compile";
    case ErrorCode::kDeadline: return "too slow to finish";
    case ErrorCode::kOutOfMemory: return "out of memory";
    case ErrorCode::kMeasurement: return "impossible time";
    case ErrorCode::kUnsupported: return "unsupported";
    default: return "other";
  }
}

std::string rejected_line(const std::vector<RejectedCandidate>& rejected) {
  if (rejected.empty()) return "no candidate rejected";
  std::set<std::string> seen;
  std::vector<std::pair<std::string, int>> kinds;
  for (const RejectedCandidate& one : rejected) {
    if (!seen.insert(identity(one.candidate)).second) continue;
    const std::string kind = kind_text(one.kind);
    auto known = std::find_if(kinds.begin(), kinds.end(),
                              [&](const auto& other) { return other.first == kind; });
    if (known == kinds.end()) known = kinds.insert(kinds.end(), {kind, 0});
    ++known->second;
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text =
      fmt::format("{} candidate{} rejected", seen.size(), seen.size() == 1 ? "" : "s");
  const char* separator = ": ";
  for (const auto& [kind, count] : kinds) {
    text += fmt::format("{}{} {}", separator, count, kind);
    separator = ", ";
  }
  return text;
}

std::string rejected_table(const std::vector<RejectedCandidate>& rejected, size_t most) {
  using Align = Table::Align;
  Table table({{"runner", Align::kLeft},
               {"tokens"},
               {"kind", Align::kLeft},
               {"reason", Align::kLeft},
               {"scheme and tactics", Align::kLeft}});
  for (size_t i = 0; i < std::min(most, rejected.size()); ++i) {
    const RejectedCandidate& one = rejected[i];
    table.add_row({fmt::format("{}@{}", one.candidate.runner, one.candidate.runner_version),
                   fmt::format("{}", fmt::join(one.tokens, ",")), kind_text(one.kind),
                   one_line(one), scheme_and_tactics(one.candidate)});
  }
  std::string text = table.text();
  if (rejected.size() > most)
    text += fmt::format("... and {} more (--json lists all)\n", rejected.size() - most);
  return text;
}

Json describe(const std::vector<RejectedCandidate>& rejected) {
  Json list = Json::array();
  for (const RejectedCandidate& one : rejected) {
    list.push_back({{"runner", one.candidate.runner},
                    {"version", one.candidate.runner_version},
                    {"scheme", one.candidate.scheme},
                    {"stages", describe_stages(one.candidate)},
                    {"tactic", scheme_and_tactics(one.candidate)},
                    {"tokens", one.tokens},
                    {"kind", to_string(one.kind)},
                    {"reason", one.reason}});
  }
  return list;
}

}  // namespace moetune::cli
