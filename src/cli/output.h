// Where text goes: results to stdout, everything else to stderr, and with --json one object instead
// of text.
#pragma once

#include <string_view>

#include "base/json.h"
#include "moetune/result.h"

namespace moetune::cli {

/// One per process. Not thread-safe; Progress, which writes to stderr too, is silent while others
/// write (progress.h).
class Output {
 public:
  explicit Output(bool json);

  bool json() const { return json_; }
  /// Text for people, on stdout; nothing with --json.
  void text(std::string_view text);
  /// The result, on stdout; nothing without --json.
  void object(const Json& object);
  /// A line beside the result, on stderr.
  void note(std::string_view line);
  /// The error: {"error": {"code", "message", "hint"}} on stdout with --json, else two lines on
  /// stderr.
  void error(const Error& error);
  /// kIo where stdout took not everything (a full disk, say).
  Status finish();

 private:
  bool json_;
  bool colour_;  ///< Of stderr: a terminal, and NO_COLOR unset.
};

}  // namespace moetune::cli
