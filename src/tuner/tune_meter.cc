#include "tuner/tune_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "base/statistics.h"
#include "base/status_macros.h"
#include "tuner/fit.h"

namespace moetune {
namespace {

double steady_now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Adds the time until it goes out of scope.
class Spending {
 public:
  Spending(const std::function<double()>& now, double& total)
      : now_(now), total_(total), start_s_(now()) {}
  ~Spending() { total_ += now_() - start_s_; }
  Spending(const Spending&) = delete;
  Spending& operator=(const Spending&) = delete;

 private:
  const std::function<double()>& now_;
  double& total_;
  double start_s_;
};

// Phases of a check.
constexpr const char* kLook = "look";
constexpr const char* kCheck = "check";

// What `passed_` holds.
std::string place_of(const Candidate& candidate, const Spot& spot, const std::string& phase) {
  return fmt::format("{}|{}|{}", identity(candidate), spot.text(), phase);
}

Error no_time() { return {ErrorCode::kInterrupted, "the budget is spent"}; }

}  // namespace

Setting setting_for(const MeasurementPolicy& policy, double fallback_us) {
  Setting setting;
  setting.fallback_us = fallback_us;
  const double most_routings = std::max(1, policy.routing_samples);
  setting.routings =
      static_cast<int>(std::clamp(policy.max_rotation_us / fallback_us, 1.0, most_routings));
  const double filling = std::min(std::ceil(policy.min_sample_us / fallback_us),
                                  static_cast<double>(policy.max_calls_per_sample));
  // Whole rotations, so that every sample meets the same traffic.
  const double rotations = std::ceil(filling / setting.routings);
  setting.calls = setting.routings * std::max(1, static_cast<int>(rotations));
  return setting;
}

bool ClockWatch::throttled(std::span<const DeviceState> round) {
  constexpr size_t kRemembered = 512;
  double slowest = std::numeric_limits<double>::infinity();
  for (const DeviceState& state : round) {
    if (state.clock_mhz <= 0) continue;
    clocks_.push_back(state.clock_mhz);
    slowest = std::min<double>(slowest, state.clock_mhz);
  }
  if (clocks_.size() > kRemembered) {
    clocks_.erase(clocks_.begin(), clocks_.end() - static_cast<ptrdiff_t>(kRemembered));
  }
  return !clocks_.empty() && slowest < ratio_ * median(clocks_);
}

Meter::Meter(const TuneRequest& request, Known& known, RunAccount* account, TuneReport& report)
    : request_(request),
      known_(known),
      account_(account),
      report_(report),
      now_(request.now_s ? request.now_s : steady_now_s),
      start_s_(now_()),
      clocks_(request.policy.throttle_ratio) {
  progress_.buckets = static_cast<int>(request.buckets.sizes().size());
}

double Meter::left_s(double deadline_s) const {
  return std::min(deadline_s, request_.budget_s) - elapsed_s();
}

void Meter::unload() {
  request_.executor->unload();
  is_loaded_ = false;
  holds_all_ = false;
  aimed_at_.clear();
}

Status Meter::load(Scale scale) {
  if (is_loaded_ && loaded_scale_ == scale && loaded_ == layouts_) return {};
  const auto chunks = static_cast<double>(request_.bench->weights(scale).chunks()) *
                      static_cast<double>(layouts_.size());
  if (loaded_ != layouts_) holds_all_ = false;
  const bool packs = !holds_all_;
  if (packs && left_s(request_.budget_s) <= load_s_per_chunk_ * chunks) return no_time();
  if (packs) begin("pack", 0, 0);
  const double before = now_();
  is_loaded_ = false;
  aimed_at_.clear();
  {
    const Spending spending(now_, report_.spent.pack);
    // All of one layout serves both scales, so that going from one to the other packs nothing.
    // Where all of it does not fit, the part alone may.
    if (scale == Scale::kSubset && layouts_.size() == 1 && !holds_all_)
      holds_all_ = request_.executor->load(layouts_, Scale::kFull).ok();
    MOETUNE_RETURN_IF_ERROR(request_.executor->load(layouts_, scale));
    if (scale == Scale::kFull) holds_all_ = true;
  }
  if (chunks > 0 && packs) load_s_per_chunk_ = (now_() - before) / chunks;
  loaded_ = layouts_;
  loaded_scale_ = scale;
  is_loaded_ = true;
  return {};
}

Status Meter::aim(const Spot& spot, int routings) {
  if (!may_measure() || over(request_.budget_s)) return no_time();
  account_->note(elapsed_s());
  const std::string place = fmt::format("{} x {}", spot.text(), routings);
  if (broken_places_.contains(spot.text())) return no_time();
  const TuneProgress before = progress_;
  if (Status status = load(spot.scale); !status.ok()) return place_failed(spot, status.error());
  if (progress_.phase != before.phase) begin(before.phase, before.tokens, before.candidates_left);
  if (aimed_at_ == place) return {};
  aimed_at_.clear();
  const Spending spending(now_, report_.spent.inputs);
  if (Status status = request_.executor->select(spot.what, routings); !status.ok()) {
    return place_failed(spot, status.error());
  }
  aimed_at_ = place;
  return {};
}

Error Meter::place_failed(const Spot& spot, const Error& error) {
  if (error.code == ErrorCode::kInterrupted) return error;
  broken_places_.insert(spot.text());
  report_.warnings.push_back(fmt::format("{}: {}", spot.text(), error.message));
  return {ErrorCode::kInterrupted, report_.warnings.back()};
}

Result<Setting> Meter::setting(const Spot& spot, const Candidate& fallback, double expected_us) {
  if (const auto found = settings_.find(spot.text()); found != settings_.end()) {
    return found->second;
  }
  double fallback_us = expected_us;
  const MeasurementRecord* record = known_.timed(fallback, spot, -1);
  if (record != nullptr) {
    fallback_us = record->time.median_us;
  } else if (expected_us <= 0) {
    MOETUNE_RETURN_IF_ERROR(check(fallback, spot, kLook));
    settings_[spot.text()] = Setting{};
    auto first = sample(fallback, spot, -1);
    settings_.erase(spot.text());
    if (!first.ok()) return std::move(first).error();
    fallback_us = first->us;
  }
  return settings_[spot.text()] = setting_for(policy(), fallback_us);
}

Status Meter::check_before_exploring(const Candidate& candidate, const Spot& spot) {
  const auto setting = settings_.find(spot.text());
  const bool is_dear = setting != settings_.end() && setting->second.fallback_us > kDearUs;
  if (is_dear && passed_somewhere_.contains(identity(candidate))) return {};
  return check(candidate, spot, kLook);
}

bool Meter::has_passed(const Candidate& candidate, const Spot& spot) const {
  return passed_.contains(place_of(candidate, spot, kCheck));
}

void Meter::forget_check(const Candidate& candidate, const Spot& spot) {
  passed_.erase(place_of(candidate, spot, kCheck));
}

Status Meter::check(const Candidate& candidate, const Spot& spot, const std::string& phase,
                    int routing) {
  const bool is_look = phase == kLook;
  if (passed_.contains(place_of(candidate, spot, phase))) return {};
  if (is_look && has_passed(candidate, spot)) return {};
  const auto setting = settings_.find(spot.text());
  const int routings = setting == settings_.end() ? 1 : setting->second.routings;
  MOETUNE_RETURN_IF_ERROR(aim(spot, routings));
  const int sample = routing % routings;
  Workbench& bench = *request_.bench;
  std::vector<int64_t> rows;
  {
    const Spending spending(now_, report_.spent.judge);
    rows = is_look ? bench.look_rows(spot.what, spot.scale, sample)
                   : bench.check_rows(spot.what, spot.scale, sample);
  }
  CheckOutput out;
  {
    const Spending spending(now_, report_.spent.check);
    MOETUNE_ASSIGN_OR_RETURN(out, request_.executor->check(candidate, sample, rows));
  }
  report_.spent.compile += out.compile_seconds;
  report_.spent.check -= out.compile_seconds;
  if (!out.damage.empty()) return Error{ErrorCode::kWrongResult, out.damage};
  const Spending spending(now_, report_.spent.judge);
  const Verdict verdict = bench.judge(spot.what, spot.scale, sample, rows, out.outputs);
  if (!verdict.ok) return Error{ErrorCode::kWrongResult, verdict.reason};
  passed_.insert(place_of(candidate, spot, phase));
  if (is_look && rows.size() == bench.check_rows(spot.what, spot.scale, sample).size())
    passed_.insert(place_of(candidate, spot, kCheck));
  passed_somewhere_.insert(identity(candidate));
  return {};
}

Result<Sample> Meter::sample(const Candidate& candidate, const Spot& spot, int stage) {
  const Setting& setting = settings_.at(spot.text());
  MOETUNE_RETURN_IF_ERROR(aim(spot, setting.routings));
  const Candidate* order[] = {&candidate};
  const Spending spending(now_, report_.spent.sample);
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<Sample> samples,
                           request_.executor->measure(order, stage, setting.calls));
  ++report_.measurements;
  tell(false);
  const Sample sample = samples.at(0);
  if (!(sample.us > 0) || !std::isfinite(sample.us)) {
    return Error{ErrorCode::kMeasurement, fmt::format("a time of {} us", sample.us)};
  }
  if (const double floor = stage < 0 ? floor_us(spot, setting) : 0; sample.us < floor) {
    return Error{
        ErrorCode::kMeasurement,
        fmt::format("{:.3f} us, where the device's peak needs {:.3f} us", sample.us, floor)};
  }
  return sample;
}

