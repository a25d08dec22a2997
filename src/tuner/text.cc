#include "tuner/text.h"

#include <algorithm>

namespace moetune {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.:/+*").find(c) != std::string_view::npos;
}

bool is_plain(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return is_plain(c); });
}

bool looks_like_an_integer(std::string_view word) {
  if (word.starts_with('-')) word.remove_prefix(1);
  return !word.empty() &&
         std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string quoted(std::string_view word) {
  std::string text = "'";
  for (char c : word) {
    if (c == '\'' || c == '\\') text += '\\';
    text += c;
  }
  return text + '\'';
}

}  // namespace

std::string quoted_if_needed(std::string_view word) {
  // A lone "-" is what an empty tactic prints as.
  if (!is_plain(word) || looks_like_an_integer(word) || word == "-") return quoted(word);
  return std::string(word);
}

std::string key_text(std::string_view head, const std::map<std::string, std::string>& attributes) {
  std::string text = is_plain(head) ? std::string(head) : quoted(head);
  for (const auto& [name, value] : attributes) {
    text += ' ';
    text += is_plain(name) ? name : quoted(name);
    text += '=';
    text += is_plain(value) ? value : quoted(value);
  }
  return text;
}

}  // namespace moetune
