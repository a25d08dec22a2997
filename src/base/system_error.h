// What the system says of an errno value.
#pragma once

#include <string>
#include <system_error>

namespace moetune {

/// "No such file or directory". Thread-safe, unlike strerror().
inline std::string error_text(int error) { return std::generic_category().message(error); }

}  // namespace moetune
