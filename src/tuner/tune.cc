#include "tuner/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/status_macros.h"
#include "tuner/deterministic_runner.h"
#include "tuner/fit.h"
#include "tuner/run_account.h"
#include "tuner/tune_state.h"

namespace moetune {
namespace {

// Of the budget, kept for the intervals' ends.
constexpr double kIntervalShare = 0.1;
// Another pass over what is open is begun with this share of the budget at the least.
constexpr double kWorthAPass = 0.03;
constexpr int kMostPasses = 8;
// A pass that measured nothing and took less than this share of the budget had nothing to do; one
// that took longer waited for compilers.
constexpr double kIdlePass = 0.005;
// Seconds for deciding where nothing is measured: more than it takes.
constexpr double kThinking = 10;

Status validate(const TuneRequest& request) {
  const auto invalid = [](std::string what, std::string hint) {
    return Error{ErrorCode::kInvalidArgument, "tune: " + std::move(what), std::move(hint)};
  };
  if (request.runners.empty()) return invalid("no runner", "give at least one");
  if (request.bench == nullptr || request.executor == nullptr) {
    return invalid("no workbench or no executor", "set TuneRequest::bench and ::executor");
  }
  if (std::isnan(request.budget_s)) {
    return invalid("the budget is not a number", "give seconds; 0 measures nothing");
  }
  if (!(request.candidate_budget_s >= 0)) {
    return invalid(fmt::format("a candidate's budget of {} s", request.candidate_budget_s),
                   "give seconds; 0: no limit");
  }
  for (const auto& [tokens, weight] : request.weights) {
    if (weight >= 0 && std::isfinite(weight)) continue;
    return invalid(fmt::format("weight {} of bucket {}", weight, tokens),
                   "weights are >= 0 and finite");
  }
  const TunableRunner& runner = *request.runners[0];
  for (int64_t tokens : request.buckets.sizes()) {
    const std::string reason = why_unfit(runner, runner.default_candidate(tokens), tokens);
    if (reason.empty()) continue;
    return invalid(
        fmt::format("the default of {} cannot run at {} tokens: {}", runner.name(), tokens, reason),
        "a runner's default is valid at every size");
  }
  return {};
}

std::vector<BucketState> bucket_states(const TuneRequest& request, size_t groups) {
  std::vector<BucketState> buckets;
  for (int64_t tokens : request.buckets.sizes()) {
    BucketState& bucket = buckets.emplace_back();
    bucket.tokens = tokens;
    const auto weight = request.weights.find(tokens);
    if (weight != request.weights.end()) bucket.importance = weight->second;
    bucket.searches.resize(groups);
    bucket.evidence.workload = request.workload;
    bucket.evidence.date = utc_now();
  }
  return buckets;
}

Plan empty_plan(const TuneRequest& request) {
  const TunableRunner& runner = *request.runners[0];
  Plan plan;
  plan.problem = request.problem;
  plan.runner = runner.name();
  plan.layout = runner.layout(runner.default_candidate(request.buckets.maximum()));
  plan.max_tokens = request.buckets.maximum();
  plan.deterministic = request.deterministic;
  return plan;
}

// The whole of it: races; then another layout, or each bucket by itself; and with what is left of
// the time, again what is not resolved or may have something faster.
Status race_and_decide(TuneState& state, BucketSearch& search) {
  Meter& meter = state.meter;
  const double budget = state.request.budget_s;
  state.races_end_s = (1 - state.request.policy.confirm_share) * budget;
  state.confirm_end_s = (1 - kIntervalShare) * budget;
  MOETUNE_RETURN_IF_ERROR(race_buckets(state, search, state.races_end_s));
  meter.set_buckets_done(0);
  if (state.space.groups().size() > 1 && choose_other_layout(state, budget)) return {};
  const double end = state.confirm_end_s;
  check_exactly(state, end);
  MOETUNE_RETURN_IF_ERROR(confirm_buckets(state, end));
  for (int pass = 1; pass < kMostPasses; ++pass) {
    const auto resolved = std::count_if(state.buckets.begin(), state.buckets.end(),
                                        [](const BucketState& b) { return b.evidence.resolved; });
    meter.set_buckets_done(static_cast<int>(resolved));
    const double now = meter.elapsed_s();
    const bool is_done = std::none_of(state.buckets.begin(), state.buckets.end(),
                                      [&](const BucketState& b) { return state.is_open(b); });
    if (is_done || end - now < kWorthAPass * budget) break;
    const int before = meter.report().measurements;
    MOETUNE_RETURN_IF_ERROR(
        race_on(state, search, now + (1 - state.request.policy.confirm_share) * (end - now)));
    check_exactly(state, end);
    MOETUNE_RETURN_IF_ERROR(confirm_buckets(state, end));
    const bool is_idle =
        meter.report().measurements == before && meter.elapsed_s() - now < kIdlePass * budget;
    if (is_idle) break;
  }
  return {};
}

void fill_report(const TuneState& state, const Known& known, TuneReport& report) {
  Meter& meter = state.meter;
  report.interrupted = meter.stopped();
  report.out_of_budget =
      std::any_of(state.buckets.begin(), state.buckets.end(), [](const BucketState& bucket) {
        return !bucket.evidence.resolved && bucket.evidence.chosen.samples == 0;
      });
  if (!known.trouble().empty()) report.warnings.push_back(known.trouble());
  report.spent.keep = known.put_s();
  report.seconds = meter.elapsed_s();
}

}  // namespace

double work_of(const TuneState& state, int64_t tokens, Scale scale) {
  const Work work = state.request.bench->work(state.spot(tokens, scale).what, scale, 0);
  const double size = std::sqrt(work.bytes * work.operations);
  return size > 0 ? size : 1;
}

double expected_us(const TuneState& state, const BucketState& bucket, Scale scale) {
  const double raced_us = bucket.searches[state.group].fallback_us;
  if (scale == bucket.scale) return raced_us;
  return raced_us * work_of(state, bucket.tokens, scale) /
         work_of(state, bucket.tokens, bucket.scale);
}

double share_deadline_s(double now_s, std::span<const double> weights, size_t index, double end_s) {
  double rest = 0;
  for (size_t i = index; i < weights.size(); ++i) rest += weights[i];
  return rest <= 0 ? now_s : now_s + (end_s - now_s) * weights[index] / rest;
}

std::string utc_now() {
  using std::chrono::floor;
  const auto now = floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const auto day = floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(now - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     time.hours().count(), time.minutes().count(), time.seconds().count());
}

namespace {

bool fits_today(Plan& plan, std::span<TunableRunner* const> runners) {
  const std::vector<Fit> fits = check_fit(plan, runners);
  return std::all_of(fits.begin(), fits.end(),
                     [](const Fit& fit) { return fit.kind == Fit::Kind::kFits; });
}

// Races, decides and fills in the report. `request` has what is left of the budget.
Status decide(const TuneRequest& request, MeasurementStore& store, RunAccount* account,
              TuneReport& report) {
  Known known(store, request.problem.key(), request.device.key());
  Meter meter(request, known, account, report);
  const bool has_weights = request.bench->weights(Scale::kFull).chunks() > 0;
  const CandidateSpace space(request.runners, request.buckets, has_weights);
  TuneState state{request, meter, space, 0, bucket_states(request, space.groups().size()),
                  {},      {},    0,     0};

  meter.forecast_with([&state] { return expected_end_s(state); });
  BucketSearch search(meter, space);
  if (Status status = race_and_decide(state, search); !status.ok()) {
    meter.unload();
    return status;
  }
  if (state.group != 0) {
    report.plan.runner = state.layout_group().layouts[0].runner;
    report.plan.layout = state.layout_group().layouts[0].layout;
  }
  report.plan.decisions = settle_intervals(state);
  meter.unload();
  meter.set_buckets_done(static_cast<int>(state.buckets.size()));
  meter.forecast_with([&meter] { return meter.elapsed_s(); });
  meter.begin("done", 0, 0);
  fill_report(state, known, report);
  if (account != nullptr) {
    const bool is_finished = !report.interrupted && !meter.lacked_room();
    account->end(report.plan, report.seconds, is_finished);
  }
  return {};
}

Result<TuneReport> tune_over_runs(const TuneRequest& request) {
  MOETUNE_RETURN_IF_ERROR(validate(request));
  std::unique_ptr<MeasurementStore> own_store;
  if (request.store == nullptr) own_store = make_memory_store();
  MeasurementStore& store = own_store ? *own_store : *request.store;
  RunAccount account(store, request);
  TuneReport report;
  report.earlier_s = account.earlier_s();
  report.finished_budget_s = account.finished_budget_s();
  if (auto plan = account.finished_plan(); plan && fits_today(*plan, request.runners)) {
    report.plan = std::move(*plan);
    report.from_store = true;
    return report;
  }
  report.plan = empty_plan(request);
  const bool may_measure = !account.is_spent();
  report.from_store = !may_measure && report.earlier_s > 0;
  TuneRequest rest = request;
  rest.budget_s = may_measure ? request.budget_s - report.earlier_s : kThinking;
  MOETUNE_RETURN_IF_ERROR(decide(rest, store, may_measure ? &account : nullptr, report));
  const std::string& trouble = account.trouble();
  if (!trouble.empty() && report.warnings.empty()) report.warnings.push_back(trouble);
  return report;
}

}  // namespace

Result<TuneReport> tune_problem(const TuneRequest& request) {
  if (!request.deterministic) return tune_over_runs(request);
  const DeterministicRunners only(request.runners);
  TuneRequest narrowed = request;
  narrowed.runners = only.pointers();
  return tune_over_runs(narrowed);
}

}  // namespace moetune
