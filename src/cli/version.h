#pragma once

#include <string>

namespace moetune::cli {

/// "0.1.0"
const char* version();

/// What --version prints: the version and the compiler.
std::string version_text();

}  // namespace moetune::cli
