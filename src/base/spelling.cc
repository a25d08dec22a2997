#include "base/spelling.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

namespace moetune {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (std::tolower(static_cast<unsigned char>(a[i])) != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> known) {
  constexpr size_t kLongest = 64;
  word = word.substr(0, kLongest);
  std::string best;
  size_t best_distance = word.size() / 2 + 1;
  for (const std::string& each : known) {
    const size_t distance = edit_distance(word, each);
    if (distance < best_distance) {
      best_distance = distance;
      best = each;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> known) {
  const std::string best = nearest_word(word, known);
  return best.empty() ? "" : "did you mean " + best + "? ";
}

}  // namespace moetune
