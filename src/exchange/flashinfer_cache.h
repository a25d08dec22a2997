// FlashInfer's autotuner cache: one JSON file, {"_metadata": {...}, KEY: [RUNNER, TACTIC, ...]},
// where KEY is Python's text of ('op', 'Runner', ((shape), ...), (extras)).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "moetune/result.h"

namespace moetune::exchange {

/// A value type.
struct FlashinferCache {
  struct Entry {
    std::string key;  ///< As the file has it.
    /// Why `key` cannot be read; then all but `key`, `runner` and `tactic` are empty.
    std::string unreadable;
    std::string op;
    std::string runner;
    std::vector<std::vector<int64_t>> shapes;  ///< Of the inputs, rounded to the tuner's buckets.
    Json extras = Json::array();               ///< What else the runner tells cases apart by.
    Json tactic;  ///< An integer, or nested lists of such; meaning is the runner's affair.

    /// -1: the runner's own choice, as nothing was faster or nothing was tuned.
    bool is_fallback() const { return tactic == -1; }
  };

  std::map<std::string, std::string> metadata;  ///< Versions and GPU; empty in old files.
  std::vector<Entry> entries;                   ///< In the order of the file.
};

/// From text. `origin` begins messages. kParse, naming the place, for what is no JSON or no such
/// cache. Members whose names begin with an underscore hold other things and are left out.
Result<FlashinferCache> parse_flashinfer_cache(std::string_view text, const std::string& origin);

/// From a file of at most 16 MiB.
Result<FlashinferCache> read_flashinfer_cache(const std::string& path);

/// Whether this text looks like such a cache, right or wrong: an object with "_metadata" of
/// FlashInfer's, or with a key that is a tuple's text. Any bytes.
bool looks_like_flashinfer_cache(std::string_view text);

}  // namespace moetune::exchange
