#include "exchange/python_text.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

namespace moetune::exchange {
namespace {

constexpr int kDeepest = 16;

/// Reads from the front of a text. What a function cannot read makes it return nothing, with the
/// place kept.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  Result<Json> read() {
    std::optional<Json> value = read_value(0);
    skip_spaces();
    if (value && at_ == text_.size()) return std::move(*value);
    return Error{ErrorCode::kParse,
                 fmt::format("column {}: {}", at_ + 1,
                             reason_.empty() ? "not a value that Python prints" : reason_)};
  }

 private:
  bool is_at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  void skip_spaces() {
    while (is_at(' ')) ++at_;
  }
  std::nullopt_t fail(const char* reason) {
    if (reason_.empty()) reason_ = reason;
    return std::nullopt;
  }

  std::optional<Json> read_value(int depth) {
    skip_spaces();
    if (at_ == text_.size()) return fail("the text ends in the middle of a value");
    const char c = text_[at_];
    if (c == '(' || c == '[') return read_sequence(c == '(' ? ')' : ']', depth);
    if (c == '\'' || c == '"') return read_string(c);
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c)) != 0) return read_number();
    return read_name();
  }

  std::optional<Json> read_sequence(char end, int depth) {
    if (depth >= kDeepest) return fail("nested too deep");
    Json items = Json::array();
    ++at_;
    skip_spaces();
    while (!is_at(end)) {
      std::optional<Json> item = read_value(depth + 1);
      if (!item) return std::nullopt;
      items.push_back(std::move(*item));
      skip_spaces();
      if (is_at(',')) {
        ++at_;
        skip_spaces();
      } else if (!is_at(end)) {
        return fail("expected a comma or the end of a tuple");
      }
    }
    ++at_;
    return items;
  }

  std::optional<Json> read_string(char quote) {
    std::string content;
    for (++at_; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == quote) {
        ++at_;
        return Json(std::move(content));
      }
      if (c == '\\') {
        // Names of operators and kernels need no other escapes.
        if (++at_ == text_.size()) break;
        c = text_[at_];
        if (c != '\\' && c != '\'' && c != '"') return fail("an escape that is not read");
      }
      content += c;
    }
    return fail("a string without its end");
  }

  std::optional<Json> read_number() {
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    int64_t whole = 0;
    const auto as_whole = std::from_chars(begin, end, whole);
    double real = 0;
    const auto as_real = std::from_chars(begin, end, real);
    if (as_real.ec != std::errc() || !std::isfinite(real)) return fail("not a number");
    const bool is_whole = as_whole.ec == std::errc() && as_whole.ptr == as_real.ptr;
    if (!is_whole &&
        std::string_view(begin, as_real.ptr).find_first_of(".eE") == std::string_view::npos) {
      return fail("an integer of more than 64 bits");
    }
    at_ += static_cast<size_t>(as_real.ptr - begin);
    return is_whole ? Json(whole) : Json(real);
  }

  std::optional<Json> read_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_[at_] == '_' || text_[at_] == '.')) {
      ++at_;
    }
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty()) return fail("not a value that Python prints");
    if (name == "None") return Json();
    if (name == "True" || name == "False") return Json(name == "True");
    return Json(std::string(name));
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string reason_;
};

}  // namespace

Result<Json> parse_python_text(std::string_view text) { return PythonReader(text).read(); }

}  // namespace moetune::exchange
