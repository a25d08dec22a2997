// A name on the command line to a ModelSpec.
#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/spelling.h"
#include "base/status_macros.h"
#include "model/model_spec.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

/// A config of a thousand layers with a list of modules stays far under this.
constexpr size_t kMaxConfigBytes = 2 << 20;

std::string join(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// "Qwen/Qwen3-30B" -> "Did you mean qwen3-30b-a3b? ...".
std::string suggestion(const std::string& name) {
  const std::vector<std::string> presets = preset_names();
  return fmt::format("{}MODEL is a folder with a config.json, a config.json, or a preset: {}",
                     did_you_mean(name.substr(name.find_last_of('/') + 1), presets), join(presets));
}

Result<std::string> config_path(const std::string& name) {
  std::error_code error;
  const fs::file_status status = fs::status(name, error);
  if (status.type() == fs::file_type::not_found) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("no model \"{}\": neither a preset, nor a file or folder", name),
                 suggestion(name)};
  }
  if (!fs::is_directory(status))
    return name;  // What cannot be examined is reported when it is read.
  const std::string path = (fs::path(name) / "config.json").string();
  if (fs::exists(path, error) || error) return path;
  return Error{ErrorCode::kNotFound, fmt::format("{}: a folder without config.json", name),
               "name the folder that a model was downloaded to"};
}

}  // namespace

Result<ModelSpec> load_model(const std::string& path_or_preset) {
  if (const ModelSpec* preset = find_preset(path_or_preset)) return *preset;
  MOETUNE_ASSIGN_OR_RETURN(const std::string path, config_path(path_or_preset));
  MOETUNE_ASSIGN_OR_RETURN(const std::string config, read_file(path, kMaxConfigBytes));

  std::error_code error;
  const fs::path folder = fs::absolute(path, error).parent_path();
  const fs::path quantisation_path = folder / "hf_quant_config.json";
  std::string quantisation;
  if (fs::exists(quantisation_path, error)) {
    MOETUNE_ASSIGN_OR_RETURN(quantisation, read_file(quantisation_path.string(), kMaxConfigBytes));
  }
  MOETUNE_ASSIGN_OR_RETURN(ModelSpec spec, parse_model(config, quantisation, path));
  spec.name = folder.filename().string();
  return spec;
}

}  // namespace moetune