Status Meter::charge(const Candidate& candidate, const Spot& spot, double seconds) {
  const double most_s = request_.candidate_budget_s;
  if (most_s <= 0) return {};
  const int64_t tokens = spot.what.tokens;
  double& all_s = charged_s_[fmt::format("{}|{}", identity(candidate), tokens)];
  all_s += seconds;
  if (all_s <= most_s || candidate == request_.runners[0]->default_candidate(tokens)) return {};
  return Error{ErrorCode::kDeadline,
               fmt::format("took {:.1f} s of compiling, checking and timing at {} tokens, where a "
                           "candidate's budget is {:g} s",
                           all_s, tokens, most_s)};
}

double Meter::floor_us(const Spot& spot, const Setting& setting) {
  const DevicePeak& peak = request_.peak;
  if (peak.bytes_per_s <= 0 && peak.operations_per_s <= 0) return 0;
  const std::string place = fmt::format("{} x {}", spot.text(), setting.routings);
  const auto [found, is_new] = floors_us_.try_emplace(place, 0.0);
  if (is_new) {
    for (int routing = 0; routing < setting.routings; ++routing) {
      const Work work = request_.bench->work(spot.what, spot.scale, routing);
      const double reading = peak.bytes_per_s > 0 ? work.bytes / peak.bytes_per_s : 0;
      const double computing =
          peak.operations_per_s > 0 ? work.operations / peak.operations_per_s : 0;
      found->second += 1e6 * std::max(reading, computing) / setting.routings;
    }
  }
  return found->second;
}

