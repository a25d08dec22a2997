#include "cli/save.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/status_macros.h"
#include "base/system_error.h"

namespace moetune::cli {
namespace {

namespace fs = std::filesystem;

int resolved_buckets(const Plan& plan) {
  return static_cast<int>(
      std::count_if(plan.decisions.begin(), plan.decisions.end(),
                    [](const Decision& decision) { return decision.evidence.resolved; }));
}

Status check_mergeable(const std::string& path, const DeviceProperties& device) {
  std::error_code error;
  if (!fs::exists(path, error) || fs::file_size(path, error) == 0) return {};
  Result<TunedConfiguration> present = TunedConfiguration::load(path);
  if (!present.ok()) {
    Error refused = std::move(present).error();
    refused.hint = "this file would be left alone; name another one with --out, or move it away";
    return refused;
  }
  const std::vector<std::string> differences = device.differences(present->device);
  if (differences.empty()) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} is for another device ({})", path, fmt::join(differences, "; ")),
               "it would be left alone; name another file with --out"};
}

}  // namespace

Status check_can_write(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is a folder", path),
                 "name a file in it"};
  }
  const std::string folder = parent_folder(path);
  if (!fs::is_directory(folder, error)) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: there is no folder {}", path, folder),
                 fmt::format("mkdir -p '{}'", folder)};
  }
  // Permissions alone do not tell (read-only file systems, root): try.
  const std::string trial = fmt::format("{}.{}.trial", path, ::getpid());
  const int file = ::open(trial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    return Error{ErrorCode::kIo, fmt::format("cannot write to {}: {}", folder, error_text(errno)),
                 "name a place that can be written with --out"};
  }
  ::close(file);
  ::unlink(trial.c_str());
  return {};
}

Result<std::string> prepare_output(const std::string& out, const std::string& usual,
                                   const DeviceProperties& device) {
  std::string path = out;
  if (path.empty()) {
    path = usual;
    if (path.empty()) {
      return Error{
          ErrorCode::kNotFound,
          "no place for the result: neither MOETUNE_CONFIG, XDG_CACHE_HOME nor HOME is set",
          "name a file with --out"};
    }
    MOETUNE_RETURN_IF_ERROR(make_private_folders(parent_folder(path)));
  }
  MOETUNE_RETURN_IF_ERROR(check_can_write(path));
  MOETUNE_RETURN_IF_ERROR(check_mergeable(path, device));
  return path;
}

bool knows_less(const TuneReport& report, const std::string& path) {
  if (!report.interrupted && !report.out_of_budget && !report.from_store) return false;
  const Result<TunedConfiguration> present = TunedConfiguration::load(path);
  if (!present.ok()) return false;
  const Plan* plan = present->find(report.plan.problem);
  return plan != nullptr && resolved_buckets(report.plan) < resolved_buckets(*plan);
}

}  // namespace moetune::cli
