// moetune journal prune: takes measurements out for good.
#include <fmt/format.h>

#include <chrono>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/journal_flags.h"
#include "cli/values.h"

namespace moetune::cli {
namespace {

int64_t unix_ms_now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
}

class JournalPruneCommand final : public Command {
 public:
  const char* name() const override { return "journal prune"; }
  const char* summary() const override { return "Take measurements out of the journal for good"; }
  const char* examples() const override {
    return "  moetune journal prune --older-than 90d --dry-run\n"
           "  moetune journal prune --device sm=80 --problem weights=bf16\n"
           "  moetune journal prune --all";
  }
  void declare(Flags& flags) override {
    journal_.declare(flags);
    filter_.declare(flags);
    flags.value("--older-than", "AGE", &age_,
                "Only what was measured longer ago, as in 90d or 12h");
    flags.toggle("--all", &all_, "Everything");
    flags.toggle("--dry-run", &dry_run_, "Only say how much that would be");
  }

  Result<Exit> run(Output& output) override {
    MOETUNE_ASSIGN_OR_RETURN(const journal::Filter filter, filter());
    MOETUNE_ASSIGN_OR_RETURN(const auto database, dry_run_
                                                      ? journal_.open_to_read()
                                                      : journal_.open_to_write(/*create=*/false));
    MOETUNE_ASSIGN_OR_RETURN(const journal::Pruned pruned, dry_run_
                                                               ? journal::count(*database, filter)
                                                               : journal::prune(*database, filter));
    output.text(fmt::format("{} {} measurements, {} plans and {} runs out of {}\n",
                            dry_run_ ? "would take" : "took", pruned.measurements, pruned.plans,
                            pruned.runs, database->path()));
    output.object({{"journal", database->path()},
                   {"dry_run", dry_run_},
                   {"measurements", pruned.measurements},
                   {"plans", pruned.plans},
                   {"runs", pruned.runs}});
    return Exit::kDone;
  }

 private:
  Result<journal::Filter> filter() const {
    const bool any = filter_.any() || !age_.empty();
    if (any == all_) {
      return Error{ErrorCode::kInvalidArgument,
                   any ? "--all does not go with --older-than, --device or --problem"
                       : "which measurements?",
                   "give --older-than, --device or --problem, or else --all"};
    }
    journal::Filter filter = filter_.read();
    if (!age_.empty()) {
      MOETUNE_ASSIGN_OR_RETURN(const double seconds, parse_age("--older-than", age_));
      filter.before_unix_ms = unix_ms_now() - static_cast<int64_t>(seconds * 1000);
    }
    return filter;
  }

  JournalFlags journal_;
  FilterFlags filter_;
  std::string age_;
  bool all_ = false;
  bool dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> make_journal_prune_command() {
  return std::make_unique<JournalPruneCommand>();
}

}  // namespace moetune::cli
