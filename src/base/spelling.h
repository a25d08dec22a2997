// What a misspelt word was meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moetune {

/// The word of `known` (in small letters) that is least far from `word`, by Levenshtein's distance
/// over its first 64 characters, capital letters counted as small ones; "" where even that differs
/// in more than half of them.
std::string nearest_word(std::string_view word, std::span<const std::string> known);

/// "did you mean X? ", or "" where nothing is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> known);

}  // namespace moetune
