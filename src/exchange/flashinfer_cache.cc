#include "exchange/flashinfer_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/status_macros.h"
#include "exchange/python_text.h"

namespace moetune::exchange {
namespace {

constexpr size_t kMaxCacheBytes = size_t{16} << 20;
// Some twenty sizes for each kernel of a model. Each is compared with all before it.
constexpr JsonLimits kLimits{.max_bytes = kMaxCacheBytes, .max_members = 16384};
constexpr const char* kMetadata = "_metadata";

Error bad_cache(const std::string& origin, std::string_view what) {
  return {
      ErrorCode::kParse, fmt::format("{}: {}", origin, what),
      "FlashInfer's cache looks like {\"('op', 'Runner', ((8, 4096),), ())\": [\"Runner\", 3]}"};
}

/// A key as a message shows it.
std::string short_key(const std::string& key) {
  return key.size() <= 80 ? key : key.substr(0, 80) + "...";
}

bool read_shapes(const Json& value, FlashinferCache::Entry& entry) {
  if (!value.is_array()) return false;
  for (const Json& shape : value) {
    if (!shape.is_array()) return false;
    std::vector<int64_t>& sizes = entry.shapes.emplace_back();
    for (const Json& size : shape) {
      if (!size.is_number_integer()) return false;
      sizes.push_back(size.get<int64_t>());
    }
  }
  return true;
}

/// Fills in what the key says; where it says something else, that is put down and nothing is lost.
void read_key(FlashinferCache::Entry& entry) {
  Result<Json> key = parse_python_text(entry.key);
  if (!key.ok()) {
    entry.unreadable = key.error().message;
    return;
  }
  const bool has_names =
      key->is_array() && key->size() >= 3 && (*key)[0].is_string() && (*key)[1].is_string();
  if (!has_names || !read_shapes((*key)[2], entry)) {
    entry.unreadable = "not a tuple of operator, runner and shapes";
    entry.shapes.clear();
    return;
  }
  entry.op = (*key)[0].get<std::string>();
  for (size_t i = 3; i < key->size(); ++i) entry.extras.push_back((*key)[i]);
  // What distinguishes cases comes as one tuple today.
  if (entry.extras.size() == 1 && entry.extras[0].is_array()) entry.extras = entry.extras[0];
}

bool is_tactic(const Json& value) {
  if (!value.is_array()) return value.is_primitive();
  return std::all_of(value.begin(), value.end(), is_tactic);
}

Result<FlashinferCache::Entry> read_entry(const std::string& key, const Json& value,
                                          const std::string& origin) {
  FlashinferCache::Entry entry;
  entry.key = key;
  const bool is_pair = value.is_array() && value.size() >= 2 && value[0].is_string();
  if (!is_pair || !is_tactic(value[1])) {
    return bad_cache(origin, fmt::format("\"{}\": expected [runner, tactic], found {}",
                                         short_key(key), json_kind(value)));
  }
  entry.runner = value[0].get<std::string>();
  entry.tactic = value[1];
  read_key(entry);
  return entry;
}

}  // namespace

Result<FlashinferCache> parse_flashinfer_cache(std::string_view text, const std::string& origin) {
  MOETUNE_ASSIGN_OR_RETURN(const Json json, parse_json(text, origin, kLimits));
  if (!json.is_object())
    return bad_cache(origin, fmt::format("expected an object, found {}", json_kind(json)));
  FlashinferCache cache;
  for (const auto& [key, value] : json.items()) {
    if (key == kMetadata) {
      if (!value.is_object())
        return bad_cache(origin,
                         fmt::format("{}: expected an object, found {}", key, json_kind(value)));
      for (const auto& [name, content] : value.items())
        cache.metadata[name] = content.is_string() ? content.get<std::string>() : content.dump();
    } else if (!key.starts_with("_")) {
      MOETUNE_ASSIGN_OR_RETURN(FlashinferCache::Entry entry, read_entry(key, value, origin));
      cache.entries.push_back(std::move(entry));
    }
  }
  return cache;
}

Result<FlashinferCache> read_flashinfer_cache(const std::string& path) {
  MOETUNE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxCacheBytes));
  return parse_flashinfer_cache(text, path);
}

bool looks_like_flashinfer_cache(std::string_view text) {
  const Result<Json> json = parse_json(text, "", kLimits);
  if (!json.ok() || !json->is_object()) return false;
  for (const auto& [key, value] : json->items()) {
    if (key.starts_with("('")) return true;
    if (key == kMetadata && value.is_object() && value.contains("flashinfer_version")) return true;
  }
  return false;
}

}  // namespace moetune::exchange
