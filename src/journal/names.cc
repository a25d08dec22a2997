#include "journal/names.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "tuner/configuration.h"

namespace moetune::journal {

Result<Statement*> Names::prepared(const char* sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) {
    MOETUNE_ASSIGN_OR_RETURN(Statement statement, connection_.prepare(sql));
    found = statements_.emplace(sql, std::move(statement)).first;
  }
  return &found->second;
}

Result<int64_t> Names::number_of(std::string text, const char* find, const char* add,
                                 const Bind& bind) {
  const auto known = numbers_.find(text);
  if (known != numbers_.end()) return known->second;
  MOETUNE_ASSIGN_OR_RETURN(Statement* const finding, prepared(find));
  bind(*finding);
  MOETUNE_ASSIGN_OR_RETURN(const bool is_there, finding->step());
  int64_t number = 0;
  if (is_there) {
    number = finding->number(0);
    finding->reset();
  } else {
    MOETUNE_ASSIGN_OR_RETURN(Statement* const adding, prepared(add));
    bind(*adding);
    MOETUNE_RETURN_IF_ERROR(adding->run());
    number = connection_.last_id();
  }
  numbers_.emplace(std::move(text), number);
  return number;
}

Result<int64_t> Names::problem(const std::string& key) {
  return number_of("problem\n" + key, "SELECT id FROM problem WHERE key = ?",
                   "INSERT INTO problem (key) VALUES (?)",
                   [&](Statement& statement) { statement.bind(key); });
}

Result<int64_t> Names::device(const std::string& key) {
  return number_of("device\n" + key, "SELECT id FROM device WHERE key = ?",
                   "INSERT INTO device (key) VALUES (?)",
                   [&](Statement& statement) { statement.bind(key); });
}

Result<int64_t> Names::origin(const Origin& origin) {
  const std::string toolchain = toolchain_text(origin);
  return number_of(fmt::format("origin\n{}\n{}", origin.program, toolchain),
                   "SELECT id FROM origin WHERE program = ? AND toolchain = ?",
                   "INSERT INTO origin (program, toolchain) VALUES (?, ?)",
                   [&](Statement& statement) { statement.bind(origin.program).bind(toolchain); });
}

// Candidates have long texts; an index of them would be as large as the table.
Result<int64_t> Names::candidate(const Candidate& candidate, const std::string& layout) {
  const std::string stages = stages_text(candidate);
  const auto hash = static_cast<int64_t>(Hash64()
                                             .add(candidate.runner)
                                             .add(static_cast<uint64_t>(candidate.runner_version))
                                             .add(candidate.scheme)
                                             .add(stages)
                                             .add(layout)
                                             .value());
  // With lengths: names from an import may hold anything, ends of lines too.
  return number_of(
      fmt::format("candidate\n{} {} {}\n{}{}{}{}", candidate.runner.size(), candidate.scheme.size(),
                  candidate.runner_version, candidate.runner, candidate.scheme, stages, layout),
      "SELECT id FROM candidate WHERE hash = ? AND runner = ? AND version = ? AND scheme = ?"
      " AND stages = ? AND layout = ?",
      "INSERT INTO candidate (hash, runner, version, scheme, stages, layout)"
      " VALUES (?, ?, ?, ?, ?, ?)",
      [&](Statement& statement) {
        statement.bind(hash).bind(candidate.runner).bind(candidate.runner_version);
        statement.bind(candidate.scheme).bind(stages).bind(layout);
      });
}

std::string stages_text(const Candidate& candidate) {
  return print_json_line(stages_to_json(candidate));
}

Status read_stages(const std::string& text, Candidate& candidate) {
  MOETUNE_ASSIGN_OR_RETURN(Json stages, parse_json(text, "stages"));
  const Json document = {{"stages", std::move(stages)}};
  JsonReader reader(document, "");
  read_stages(reader, candidate);
  if (!reader.ok()) return reader.error();
  return {};
}

std::string toolchain_text(const Origin& origin) {
  return print_json_line(strings_to_json(origin.toolchain));
}

Status read_toolchain(const std::string& text, Origin& origin) {
  MOETUNE_ASSIGN_OR_RETURN(const Json document, parse_json(text, "toolchain"));
  JsonReader reader(document, "toolchain");
  origin.toolchain = read_strings(reader);
  if (!reader.ok()) return reader.error();
  return {};
}

}  // namespace moetune::journal
