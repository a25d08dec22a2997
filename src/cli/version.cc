#include "cli/version.h"

#include <fmt/format.h>

namespace moetune::cli {

const char* version() { return MOETUNE_VERSION; }

std::string version_text() { return fmt::format("moetune {} ({})", version(), __VERSION__); }

}  // namespace moetune::cli
