// moetune journal export: measurements as lines of JSON.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/status_macros.h"
#include "base/system_error.h"
#include "cli/command.h"
#include "cli/journal_flags.h"
#include "cli/save.h"
#include "journal/transfer.h"

namespace moetune::cli {
namespace {

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

Error cannot_write(const std::string& path, int error) {
  return {ErrorCode::kIo, fmt::format("cannot write {}: {}", path, error_text(error)),
          "what was written is not complete; free some space, or name another file"};
}

class JournalExportCommand final : public Command {
 public:
  const char* name() const override { return "journal export"; }
  const char* summary() const override { return "Write measurements as lines of JSON"; }
  const char* examples() const override {
    return "  moetune journal export | gzip > journal.jsonl.gz\n"
           "  moetune journal export --problem weights=nvfp4 --out nvfp4.jsonl";
  }
  void declare(Flags& flags) override {
    journal_.declare(flags);
    filter_.declare(flags);
    flags.value("--out", "FILE", &out_, "Where the lines go; default: stdout");
  }

  Result<Exit> run(Output& output) override {
    if (out_.empty() && output.json()) {
      return Error{ErrorCode::kInvalidArgument, "--json and the lines both want stdout",
                   "name a file for the lines with --out, or leave --json out"};
    }
    MOETUNE_ASSIGN_OR_RETURN(const auto database, journal_.open_to_read());
    if (out_.empty()) {
      MOETUNE_ASSIGN_OR_RETURN(const journal::Exported exported, write(*database, stdout));
      output.note(summary_of(exported));
      return Exit::kDone;
    }
    MOETUNE_RETURN_IF_ERROR(check_can_write(out_));
    std::unique_ptr<std::FILE, Closer> file(std::fopen(out_.c_str(), "w"));
    if (file == nullptr) return cannot_write(out_, errno);
    MOETUNE_ASSIGN_OR_RETURN(const journal::Exported exported, write(*database, file.get()));
    if (std::fclose(file.release()) != 0) return cannot_write(out_, errno);
    output.text(fmt::format("{} to {}\n", summary_of(exported), out_));
    output.object({{"journal", database->path()},
                   {"out", out_},
                   {"measurements", exported.measurements},
                   {"plans", exported.plans},
                   {"runs", exported.runs}});
    return Exit::kDone;
  }

 private:
  static std::string summary_of(const journal::Exported& exported) {
    return fmt::format("exported {} measurements, {} plans and {} runs", exported.measurements,
                       exported.plans, exported.runs);
  }

  Result<journal::Exported> write(journal::Database& database, std::FILE* file) const {
    return journal::export_lines(database, filter_.read(), [&](std::string_view line) -> Status {
      const bool is_written = std::fwrite(line.data(), 1, line.size(), file) == line.size() &&
                              std::fputc('\n', file) != EOF;
      if (is_written) return {};
      return cannot_write(out_.empty() ? "stdout" : out_, errno);
    });
  }

  JournalFlags journal_;
  FilterFlags filter_;
  std::string out_;
};

}  // namespace

std::unique_ptr<Command> make_journal_export_command() {
  return std::make_unique<JournalExportCommand>();
}

}  // namespace moetune::cli
