#include "exchange/host_info.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/status_macros.h"
#include "tuner/configuration.h"

namespace moetune::exchange {
namespace {

constexpr size_t kMaxDefaults = 4096;

void read_host(JsonReader& reader, HostInfo& host) {
  reader.optional("name", host.name);
  reader.optional_object("versions",
                         [&](JsonReader& versions) { host.versions = read_strings(versions); });
  reader.optional("device_name", host.device_name);
}

void read_default(JsonReader& reader, HostInfo& host) {
  HostInfo::Default& one = host.defaults.emplace_back();
  reader.required("from", one.from);
  read_stages(reader, one.candidate);
  const int64_t least = host.defaults.size() == 1 ? 1 : host.defaults.end()[-2].from + 1;
  const bool in_order = host.defaults.size() == 1 ? one.from == 1 : one.from >= least;
  if (reader.ok() && !in_order)
    reader.fail("from", fmt::format("{}, where {} or more is next", one.from, least));
}

}  // namespace

Version HostInfo::version(const std::string& package) const {
  const auto it = versions.find(package);
  if (it == versions.end()) return {};
  return parse_version(it->second).value_or(Version{});
}

Result<std::optional<HostInfo>> host_of(const Plan& plan) {
  if (plan.extra_json.empty()) return std::optional<HostInfo>{};
  const std::string origin = fmt::format("the plan of {}", plan.problem.key());
  MOETUNE_ASSIGN_OR_RETURN(const Json extra, parse_json(plan.extra_json, origin));
  if (!extra.is_object() || !extra.contains("host")) return std::optional<HostInfo>{};
  HostInfo host;
  const Json& value = extra["host"];
  JsonReader reader(value, "host");
  read_host(reader, host);
  if (reader.ok() && value.contains("defaults")) {
    reader.objects("defaults", kMaxDefaults, [&](JsonReader& item) { read_default(item, host); });
  }
  if (reader.ok()) return std::optional<HostInfo>(std::move(host));
  Error error = reader.error();
  error.message = fmt::format("{}: {}", origin, error.message);
  return error;
}

}  // namespace moetune::exchange
