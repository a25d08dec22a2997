#include "worker/hosted_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace moetune::worker {
namespace {

constexpr size_t kMaxParameters = 64;
constexpr size_t kMaxValues = 4096;
constexpr int64_t kMaxPoints = int64_t{1} << 20;
constexpr size_t kMaxReasons = 4096;
constexpr size_t kMaxRuns = size_t{1} << 20;

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

// Runs of points, [[first, last], ...].
void read_points(JsonReader& reader, int64_t size, std::vector<std::pair<int64_t, int64_t>>& runs) {
  reader.members([&](const std::string& name, const Json& points) {
    if (name != "points") return;
    if (!points.is_array() || points.size() > kMaxRuns)
      return reader.fail("points", "expected an array");
    for (const Json& run : points) {
      const bool is_pair = run.is_array() && run.size() == 2 && run[0].is_number_integer() &&
                           run[1].is_number_integer();
      if (!is_pair) return reader.fail("points", "expected pairs of integers");
      const auto [first, last] = std::pair(run[0].get<int64_t>(), run[1].get<int64_t>());
      if (first < 0 || last < first || last >= size)
        return reader.fail("points", fmt::format("[{}, {}] of {} points", first, last, size));
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
    read_points(item, size, runs);
    if (!item.ok()) return;
    for (const auto& [first, last] : runs) {
      for (int64_t number = first; number <= last; ++number) excluded.emplace(number, reason);
    }
  });
  if (!reader.ok()) return reader.error();
  return excluded;
}

}  // namespace moetune::worker
