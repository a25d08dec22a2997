// moetune verify: are the kernels that would run right?
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/describe.h"
#include "cli/every_tactic.h"
#include "cli/host_flags.h"
#include "cli/interrupts.h"
#include "cli/job.h"
#include "cli/mode_flags.h"
#include "cli/progress.h"
#include "cli/values.h"

namespace moetune::cli {
namespace {

constexpr int64_t kMostTactics = 1000000;

struct Failure {
  Case where;
  const char* check;
  Candidate candidate;
  std::string reason;
};

/// What runs at some number of tokens, by weight layout: one packing serves all candidates that
/// read it.
using Checks = std::map<std::string, std::map<int64_t, std::vector<Candidate>>>;

/// One kind of data: "exact" (integers, bit by bit) or "close" (realistic, the whole operator).
struct Side {
  const char* name;
  Workbench& bench;
  Executor& executor;
};

class Verification {
 public:
  Verification(Job& job, const TrafficFlags::Values& traffic, std::stop_token stop)
      : job_(job), traffic_(traffic), stop_(std::move(stop)) {}

  /// Adds a candidate to be checked at `tokens`, once.
  void add(const Candidate& candidate, int64_t tokens) {
    if (!seen_.insert({candidate.text(), tokens}).second) return;
    for (TunableRunner* runner : job_.session->runners()) {
      if (runner->name() == candidate.runner)
        checks_[candidate.runner + '\n' + runner->layout(candidate)][tokens].push_back(candidate);
    }
    const int sides = job_.session->exact_executor() == nullptr ? 1 : 2;
    total_ += sides * static_cast<int>(traffic_.workloads.size());
  }

  Status run() {
    Progress progress;  // Silent again when this returns: results are printed next.
    MoeSession& session = *job_.session;
    std::vector<Side> sides;
    if (session.exact_executor() != nullptr)
      sides.push_back({"exact", session.exact_bench(), *session.exact_executor()});
    sides.push_back({"close", session.bench(), session.executor()});
    for (const Side& side : sides) {
      for (const auto& [layout, by_tokens] : checks_)
        MOETUNE_RETURN_IF_ERROR(run_layout(side, layout, by_tokens, progress));
      side.executor.unload();
    }
    return {};
  }

  /// Runners that were checked closely only.
  std::set<std::string> without_exact_check() const {
    std::set<std::string> names;
    for (const TunableRunner* runner : job_.session->runners()) {
      if (!runner->has_exact_check()) names.insert(runner->name());
    }
    return names;
  }

  bool interrupted() const { return stop_.stop_requested(); }
  int checked() const { return checked_; }
  const std::vector<Failure>& failures() const { return failures_; }

 private:
  Status run_layout(const Side& side, const std::string& key,
                    const std::map<int64_t, std::vector<Candidate>>& by_tokens,
                    Progress& progress) {
    if (interrupted()) return {};
    const size_t split = key.find('\n');
    const WeightLayout layout{key.substr(0, split), key.substr(split + 1)};
    if (&side.bench == &job_.session->exact_bench() &&
        without_exact_check().contains(layout.runner))
      return {};
    progress.show(
        {fmt::format("packing weights in layout {} ({})", layout.layout, side.name), share(), -1});
    MOETUNE_RETURN_IF_ERROR(side.executor.load({&layout, 1}, Scale::kFull));
    for (const auto& [tokens, candidates] : by_tokens) {
      for (const std::string& workload : traffic_.workloads) {
        const Case where{tokens, workload, traffic_.seed};
        MOETUNE_RETURN_IF_ERROR(side.executor.select(where, 1));
        for (const Candidate& candidate : candidates) {
          if (interrupted()) return {};
          progress.show({fmt::format("{} check at {} tokens, {}: {} checked, {} failed", side.name,
                                     tokens, workload, checked_, failures_.size()),
                         share(), -1});
          MOETUNE_RETURN_IF_ERROR(check(side, where, candidate));
        }
      }
    }
    return {};
  }

