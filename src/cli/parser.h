// From argv to a command with its flags filled in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace moetune::cli {

struct ParsedLine {
  Command* command = nullptr;  ///< null: `text` is all that was asked for (--help, --version).
  std::string text;
};

/// Fills in the flags of the command that `arguments` (without the program's name) name; --json is
/// everybody's and goes to `json`. kInvalidArgument for anything that cannot be understood.
Result<ParsedLine> parse_line(std::vector<std::string> arguments,
                              const std::vector<std::unique_ptr<Command>>& commands,
                              const std::string& version, bool* json);

}  // namespace moetune::cli
