#include "worker/hosted_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "tuner/configuration.h"
#include "worker/hosted_space.h"

namespace moetune {
namespace {

using worker::HostedStage;

constexpr size_t kMaxRunners = 64;
constexpr size_t kMaxSchemes = 64;
constexpr size_t kMaxStages = 16;
// Defaults are asked for up to here: beyond any batch that is served, as files for engines say what
// runs above the largest size that was tuned.
constexpr int64_t kDefaultTokens = int64_t{1} << 16;
constexpr size_t kMaxDefaults = 4096;  // As many as export reads.

struct HostedScheme {
  std::string name;
  std::vector<std::shared_ptr<HostedStage>> stages;
};

Error only_there(const std::string& name) {
  return {ErrorCode::kUnsupported, fmt::format("{} runs in its host process only", name),
          "its decisions are for the engine that has the kernels: moetune export"};
}

class HostedRunner final : public TunableRunner {
 public:
  /// Fails the reader for what is no runner.
  HostedRunner(JsonReader& reader, const WorkerQuestion& ask) {
    reader.required("name", name_);
    reader.optional("version", version_);
    reader.required("layout", layout_);
    reader.optional("deterministic", is_deterministic_);
    reader.objects("schemes", kMaxSchemes, [&](JsonReader& item) {
      HostedScheme& scheme = hosted_.emplace_back();
      item.required("name", scheme.name);
      const Json address{{"runner", name_}, {"scheme", scheme.name}};
      item.objects("stages", kMaxStages, [&](JsonReader& stage) {
        scheme.stages.push_back(HostedStage::read(stage, ask, address));
      });
      if (scheme.stages.empty()) item.fail("stages", "expected at least one");
    });
    if (hosted_.empty()) reader.fail("schemes", "expected at least one");
    reader.objects("defaults", kMaxDefaults, [&](JsonReader& item) { read_default(item); });
    if (defaults_.empty()) reader.fail("defaults", "expected one from 1 token on");
  }

  /// Once all points that belong to the spaces are known.
  Status finish(const std::vector<Suggestion>& suggested) {
    for (const DefaultInterval& interval : defaults_) {
      const HostedScheme* scheme = scheme_of(interval.candidate.scheme);
      for (size_t s = 0; s < scheme->stages.size(); ++s)
        scheme->stages[s]->add_point(interval.candidate.stages[s].tactic);
    }
    for (const HostedScheme& scheme : hosted_) {
      Scheme& made = schemes_.emplace_back(Scheme{scheme.name, {}});
      for (const auto& stage : scheme.stages) {
        if (scheme.stages.size() == 1) {
          for (const Suggestion& suggestion : suggested) stage->add_point(completed(suggestion));
        }
        made.stages.push_back({stage->name(), stage->space()});
      }
    }
    return put_defaults_in_order();
  }

  /// With what it lacks taken from the default.
  Tactic completed(const Suggestion& suggestion) const {
    Tactic tactic = suggestion.tactic;
    const Candidate fallback = default_candidate(suggestion.tokens);
    for (const auto& [name, value] : fallback.stages[0].tactic.parameters()) {
      if (tactic.find(name) == nullptr) tactic.set(name, value);
    }
    return tactic;
  }

  std::string name() const override { return name_; }
  int version() const override { return version_; }
  const std::vector<Scheme>& schemes() const override { return schemes_; }
  Candidate default_candidate(int64_t tokens) const override {
    const auto after = std::upper_bound(
        defaults_.begin(), defaults_.end(), tokens,
        [](int64_t at, const DefaultInterval& interval) { return at < interval.from; });
    return after == defaults_.begin() ? defaults_.front().candidate : std::prev(after)->candidate;
  }
  std::vector<std::string> layouts() const override { return {layout_}; }
  std::string layout(const Candidate&) const override { return layout_; }
  bool is_deterministic(const Candidate&) const override { return is_deterministic_; }
  bool has_exact_check() const override { return false; }
  Result<std::shared_ptr<Executable>> compile(const Candidate&, int64_t) override {
    return only_there(name_);
  }
  Result<std::shared_ptr<PackedWeights>> pack(const std::string&, WeightSource&) override {
    return only_there(name_);
  }

  const std::vector<DefaultInterval>& defaults() const { return defaults_; }
  std::string trouble() const {
    for (const HostedScheme& scheme : hosted_) {
      for (const auto& stage : scheme.stages)
        if (!stage->trouble().empty()) return fmt::format("{}: {}", name_, stage->trouble());
    }
    return {};
  }

