// moetune journal import: takes in what `journal export` wrote, here or elsewhere.
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

#include "base/status_macros.h"
#include "base/system_error.h"
#include "cli/command.h"
#include "cli/journal_flags.h"
#include "journal/transfer.h"

namespace moetune::cli {
namespace {

constexpr size_t kShownLines = 20;

class JournalImportCommand final : public Command {
 public:
  const char* name() const override { return "journal import"; }
  const char* summary() const override { return "Take in lines that `journal export` wrote"; }
  const char* examples() const override {
    return "  moetune journal import nvfp4.jsonl\n"
           "  zcat journal.jsonl.gz | moetune journal import - --strict";
  }
  void declare(Flags& flags) override {
    flags.positional("FILE", &file_, "Lines of JSON; - for stdin");
    journal_.declare(flags);
    flags.toggle("--strict", &strict_, "Take nothing where any line is bad");
  }

  Result<Exit> run(Output& output) override {
    std::ifstream file;
    if (file_ != "-") {
      std::error_code error;
      if (std::filesystem::is_directory(file_, error)) {
        return Error{ErrorCode::kInvalidArgument, fmt::format("{} is a folder", file_),
                     "name a file in it"};
      }
      file.open(file_, std::ios::binary);
      if (!file) return cannot_read(errno);
    }
    MOETUNE_ASSIGN_OR_RETURN(const auto database, journal_.open_to_write(/*create=*/true));
    MOETUNE_ASSIGN_OR_RETURN(
        const journal::Imported imported,
        journal::import_lines(*database, file_ == "-" ? std::cin : file, strict_));
    report(imported, *database, output);
    return imported.bad_lines == 0 ? Exit::kDone : Exit::kFailed;
  }

 private:
  Error cannot_read(int error) const {
    return {error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
            fmt::format("cannot read {}: {}", file_, error_text(error)), "check the path"};
  }

  void report(const journal::Imported& imported, journal::Database& database,
              Output& output) const {
    const std::string where = file_ == "-" ? "stdin" : file_;
    Json bad = Json::array();
    for (const journal::BadLine& line : imported.bad) {
      if (bad.size() < kShownLines)
        output.note(fmt::format("{}:{}: {}", where, line.number, line.message));
      bad.push_back({{"line", line.number}, {"message", line.message}});
    }
    if (imported.bad_lines > static_cast<int64_t>(kShownLines))
      output.note(fmt::format("{} bad lines in all", imported.bad_lines));
    const bool refused = strict_ && imported.bad_lines > 0;
    output.text(
        fmt::format("{} measurements, {} plans and {} runs taken into {}; {} were there already, "
                    "{} lines are bad{}\n",
                    imported.measurements, imported.plans, imported.runs, database.path(),
                    imported.already_there, imported.bad_lines,
                    refused ? ", so that nothing was taken (--strict)" : ""));
    output.object({{"journal", database.path()},
                   {"measurements", imported.measurements},
                   {"plans", imported.plans},
                   {"runs", imported.runs},
                   {"already_there", imported.already_there},
                   {"bad_lines", imported.bad_lines},
                   {"bad", std::move(bad)}});
  }

  std::string file_;
  JournalFlags journal_;
  bool strict_ = false;
};

}  // namespace

std::unique_ptr<Command> make_journal_import_command() {
  return std::make_unique<JournalImportCommand>();
}

}  // namespace moetune::cli
