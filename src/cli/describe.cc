#include "cli/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace moetune::cli {
namespace {

Json texts(const std::map<std::string, std::string>& values) {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

Json number_or_text(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && end == text.data() + text.size()) return number;
  return text;
}

Json value_of(const ParameterValue& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

}  // namespace

Json describe(const DeviceProperties& device) {
  return {{"kind", device.kind},
          {"name", device.name},
          {"identity", texts(device.identity)},
          {"toolchain", texts(device.toolchain)}};
}

Json describe(const Problem& problem) {
  Json object = {{"op", problem.op}};
  for (const auto& [name, value] : problem.attributes) object[name] = number_or_text(value);
  return object;
}

Json describe(const Ceilings& ceilings) {
  return {{"read_bytes_per_s", ceilings.read_bytes_per_s},
          {"read_bytes", ceilings.read_bytes},
          {"read", ceilings.read_name},
          {"operations_per_s", ceilings.operations_per_s},
          {"operations", ceilings.operations_name}};
}

Json describe_stages(const Candidate& candidate) {
  Json stages = Json::array();
  for (const Candidate::Stage& stage : candidate.stages) {
    Json tactic = Json::object();
    for (const auto& [name, value] : stage.tactic.parameters()) tactic[name] = value_of(value);
    stages.push_back(
        {{"name", stage.name}, {"runner", candidate.runner}, {"tactic", std::move(tactic)}});
  }
  return stages;
}

Json describe(const TimeSummary& time) {
  return {{"median_us", time.median_us},
          {"min_us", time.min_us},
          {"q1_us", time.q1_us},
          {"q3_us", time.q3_us},
          {"samples", time.samples}};
}

std::string ceilings_text(const Ceilings& ceilings) {
  return fmt::format("{:.1f} GB/s ({}), {:.1f} GFLOP/s ({})", ceilings.read_bytes_per_s / 1e9,
                     ceilings.read_name, ceilings.operations_per_s / 1e9, ceilings.operations_name);
}

std::string short_text(const Candidate& candidate, std::string_view usual_runner) {
  std::string text = candidate.text();
  if (candidate.runner == usual_runner && text.starts_with(candidate.runner + '/'))
    text.erase(0, candidate.runner.size() + 1);
  return text;
}

std::string difference_text(const Candidate& candidate, const Candidate& fallback) {
  if (candidate.runner != fallback.runner || candidate.scheme != fallback.scheme ||
      candidate.stages.size() != fallback.stages.size()) {
    return candidate.text();
  }
  std::string text;
  for (size_t stage = 0; stage < candidate.stages.size(); ++stage) {
    const Tactic& usual = fallback.stages[stage].tactic;
    Tactic::Parameters different;
    for (const auto& [name, value] : candidate.stages[stage].tactic.parameters()) {
      const ParameterValue* other = usual.find(name);
      if (other == nullptr || *other != value) different.emplace_back(name, value);
    }
    if (different.empty()) continue;
    text += fmt::format("{}{}{{{}}}", text.empty() ? "" : " ", candidate.stages[stage].name,
                        Tactic(std::move(different)).text());
  }
  return text.empty() ? "nothing" : text;
}

std::string time_text(double us) {
  if (us <= 0) return "-";
  if (us < 1000) return fmt::format("{:.{}f} us", us, us < 100 ? 2 : 1);
  const double ms = us / 1000;
  return fmt::format("{:.{}f} ms", ms, ms < 10 ? 3 : ms < 100 ? 2 : 1);
}

Roofline roofline(const Work& work, const Ceilings& ceilings, double us) {
  if (us <= 0 || ceilings.read_bytes_per_s <= 0 || ceilings.operations_per_s <= 0) return {};
  const double read_us = 1e6 * work.bytes / ceilings.read_bytes_per_s;
  const double compute_us = 1e6 * work.operations / ceilings.operations_per_s;
  if (read_us >= compute_us) return {"memory", read_us / us, ceilings.read_name};
  return {"compute", compute_us / us, ceilings.operations_name};
}

void raise_to_seen(Ceilings& ceilings, const Work& work, double us) {
  const auto raise = [us](double& rate, std::string& name, double seen) {
    if (us <= 0 || rate <= 0 || 1e6 * seen / us <= rate) return;
    rate = 1e6 * seen / us;
    constexpr const char* kSeen = ", then passed by the layer itself";
    if (!name.ends_with(kSeen)) name += kSeen;
  };
  raise(ceilings.read_bytes_per_s, ceilings.read_name, work.bytes);
  raise(ceilings.operations_per_s, ceilings.operations_name, work.operations);
}

}  // namespace moetune::cli
