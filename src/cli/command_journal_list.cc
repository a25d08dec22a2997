// moetune journal list: what was measured so far.
#include <fmt/format.h>

#include <filesystem>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/journal_flags.h"
#include "cli/progress.h"
#include "cli/values.h"

namespace moetune::cli {
namespace {

Json describe(const journal::Group& group) {
  return {{"device", group.device},
          {"problem", group.problem},
          {"measurements", group.measurements},
          {"rejections", group.rejections},
          {"comparisons", group.comparisons},
          {"candidates", group.candidates},
          {"plans", group.plans},
          {"runs", group.runs},
          {"run_seconds", group.run_seconds},
          {"runners", group.runners},
          {"first_unix_ms", group.first_unix_ms},
          {"last_unix_ms", group.last_unix_ms}};
}

std::string text_of(const journal::Group& group) {
  return fmt::format(
      "\n{}\n  on {}\n  {} measurements of {} candidates ({} rejected, {} comparisons), {} plans\n"
      "  {} runs of {} in all\n  runners {}\n  from {} to {}\n",
      group.problem, group.device, group.measurements, group.candidates, group.rejections,
      group.comparisons, group.plans, group.runs, duration_text(group.run_seconds),
      fmt::join(group.runners, ", "), date_text(group.first_unix_ms),
      date_text(group.last_unix_ms));
}

class JournalListCommand final : public Command {
 public:
  const char* name() const override { return "journal list"; }
  const char* group_summary() const override {
    return "Every measurement that was ever taken: list, prune, export, import";
  }
  const char* summary() const override { return "Say what was measured, by device and problem"; }
  const char* examples() const override {
    return "  moetune journal list\n"
           "  moetune journal list --problem weights=nvfp4 --json";
  }
  void declare(Flags& flags) override {
    journal_.declare(flags);
    filter_.declare(flags);
  }

  Result<Exit> run(Output& output) override {
    MOETUNE_ASSIGN_OR_RETURN(const auto database, journal_.open_to_read());
    MOETUNE_ASSIGN_OR_RETURN(const std::vector<journal::Group> groups,
                             journal::groups(*database, filter_.read()));
    std::error_code error;
    const uintmax_t bytes = std::filesystem::file_size(database->path(), error);
    Json list = Json::array();
    output.text(fmt::format("{} ({})\n", database->path(), bytes_text(static_cast<double>(bytes))));
    if (groups.empty()) output.text("nothing measured\n");
    for (const journal::Group& group : groups) {
      list.push_back(describe(group));
      output.text(text_of(group));
    }
    output.object({{"journal", database->path()}, {"bytes", bytes}, {"groups", std::move(list)}});
    return Exit::kDone;
  }

 private:
  JournalFlags journal_;
  FilterFlags filter_;
};

}  // namespace

std::unique_ptr<Command> make_journal_list_command() {
  return std::make_unique<JournalListCommand>();
}

}  // namespace moetune::cli
