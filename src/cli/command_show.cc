// moetune show: what a tuned configuration, or another engine's tuning file, holds.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/describe.h"
#include "cli/foreign_file.h"
#include "cli/journal_flags.h"
#include "cli/rejected.h"
#include "cli/table.h"
#include "engine/backend.h"
#include "moetune/autotuner.h"
#include "moetune/plan.h"

namespace moetune::cli {
namespace {

/// Numbers candidates in the order in which they appear: their texts are too long for a table.
class Legend {
 public:
  std::string number(const std::string& text) {
    auto it = std::find(texts_.begin(), texts_.end(), text);
    if (it == texts_.end()) it = texts_.insert(texts_.end(), text);
    return fmt::format("#{}", it - texts_.begin() + 1);
  }
  std::string text() const {
    std::string text;
    for (size_t i = 0; i < texts_.size(); ++i)
      text += fmt::format("{:>6}  {}\n", fmt::format("#{}", i + 1), texts_[i]);
    return text;
  }

 private:
  std::vector<std::string> texts_;
};

std::string plan_text(const Plan& plan) {
  using Align = Table::Align;
  Table table({{"tokens"},
               {"measured at"},
               {"default"},
               {"tuned"},
               {"speed-up [95 %]"},
               {"tactic", Align::kLeft}});
  Legend legend;
  for (const Decision& decision : plan.decisions) {
    const Evidence& evidence = decision.evidence;
    const std::string number = legend.number(short_text(decision.candidate, plan.runner));
    const bool is_default = decision.is_default;
    table.add_row({fmt::format("{}..{}", decision.from, decision.to),
                   std::to_string(decision.tokens), time_text(evidence.fallback.median_us),
                   time_text(is_default ? evidence.fallback.median_us : evidence.chosen.median_us),
                   is_default ? "1"
                              : fmt::format("{:.3f} [{:.3f}, {:.3f}]", evidence.speedup,
                                            evidence.speedup_low, evidence.speedup_high),
                   number + (is_default ? " (default)" : "")});
  }
  return fmt::format("\n{}\n  runner {}, weight layout {}, up to {} tokens{}\n\n{}\n{}",
                     plan.problem.key(), plan.runner, plan.layout, plan.max_tokens,
                     plan.deterministic ? ", tuned deterministic" : "", table.text(),
                     legend.text());
}

class ShowCommand final : public Command {
 public:
  const char* name() const override { return "show"; }
  const char* summary() const override {
    return "Print a tuned configuration, or a tuning file of vLLM, SGLang or FlashInfer";
  }
  const char* examples() const override {
    return "  moetune show\n"
           "  moetune show tuned.json --json\n"
           "  moetune show 'E=128,N=768,device_name=NVIDIA_H200.json'\n"
           "  moetune show --rejected";
  }
  void declare(Flags& flags) override {
    flags.positional("FILE", &file_,
                     "A tuned configuration (default: this machine's), or another engine's file",
                     /*required=*/false);
    flags.toggle("--rejected", &rejected_,
                 "List the candidates that were rejected instead, and why, from the journal");
    journal_.declare(flags);
  }

  Result<Exit> run(Output& output) override {
    if (!rejected_ && !journal_.path.empty()) {
      return Error{ErrorCode::kInvalidArgument, "--journal without --rejected",
                   "plans come from FILE; only rejected candidates come from the journal"};
    }
    MOETUNE_ASSIGN_OR_RETURN(const std::string path, find_file());
    if (!file_.empty() && !rejected_) {
      MOETUNE_ASSIGN_OR_RETURN(const std::optional<Exit> shown, show_foreign_file(path, output));
      if (shown) return *shown;
    }
    Result<TunedConfiguration> configuration = TunedConfiguration::load(path);
    if (!configuration.ok()) {
      Error error = std::move(configuration).error();
      if (file_.empty() && error.code == ErrorCode::kNotFound)
        error.hint = "nothing was tuned on this machine yet: `moetune tune MODEL`";
      return error;
    }
    if (rejected_) return show_rejected(*configuration, path, output);
    if (output.json()) {
      MOETUNE_ASSIGN_OR_RETURN(Json object, parse_json(configuration->to_json(), path));
      object["config"] = path;
      output.object(object);
    }
    output.text(fmt::format("{}\n{} ({})\n", path, configuration->device.name,
                            configuration->device.key()));
    if (configuration->plans.empty()) output.text("no plans\n");
    for (const Plan& plan : configuration->plans) output.text(plan_text(plan));
    return Exit::kDone;
  }

 private:
  Result<std::string> find_file() const;
  Result<Exit> show_rejected(const TunedConfiguration& configuration, const std::string& path,
                             Output& output) const;

  std::string file_;
  bool rejected_ = false;
  JournalFlags journal_;
};

Result<std::string> ShowCommand::find_file() const {
  if (!file_.empty()) return file_;
  MOETUNE_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, open_backend("auto"));
  std::string path = get_config_path(backend->device().properties());
  if (!path.empty()) return path;
  return Error{ErrorCode::kNotFound, "neither MOETUNE_CONFIG, XDG_CACHE_HOME nor HOME is set",
               "name the file"};
}

Result<Exit> ShowCommand::show_rejected(const TunedConfiguration& configuration,
                                        const std::string& path, Output& output) const {
  constexpr size_t kShown = 200;
  MOETUNE_ASSIGN_OR_RETURN(const auto journal, journal_.open_to_read());
  Json problems = Json::array();
  output.text(fmt::format("{}\njournal {}\n", path, journal->path()));
  if (configuration.plans.empty()) output.text("no plans\n");
  for (const Plan& plan : configuration.plans) {
    MOETUNE_ASSIGN_OR_RETURN(const std::vector<MeasurementRecord> records,
                             journal->find(plan.problem.key(), configuration.device.key()));
    const std::vector<RejectedCandidate> rejected = collect_rejected(records);
    output.text(fmt::format(
        "\n{}\n  {}\n", plan.problem.key(),
        records.empty() ? "nothing of this problem is in the journal" : rejected_line(rejected)));
    if (!rejected.empty()) output.text('\n' + rejected_table(rejected, kShown));
    problems.push_back({{"problem", cli::describe(plan.problem)},
                        {"measurements", records.size()},
                        {"rejected", cli::describe(rejected)}});
  }
  output.object(
      {{"config", path}, {"journal", journal->path()}, {"problems", std::move(problems)}});
  return Exit::kDone;
}

}  // namespace

std::unique_ptr<Command> make_show_command() { return std::make_unique<ShowCommand>(); }

}  // namespace moetune::cli
