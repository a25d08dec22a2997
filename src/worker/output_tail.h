// The last of what a helper printed: enough to see why it failed, however much there was.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moetune::worker {

/// Keeps the last bytes of a stream. Thread-compatible.
class OutputTail {
 public:
  explicit OutputTail(size_t capacity) : capacity_(capacity) {}

  void add(std::string_view text) {
    total_ += text.size();
    if (text.size() >= capacity_) {
      kept_ = text.substr(text.size() - capacity_);
      return;
    }
    kept_ += text;
    if (kept_.size() > 2 * capacity_) kept_.erase(0, kept_.size() - capacity_);
  }
  void clear() {
    kept_.clear();
    total_ = 0;
  }

  /// The last bytes, at most the capacity.
  std::string text() const {
    return kept_.size() > capacity_ ? kept_.substr(kept_.size() - capacity_) : kept_;
  }
  /// Bytes that came since clear().
  size_t total() const { return total_; }

  /// The end of it as part of an error message: one line of at most `most` characters, without
  /// control characters. Empty where nothing was printed.
  std::string quote(size_t most) const {
    const std::string all = text();
    std::string line;
    for (const char c : all) {
      const bool is_space = static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
      if (!is_space) line += c;
      if (is_space && !line.empty() && line.back() != ' ') line += ' ';
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return line.size() <= most ? line : "..." + line.substr(line.size() - most);
  }

 private:
  size_t capacity_;
  size_t total_ = 0;
  std::string kept_;
};

}  // namespace moetune::worker
