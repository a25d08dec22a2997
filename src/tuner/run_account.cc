#include "tuner/run_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <random>

#include "tuner/tune_known.h"

namespace moetune {
namespace {

// How often what a run has spent is put down, and how often the thread looks whether that is due. A
// store may gather for as long again before it writes: a second in all.
constexpr double kOften = 0.5;
constexpr std::chrono::milliseconds kBeat{100};
// With less than this share of the budget left, packing alone would exceed it.
constexpr double kTooLittle = 0.03;

int64_t random_id() {
  std::random_device device;
  return std::uniform_int_distribution<int64_t>(1, std::numeric_limits<int64_t>::max())(device);
}

std::string terms_of(const TuneRequest& request) {
  std::string terms = fmt::format("veto={}", fmt::join(request.veto_workloads, ","));
  if (!request.refine_intervals) terms += " buckets_only";
  if (request.deterministic) terms += " deterministic";
  if (request.candidate_budget_s > 0)
    terms += fmt::format(" candidate_budget={}", request.candidate_budget_s);
  if (!request.limits.empty()) terms += " limits=" + request.limits;
  // What everything is compared with.
  if (request.runners.size() > 1) terms += " default=" + request.runners[0]->name();
  for (const auto& [tokens, weight] : request.weights)
    terms += fmt::format(" weight@{}={}", tokens, weight);
  return terms;
}

TuneRun run_of(const TuneRequest& request) {
  TuneRun run;
  run.id = random_id();
  run.problem = request.problem.key();
  run.device = request.device.key();
  run.properties = request.device;
  run.workload = request.workload;
  run.seed = request.seed;
  run.terms = terms_of(request);
  for (const TunableRunner* runner : request.runners)
    run.runners.push_back(fmt::format("{}@{}", runner->name(), runner->version()));
  std::sort(run.runners.begin(), run.runners.end());
  const auto sizes = request.buckets.sizes();
  run.buckets.assign(sizes.begin(), sizes.end());
  run.unix_ms = unix_ms_now();
  return run;
}

// Of a plan that goes further, what concerns 1 to `max_tokens`.
Plan cut(Plan plan, int64_t max_tokens) {
  std::erase_if(plan.decisions,
                [max_tokens](const Decision& decision) { return decision.from > max_tokens; });
  plan.max_tokens = std::min(plan.max_tokens, max_tokens);
  if (!plan.decisions.empty())
    plan.decisions.back().to = std::min(plan.decisions.back().to, max_tokens);
  return plan;
}

}  // namespace

RunAccount::RunAccount(MeasurementStore& store, const TuneRequest& request)
    : store_(store), request_(request), run_(run_of(request)) {
  auto earlier = store_.find_runs(run_.problem, run_.device);
  if (!earlier.ok()) {
    trouble_ =
        fmt::format("what earlier runs spent could not be read: {}", earlier.error().message);
    return;
  }
  for (TuneRun& run : earlier.value()) {
    const double share = share_of(run);
    earlier_s_ += share * run.seconds;
    if (share == 1) finished_budget_s_ = std::max(finished_budget_s_, run.budget_s);
    const bool is_end = share == 1 && run.plan && run.budget_s >= request.budget_s;
    if (is_end && (!finished_ || run.budget_s >= finished_->budget_s)) finished_ = std::move(run);
  }
}

double RunAccount::share_of(const TuneRun& earlier) const {
  const bool is_same = earlier.workload == run_.workload && earlier.seed == run_.seed &&
                       earlier.terms == run_.terms &&
                       std::includes(earlier.buckets.begin(), earlier.buckets.end(),
                                     run_.buckets.begin(), run_.buckets.end());
  if (!is_same) return 0;
  std::vector<std::string> common;
  std::set_intersection(earlier.runners.begin(), earlier.runners.end(), run_.runners.begin(),
                        run_.runners.end(), std::back_inserter(common));
  const size_t most = std::max(earlier.runners.size(), run_.runners.size());
  return static_cast<double>(common.size()) / static_cast<double>(std::max<size_t>(most, 1));
}

bool RunAccount::is_spent() const {
  return request_.budget_s - earlier_s_ <= (earlier_s_ > 0 ? kTooLittle * request_.budget_s : 0);
}

std::optional<Plan> RunAccount::finished_plan() const {
  if (!finished_) return std::nullopt;
  return cut(*finished_->plan, request_.buckets.maximum());
}

RunAccount::~RunAccount() { stop_beating(); }

void RunAccount::note(double seconds) {
  {
    const std::scoped_lock lock(mutex_);
    noted_s_ = seconds;
    noted_at_ = std::chrono::steady_clock::now();
    put_if_due(seconds);
  }
  const bool has_own_clock = static_cast<bool>(request_.now_s);
  if (!has_own_clock && !heart_.joinable())
    heart_ = std::jthread([this](const std::stop_token& stop) { beat_until(stop); });
}

void RunAccount::beat(double passed_s) {
  const std::scoped_lock lock(mutex_);
  if (noted_s_ >= 0) put_if_due(noted_s_ + passed_s);
}

void RunAccount::beat_until(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto never = [] { return false; };
  while (!stop.stop_requested()) {
    changed_.wait_for(lock, stop, kBeat, never);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - noted_at_;
    if (!stop.stop_requested()) put_if_due(noted_s_ + passed.count());
  }
}

void RunAccount::stop_beating() {
  if (!heart_.joinable()) return;
  heart_.request_stop();
  heart_.join();
}

void RunAccount::put_if_due(double seconds) {
  if (put_at_s_ >= 0 && seconds < put_at_s_ + kOften) return;
  put_at_s_ = seconds;
  run_.seconds = seconds;
  put();
}

void RunAccount::end(const Plan& plan, double seconds, bool is_finished) {
  stop_beating();  // What it put after this would be without the plan.
  run_.seconds = seconds;
  run_.budget_s = is_finished ? request_.budget_s : 0;
  run_.plan = plan;
  put();
}

void RunAccount::put() {
  if (Status status = store_.put_run(run_); !status.ok() && trouble_.empty())
    trouble_ = fmt::format("what this run spends is not kept: {}", status.error().message);
}

}  // namespace moetune
