// moetune explain: which kernel runs for so many tokens, and why that one.
#include <fmt/format.h>

#include <optional>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/describe.h"
#include "cli/evidence.h"
#include "cli/host_flags.h"
#include "cli/job.h"
#include "cli/journal_flags.h"
#include "cli/mode_flags.h"

namespace moetune::cli {
namespace {

std::string spread_text(const TimeSummary& time) {
  if (time.samples == 0) return "not measured";
  return fmt::format("{} (quartiles {} to {}, least {}, {} samples)", time_text(time.median_us),
                     time_text(time.q1_us), time_text(time.q3_us), time_text(time.min_us),
                     time.samples);
}

/// One answer: what a look-up for `tokens` gives, and what would have run without tuning.
struct Answer {
  int64_t tokens = 0;
  Lookup lookup;
  std::optional<Decision> decision;  ///< Of the plan in force; also where it leaves the default.
  bool deterministic = false;        ///< Only such candidates took part in tuning that plan.
  Candidate candidate;
  Candidate fallback;
  JournalEvidence journal;  ///< At the bucket of the decision.
};

Json describe(const Answer& answer) {
  Json object = {{"tokens", answer.tokens},
                 {"provenance", to_string(answer.lookup.provenance)},
                 {"reason", answer.lookup.reason},
                 {"candidate", answer.candidate.text()},
                 {"stages", describe_stages(answer.candidate)},
                 {"default", answer.fallback.text()},
                 {"journal", cli::describe(answer.journal)}};
  const std::optional<Decision>& decision = answer.decision;
  if (!decision) return object;
  const Evidence& evidence = decision->evidence;
  object["decision"] = {{"measured_at", decision->tokens},
                        {"from", decision->from},
                        {"to", decision->to},
                        {"is_default", decision->is_default},
                        {"chosen", cli::describe(evidence.chosen)},
                        {"fallback", cli::describe(evidence.fallback)},
                        {"speedup", evidence.speedup},
                        {"speedup_ci", {evidence.speedup_low, evidence.speedup_high}},
                        {"resolved", evidence.resolved},
                        {"workload", evidence.workload},
                        {"candidates", evidence.candidates},
                        {"rejected", evidence.rejected},
                        {"challenger", evidence.challenger},
                        {"note", evidence.note},
                        {"date", evidence.date},
                        {"deterministic", answer.deterministic}};
  return object;
}

std::string evidence_text(const Decision& decision) {
  const Evidence& evidence = decision.evidence;
  if (evidence.fallback.samples == 0) {
    return fmt::format("  outcome     nothing was confirmed here: the default stays{}\n",
                       evidence.note.empty() ? "" : " (" + evidence.note + ")");
  }
  std::string text =
      fmt::format("  measured    at {} tokens on {} routing, holds from {} to {}; {}\n",
                  decision.tokens, evidence.workload.empty() ? "unknown" : evidence.workload,
                  decision.from, decision.to, evidence.date);
  text += fmt::format("  tried       {} candidates, {} rejected\n", evidence.candidates,
                      evidence.rejected);
  text += fmt::format("  default     {}\n", spread_text(evidence.fallback));
  const bool challenged = decision.is_default && !evidence.challenger.empty();
  if (challenged) text += fmt::format("  challenger  {}\n", evidence.challenger);
  if (!decision.is_default || challenged) {
    text += fmt::format("  {:<11} {}\n", challenged ? "its time" : "chosen",
                        spread_text(evidence.chosen));
    text += fmt::format(
        "  confirmed   {:.3f}x the default's speed, 95 % interval {:.3f} to {:.3f}, fresh samples "
        "in pairs\n",
        evidence.speedup, evidence.speedup_low, evidence.speedup_high);
  }
  text += fmt::format("  outcome     {}\n",
                      !decision.is_default ? "faster by more than the noise: replaces the default"
                      : evidence.resolved  ? "nothing tried is faster by enough: the default stays"
                                           : "not enough evidence: the default stays");
  if (!evidence.note.empty()) text += fmt::format("  note        {}\n", evidence.note);
  return text;
}

std::string reason_text(const Lookup& lookup) {
  const std::string provenance = to_string(lookup.provenance);
  if (*lookup.reason != '\0') return fmt::format("{}: {}", provenance, lookup.reason);
  const bool here = lookup.provenance == Provenance::kTuned;
  return fmt::format("{}: measured on {}", provenance,
                     here ? "a device like this one" : "a similar device");
}

std::string text_of(const Answer& answer) {
  std::string text = fmt::format("{} tokens\n  runs        {}\n  because     {}\n", answer.tokens,
                                 answer.candidate.text(), reason_text(answer.lookup));
  if (answer.candidate.text() != answer.fallback.text())
    text += fmt::format("  instead of  {}\n", answer.fallback.text());
  if (answer.decision) text += evidence_text(*answer.decision);
  if (answer.decision && answer.deterministic)
    text +=
        "  mode        deterministic: only kernels that give the same bits on every run took "
        "part\n";
  if (!answer.journal.empty()) text += cli::text_of(answer.journal, answer.fallback);
  return text;
}

/// What the journal has on an answer's decision; where there is none, on its number of tokens.
JournalEvidence evidence_for(const Answer& answer, Job& job,
                             const std::vector<JournalRecord>& records) {
  std::map<std::string, int> versions;
  for (const TunableRunner* runner : job.session->runners())
    versions[runner->name()] = runner->version();
  EvidencePlace place{answer.tokens, answer.tokens, answer.tokens};
  if (answer.decision)
    place = {answer.decision->tokens, answer.decision->from, answer.decision->to};
  return evidence_at(records, place, versions);
}

Answer answer_for(Job& job, const PlanHandle& plan, int64_t tokens) {
  Answer answer;
  answer.tokens = tokens;
  answer.lookup = plan.find(tokens);
  answer.fallback = job.session->default_runner().default_candidate(tokens);
  answer.candidate =
      answer.lookup.decision != nullptr ? answer.lookup.decision->candidate : answer.fallback;
  const TunedConfiguration in_force = job.tuner->configuration();
  const Plan* known = in_force.find(job.session->problem());
  if (known == nullptr) return answer;
  answer.deterministic = known->deterministic;
  for (const Decision& decision : known->decisions) {
    if (decision.from <= tokens && tokens <= decision.to) answer.decision = decision;
  }
  return answer;
}

class ExplainCommand final : public Command {
 public:
  const char* name() const override { return "explain"; }
  const char* summary() const override {
    return "Say which kernel runs for a number of tokens, and why";
  }
  const char* examples() const override {
    return "  moetune explain qwen3-30b-a3b --weights nvfp4 --tokens 64\n"
           "  moetune explain ./my-model --tokens 1..1024 --config tuned.json --json";
  }
  void declare(Flags& flags) override {
    layer_.declare(flags);
    device_.declare(flags);
    traffic_.declare(flags, "Numbers of tokens to explain; default 1..1024");
    flags.value("--config", "FILE", &config_, "A tuned configuration; default: this machine's");
    journal_.declare(flags);
    hosts_.declare(flags);
    mode_.declare(flags);
  }