  // An error only where nothing can be checked any more.
  Status check(const Side& side, const Case& where, const Candidate& candidate) {
    const std::vector<int64_t> rows = side.bench.check_rows(where, Scale::kFull, 0);
    const Result<CheckOutput> output = side.executor.check(candidate, 0, rows);
    if (!output.ok() && output.error().code == ErrorCode::kInterrupted) {
      if (interrupted()) return {};
      return Error{ErrorCode::kRun, output.error().message, output.error().hint};
    }
    ++checked_;
    std::string reason;
    if (!output.ok()) {
      reason = output.error().message;
    } else if (!output->damage.empty()) {
      reason = output->damage;
    } else {
      reason = side.bench.judge(where, Scale::kFull, 0, rows, output->outputs).reason;
    }
    if (!reason.empty()) failures_.push_back({where, side.name, candidate, std::move(reason)});
    return {};
  }

  double share() const { return total_ > 0 ? static_cast<double>(checked_) / total_ : 0; }

  Job& job_;
  const TrafficFlags::Values& traffic_;
  std::stop_token stop_;
  Checks checks_;
  std::set<std::pair<std::string, int64_t>> seen_;
  std::vector<Failure> failures_;
  int total_ = 0;
  int checked_ = 0;
};

Json describe(const Failure& failure) {
  return {{"tokens", failure.where.tokens},
          {"workload", failure.where.workload},
          {"check", failure.check},
          {"runner", failure.candidate.runner},
          {"scheme", failure.candidate.scheme},
          {"stages", describe_stages(failure.candidate)},
          {"candidate", failure.candidate.text()},
          {"reason", failure.reason}};
}

class VerifyCommand final : public Command {
 public:
  const char* name() const override { return "verify"; }
  const char* summary() const override {
    return "Check that the kernels a plan uses, and the defaults, compute the right values";
  }
  const char* examples() const override {
    return "  moetune verify qwen3-30b-a3b --weights nvfp4\n"
           "  moetune verify ./my-model --all --limit 200 --tokens 1,33,257";
  }
  void declare(Flags& flags) override {
    layer_.declare(flags);
    layer_.declare_layer(flags);
    device_.declare(flags);
    traffic_.declare(
        flags, "Numbers of tokens to check at; default 1,2,3,7,16,33,64,127,128,129,257,1000");
    flags.value("--config", "FILE", &config_, "A tuned configuration; default: this machine's");
    flags.toggle("--all", &all_,
                 "Check every tactic of every stage of every runner, not just what would run");
    flags.value("--limit", "N", &limit_,
                "With --all, at most N tactics for each number of tokens, drawn at random");
    flags.value("--isolation", "WHERE", &isolation_,
                "Where kernels run: worker (a helper process) or in-process, the default where a "
                "plan's evidence has proven them; --all has to prove them first");
    hosts_.declare(flags);
    mode_.declare(flags);
  }
  Result<Exit> run(Output& output) override;

 private:
  Status add_checks(Job& job, const TrafficFlags::Values& traffic, size_t limit,
                    Verification& verification) const;
  void print(Output& output, const Job& job, const Verification& verification) const;

