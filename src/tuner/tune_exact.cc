// Exact checks: the likely winners on data whose every sum is exact, so that one wrong element
// shows.

#include <array>

#include "base/status_macros.h"
#include "tuner/fit.h"
#include "tuner/tune_state.h"

namespace moetune {
namespace {

constexpr int kProvenPerBucket = 2;  // The winner, and one in case it is refused later.

Status check_one(TuneState& state, const Candidate& candidate, const Case& what) {
  Workbench& bench = *state.request.exact_bench;
  Executor& executor = *state.request.exact_executor;
  const std::vector<int64_t> rows = bench.check_rows(what, Scale::kSubset, 0);
  MOETUNE_ASSIGN_OR_RETURN(const CheckOutput out, executor.check(candidate, 0, rows));
  if (!out.damage.empty()) return Error{ErrorCode::kWrongResult, out.damage};
  const Verdict verdict = bench.judge(what, Scale::kSubset, 0, rows, out.outputs);
  if (!verdict.ok) return Error{ErrorCode::kWrongResult, "exact check: " + verdict.reason};
  MeasurementRecord passed;
  passed.candidate = candidate;
  passed.layout = state.meter.layout_of(candidate);
  passed.what = what;
  passed.scale = Scale::kSubset;
  passed.phase = "exact";
  state.meter.known().put(std::move(passed));
  return {};
}

bool needs_proof(TuneState& state, const Candidate& candidate, const Spot& spot) {
  return !state.meter.is_out(candidate, spot) && !is_exact(state, candidate, spot.what.tokens);
}

// Weights of the exact problem that are small beside those that are packed already can be there at
// once.
bool is_large(const TuneState& state) {
  constexpr int64_t kSmallShare = 8;
  const TuneRequest& request = state.request;
  return kSmallShare * request.exact_bench->weights(Scale::kSubset).chunks() >
         request.bench->weights(Scale::kFull).chunks();
}

// False where the exact problem cannot be set up or time is up: what is not proven then cannot win.
bool check_bucket(TuneState& state, const BucketState& bucket, bool& is_loaded, double end_s) {
  const Candidate fallback = state.space.fallback(bucket.tokens);
  const Spot spot = state.spot(bucket.tokens, Scale::kSubset);
  Executor& executor = *state.request.exact_executor;
  bool is_selected = false;
  int proven = 0;
  for (const Contender& contender : bucket.searches[state.group].ranking) {
    if (contender.candidate == fallback || proven == kProvenPerBucket) break;
    if (state.meter.over(end_s)) return false;
    if (needs_proof(state, contender.candidate, spot)) {
      Status ready;
      if (!is_loaded && is_large(state)) state.meter.unload();
      if (!is_loaded) ready = executor.load(state.layout_group().layouts, Scale::kSubset);
      is_loaded = ready.ok();
      if (ready.ok() && !is_selected) ready = executor.select(spot.what, 1);
      is_selected = ready.ok();
      if (!ready.ok()) {
        state.meter.report().warnings.push_back("exact check: " + ready.error().message);
        return false;
      }
      const Status checked = check_one(state, contender.candidate, spot.what);
      if (!checked.ok() && checked.error().code == ErrorCode::kInterrupted) return false;
      if (!checked.ok()) state.meter.reject(contender.candidate, spot, checked.error(), "exact");
    }
    if (!state.meter.is_out(contender.candidate, spot)) ++proven;
  }
  return true;
}

}  // namespace

void check_exactly(TuneState& state, double end_s) {
  if (state.request.exact_bench == nullptr || state.request.exact_executor == nullptr) return;
  if (!state.meter.may_measure()) return;
  bool is_loaded = false;
  for (const BucketState& bucket : state.buckets) {
    state.meter.begin("check", bucket.tokens, kProvenPerBucket);
    if (!check_bucket(state, bucket, is_loaded, end_s)) break;
  }
  if (is_loaded) state.request.exact_executor->unload();
}

bool is_exact(TuneState& state, const Candidate& candidate, int64_t tokens) {
  if (state.request.exact_bench == nullptr || state.request.exact_executor == nullptr) return true;
  const TunableRunner* runner = find_runner(state.request.runners, candidate.runner);
  if (runner != nullptr && !runner->has_exact_check()) return true;
  return state.meter.known().passed(candidate, state.spot(tokens, Scale::kSubset), "exact");
}

}  // namespace moetune