  Result<Exit> run(Output& output) override {
    MOETUNE_ASSIGN_OR_RETURN(const TrafficFlags::Values traffic, traffic_.read(/*many=*/false));
    MOETUNE_ASSIGN_OR_RETURN(const DeviceFlags::Values device, device_.read());
    MOETUNE_ASSIGN_OR_RETURN(const LayerFlags::Layer layer, layer_.read());
    MOETUNE_RETURN_IF_ERROR(mode_.check(config_));
    MOETUNE_ASSIGN_OR_RETURN(const std::vector<HostChoice> hosts, hosts_.read());
    MOETUNE_ASSIGN_OR_RETURN(
        Job job, open_job(layer, device, traffic.seed, Purpose::kLookUp, output, Where::kHere,
                          mode_.tuner_options(), {}, {.hosts = hosts}));
    MOETUNE_ASSIGN_OR_RETURN(const std::string source,
                             load_plan(job, config_, mode_, traffic.tokens.back(), output));
    const PlanHandle plan = job.tuner->handle(job.session->problem());
    MOETUNE_ASSIGN_OR_RETURN(const Measured measured, read_journal(job, output));

    Json explanations = Json::array();
    output.text(fmt::format("{}\nfrom {}\njournal {}\n", job.session->problem().key(),
                            source.empty() ? "no tuned configuration" : source,
                            measured.journal.empty() ? "none" : measured.journal));
    for (int64_t tokens : traffic.tokens) {
      Answer answer = answer_for(job, plan, tokens);
      answer.journal = evidence_for(answer, job, measured.records);
      explanations.push_back(describe(answer));
      output.text('\n' + text_of(answer));
    }
    output.object({{"device", cli::describe(job.device())},
                   {"problem", cli::describe(job.session->problem())},
                   {"config", source},
                   {"journal", measured.journal},
                   {"explanations", std::move(explanations)}});
    return Exit::kDone;
  }

 private:
  struct Measured {
    std::string journal;  ///< "" where there is none.
    std::vector<JournalRecord> records;
  };
  /// A journal that was named must be right; the usual one is read where it can be.
  Result<Measured> read_journal(Job& job, Output& output) const {
    auto journal = journal_.open_to_read();
    if (!journal.ok()) {
      if (!journal_.path.empty()) return std::move(journal).error();
      if (journal.error().code != ErrorCode::kNotFound)
        output.note(fmt::format("warning: no evidence: {}", journal.error().message));
      return Measured{};
    }
    MOETUNE_ASSIGN_OR_RETURN(
        std::vector<JournalRecord> records,
        records_of(**journal, job.session->problem().key(), job.device().key()));
    return Measured{(*journal)->path(), std::move(records)};
  }

  LayerFlags layer_;
  DeviceFlags device_;
  TrafficFlags traffic_{"1..1024", "uniform"};
  std::string config_;
  JournalFlags journal_;
  HostFlags hosts_;
  ModeFlags mode_;
};

}  // namespace

std::unique_ptr<Command> make_explain_command() { return std::make_unique<ExplainCommand>(); }

}  // namespace moetune::cli
