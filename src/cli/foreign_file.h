// `moetune show` of a file that is another engine's.
#pragma once

#include <optional>
#include <string>

#include "cli/exit.h"
#include "cli/output.h"
#include "moetune/result.h"

namespace moetune::cli {

/// Prints the file where its name or content says that it is vLLM's, SGLang's or FlashInfer's;
/// nothing where it is none of these, or cannot be read. Errors are those of the file's format.
Result<std::optional<Exit>> show_foreign_file(const std::string& path, Output& output);

}  // namespace moetune::cli
