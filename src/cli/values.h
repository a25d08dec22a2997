// The values of flags, from text. Every error names the flag, what was written, and what can be
// written. All are kInvalidArgument.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "moetune/profile.h"
#include "moetune/result.h"

namespace moetune::cli {

/// Most tokens of one call that any flag takes.
inline constexpr int64_t kMaxTokens = int64_t{1} << 20;

/// A whole number in [low, high].
Result<int64_t> parse_whole(const std::string& flag, const std::string& text, int64_t low,
                            int64_t high);

/// "1,64,4096" as it stands, and "1..1024": both ends and the powers of two between them. Both may
/// be mixed. Ascending; a number that is given twice is an error, as one of the two was meant to be
/// another.
Result<std::vector<int64_t>> parse_tokens(const std::string& text);

/// "60", "60s", "1500ms", "2m", "1h" in seconds, from a millisecond to a week.
Result<double> parse_duration(const std::string& flag, const std::string& text);

/// A time that parse_duration() takes, rounded up to seconds: "90s", "2m".
std::string duration_flag(double seconds);

/// "90d", "12h", "30m", "2w" in seconds, up to a hundred years; a number alone is days.
Result<double> parse_age(const std::string& flag, const std::string& text);

/// "8GiB", "512MiB", "2GB", "1000000" in bytes, more than 0.
Result<uint64_t> parse_bytes(const std::string& flag, const std::string& text);

/// "2026-01-31 12:00" (UTC) of milliseconds since 1970.
std::string date_text(int64_t unix_ms);

/// "512 B", "1.5 MiB", "24 GiB".
std::string bytes_text(double bytes);

/// Parts between commas, as of a list of files. Empty ones are left out.
std::vector<std::string> split_list(const std::string& text);

}  // namespace moetune::cli
