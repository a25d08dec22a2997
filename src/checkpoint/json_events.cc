#include "checkpoint/json_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace moetune::checkpoint {

namespace {
constexpr size_t kMaxDepth = 16;
}  // namespace

/// Between the parser's interface and ours. The parser stops where a function returns false.
class JsonEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonEvents(JsonListener& listener) : listener_(listener) {}

  const std::string& problem() const { return problem_; }

  bool null() override { return other("null"); }
  bool boolean(bool value) override { return other(value ? "true" : "false"); }
  bool number_integer(number_integer_t) override { return other("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override {
    return scalar([&] { return listener_.on_whole(value); });
  }
  bool number_float(number_float_t, const string_t&) override {
    return other("a number that is not whole, or beyond 64 bits");
  }
  bool string(string_t& value) override {
    return scalar([&] { return listener_.on_string(value); });
  }
  bool binary(binary_t&) override { return other("binary"); }
  bool start_object(size_t) override { return open(false); }
  bool start_array(size_t) override { return open(true); }
  bool key(string_t& value) override {
    listener_.keys_.back() = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::detail::exception&) override {
    return keep(fmt::format("no JSON at byte {}, near {}", position, in_quotes(last_token)));
  }

 private:
  bool keep(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return problem_.empty();
  }
  template <typename Call>
  bool scalar(Call call) {
    if (listener_.depth() == 0) return keep("not an object");
    return keep(call());
  }
  bool other(const char* kind) {
    return scalar([&] { return listener_.on_other(kind); });
  }
  bool open(bool is_array) {
    if (listener_.depth() == 0 && is_array) return keep("an array, not an object");
    if (listener_.depth() >= kMaxDepth)
      return keep(fmt::format("nested more than {} deep", kMaxDepth));
    if (!keep(listener_.on_open(is_array))) return false;
    listener_.keys_.emplace_back();
    return true;
  }
  bool close() {
    listener_.keys_.pop_back();
    return keep(listener_.on_close());
  }

  JsonListener& listener_;
  std::string problem_;
};

Status read_json_events(std::string_view text, const std::string& origin, JsonListener& listener) {
  JsonEvents events(listener);
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  if (complete) return {};
  return Error{
      ErrorCode::kParse,
      fmt::format("{}: {}", origin, events.problem().empty() ? "no JSON" : events.problem()),
      "is the file complete? Compare its size, or fetch it again"};
}

std::string in_quotes(std::string_view name) {
  constexpr size_t kLongest = 160;
  std::string text(name.substr(0, kLongest));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return fmt::format("\"{}{}\"", text, name.size() > kLongest ? "..." : "");
}

}  // namespace moetune::checkpoint
