// moetune audit: which tuning files an engine looks for, which of them it finds, and why not.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/status_macros.h"
#include "cli/audit_report.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/flags.h"
#include "exchange/plan_compare.h"
#include "exchange/triton_table.h"
#include "moetune/plan.h"

namespace moetune::cli {
namespace {

using exchange::Engine;
using exchange::Installation;

/// What does not depend on the layer.
struct Scene {
  Installation installation;
  std::string device;
  std::vector<exchange::TableFile> files;
  std::optional<TunedConfiguration> configuration;
};

class AuditCommand final : public Command {
 public:
  const char* name() const override { return "audit"; }
  const char* summary() const override {
    return "Say which tuning files vLLM or SGLang looks for and does not find, and why";
  }
  const char* examples() const override {
    return "  moetune audit --log server.log\n"
           "  moetune audit qwen3-30b-a3b --vllm /usr/lib/python3/dist-packages/vllm --tp 2\n"
           "  moetune audit deepseek-v3 --sglang ./tuned --tp 8 --device-name \"NVIDIA H200\" "
           "--triton-version 3.4.0";
  }
  void declare(Flags& flags) override;
  Result<Exit> run(Output& output) override;

 private:
  Result<std::vector<AuditRow>> audit_model(Output& output) const;
  Result<Scene> set_scene() const;
  Result<AuditRow> audit_layer(const Scene& scene, const LayerFlags::Layer& layer,
                               bool is_fused) const;
  Status add_fused(const Scene& scene, std::vector<AuditRow>& rows, Output& output) const;
  Status compare(const Scene& scene, const FusedMoeSpec& spec, AuditRow& row) const;
  std::string tune_flags(const FusedMoeSpec& spec, bool is_fused) const;
  Status check_flags() const;

