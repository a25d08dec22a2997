// Texts that many rows share: each is a row of its own table, found or made once and known by its
// number from then on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include "journal/entry.h"
#include "journal/sqlite.h"
#include "moetune/tactic.h"

namespace moetune::journal {

/// Whom a row of `measurement` or `plan` belongs to: numbers of rows in the tables of names.
struct References {
  int64_t problem = 0;
  int64_t device = 0;
  int64_t origin = 0;
  int64_t candidate = 0;  ///< Of a measurement.
};

/// One thread at a time, inside of a transaction.
class Names {
 public:
  /// The connection must outlive it.
  explicit Names(Connection& connection) : connection_(connection) {}

  Result<int64_t> problem(const std::string& key);
  Result<int64_t> device(const std::string& key);
  Result<int64_t> origin(const Origin& origin);
  Result<int64_t> candidate(const Candidate& candidate, const std::string& layout);

  /// When a transaction was not committed, or a number was refused because the row is gone: what is
  /// remembered may be wrong.
  void forget() { numbers_.clear(); }

 private:
  using Bind = std::function<void(Statement&)>;
  /// `find` selects the number; where it has none, `add` inserts. Both take the same parameters.
  Result<int64_t> number_of(std::string text, const char* find, const char* add, const Bind& bind);
  Result<Statement*> prepared(const char* sql);

  Connection& connection_;
  std::unordered_map<std::string, int64_t> numbers_;
  std::unordered_map<std::string, Statement> statements_;
};

/// The column `stages` of a candidate, and back. kParse for what was never written there.
std::string stages_text(const Candidate& candidate);
Status read_stages(const std::string& text, Candidate& candidate);
/// The column `toolchain` of an origin, and back.
std::string toolchain_text(const Origin& origin);
Status read_toolchain(const std::string& text, Origin& origin);

}  // namespace moetune::journal
