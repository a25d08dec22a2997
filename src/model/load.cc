// A name on the command line to a ModelSpec.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>

#include "base/file.h"
#include "base/status_macros.h"
#include "model/model_spec.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

/// A config of a thousand layers with a list of modules stays far under this.
constexpr size_t kMaxConfigBytes = 2 << 20;

/// Levenshtein's distance, capital letters counted as small ones.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (std::tolower(static_cast<unsigned char>(a[i])) != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string join(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// "Qwen/Qwen3-30B" -> "Did you mean qwen3-30b-a3b? ...".
std::string suggestion(const std::string& name) {
  constexpr size_t kLongestName = 64;
  const std::string last = name.substr(name.find_last_of('/') + 1).substr(0, kLongestName);
  const std::string everything = fmt::format(
      "MODEL is a folder with a config.json, a config.json, or a preset: {}", join(preset_names()));
  std::string best;
  size_t best_distance = last.size() / 2 + 1;
  for (const std::string& preset : preset_names()) {
    const size_t distance = edit_distance(last, preset);
    if (distance < best_distance) {
      best_distance = distance;
      best = preset;
    }
  }
  return best.empty() ? everything : fmt::format("did you mean {}? {}", best, everything);
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
