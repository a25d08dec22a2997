// moetune export: plans of an engine's own kernels as the files that the engine reads.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/describe.h"
#include "cli/engine_flags.h"
#include "cli/host_flags.h"
#include "cli/table_text.h"
#include "engine/backend.h"
#include "engine/kernel_host.h"
#include "exchange/folders.h"
#include "exchange/plan_export.h"
#include "exchange/table_file.h"
#include "moetune/autotuner.h"

namespace moetune::cli {
namespace {

namespace fs = std::filesystem;

/// One file, before and after it is written.
struct ExportedFile {
  exchange::ExportedTable exported;
  std::string path;
  std::string content;
  exchange::WrittenFile written;
};

Json file_to_json(const ExportedFile& file) {
  Json object = cli::describe(file.exported.name);
  object["path"] = file.path;
  object["problem"] = file.exported.problem;
  object["entries"] = file.exported.table.entries.size();
  object["max_tokens"] = file.exported.max_tokens;
  object["tuned_tokens"] = file.exported.tuned_tokens;
  object["outcome"] = to_string(file.written.outcome);
  object["backup"] = file.written.backup;
  object["notes"] = file.exported.notes;
  return object;
}

std::string file_text(const ExportedFile& file) {
  std::string text =
      fmt::format("{}\n  {}; {} entries; faster than the default at {} of {} numbers of tokens\n",
                  file.path, file.exported.name.shape_text(), file.exported.table.entries.size(),
                  file.exported.tuned_tokens, file.exported.max_tokens);
  if (file.written.outcome == exchange::WrittenFile::Outcome::kUnchanged)
    text += "  was there already, the same\n";
  if (!file.written.backup.empty())
    text += fmt::format("  what was there is kept: {}\n", file.written.backup);
  return text;
}

class ExportCommand final : public Command {
 public:
  const char* name() const override { return "export"; }
  const char* summary() const override {
    return "Write tuned plans as the files that vLLM or SGLang reads";
  }
  const char* examples() const override {
    return "  moetune export --vllm ./tuned\n"
           "  moetune export --sglang ./tuned --triton-version 3.4.0\n"
           "  moetune export --vllm ./tuned --config tuned.json --problem experts=128";
  }
  void declare(Flags& flags) override {
    engine_.declare(flags, "Folder for vLLM's files, which is made, or vLLM's package itself");
    flags.value("--config", "FILE", &config_,
                "The tuned configuration; default: where `tune --host vllm` (sglang) keeps it");
    flags.value("--problem", "TEXT", &problem_,
                "Only plans whose problem has this in it, as in experts=128");
  }
  Result<Exit> run(Output& output) override;

 private:
  Result<std::string> find_config() const;
  Result<std::vector<ExportedFile>> make_files(const TunedConfiguration& configuration,
                                               const std::string& path) const;
  Status place(ExportedFile& file) const;
  void report(const std::vector<ExportedFile>& files, const std::string& path,
              Output& output) const;
  /// What must be set for the engine to look into the folder; empty for its own package.
  std::string variable() const;

  EngineFlags engine_;
  EngineFlags::Values values_;
  exchange::Installation target_;
  std::string config_;
  std::string problem_;
};

Result<std::string> ExportCommand::find_config() const {
  if (!config_.empty()) return config_;
  MOETUNE_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, open_backend("auto"));
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<HostChoice> hosts,
                           parse_hosts(facts_of(values_.engine).name));
  std::string path = usual_config_path(backend->device().properties(), hosts);
  if (!path.empty()) return path;
  return Error{ErrorCode::kNotFound, "neither MOETUNE_CONFIG, XDG_CACHE_HOME nor HOME is set",
               "name the tuned configuration with --config"};
}

/// Where the file goes, and the file's text.
Status ExportCommand::place(ExportedFile& file) const {
  const std::string name = file.exported.name.text(values_.engine);
  if (values_.engine == exchange::Engine::kVllm) {
    file.path = fmt::format("{}/{}", target_.folders().front(), name);
  } else {
    const exchange::Version& triton = file.exported.triton_version;
    if (!triton.known()) {
      return Error{ErrorCode::kInvalidArgument,
                   "SGLang's folders are named after Triton's version, which the plan does not say",
                   "give --triton-version: python -c \"import triton; print(triton.__version__)\""};
    }
    const std::string& root =
        target_.user_folder.empty() ? target_.package_folder : target_.user_folder;
    file.path = fmt::format("{}/{}", exchange::triton_folder(root, triton), name);
  }
  MOETUNE_ASSIGN_OR_RETURN(file.content, print_triton_table(file.exported.table, values_.engine));
  return {};
}

