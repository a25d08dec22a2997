#include "cli/audit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "cli/table_text.h"

namespace moetune::cli {
namespace {

using exchange::Engine;
using exchange::LogFinding;

const char* outcome_text(const AuditRow& row) {
  if (row.outcome == "found") return "found";
  if (row.outcome == "other_triton") return "found, for another version of Triton";
  if (row.outcome == "first_gemm") return "not there: the first GEMM's file serves both";
  if (row.outcome == "broken") return "BROKEN: the engine would end at it";
  return "NOT FOUND: the engine's default runs";
}

Json traps_to_json(const std::vector<exchange::Trap>& traps) {
  Json list = Json::array();
  for (const exchange::Trap& trap : traps)
    list.push_back({{"kind", to_string(trap.kind)}, {"path", trap.path}, {"text", trap.text}});
  return list;
}

/// SGLang's paths end in configs/triton_X_Y_Z/NAME.
bool is_versioned(const LogFinding& finding, const std::string& folder) {
  return finding.engine == Engine::kSglang && folder.find("/configs/triton_") != std::string::npos;
}

/// Where near misses may be: beside what was looked for and, for SGLang, in folders of other
/// versions of Triton.
std::vector<std::string> folders_of(const LogFinding& finding) {
  std::vector<std::string> folders;
  for (const std::string& path : finding.looked_for) {
    const std::string folder = parent_folder(path);
    folders.push_back(is_versioned(finding, folder) ? parent_folder(folder) : folder);
  }
  return folders;
}

/// The file that would be taken, and how to make it. A log shows which folder is the user's own
/// where vLLM looked into two, and where SGLang looked into any.
void add_fix(const LogFinding& finding, AuditRow& row) {
  const std::string folder = parent_folder(finding.looked_for.front());
  std::string own = "DIR";
  exchange::Version triton;
  row.fix_path = fmt::format("{}/{}", own, row.name.text(row.engine));
  if (is_versioned(finding, folder)) {
    own = parent_folder(parent_folder(folder));
    std::string version = folder.substr(folder.rfind("triton_") + 7);
    std::replace(version.begin(), version.end(), '_', '.');
    triton = exchange::parse_version(version).value_or(exchange::Version{});
    row.fix_path = finding.looked_for.front();
  } else if (finding.looked_for.size() > 1) {
    own = folder;
    row.fix_path = finding.looked_for.front();
  }
  row.fix_commands = commands_for(row.engine, "MODEL --tp N", own, triton);
}

AuditRow finding_row(const LogFinding& finding) {
  AuditRow row{.engine = finding.engine, .name = finding.name};
  row.outcome = to_string(finding.outcome);
  row.path = finding.used;
  row.looked_for = finding.looked_for;
  row.lines = finding.lines;
  if (!row.is_failure()) return row;
  add_fix(finding, row);
  row.traps = find_traps(row.name, row.engine, row.looked_for, {},
                         exchange::list_tables(folders_of(finding)));
  return row;
}

}  // namespace

Json describe(const AuditRow& row) {
  Json object = describe(row.name);
  object["engine"] = facts_of(row.engine).name;
  object["file"] = row.name.text(row.engine);
  object["variant"] = row.variant;
  object["outcome"] = row.outcome;
  object["path"] = row.path;
  object["looked_for"] = row.looked_for;
  object["detail"] = row.detail;
  object["against_plan"] = row.against_plan;
  object["slower_than_default"] = row.is_slower;
  object["near"] = traps_to_json(row.traps);
  object["fix"] = {{"path", row.fix_path}, {"commands", row.fix_commands}};
  object["lines"] = row.lines;
  return object;
}

std::string row_text(const AuditRow& row) {
  std::string text =
      fmt::format("\n{}{}\n  {}\n", row.name.shape_text(),
                  row.variant.empty() ? "" : " (" + row.variant + ")", row.name.text(row.engine));
  text += fmt::format("  {}\n", outcome_text(row));
  if (row.lines > 0) text += fmt::format("    said by {} lines\n", row.lines);
  for (const std::string& path : row.looked_for)
    if (path != row.path) text += fmt::format("    not there  {}\n", path);
  if (!row.path.empty()) text += fmt::format("    taken      {}\n", row.path);
  if (!row.detail.empty()) text += fmt::format("    {}\n", row.detail);
  if (!row.against_plan.empty()) text += fmt::format("    {}\n", row.against_plan);
  for (const exchange::Trap& trap : row.traps)
    text += fmt::format("  near miss: {}\n    {}\n", trap.path, trap.text);
  if (row.fix_commands.empty()) return text;
  text += fmt::format("  to fix it, make {}\n", row.fix_path);
  for (const std::string& command : row.fix_commands) text += fmt::format("    {}\n", command);
  return text;
}

std::string summary_text(const std::vector<AuditRow>& rows) {
  const auto failures =
      std::count_if(rows.begin(), rows.end(), [](const AuditRow& row) { return row.is_failure(); });
  if (rows.empty()) return "nothing about tuning files of MoE layers";
  if (failures == 0)
    return fmt::format("no configuration of {} falls back to the engine's default", rows.size());
  return fmt::format("{} of {} configurations {} back to the engine's default or {} broken",
                     failures, rows.size(), failures == 1 ? "falls" : "fall",
                     failures == 1 ? "is" : "are");
}

std::vector<std::string> commands_for(Engine engine, const std::string& tune_flags,
                                      const std::string& folder, const exchange::Version& triton) {
  const exchange::EngineFacts& facts = facts_of(engine);
  std::vector<std::string> commands = {
      fmt::format("moetune tune {} --host {}", tune_flags, facts.name),
      fmt::format("moetune export --{} '{}'", facts.name, folder),
      fmt::format("export {}='{}'", facts.folder_variable, folder)};
  if (engine == Engine::kSglang && triton.known())
    commands[1] += fmt::format(" --triton-version {}", triton.text());
  return commands;
}

std::vector<AuditRow> rows_of_log(const exchange::EngineLog& log) {
  std::vector<AuditRow> rows;
  for (const LogFinding& finding : log.findings()) rows.push_back(finding_row(finding));
  return rows;
}

}  // namespace moetune::cli