 private:
  const HostedScheme* scheme_of(const std::string& name) const {
    const auto found =
        std::find_if(hosted_.begin(), hosted_.end(),
                     [&](const HostedScheme& scheme) { return scheme.name == name; });
    return found == hosted_.end() ? nullptr : &*found;
  }

  void read_default(JsonReader& item) {
    DefaultInterval interval;
    item.required("from", interval.from);
    item.required("scheme", interval.candidate.scheme);
    read_stages(item, interval.candidate);
    const int64_t least = defaults_.empty() ? 1 : defaults_.back().from + 1;
    if (interval.from < least || (defaults_.empty() && interval.from != 1))
      item.fail("from", "expected 1, and then ascending numbers");
    if (!item.ok()) return;
    const HostedScheme* scheme = scheme_of(interval.candidate.scheme);
    if (scheme == nullptr || scheme->stages.size() != interval.candidate.stages.size())
      return item.fail("scheme", "is none of this runner's, or has other stages");
    interval.candidate.runner = name_;
    interval.candidate.runner_version = version_;
    defaults_.push_back(std::move(interval));
  }

  // As its space orders them: candidates are compared by their texts.
  Status put_defaults_in_order() {
    for (DefaultInterval& interval : defaults_) {
      const auto scheme = std::find_if(schemes_.begin(), schemes_.end(), [&](const Scheme& each) {
        return each.name == interval.candidate.scheme;
      });
      for (size_t s = 0; s < scheme->stages.size(); ++s) {
        Candidate::Stage& stage = interval.candidate.stages[s];
        const auto ordered = scheme->stages[s].space.in_order(stage.tactic);
        if (!ordered || stage.name != scheme->stages[s].name) {
          return Error{ErrorCode::kParse,
                       fmt::format("describe: the default of {} from {} tokens on is {}, which is "
                                   "no point of its space",
                                   name_, interval.from, interval.candidate.text())};
        }
        stage.tactic = *ordered;
      }
    }
    return {};
  }

  std::string name_;
  int version_ = 0;
  std::string layout_;
  bool is_deterministic_ = true;
  std::vector<HostedScheme> hosted_;
  std::vector<Scheme> schemes_;
  std::vector<DefaultInterval> defaults_;
};

}  // namespace

std::optional<Candidate> suggested_candidate(const TunableRunner& runner,
                                             const Suggestion& suggestion) {
  const auto* hosted = dynamic_cast<const HostedRunner*>(&runner);
  if (hosted == nullptr) return std::nullopt;
  Candidate candidate = hosted->default_candidate(suggestion.tokens);
  const auto scheme =
      std::find_if(hosted->schemes().begin(), hosted->schemes().end(),
                   [&](const Scheme& each) { return each.name == candidate.scheme; });
  if (scheme->stages.size() != 1) return std::nullopt;
  const auto tactic = scheme->stages[0].space.in_order(hosted->completed(suggestion));
  if (!tactic) return std::nullopt;
  candidate.stages[0].tactic = *tactic;
  return candidate;
}

std::string hosted_trouble(const TunableRunner& runner) {
  const auto* hosted = dynamic_cast<const HostedRunner*>(&runner);
  return hosted == nullptr ? std::string() : hosted->trouble();
}

std::vector<DefaultInterval> default_intervals(const TunableRunner& runner) {
  const auto* hosted = dynamic_cast<const HostedRunner*>(&runner);
  return hosted == nullptr ? std::vector<DefaultInterval>() : hosted->defaults();
}

Result<HostedKernels> describe_kernels(const std::shared_ptr<WorkerHost>& host,
                                       const WorkerPlace& place,
                                       const std::vector<Suggestion>& suggested) {
  MOETUNE_ASSIGN_OR_RETURN(const WorkerQuestion ask, make_worker_question(host, place));
  MOETUNE_ASSIGN_OR_RETURN(const Json answer,
                           ask({{"do", "describe"}, {"max_tokens", kDefaultTokens}}));
  HostedKernels kernels;
  std::vector<std::unique_ptr<HostedRunner>> runners;
  JsonReader reader(answer, "describe");
  reader.optional("device_name", kernels.device_name);
  reader.optional_object("versions",
                         [&](JsonReader& item) { kernels.versions = read_strings(item); });
  reader.objects("runners", kMaxRunners, [&](JsonReader& item) {
    runners.push_back(std::make_unique<HostedRunner>(item, ask));
  });
  if (reader.ok() && runners.empty()) reader.fail("runners", "expected at least one");
  if (!reader.ok()) return reader.error();
  for (std::unique_ptr<HostedRunner>& runner : runners) {
    MOETUNE_RETURN_IF_ERROR(runner->finish(suggested));
    kernels.runners.push_back(std::move(runner));
  }
  return kernels;
}

}  // namespace moetune
