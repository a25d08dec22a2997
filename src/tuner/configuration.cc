#include "tuner/configuration.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/environment.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "moetune/autotuner.h"

namespace moetune {
namespace {

constexpr size_t kMaxPlans = 100'000;
constexpr JsonLimits kLimits;
// Others write for milliseconds; a process stopped with the lock in its hands must not stop
// everybody.
constexpr std::chrono::seconds kLockPatience{20};

// Without its plans, which keep their own unknown fields.
Json known_head_to_json(const TunedConfiguration& configuration) {
  return Json{{"format", TunedConfiguration::kFormat},
              {"device", device_to_json(configuration.device)},
              {"plans", nullptr}};
}

Status check_format(const Json& document, const std::string& origin) {
  JsonReader reader(document, "");
  int64_t format = 0;
  reader.required("format", format);
  if (reader.ok() && format < 1) reader.fail("format", fmt::format("{} is no version", format));
  if (!reader.ok()) {
    return Error{ErrorCode::kParse, fmt::format("{}: {}", origin, reader.error().message),
                 "is this a tuned configuration of moetune?"};
  }
  if (format > TunedConfiguration::kFormat) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: format {}; this version reads up to {}", origin, format,
                             TunedConfiguration::kFormat),
                 "use a newer moetune, or tune again into another file"};
  }
  return {};
}

// What is at `path` now; an empty configuration where there is no file or an empty one.
Result<TunedConfiguration> present_configuration(const std::string& path,
                                                 const DeviceProperties& device) {
  TunedConfiguration none;
  none.device = device;
  Result<std::string> text = read_file(path, kLimits.max_bytes);
  if (!text.ok()) {
    if (text.error().code == ErrorCode::kNotFound) return none;
    return std::move(text).error();
  }
  if (text->find_first_not_of(" \t\r\n") == std::string::npos) return none;
  Result<TunedConfiguration> present = TunedConfiguration::from_json(*text, path);
  if (!present.ok()) {
    Error error = std::move(present).error();
    error.message = fmt::format("{} is not replaced: {}", path, error.message);
    error.hint = "move it away or name another file";
    return error;
  }
  if (present->device.key() != device.key()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is for another device and is not replaced ({})", path,
                             fmt::join(device.differences(present->device), "; ")),
                 "name another file"};
  }
  return present;
}

// A name that can be read: letters and digits of the marketing name, '-' for the rest.
std::string file_name_part(const std::string& name) {
  std::string part;
  for (char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool plain = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain) part += upper ? static_cast<char>(c - 'A' + 'a') : c;
    if (!plain && !part.empty() && part.back() != '-') part += '-';
  }
  while (part.ends_with('-')) part.pop_back();
  return part;
}

}  // namespace

std::string TunedConfiguration::to_json() const {
  std::map<std::string, const Plan*> sorted;
  for (const Plan& plan : plans) sorted[plan.problem.key()] = &plan;
  Json document = known_head_to_json(*this);
  Json& items = document["plans"] = Json::array();
  for (const auto& [key, plan] : sorted) items.push_back(plan_to_json(*plan));
  restore_extra(document, extra_json);
  return print_json(document);
}

Result<TunedConfiguration> TunedConfiguration::from_json(const std::string& text,
                                                         const std::string& origin) {
  MOETUNE_ASSIGN_OR_RETURN(const Json document, parse_json(text, origin, kLimits));
  MOETUNE_RETURN_IF_ERROR(check_format(document, origin));
  TunedConfiguration configuration;
  std::map<std::string, size_t> positions;
  size_t position = 0;
  JsonReader reader(document, "");
  reader.object("device",
                [&](JsonReader& fields) { configuration.device = device_from_json(fields); });
  reader.objects("plans", kMaxPlans, [&](JsonReader& item) {
    Plan plan = plan_from_json(item, document["plans"][position]);
    const auto [earlier, is_new] = positions.emplace(plan.problem.key(), position);
    if (!is_new) {
      item.fail("problem", fmt::format("the same as that of plans[{}]", earlier->second));
    }
    configuration.plans.push_back(std::move(plan));
    ++position;
  });
  if (!reader.ok()) {
    return Error{ErrorCode::kParse, fmt::format("{}: {}", origin, reader.error().message),
                 "correct the file, or move it away and tune again"};
  }
  std::map<std::string, Plan> sorted;
  for (Plan& plan : configuration.plans) {
    std::string key = plan.problem.key();
    sorted.emplace(std::move(key), std::move(plan));
  }
  configuration.plans.clear();
  for (auto& [key, plan] : sorted) configuration.plans.push_back(std::move(plan));
  configuration.extra_json = extra_of(document, known_head_to_json(configuration));
  return configuration;
}

Result<TunedConfiguration> TunedConfiguration::load(const std::string& path) {
  MOETUNE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kLimits.max_bytes));
  return from_json(text, path);
}

Status TunedConfiguration::save_merged(const std::string& path) const {
  if (path.empty()) {
    return Error{ErrorCode::kInvalidArgument, "no file to save the tuned configuration in",
                 "name one, or set HOME or XDG_CACHE_HOME"};
  }
  MOETUNE_RETURN_IF_ERROR(make_private_folders(parent_folder(path)));
  MOETUNE_ASSIGN_OR_RETURN(const FileLock lock, FileLock::acquire(path + ".lock", kLockPatience));
  MOETUNE_ASSIGN_OR_RETURN(TunedConfiguration merged, present_configuration(path, device));
  merged.device = device;
  for (const Plan& plan : plans) merged.put(plan);
  if (!extra_json.empty()) merged.extra_json = extra_json;
  return replace_file(path, merged.to_json());
}

std::string get_config_path(const DeviceProperties& device) {
  if (auto path = environment(Variable::kConfig)) return *path;
  const auto folder = cache_folder();
  if (!folder) return {};
  const std::string name = file_name_part(device.name.empty() ? device.kind : device.name);
  return fmt::format("{}/tuned-{}-{:08x}.json", *folder, name,
                     static_cast<uint32_t>(hash64(device.key())));
}

}  // namespace moetune
