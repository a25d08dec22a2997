// A plan of an engine's own kernels as the file that the engine reads.
//
// The engine takes the entry whose number of tokens is nearest; a plan's decisions hold on
// intervals. So an interval's tactic is written at both of its ends: then no number of tokens is
// nearer to a neighbour's end than to one of its own, and each gets exactly its decision. Where a
// decision is the engine's default, which changes inside the interval, its parts become intervals
// of their own.
#pragma once

#include <string>
#include <vector>

#include "exchange/engine.h"
#include "exchange/table_name.h"
#include "exchange/triton_table.h"
#include "moetune/plan.h"
#include "moetune/result.h"

namespace moetune::exchange {

struct ExportOptions {
  Engine engine = Engine::kVllm;
  std::string device_name;  ///< As the engine has it; empty: what the plan's host said.
  Version engine_version;   ///< Not known: what the plan's host said, else the newest rules.
  Version triton_version;   ///< Not known: what the plan's host said.
};

struct ExportedTable {
  TableName name;
  TritonTable table;
  Version triton_version;  ///< May not be known.
  std::string problem;     ///< The plan's problem, as text.
  int64_t max_tokens = 0;
  /// Of the numbers of tokens up to max_tokens, those at which the engine's default was beaten.
  int64_t tuned_tokens = 0;
  std::vector<std::string> notes;  ///< What a user should know about this file; for people.
};

/// What the file of this plan holds. kInvalidArgument where the plan is another kernel's, or no
/// device's name is known; kParse where the plan's problem or host makes no sense; kUnsupported
/// where the engine has no such file.
Result<ExportedTable> export_plan(const Plan& plan, const ExportOptions& options);

}  // namespace moetune::exchange
