#include "cli/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>

#include "base/status_macros.h"

namespace moetune::cli {
namespace {

constexpr size_t kMostTokenCounts = 1000;

Error bad_value(const std::string& flag, const std::string& text, std::string hint) {
  constexpr size_t kShown = 60;
  const std::string shown = text.size() > kShown ? text.substr(0, kShown) + "..." : text;
  return {ErrorCode::kInvalidArgument, fmt::format("{} \"{}\" makes no sense", flag, shown),
          std::move(hint)};
}

struct Unit {
  const char* name;
  double factor;
};

/// A number and one of `units` after it, the first one where there is none. NaN where it is
/// neither.
template <size_t N>
double parse_with_unit(const std::string& text, const std::array<Unit, N>& units) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{}) return NAN;
  const std::string_view unit(end, text.data() + text.size());
  for (const Unit& known : units) {
    if (unit == known.name) return number * known.factor;
  }
  return unit.empty() ? number * units.front().factor : NAN;
}

bool read_whole(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

/// One item of a list: a number or a range.
bool append_item(std::string_view item, std::vector<int64_t>& tokens) {
  const size_t dots = item.find("..");
  int64_t low = 0;
  int64_t high = 0;
  if (!read_whole(item.substr(0, dots), low) || low < 1 || low > kMaxTokens) return false;
  tokens.push_back(low);
  if (dots == std::string_view::npos) return true;
  if (!read_whole(item.substr(dots + 2), high) || high > kMaxTokens || high < low) return false;
  for (int64_t power = 1; power < high; power *= 2) {
    if (power > low) tokens.push_back(power);
  }
  if (high > low) tokens.push_back(high);
  return true;
}

}  // namespace

Result<int64_t> parse_whole(const std::string& flag, const std::string& text, int64_t low,
                            int64_t high) {
  int64_t value = 0;
  if (read_whole(text, value) && value >= low && value <= high) return value;
  return bad_value(flag, text, fmt::format("give a whole number from {} to {}", low, high));
}

Result<std::vector<int64_t>> parse_tokens(const std::string& text) {
  const std::string hint = fmt::format(
      "give numbers from 1 to {}, as in 1,64,4096, or a range of powers of two, as in 1..1024",
      kMaxTokens);
  std::vector<int64_t> tokens;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (!append_item(std::string_view(text).substr(begin, end - begin), tokens))
      return bad_value("--tokens", text, hint);
    if (tokens.size() > kMostTokenCounts) {
      return bad_value("--tokens", text, fmt::format("give at most {} numbers", kMostTokenCounts));
    }
    begin = end + 1;
  }
  std::sort(tokens.begin(), tokens.end());
  const auto twice = std::adjacent_find(tokens.begin(), tokens.end());
  if (twice != tokens.end())
    return bad_value("--tokens", text, fmt::format("{} is there twice; leave one out", *twice));
  return tokens;
}

Result<double> parse_duration(const std::string& flag, const std::string& text) {
  constexpr std::array kUnits = {Unit{"s", 1}, Unit{"ms", 1e-3}, Unit{"m", 60}, Unit{"min", 60},
                                 Unit{"h", 3600}};
  constexpr double kShortest = 1e-3;
  constexpr double kLongest = 7 * 24 * 3600.0;
  const double seconds = parse_with_unit(text, kUnits);
  if (seconds >= kShortest && seconds <= kLongest) return seconds;
  return bad_value(flag, text, "give a time from 1ms to 168h, as in 60s, 500ms or 2m");
}

std::string duration_flag(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  return whole % 60 == 0 ? fmt::format("{}m", whole / 60) : fmt::format("{}s", whole);
}

Result<double> parse_age(const std::string& flag, const std::string& text) {
  constexpr double kDay = 24 * 3600.0;
  constexpr std::array kUnits = {Unit{"d", kDay}, Unit{"h", 3600}, Unit{"m", 60}, Unit{"s", 1},
                                 Unit{"w", 7 * kDay}};
  constexpr double kLongest = 36525 * kDay;
  const double seconds = parse_with_unit(text, kUnits);
  if (seconds >= 0 && seconds <= kLongest) return seconds;
  return bad_value(flag, text, "give an age, as in 90d, 12h or 30m");
}

Result<uint64_t> parse_bytes(const std::string& flag, const std::string& text) {
  constexpr std::array kUnits = {Unit{"B", 1},        Unit{"KiB", 0x1p10}, Unit{"MiB", 0x1p20},
                                 Unit{"GiB", 0x1p30}, Unit{"TiB", 0x1p40}, Unit{"KB", 1e3},
                                 Unit{"MB", 1e6},     Unit{"GB", 1e9},     Unit{"TB", 1e12}};
  constexpr double kMost = 0x1p50;
  const double bytes = parse_with_unit(text, kUnits);
  if (bytes >= 1 && bytes <= kMost) return static_cast<uint64_t>(bytes);
  return bad_value(flag, text, "give a size, as in 8GiB, 512MiB or 2GB");
}

std::string date_text(int64_t unix_ms) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 40> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &parts);
  return std::string(text.data(), length);
}

std::string bytes_text(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  const bool whole = unit == 0 || bytes >= 100 || bytes == std::floor(bytes);
  return fmt::format("{:.{}f} {}", bytes, whole ? 0 : 1, kUnits[unit]);
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace moetune::cli
