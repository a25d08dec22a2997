// Tokens grouped by expert, and what follows for the tasks of the two GEMM stages.
#pragma once

#include <cstdint>

#include "cpu/tactic.h"
#include "moetune/result.h"

namespace moetune::cpu {

/// A row is one (token, slot) that chose an expert. Rows of an expert are consecutive, in the order
/// of tokens and slots.
struct ExpertRows {
  int32_t expert = 0;
  int32_t first_row = 0;
  int32_t rows = 0;
  int64_t first_task[2] = {0, 0};  ///< In the task lists of GEMM 1 and GEMM 2.
};

/// The arrays lie in the layer's workspace.
struct Grouping {
  ExpertRows* experts =
      nullptr;  ///< [experts + 1]; those with rows, most rows first, then an end mark.
  int32_t* counts = nullptr;     ///< [experts] scratch
  int32_t* row_token = nullptr;  ///< [rows]: the token of a row
  int32_t* row_slot = nullptr;   ///< [rows]: token · top_k + slot
  int32_t touched = 0;           ///< Experts with rows.
  int64_t tasks[2] = {0, 0};
};

/// kInvalidArgument for an id outside -1 .. experts-1.
Status check_ids(const int32_t* ids, int64_t count, int64_t experts);

/// Sorts `tokens` x `top_k` checked ids by expert (counting sort, stable).
void group_by_expert(const int32_t* ids, int64_t tokens, int top_k, int64_t experts,
                     Grouping& grouping);

/// Numbers the tasks of one stage (0 or 1) over the experts that have rows.
void number_tasks(Grouping& grouping, int stage, const StageTactic& tactic, int64_t panels);

struct Task {
  const ExpertRows* expert;
  int64_t first_panel;
  int64_t last_panel;
  int32_t first_row;
  int32_t last_row;
};

/// The task of that number. Tasks of an expert that share panels are neighbours.
Task task_at(const Grouping& grouping, int stage, const StageTactic& tactic, int64_t panels,
             int64_t number);

}  // namespace moetune::cpu
