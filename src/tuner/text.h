// Texts that name things: unambiguous, so that equal texts mean equal things.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace moetune {

/// The word itself where it consists of letters, digits and "_-.:/+*" and is no number; otherwise
/// in single quotes, with a backslash before quotes and backslashes.
std::string quoted_if_needed(std::string_view word);

/// "head a=1 b=two": values that could be mistaken for something else are quoted. Numbers stay
/// bare.
std::string key_text(std::string_view head, const std::map<std::string, std::string>& attributes);

}  // namespace moetune