void Meter::reject(const Candidate& candidate, const Spot& spot, const Error& error,
                   const std::string& phase) {
  report_.rejected.push_back({candidate, spot.what.tokens, error});
  lacked_room_ = lacked_room_ || error.code == ErrorCode::kOutOfMemory;
  MeasurementRecord record;
  record.candidate = candidate;
  record.layout = layout_of(candidate);
  record.what = spot.what;
  record.scale = spot.scale;
  record.rejected = error.message.empty() ? to_string(error.code) : error.message;
  record.rejected_as = error.code;
  record.phase = phase;
  known_.put(std::move(record));
}

const std::string& Meter::layout_of(const Candidate& candidate) {
  const auto [found, is_new] = layout_names_.try_emplace(candidate.text());
  if (is_new) {
    const TunableRunner* runner = find_runner(request_.runners, candidate.runner);
    if (runner != nullptr) found->second = runner->layout(candidate);
  }
  return found->second;
}

void Meter::put_time(const Candidate& candidate, const Spot& spot, int stage,
                     const TimeSummary& time, const DeviceState& state) {
  MeasurementRecord record;
  record.candidate = candidate;
  record.layout = layout_of(candidate);
  record.what = spot.what;
  record.scale = spot.scale;
  record.stage = stage;
  record.time = time;
  record.state = state;
  record.phase = "race";
  known_.put(std::move(record));
}

void Meter::put_settled(const Candidate& winner, const Spot& spot, int stage) {
  if (known_.settled(winner, spot, stage)) return;
  MeasurementRecord record;
  record.candidate = winner;
  record.layout = layout_of(winner);
  record.what = spot.what;
  record.scale = spot.scale;
  record.stage = stage;
  record.phase = "settled";
  known_.put(std::move(record));
}

void Meter::begin(const std::string& phase, int64_t tokens, int candidates_left) {
  progress_.phase = phase;
  progress_.tokens = tokens;
  progress_.candidates_left = candidates_left;
  most_candidates_ = std::max(most_candidates_, candidates_left);
  tell(true);
}

void Meter::tell(bool at_once) {
  constexpr double kOften = 0.25;  // seconds
  if (!request_.progress) return;
  const double elapsed = elapsed_s();
  if (!at_once && elapsed - told_s_ < kOften) return;
  told_s_ = elapsed;
  progress_.measurements = report_.measurements;
  progress_.elapsed_s = elapsed;
  const double left = std::max(0.0, left_s(request_.budget_s));
  const double forecast = forecast_ ? std::max(0.0, forecast_() - elapsed) : left;
  progress_.eta_s = std::min(left, forecast);
  request_.progress(progress_);
}

}  // namespace moetune