  EngineFlags engine_;
  LayerFlags layer_;
  std::string log_;
  std::string user_folder_;
  std::string config_;
  bool apart_ = false;
};

void AuditCommand::declare(Flags& flags) {
  flags.positional("MODEL", &layer_.model,
                   "A Hugging Face model folder, a config.json, or a preset's name",
                   /*required=*/false);
  flags.value("--log", "FILE", &log_,
              "A server's log: what the engine said about its files, instead of MODEL");
  engine_.declare(flags,
                  "vLLM's package, the folder that holds it, or the folder that "
                  "VLLM_TUNED_CONFIG_FOLDER names");
  flags.value("--user-folder", "DIR", &user_folder_,
              "What VLLM_TUNED_CONFIG_FOLDER or SGLANG_MOE_CONFIG_DIR names, beside the package");
  flags.value("--weights", "FORMAT", &layer_.weights,
              "bf16, fp16, fp8 or fp8-block; default: what the model's config says");
  flags.value("--tp", "N", &layer_.tp, "Tensor-parallel ranks; one rank's share is taken");
  flags.value("--ep", "N", &layer_.ep, "Expert-parallel ranks");
  flags.toggle("--shared-experts", &layer_.shared_experts,
               "The engine fuses the model's shared experts into the layer");
  flags.toggle("--no-shared-experts", &apart_, "It does not; default for SGLang: look for both");
  flags.value("--config", "FILE", &config_,
              "A tuned configuration: compare the files that are found with what was measured");
}

Status AuditCommand::check_flags() const {
  const char* problem = nullptr;
  if (log_.empty() && layer_.model.empty()) problem = "neither MODEL nor --log is given";
  if (!log_.empty() && !layer_.model.empty()) problem = "MODEL and --log are both given";
  if (layer_.shared_experts && apart_) problem = "--shared-experts and --no-shared-experts";
  if (!log_.empty() && !(engine_.vllm.empty() && engine_.sglang.empty()))
    problem = "--log with a folder: the log names its own";
  if (problem == nullptr) return {};
  return Error{ErrorCode::kInvalidArgument, problem,
               "`moetune audit --log FILE`, or `moetune audit MODEL --vllm PATH --tp N`"};
}

Result<Scene> AuditCommand::set_scene() const {
  MOETUNE_ASSIGN_OR_RETURN(const EngineFlags::Values values, engine_.read());
  Scene scene;
  MOETUNE_ASSIGN_OR_RETURN(scene.installation,
                           find_installation(values.engine, values.path, user_folder_));
  Installation& installation = scene.installation;
  if (values.engine_version.known()) installation.engine_version = values.engine_version;
  if (values.triton_version.known()) installation.triton_version = values.triton_version;
  if (values.engine == Engine::kSglang && !installation.triton_version.known()) {
    return Error{ErrorCode::kInvalidArgument,
                 "SGLang looks into a folder named after Triton's version, which is not known",
                 "give --triton-version: python -c \"import triton; print(triton.__version__)\""};
  }
  MOETUNE_ASSIGN_OR_RETURN(scene.device, find_device_name(engine_.device_name));
  scene.files = exchange::list_tables({installation.user_folder, installation.package_folder});
  if (!config_.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(scene.configuration, TunedConfiguration::load(config_));
  }
  return scene;
}

std::string AuditCommand::tune_flags(const FusedMoeSpec& spec, bool is_fused) const {
  const bool has_space = layer_.model.find(' ') != std::string::npos;
  std::string flags = has_space ? "'" + layer_.model + "'" : layer_.model;
  flags += " --tp " + layer_.tp;
  if (layer_.ep != "1") flags += " --ep " + layer_.ep;
  if (!layer_.weights.empty()) flags += " --weights " + layer_.weights;
  // Engines round activations where weights are fp8.
  if (spec.weights == WeightFormat::kFp8 || spec.weights == WeightFormat::kFp8Block)
    flags += fmt::format(" --activations {}", to_string(spec.weights));
  if (is_fused) flags += " --shared-experts";
  return flags;
}

Status AuditCommand::compare(const Scene& scene, const FusedMoeSpec& spec, AuditRow& row) const {
  MOETUNE_ASSIGN_OR_RETURN(const exchange::TritonTable table,
                           exchange::read_triton_table(row.path));
  row.detail = fmt::format(
      "{} numbers of tokens, from {} to {}{}", table.entries.size(), table.sorted().front().tokens,
      table.sorted().back().tokens,
      table.triton_version.empty() ? "" : ", tuned with Triton " + table.triton_version);
  if (!scene.configuration) return {};
  const Plan* plan =
      exchange::find_engine_plan(*scene.configuration, scene.installation.engine, spec);
  if (plan == nullptr) {
    row.against_plan = fmt::format("{} has no plan of this layer", config_);
    return {};
  }
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<exchange::TableVerdict> verdicts,
                           exchange::compare_with_plan(table, *plan));
  row.against_plan = exchange::summary_of(verdicts);
  row.is_slower = std::any_of(verdicts.begin(), verdicts.end(), [](const auto& verdict) {
    return verdict.kind == exchange::TableVerdict::Kind::kSlower;
  });
  return {};
}

Result<AuditRow> AuditCommand::audit_layer(const Scene& scene, const LayerFlags::Layer& layer,
                                           bool is_fused) const {
  const Installation& installation = scene.installation;
  AuditRow row{.engine = installation.engine};
  MOETUNE_ASSIGN_OR_RETURN(row.name, table_name_of(layer.spec, installation.engine, scene.device,
                                                   installation.engine_version));
  const exchange::Lookup lookup = look_up(installation, row.name);
  row.outcome = to_string(lookup.outcome);
  row.path = lookup.path;
  row.looked_for = lookup.looked_for;
  row.detail = lookup.problem;
  if (lookup.problem.empty() && !lookup.path.empty())
    MOETUNE_RETURN_IF_ERROR(compare(scene, layer.spec, row));
  if (lookup.outcome == exchange::Lookup::Outcome::kFound && !row.is_slower) return row;
  const exchange::LayerFacts facts{.shared_experts = is_fused ? 0 : layer.model.shared_experts,
                                   .fused_experts = is_fused ? layer.model.shared_experts : 0,
                                   .full_intermediate = layer.model.intermediate};
  if (lookup.outcome == exchange::Lookup::Outcome::kDefault)
    row.traps = find_traps(row.name, installation.engine, row.looked_for, facts, scene.files);
  Installation own = installation;
  if (own.user_folder.empty()) own.user_folder = "DIR";  // There is none yet: the user's choice.
  row.fix_path = fmt::format("{}/{}", own.folders().front(), row.name.text(own.engine));
  row.fix_commands = commands_for(own.engine, tune_flags(layer.spec, is_fused), own.user_folder,
                                  own.triton_version);
  return row;
}

/// Whether SGLang fuses shared experts depends on the model, the device and its flags: adds the
/// other case where nobody said which it is.
Status AuditCommand::add_fused(const Scene& scene, std::vector<AuditRow>& rows,
                               Output& output) const {
  LayerFlags flags = layer_;
  flags.shared_experts = true;
  const Result<LayerFlags::Layer> layer = flags.read();
  if (!layer.ok()) return {};  // Not the same sizes, or several expert-parallel ranks.
  MOETUNE_ASSIGN_OR_RETURN(AuditRow fused, audit_layer(scene, *layer, true));
  rows.front().variant = "where shared experts stay apart";
  fused.variant = "where SGLang fuses shared experts into the layer";
  rows.push_back(std::move(fused));
  output.note(
      "note: SGLang looks for one of the two; its log says \"Shared experts fusion optimization is "
      "disabled\" where they stay apart: give --shared-experts or --no-shared-experts");
  return {};
}

Result<std::vector<AuditRow>> AuditCommand::audit_model(Output& output) const {
  MOETUNE_ASSIGN_OR_RETURN(const Scene scene, set_scene());
  MOETUNE_ASSIGN_OR_RETURN(const LayerFlags::Layer layer, layer_.read());
  const exchange::EngineFacts& facts = facts_of(scene.installation.engine);
  std::vector<AuditRow> rows;
  MOETUNE_ASSIGN_OR_RETURN(AuditRow first, audit_layer(scene, layer, layer_.shared_experts));
  rows.push_back(std::move(first));
  const std::string version = scene.installation.engine_version.text();
  output.text(fmt::format("{}: {}{}, device {}\n", layer.model.name, facts.title,
                          version.empty() ? "" : " " + version, scene.device));
  if (scene.installation.package_folder.empty()) {
    output.note(fmt::format(
        "note: no package of {}'s is in {}: taken for a folder of tuned files, as {} names one",
        facts.title, scene.installation.user_folder, facts.folder_variable));
  }
  const bool may_fuse = scene.installation.engine == Engine::kSglang && !apart_ &&
                        !layer_.shared_experts && layer.model.shared_experts > 0;
  if (may_fuse) MOETUNE_RETURN_IF_ERROR(add_fused(scene, rows, output));
  if (layer.model.intermediate % layer.spec.tp != 0) {
    output.note(
        fmt::format("note: {} rows do not divide by --tp {}; {} may pad them, so that N is another",
                    layer.model.intermediate, layer.spec.tp, facts.title));
  }
  output.note(fmt::format(
      "note: {} reads these files only where it runs the layer with its Triton kernel; `moetune "
      "audit --log` tells what it did",
      facts.title));
  return rows;
}

Result<Exit> AuditCommand::run(Output& output) {
  MOETUNE_RETURN_IF_ERROR(check_flags());
  std::vector<AuditRow> rows;
  Json object = Json::object();
  if (log_.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(rows, audit_model(output));
    object["model"] = layer_.model;
  } else {
    MOETUNE_ASSIGN_OR_RETURN(const exchange::EngineLog log, exchange::read_engine_log(log_));
    rows = rows_of_log(log);
    object["log"] = log_;
    object["lines"] = log.lines();
    if (log.dropped() > 0)
      output.note(fmt::format("note: {} more lines told of further files", log.dropped()));
  }
  Json list = Json::array();
  for (const AuditRow& row : rows) {
    output.text(row_text(row));
    list.push_back(describe(row));
  }
  const bool has_failed =
      std::any_of(rows.begin(), rows.end(), [](const AuditRow& row) { return row.is_failure(); });
  output.text('\n' + summary_text(rows) + '\n');
  object["failed"] = has_failed;
  object["configurations"] = std::move(list);
  output.object(object);
  return has_failed ? Exit::kFailed : Exit::kDone;
}

}  // namespace

std::unique_ptr<Command> make_audit_command() { return std::make_unique<AuditCommand>(); }

}  // namespace moetune::cli
