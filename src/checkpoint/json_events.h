// A JSON text as a stream of events. The headers of checkpoints name a hundred thousand tensors in
// a shape that is known beforehand: building a document of them would take a multiple of the text
// in memory, and would not tell that a name came twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moetune/result.h"

namespace moetune::checkpoint {

/// Told of everything in a text, in its order. Functions return an empty text to go on, or what is
/// wrong.
class JsonListener {
 public:
  virtual ~JsonListener() = default;
  using Problem = std::string;

  virtual Problem on_open(bool is_array) = 0;  ///< An object or an array begins, ...
  virtual Problem on_close() = 0;              ///< ... or ends.
  virtual Problem on_string(std::string& text) = 0;
  virtual Problem on_whole(uint64_t number) = 0;
  virtual Problem on_other(const char* kind) = 0;  ///< "a fraction", "true", "null", ...

  /// How many objects and arrays are open, the outermost included.
  size_t depth() const { return keys_.size(); }
  /// The key under which an event of that depth happens: key(1) is the outermost object's. Empty in
  /// an array.
  const std::string& key(size_t depth) const { return keys_[depth - 1]; }

 private:
  friend class JsonEvents;
  std::vector<std::string> keys_;
};

/// kParse, beginning with `origin`, for a text that is no JSON object, nests more than 16 deep, or
/// that the listener objects to.
Status read_json_events(std::string_view text, const std::string& origin, JsonListener& listener);

/// A name from a file as it stands in messages: in quotes, on one line, not endless.
std::string in_quotes(std::string_view name);

}  // namespace moetune::checkpoint
