#include "cpu/grouping.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/integers.h"

namespace moetune::cpu {
namespace {

int64_t panel_groups(const StageTactic& tactic, int64_t panels) {
  return ceil_div(panels, tactic.panels_per_task);
}

}  // namespace

Status check_ids(const int32_t* ids, int64_t count, int64_t experts) {
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] < -1 || ids[i] >= experts)
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("top-k id {} is not an expert's (0 to {})", ids[i], experts - 1),
                   "Use -1 for a slot that is to be skipped."};
  return {};
}

void group_by_expert(const int32_t* ids, int64_t tokens, int top_k, int64_t experts,
                     Grouping& grouping) {
  const int64_t slots = tokens * top_k;
  std::fill(grouping.counts, grouping.counts + experts, 0);
  for (int64_t i = 0; i < slots; ++i)
    if (ids[i] >= 0) ++grouping.counts[ids[i]];
  grouping.touched = 0;
  int32_t next = 0;
  for (int32_t expert = 0; expert < experts; ++expert) {
    const int32_t rows = grouping.counts[expert];
    grouping.counts[expert] = next;
    if (rows == 0) continue;
    grouping.experts[grouping.touched++] = {expert, next, rows, {0, 0}};
    next += rows;
  }
  for (int64_t i = 0; i < slots; ++i) {
    if (ids[i] < 0) continue;
    const int32_t row = grouping.counts[ids[i]]++;
    grouping.row_token[row] = static_cast<int32_t>(i / top_k);
    grouping.row_slot[row] = static_cast<int32_t>(i);
  }
  std::sort(grouping.experts, grouping.experts + grouping.touched,
            [](const ExpertRows& a, const ExpertRows& b) {
              return a.rows != b.rows ? a.rows > b.rows : a.expert < b.expert;
            });
}

void number_tasks(Grouping& grouping, int stage, const StageTactic& tactic, int64_t panels) {
  int64_t next = 0;
  for (int32_t i = 0; i < grouping.touched; ++i) {
    grouping.experts[i].first_task[stage] = next;
    next += panel_groups(tactic, panels) * ceil_div(grouping.experts[i].rows, kTokenBlock);
  }
  grouping.tasks[stage] = next;
}

Task task_at(const Grouping& grouping, int stage, const StageTactic& tactic, int64_t panels,
             int64_t number) {
  const ExpertRows* const after = std::upper_bound(
      grouping.experts, grouping.experts + grouping.touched, number,
      [stage](int64_t wanted, const ExpertRows& e) { return wanted < e.first_task[stage]; });
  const ExpertRows& expert = after[-1];
  const int64_t blocks = ceil_div(expert.rows, kTokenBlock);
  const int64_t local = number - expert.first_task[stage];
  const int64_t block = local % blocks;
  Task task;
  task.expert = &expert;
  task.first_panel = local / blocks * tactic.panels_per_task;
  task.last_panel = std::min(panels, task.first_panel + tactic.panels_per_task);
  task.first_row = expert.first_row + static_cast<int32_t>(expert.rows * block / blocks);
  task.last_row = expert.first_row + static_cast<int32_t>(expert.rows * (block + 1) / blocks);
  return task;
}

}  // namespace moetune::cpu
