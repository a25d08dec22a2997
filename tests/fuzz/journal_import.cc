// Lines that `moetune journal import` is given, into a journal that stays open from one input to
// the next: whatever was taken can be listed, found, exported, taken in again and pruned.
#include <algorithm>
#include <sstream>

#include "fuzz/fuzz_target.h"
#include "fuzz/scratch_folder.h"
#include "journal/contents.h"
#include "journal/json_lines.h"
#include "journal/transfer.h"

namespace moetune::fuzz {
namespace {

using namespace journal;

template <typename T>
T value_of(Result<T> result, std::string_view what) {
  require(result.ok(), what, result.ok() ? "" : result.error().message);
  return std::move(result).value();
}

std::unique_ptr<Database> open(const std::string& path, bool create) {
  return value_of(Database::open(path, {.create = create}), "the journal can be opened");
}

std::string export_all(Database& database) {
  std::string lines;
  const auto write = [&lines](std::string_view line) {
    lines.append(line).append("\n");
    return Status();
  };
  (void)value_of(export_lines(database, {}, write), "what was taken can be exported");
  return lines;
}

// What was exported is good, and is there already.
void check_export(Database& database, const Imported& taken) {
  const std::string lines = export_all(database);
  std::istringstream again(lines);
  const Imported second = value_of(import_lines(database, again, true), "an export can be read");
  require(second.bad_lines == 0, "an export has no bad line",
          second.bad.empty() ? lines : second.bad[0].message + "\n" + lines);
  require(second.measurements == 0 && second.plans == 0, "an import adds nothing twice", lines);
  require(export_all(database) == lines, "two exports are the same", lines);
  const int64_t entries = std::count(lines.begin(), lines.end(), '\n');
  require(entries <= taken.measurements + taken.plans + taken.runs, "nothing came from nowhere");
}

void check_finding(Database& database) {
  for (const Group& group : value_of(groups(database, {}), "what was taken can be listed")) {
    const auto found = value_of(database.find(group.problem, group.device), "it can be found");
    require(static_cast<int64_t>(found.size()) == group.measurements, "all of it is found");
    (void)value_of(database.find_runs(group.problem, group.device), "its runs can be found");
  }
}

void check_pages(Database& database) {
  const auto pages = value_of(database.connection().text("PRAGMA quick_check"), "pages are read");
  require(pages == "ok", "the journal is not damaged", pages);
  const auto names = value_of(database.connection().number("SELECT count(*) FROM"
                                                           " pragma_foreign_key_check"),
                              "references are read");
  require(names == 0, "every reference leads somewhere");
}

void run(std::string_view input) {
  static const ScratchFolder folder;
  static const std::string path = folder.path() / "journal.db";
  static std::unique_ptr<Database> database = open(path, true);
  static int inputs = 0;

  const bool strict = take_byte(input) == 's';
  std::istringstream lines{std::string(input)};
  const Imported taken = value_of(import_lines(*database, lines, strict), "an import ends");
  require(!strict || taken.bad_lines == 0 || taken.measurements + taken.plans + taken.runs == 0,
          "a strict import takes all or nothing");
  if (taken.measurements + taken.plans + taken.runs == 0) return;
  check_finding(*database);
  check_export(*database, taken);
  constexpr int kSeldom = 64;
  if (++inputs % kSeldom == 1) {
    check_pages(*database);
    database = open(path, false);
    check_finding(*database);
  }
  (void)value_of(prune(*database, {}), "all of it can be pruned");
  database->forget();
  require(export_all(*database).empty(), "nothing is left");
}

const Register registered("journal_import", run);

}  // namespace
}  // namespace moetune::fuzz
