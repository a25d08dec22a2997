#include "worker/hosted_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/status_macros.h"
#include "tuner/configuration.h"

namespace moetune::worker {
namespace {

constexpr size_t kMaxParameters = 64;
constexpr size_t kMaxValues = 4096;
constexpr int64_t kMaxPoints = int64_t{1} << 20;
constexpr size_t kMaxReasons = 4096;
constexpr size_t kMaxRuns = size_t{1} << 20;
// Numbers of tokens that are asked about at once, for one point.
constexpr int64_t kAlong = 4096;

Parameter read_parameter(JsonReader& reader) {
  Parameter parameter;
  reader.required("name", parameter.name);
  reader.optional("meaning", parameter.meaning);
  reader.members([&](const std::string& name, const Json& values) {
    if (name != "values") return;
    if (!values.is_array() || values.size() > kMaxValues)
      return reader.fail("values", "expected an array of numbers or words");
    for (const Json& value : values) {
      if (value.is_number_integer()) {
        parameter.values.emplace_back(value.get<int64_t>());
      } else if (value.is_string()) {
        parameter.values.emplace_back(value.get<std::string>());
      } else {
        return reader.fail("values", "expected integers or words");
      }
    }
  });
  if (parameter.values.empty()) reader.fail("values", "expected at least one");
  return parameter;
}

// Runs of numbers below `size`, [[first, last], ...].
void read_runs(JsonReader& reader, const std::string& member, int64_t size,
               std::vector<std::pair<int64_t, int64_t>>& runs) {
  reader.members([&](const std::string& name, const Json& numbers) {
    if (name != member) return;
    if (!numbers.is_array() || numbers.size() > kMaxRuns)
      return reader.fail(member, "expected an array");
    for (const Json& run : numbers) {
      const bool is_pair = run.is_array() && run.size() == 2 && run[0].is_number_integer() &&
                           run[1].is_number_integer();
      if (!is_pair) return reader.fail(member, "expected pairs of integers");
      const auto [first, last] = std::pair(run[0].get<int64_t>(), run[1].get<int64_t>());
      if (first < 0 || last < first || last >= size)
        return reader.fail(member, fmt::format("[{}, {}] of {} {}", first, last, size, member));
      runs.emplace_back(first, last);
    }
  });
}

}  // namespace

std::shared_ptr<HostedStage> HostedStage::read(JsonReader& reader, WorkerQuestion ask,
                                               Json address) {
  std::string name;
  std::vector<Parameter> parameters;
  reader.required("name", name);
  reader.objects("parameters", kMaxParameters,
                 [&](JsonReader& item) { parameters.push_back(read_parameter(item)); });
  if (reader.ok() && Space(parameters).product_size() > kMaxPoints)
    reader.fail("parameters", fmt::format("more than {} points", kMaxPoints));
  address["stage"] = name;
  auto stage =
      std::make_shared<HostedStage>(std::move(ask), std::move(address), std::move(parameters));
  stage->name_ = std::move(name);
  return stage;
}

void HostedStage::add_point(const Tactic& tactic) {
  Tactic ordered;
  for (const Parameter& parameter : parameters_) {
    const ParameterValue* value = tactic.find(parameter.name);
    if (value == nullptr) return;
    ordered.set(parameter.name, *value);
  }
  if (ordered.parameters().size() != tactic.parameters().size()) return;
  if (std::find(added_.begin(), added_.end(), ordered) == added_.end()) added_.push_back(ordered);
}

Space HostedStage::space() {
  std::vector<Parameter> parameters = parameters_;
  for (const Tactic& tactic : added_) {
    for (Parameter& parameter : parameters) {
      const ParameterValue& value = *tactic.find(parameter.name);
      if (std::find(parameter.values.begin(), parameter.values.end(), value) ==
          parameter.values.end())
        parameter.values.push_back(value);
    }
  }
  return Space(std::move(parameters),
               {{"host", [self = shared_from_this()](const Tactic& tactic, int64_t tokens) {
                   return self->why_excluded(tactic, tokens);
                 }}});
}

int64_t HostedStage::number_of(const Tactic& tactic) const {
  int64_t number = 0;
  for (const Parameter& parameter : parameters_) {
    const ParameterValue* value = tactic.find(parameter.name);
    const auto at = value == nullptr
                        ? parameter.values.end()
                        : std::find(parameter.values.begin(), parameter.values.end(), *value);
    if (at == parameter.values.end()) return -1;
    number =
        number * static_cast<int64_t>(parameter.values.size()) + (at - parameter.values.begin());
  }
  return number;
}

std::string HostedStage::why_excluded(const Tactic& tactic, int64_t tokens) {
  if (std::find(added_.begin(), added_.end(), tactic) != added_.end()) return {};
  const int64_t number = number_of(tactic);
  if (number < 0) return "it has a value that only a default or a suggestion has";
  // Who asks about one point at many numbers of tokens, as the tuner does of an interval, would
  // wait for milliseconds at each.
  const int64_t step = tokens - last_tokens_;
  const bool goes_along = number == last_number_ && step != 0 && std::abs(step) <= kAlong;
  last_number_ = number;
  last_tokens_ = tokens;
  if (!excluded_.contains(tokens)) {
    if (goes_along && asks_along_ && !along_.covers(number, tokens)) {
      const int64_t from = step > 0 ? tokens : std::max<int64_t>(1, tokens - kAlong);
      auto along = ask_along(tactic, from, step > 0 ? tokens + kAlong : tokens);
      asks_along_ = along.ok();
      if (along.ok()) along_ = std::move(along).value(), along_.number = number;
    }
    if (along_.covers(number, tokens)) return along_.why(tokens);
  }
  const Excluded& excluded = excluded_at(tokens);
  const auto found = excluded.find(number);
  return found == excluded.end() ? std::string() : found->second;
}

// Where the host cannot be asked, or says what makes no sense, nothing is excluded: what cannot run
// will say so when it is checked. trouble() tells why.
const HostedStage::Excluded& HostedStage::excluded_at(int64_t tokens) {
  const auto [known, is_new] = excluded_.try_emplace(tokens);
  if (!is_new) return known->second;
  Result<Excluded> excluded = ask_excluded(tokens);
  if (excluded.ok()) {
    known->second = std::move(excluded).value();
  } else if (trouble_.empty() && excluded.error().code != ErrorCode::kInterrupted) {
    trouble_ = fmt::format("the host cannot say what is excluded at {} tokens: {}", tokens,
                           excluded.error().message);
  }
  return known->second;
}

std::string HostedStage::Along::why(int64_t tokens) const {
  for (const auto& [first, last, reason] : runs) {
    if (first <= tokens && tokens <= last) return reason;
  }
  return {};
}

// An error where the host does not know the question, too.
Result<HostedStage::Along> HostedStage::ask_along(const Tactic& tactic, int64_t from, int64_t to) {
  Json question{{"do", "exclude"}, {"tokens", from}, {"until", to}};
  question["tactic"] = stages_to_json({"", 0, "", {{name_, tactic}}})[0]["tactic"];
  question.update(address_);
  MOETUNE_ASSIGN_OR_RETURN(const Json answer, ask_(std::move(question)));
  Along along{.number = -1, .from = from, .to = 0, .runs = {}};
  JsonReader reader(answer, "exclude");
  reader.required("until", along.to);
  reader.objects("excluded", kMaxReasons, [&](JsonReader& item) {
    std::string reason;
    std::vector<std::pair<int64_t, int64_t>> runs;
    item.required("reason", reason);
    read_runs(item, "tokens", to + 1, runs);
    for (const auto& [first, last] : runs) along.runs.emplace_back(first, last, reason);
  });
  if (reader.ok() && along.to != to) reader.fail("until", "is not what was asked for");
  if (!reader.ok()) return reader.error();
  return along;
}

Result<HostedStage::Excluded> HostedStage::ask_excluded(int64_t tokens) {
  Json question{{"do", "exclude"}, {"tokens", tokens}};
  question.update(address_);
  MOETUNE_ASSIGN_OR_RETURN(const Json answer, ask_(std::move(question)));
  const int64_t size = Space(parameters_).product_size();
  Excluded excluded;
  JsonReader reader(answer, "exclude");
  reader.objects("excluded", kMaxReasons, [&](JsonReader& item) {
    std::string reason;
    std::vector<std::pair<int64_t, int64_t>> runs;
    item.required("reason", reason);
    read_runs(item, "points", size, runs);
    if (!item.ok()) return;
    for (const auto& [first, last] : runs) {
      for (int64_t number = first; number <= last; ++number) excluded.emplace(number, reason);
    }
  });
  if (!reader.ok()) return reader.error();
  return excluded;
}

}  // namespace moetune::worker