Result<std::vector<ExportedFile>> ExportCommand::make_files(const TunedConfiguration& configuration,
                                                            const std::string& path) const {
  const exchange::EngineFacts& facts = facts_of(values_.engine);
  std::vector<ExportedFile> files;
  std::set<std::string> runners;
  for (const Plan& plan : configuration.plans) {
    runners.insert(plan.runner);
    if (plan.runner != facts.runner || plan.problem.key().find(problem_) == std::string::npos)
      continue;
    ExportedFile file;
    MOETUNE_ASSIGN_OR_RETURN(
        file.exported, exchange::export_plan(plan, {.engine = values_.engine,
                                                    .device_name = engine_.device_name,
                                                    .engine_version = values_.engine_version,
                                                    .triton_version = values_.triton_version}));
    MOETUNE_RETURN_IF_ERROR(place(file));
    for (const ExportedFile& other : files) {
      if (other.path != file.path) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("two plans want to be {}: {} and {}", file.path,
                               other.exported.problem, file.exported.problem),
                   "the engine tells them apart by E, N and formats only; choose with --problem"};
    }
    files.push_back(std::move(file));
  }
  if (!files.empty()) return files;
  return Error{
      ErrorCode::kNotFound,
      fmt::format("{} has no plan of {}{}; its plans are of: {}", path, facts.runner,
                  problem_.empty() ? "" : " with \"" + problem_ + "\"",
                  runners.empty() ? "nothing" : fmt::format("{}", fmt::join(runners, ", "))),
      fmt::format("make one where {} is installed: `moetune tune MODEL --host {}`", facts.title,
                  facts.name)};
}

std::string ExportCommand::variable() const {
  return target_.user_folder.empty() ? "" : facts_of(values_.engine).folder_variable;
}

void ExportCommand::report(const std::vector<ExportedFile>& files, const std::string& path,
                           Output& output) const {
  const exchange::EngineFacts& facts = facts_of(values_.engine);
  Json list = Json::array();
  for (const ExportedFile& file : files) {
    list.push_back(file_to_json(file));
    output.text(file_text(file));
    for (const std::string& note : file.exported.notes) output.note("note: " + note);
  }
  Json environment = Json::object();
  if (!variable().empty()) {
    environment[variable()] = target_.user_folder;
    output.text(fmt::format("\nnext, where {} is started:\n  export {}={}\n", facts.title,
                            variable(), quoted_for_shell(target_.user_folder)));
    if (values_.engine == exchange::Engine::kSglang)
      output.note(
          "note: SGLang then looks into that folder only; copy what it needs of its own "
          "configs there, or export to its package");
  }
  output.object({{"engine", facts.name},
                 {"config", path},
                 {"folder", variable().empty() ? target_.package_folder : target_.user_folder},
                 {"environment", std::move(environment)},
                 {"files", std::move(list)}});
}

Result<Exit> ExportCommand::run(Output& output) {
  MOETUNE_ASSIGN_OR_RETURN(values_, engine_.read());
  if (!engine_.device_name.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(engine_.device_name, find_device_name(engine_.device_name));
  }
  std::error_code ignored;
  const std::string folder = fs::absolute(values_.path, ignored).lexically_normal().string();
  target_ = {.engine = values_.engine, .user_folder = folder};
  if (fs::is_directory(folder, ignored)) {
    MOETUNE_ASSIGN_OR_RETURN(target_, find_installation(values_.engine, folder, ""));
    if (!values_.engine_version.known()) values_.engine_version = target_.engine_version;
    if (!values_.triton_version.known()) values_.triton_version = target_.triton_version;
  }
  MOETUNE_ASSIGN_OR_RETURN(const std::string path, find_config());
  Result<TunedConfiguration> configuration = TunedConfiguration::load(path);
  if (!configuration.ok()) {
    Error error = std::move(configuration).error();
    if (config_.empty() && error.code == ErrorCode::kNotFound)
      error.hint = fmt::format("nothing was tuned yet: `moetune tune MODEL --host {}`",
                               facts_of(values_.engine).name);
    return error;
  }
  MOETUNE_ASSIGN_OR_RETURN(std::vector<ExportedFile> files, make_files(*configuration, path));
  // Only now that all of them can be made is anything written.
  for (ExportedFile& file : files) {
    MOETUNE_ASSIGN_OR_RETURN(file.written, exchange::write_table_file(file.path, file.content));
    exchange::TableName second = file.exported.name;
    second.is_down = true;
    target_.triton_version = file.exported.triton_version;
    const exchange::Lookup down = exchange::look_up(target_, second);
    if (values_.engine == exchange::Engine::kSglang && !down.path.empty())
      file.exported.notes.push_back(
          fmt::format("SGLang takes {} for the second GEMM, which this plan was not measured with: "
                      "move it away",
                      down.path));
  }
  report(files, path, output);
  return Exit::kDone;
}

}  // namespace

std::unique_ptr<Command> make_export_command() { return std::make_unique<ExportCommand>(); }

}  // namespace moetune::cli
