// What `moetune audit` found out about one file that an engine looks for, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "exchange/engine_log.h"
#include "exchange/folders.h"
#include "exchange/traps.h"

namespace moetune::cli {

/// One configuration that an engine looks for.
struct AuditRow {
  exchange::Engine engine = exchange::Engine::kVllm;
  exchange::TableName name;
  std::string variant;  ///< "shared experts fused", where there are several; else empty.
  std::string outcome;  ///< As --json prints it: "found", "other_triton", "first_gemm", "default",
                        ///< "broken".
  std::string path;     ///< Of the file that is taken; empty: none.
  std::vector<std::string> looked_for;  ///< Paths.
  std::string detail;                   ///< Of a found file: what is in it, or wrong with it.
  std::string against_plan;             ///< How it compares with what was tuned here; may be empty.
  bool is_slower = false;               ///< It was measured slower than the engine's default.
  std::vector<exchange::Trap> traps;
  std::string fix_path;                   ///< The file that would be taken.
  std::vector<std::string> fix_commands;  ///< Command lines that make it.
  int64_t lines = 0;                      ///< Of a log that say so.

  /// Whether the engine runs something that nobody tuned for this layer, or ends.
  bool is_failure() const { return outcome == "default" || outcome == "broken"; }
};

Json describe(const AuditRow& row);
/// Several lines.
std::string row_text(const AuditRow& row);
/// "1 of 2 configurations falls back to vLLM's default".
std::string summary_text(const std::vector<AuditRow>& rows);

/// The commands that make a file: `tune_flags` are MODEL and its flags, `folder` the user's own.
std::vector<std::string> commands_for(exchange::Engine engine, const std::string& tune_flags,
                                      const std::string& folder, const exchange::Version& triton);

/// Rows from what a log says; near misses are looked for in the folders it names, where they are on
/// this machine.
std::vector<AuditRow> rows_of_log(const exchange::EngineLog& log);

}  // namespace moetune::cli
