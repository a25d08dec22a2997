#include "journal/transfer.h"

#include <fmt/format.h>

#include <optional>

#include "base/status_macros.h"
#include "journal/json_lines.h"

namespace moetune::journal {
namespace {

enum class Read { kLine, kTooLong, kEnd };

// Never holds more than the longest line that is taken.
Read next_line(std::istream& in, std::string& line) {
  line.clear();
  std::streambuf& buffer = *in.rdbuf();
  constexpr auto kEndOfFile = std::istream::traits_type::eof();
  bool is_too_long = false;
  bool any = false;
  for (int c = buffer.sbumpc(); c != kEndOfFile; c = buffer.sbumpc()) {
    any = true;
    if (c == '\n') break;
    is_too_long = is_too_long || line.size() == kMaxLineBytes;
    if (!is_too_long) line += static_cast<char>(c);
  }
  if (!any) return Read::kEnd;
  return is_too_long ? Read::kTooLong : Read::kLine;
}

class Import {
 public:
  Import(Database& database, bool strict) : database_(database), strict_(strict) {}

  Result<Imported> run(std::istream& lines) {
    Status status = read(lines);
    const bool takes_it = status.ok() && (!strict_ || result_.bad_lines == 0);
    if (takes_it && transaction_) status = transaction_->commit();
    if (!status.ok() || !takes_it) database_.forget();
    transaction_.reset();
    if (!status.ok()) return std::move(status).error();
    if (!takes_it) result_.measurements = result_.plans = result_.runs = result_.already_there = 0;
    return std::move(result_);
  }

 private:
  Status read(std::istream& lines) {
    constexpr int kPerTransaction = 1000;
    std::string line;
    int64_t number = 0;
    int taken = 0;
    while (true) {
      const Read read = next_line(lines, line);
      if (read == Read::kEnd) return {};
      ++number;
      if (read == Read::kTooLong) {
        bad(number, fmt::format("longer than {} bytes", kMaxLineBytes));
        continue;
      }
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      Result<Entry> entry = parse_line(line);
      if (!entry.ok()) {
        bad(number, entry.error().message);
        continue;
      }
      // After a bad line a strict import only goes on to name the others.
      if (strict_ && result_.bad_lines > 0) continue;
      MOETUNE_RETURN_IF_ERROR(take(*entry));
      if (!strict_ && ++taken % kPerTransaction == 0) {
        MOETUNE_RETURN_IF_ERROR(transaction_->commit());
        transaction_.reset();
      }
    }
  }

  void bad(int64_t number, std::string message) {
    ++result_.bad_lines;
    if (result_.bad.size() < kMostBadLines) result_.bad.push_back({number, std::move(message)});
  }

  Status take(const Entry& entry) {
    if (!transaction_) {
      MOETUNE_ASSIGN_OR_RETURN(Transaction begun, Transaction::begin(database_.connection()));
      transaction_.emplace(std::move(begun));
    }
    if (const auto* record = std::get_if<MeasurementRecord>(&entry.record)) {
      MOETUNE_ASSIGN_OR_RETURN(const bool is_new, database_.merge(*record, entry.origin));
      ++(is_new ? result_.measurements : result_.already_there);
    } else if (const auto* plan = std::get_if<PlanRecord>(&entry.record)) {
      MOETUNE_ASSIGN_OR_RETURN(const bool is_new, database_.merge_plan(*plan, entry.origin));
      ++(is_new ? result_.plans : result_.already_there);
    } else {
      const auto& run = std::get<RunRecord>(entry.record);
      MOETUNE_ASSIGN_OR_RETURN(const bool is_new, database_.merge_run(run, entry.origin));
      ++(is_new ? result_.runs : result_.already_there);
    }
    return {};
  }

  Database& database_;
  bool strict_;
  Imported result_;
  std::optional<Transaction> transaction_;
};

}  // namespace

Result<Exported> export_lines(Database& database, const Filter& filter,
                              const std::function<Status(std::string_view)>& write) {
  Exported exported;
  MOETUNE_RETURN_IF_ERROR(visit_measurements(
      database, filter, [&](const MeasurementRecord& record, const Origin& origin) {
        ++exported.measurements;
        return write(to_line(record, origin));
      }));
  MOETUNE_RETURN_IF_ERROR(
      visit_plans(database, filter, [&](const PlanRecord& record, const Origin& origin) {
        ++exported.plans;
        return write(to_line(record, origin));
      }));
  MOETUNE_RETURN_IF_ERROR(
      visit_runs(database, filter, [&](const RunRecord& record, const Origin& origin) {
        ++exported.runs;
        return write(to_line(record, origin));
      }));
  return exported;
}

Result<Imported> import_lines(Database& database, std::istream& lines, bool strict) {
  return Import(database, strict).run(lines);
}

}  // namespace moetune::journal
