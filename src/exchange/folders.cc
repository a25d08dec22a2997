#include "exchange/folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "exchange/triton_table.h"

namespace moetune::exchange {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTritonPrefix = "triton_";

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Below a package's own folder; the newest place first.
std::vector<const char*> places_in_package(Engine engine) {
  if (engine == Engine::kVllm) return {"model_executor/layers/fused_moe/configs"};
  return {"srt/layers/moe/moe_runner/triton_utils", "srt/layers/moe/fused_moe_triton"};
}

/// The folder of the package called like the engine: `path`, or one in it; empty: neither.
fs::path package_of(Engine engine, const fs::path& path, fs::path& configs) {
  const char* const name = facts_of(engine).name;
  for (const fs::path& package : {path, path / name, path / "python" / name}) {
    for (const char* place : places_in_package(engine)) {
      if (!is_folder(package / place)) continue;
      configs = package / place;
      return package;
    }
  }
  return {};
}

/// The version in "triton-3.4.0.dist-info", which pip leaves beside a package.
Version installed_version(const fs::path& beside, const std::string& package) {
  std::error_code error;
  const std::string prefix = package + "-";
  for (fs::directory_iterator it(beside, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(".dist-info")) continue;
    if (const auto version = parse_version(std::string_view(name).substr(prefix.size())))
      return *version;
  }
  return {};
}

/// Other versions of Triton that there are folders for, newest first.
std::vector<Version> other_tritons(const std::string& root, const Version& own) {
  std::vector<Version> versions;
  std::error_code error;
  fs::directory_iterator it(fs::path(root) / "configs", error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with(kTritonPrefix)) continue;
    name.erase(0, std::string_view(kTritonPrefix).size());
    std::replace(name.begin(), name.end(), '_', '.');
    const auto version = parse_version(name);
    if (version && *version != own) versions.push_back(*version);
  }
  std::sort(versions.rbegin(), versions.rend());
  return versions;
}

std::string problem_of(const Installation& installation, const std::string& path) {
  const Result<TritonTable> table = read_triton_table(path);
  if (!table.ok()) return table.error().message;
  const EngineFacts& facts = facts_of(installation.engine);
  const bool knows_triton = installation.engine == Engine::kVllm &&
                            (!installation.engine_version.known() ||
                             may_name_triton(installation.engine, installation.engine_version));
  if (!table->triton_version.empty() && !knows_triton) {
    return fmt::format(
        "it has a member \"triton_version\", which {}{} takes for a number of tokens", facts.title,
        installation.engine == Engine::kVllm ? " before 0.11.0" : "");
  }
  const Result<std::string> printed = print_triton_table(*table, installation.engine);
  return printed.ok() ? "" : printed.error().message;
}

Lookup found(const Installation& installation, Lookup lookup, const std::string& path,
             Lookup::Outcome outcome) {
  lookup.path = path;
  lookup.problem = problem_of(installation, path);
  lookup.outcome = lookup.problem.empty() ? outcome : Lookup::Outcome::kBroken;
  return lookup;
}

}  // namespace

std::string triton_folder(const std::string& root, const Version& triton) {
  std::string version = triton.known() ? triton.text() : "X.Y.Z";
  std::replace(version.begin(), version.end(), '.', '_');
  return fmt::format("{}/configs/{}{}", root, kTritonPrefix, version);
}

const char* to_string(Lookup::Outcome outcome) {
  switch (outcome) {
    case Lookup::Outcome::kFound: return "found";
    case Lookup::Outcome::kOtherTriton: return "other_triton";
    case Lookup::Outcome::kDefault: return "default";
    case Lookup::Outcome::kBroken: return "broken";
  }
  return "default";
}

std::vector<std::string> Installation::folders() const {
  std::vector<std::string> all;
  if (engine == Engine::kSglang) {
    // The variable takes the place of the package's folder.
    all.push_back(
        triton_folder(user_folder.empty() ? package_folder : user_folder, triton_version));
    return all;
  }
  if (!user_folder.empty()) all.push_back(user_folder);
  if (!package_folder.empty()) all.push_back(package_folder);
  return all;
}

Result<Installation> find_installation(Engine engine, const std::string& path,
                                       const std::string& user_folder) {
  const EngineFacts& facts = facts_of(engine);
  for (const std::string& folder : {path, user_folder}) {
    if (folder.empty() || is_folder(folder)) continue;
    return Error{ErrorCode::kNotFound, fmt::format("there is no folder {}", folder),
                 fmt::format("name {}'s package (python -c \"import {}; print({}.__path__[0])\"), "
                             "or the folder that {} names",
                             facts.title, facts.name, facts.name, facts.folder_variable)};
  }
  Installation installation{.engine = engine, .user_folder = user_folder};
  fs::path configs;
  const fs::path package = package_of(engine, path, configs);
  if (!package.empty()) {
    installation.package_folder = configs.string();
    std::error_code error;
    const fs::path beside = fs::weakly_canonical(package, error).parent_path();
    installation.engine_version = installed_version(beside, facts.name);
    installation.triton_version = installed_version(beside, "triton");
    return installation;
  }
  if (!user_folder.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is no package of {}'s: no {} is in it", path, facts.title,
                             places_in_package(engine).front()),
                 "give one folder of your own only"};
  }
  installation.user_folder = path;
  return installation;
}

Lookup look_up(const Installation& installation, const TableName& name) {
  const std::string file = name.text(installation.engine);
  Lookup lookup;
  for (const std::string& folder : installation.folders()) {
    const std::string path = fmt::format("{}/{}", folder, file);
    lookup.looked_for.push_back(path);
    if (is_there(path)) return found(installation, lookup, path, Lookup::Outcome::kFound);
  }
  if (installation.engine == Engine::kVllm) return lookup;
  const std::string& root =
      installation.user_folder.empty() ? installation.package_folder : installation.user_folder;
  for (const Version& triton : other_tritons(root, installation.triton_version)) {
    const std::string path = fmt::format("{}/{}", triton_folder(root, triton), file);
    if (is_there(path)) return found(installation, lookup, path, Lookup::Outcome::kOtherTriton);
  }
  return lookup;
}

std::vector<TableFile> list_tables(const std::vector<std::string>& folders) {
  constexpr int kDeepest = 3;
  constexpr int kMostEntries = 20000;
  std::vector<TableFile> files;
  int entries = 0;
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    std::error_code error;
    fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied,
                                        error);
    for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
      if (++entries > kMostEntries) break;
      if (it.depth() >= kDeepest) it.disable_recursion_pending();
      const std::string path = it->path().string();
      if (auto name = parse_table_name(path); name.ok()) files.push_back({path, std::move(*name)});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const TableFile& a, const TableFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace moetune::exchange
