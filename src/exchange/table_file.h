// Putting a tuning file in its place without losing what was there.
#pragma once

#include <string>
#include <string_view>

#include "moetune/result.h"

namespace moetune::exchange {

struct WrittenFile {
  enum class Outcome : uint8_t { kNew, kUnchanged, kReplaced };
  Outcome outcome = Outcome::kNew;
  std::string backup;  ///< kReplaced: where the old content is.
};
const char* to_string(WrittenFile::Outcome outcome);

/// Makes or replaces the file, so that readers see the old one or the new one, with the folders
/// that are missing. What was there with another content is kept beside it: PATH.bak, or PATH.bak.2
/// and so on, the first name that is free. kIo with the system's words; kInvalidArgument where
/// something else than a file is there.
Result<WrittenFile> write_table_file(const std::string& path, std::string_view content);

}  // namespace moetune::exchange