  LayerFlags layer_;
  DeviceFlags device_;
  TrafficFlags traffic_{"1,2,3,7,16,33,64,127,128,129,257,1000", "uniform,zipf:1.2"};
  std::string config_;
  bool all_ = false;
  std::string limit_ = "1000000";
  std::string isolation_;
  HostFlags hosts_;
  ModeFlags mode_;
};

Status VerifyCommand::add_checks(Job& job, const TrafficFlags::Values& traffic, size_t limit,
                                 Verification& verification) const {
  const PlanHandle plan = job.tuner->handle(job.session->problem());
  for (int64_t tokens : traffic.tokens) {
    verification.add(job.session->default_runner().default_candidate(tokens), tokens);
    if (const Decision* decision = plan.find(tokens).decision)
      verification.add(decision->candidate, tokens);
  }
  if (!all_) return {};
  MOETUNE_ASSIGN_OR_RETURN(const Buckets sizes, Buckets::from(traffic.tokens));
  const auto lists =
      every_tactic(job.session->runners(), sizes,
                   {.limit = limit, .seed = traffic.seed, .deterministic = mode_.deterministic});
  for (size_t i = 0; i < lists.size(); ++i) {
    for (const Candidate& candidate : lists[i]) verification.add(candidate, sizes.sizes()[i]);
  }
  return {};
}

void VerifyCommand::print(Output& output, const Job& job, const Verification& verification) const {
  constexpr size_t kShown = 20;
  Json failures = Json::array();
  for (const Failure& failure : verification.failures()) failures.push_back(describe(failure));
  output.object({{"device", cli::describe(job.device())},
                 {"problem", describe_problem(job)},
                 {"checked", verification.checked()},
                 {"failed", verification.failures().size()},
                 {"interrupted", verification.interrupted()},
                 {"isolation", isolation_name(job)},
                 {"failures", std::move(failures)}});
  output.text(fmt::format("{} checked, {} failed\n", verification.checked(),
                          verification.failures().size()));
  size_t shown = 0;
  for (const Failure& failure : verification.failures()) {
    if (++shown > kShown) {
      output.text(fmt::format("... and {} more (--json lists all)\n",
                              verification.failures().size() - kShown));
      break;
    }
    output.text(fmt::format("{} tokens, {}, {} check: {}: {}\n", failure.where.tokens,
                            failure.where.workload, failure.check, failure.candidate.text(),
                            failure.reason));
  }
}

Result<Exit> VerifyCommand::run(Output& output) {
  MOETUNE_ASSIGN_OR_RETURN(const int64_t limit, parse_whole("--limit", limit_, 1, kMostTactics));
  MOETUNE_ASSIGN_OR_RETURN(const TrafficFlags::Values traffic, traffic_.read(/*many=*/true));
  MOETUNE_ASSIGN_OR_RETURN(const DeviceFlags::Values device, device_.read());
  MOETUNE_ASSIGN_OR_RETURN(const LayerFlags::Layer layer, layer_.read());
  MOETUNE_ASSIGN_OR_RETURN(const Where where, parse_isolation(isolation_));
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<HostChoice> hosts, hosts_.read());
  MOETUNE_RETURN_IF_ERROR(mode_.check(config_));
  const Interrupts interrupts;
  MOETUNE_ASSIGN_OR_RETURN(
      Job job, open_job(layer, device, traffic.seed, Purpose::kMeasure, output, Where::kHere,
                        mode_.tuner_options(), {}, {.hosts = hosts}));
  MOETUNE_ASSIGN_OR_RETURN(const std::string source,
                           load_plan(job, config_, mode_, traffic.tokens.back(), output));
  if (!source.empty()) output.note(fmt::format("with {}", source));
  const bool proven = !all_ && all_proven(job, traffic.tokens);
  MOETUNE_RETURN_IF_ERROR(place_candidates(job, device, traffic.seed, where, proven, output));
  stop_helpers_on(job, interrupts.token());
  Verification verification(job, traffic, interrupts.token());
  MOETUNE_RETURN_IF_ERROR(add_checks(job, traffic, static_cast<size_t>(limit), verification));
  MOETUNE_RETURN_IF_ERROR(verification.run());
  for (const std::string& runner : verification.without_exact_check())
    output.note(
        fmt::format("{}: checked closely only; kernels of others have no exact check", runner));
  print(output, job, verification);
  if (verification.interrupted()) return Exit::kInterrupted;
  return verification.failures().empty() ? Exit::kDone : Exit::kFailed;
}

}  // namespace

std::unique_ptr<Command> make_verify_command() { return std::make_unique<VerifyCommand>(); }

}  // namespace moetune::cli
