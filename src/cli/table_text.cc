#include "cli/table_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/table.h"

namespace moetune::cli {
namespace {

/// Names of all parameters that some entry has, in the order in which they appear.
std::vector<std::string> parameters_of(const exchange::TritonTable& table) {
  std::vector<std::string> names;
  for (const auto& entry : table.entries) {
    for (const auto& [name, value] : entry.tactic.parameters())
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::string shapes_text(const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<std::string> texts;
  for (const std::vector<int64_t>& shape : shapes)
    texts.push_back(shape.empty() ? "()" : fmt::format("{}", fmt::join(shape, "x")));
  return fmt::format("{}", fmt::join(texts, " "));
}

/// What comes from a file may be longer than a table is wide.
std::string cut(std::string text) {
  constexpr size_t kWidest = 80;
  // Cells are ASCII: what is not would be counted wrong.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() <= kWidest ? text : text.substr(0, kWidest - 3) + "...";
}

}  // namespace

Json describe(const exchange::TableName& name) {
  return {{"E", name.experts},
          {"N", name.intermediate},
          {"device_name", name.device},
          {"dtype", name.dtype.empty() ? Json() : Json(name.dtype)},
          {"block_shape", name.block_shape ? Json(*name.block_shape) : Json()},
          {"per_channel_quant", name.per_channel},
          {"down", name.is_down}};
}

Json describe(const exchange::TritonTable& table) {
  Json entries = Json::array();
  for (const auto& entry : table.sorted()) {
    Json tactic = Json::object();
    for (const auto& [name, value] : entry.tactic.parameters())
      std::visit([&, &key = name](const auto& content) { tactic[key] = content; }, value);
    entries.push_back({{"tokens", entry.tokens}, {"tactic", std::move(tactic)}});
  }
  return entries;
}

std::string table_text(const exchange::TritonTable& table) {
  const std::vector<std::string> names = parameters_of(table);
  std::vector<Table::Column> columns = {{"tokens"}};
  for (const std::string& name : names) columns.push_back({cut(name)});
  Table text(std::move(columns));
  for (const auto& entry : table.sorted()) {
    std::vector<std::string> cells = {std::to_string(entry.tokens)};
    for (const std::string& name : names) {
      const ParameterValue* value = entry.tactic.find(name);
      cells.push_back(value == nullptr ? "-" : cut(moetune::to_string(*value)));
    }
    text.add_row(std::move(cells));
  }
  return text.text();
}

Json describe(const exchange::FlashinferCache& cache) {
  Json entries = Json::array();
  for (const auto& entry : cache.entries) {
    Json object = {
        {"runner", entry.runner}, {"tactic", entry.tactic}, {"fallback", entry.is_fallback()}};
    if (entry.unreadable.empty()) {
      object["op"] = entry.op;
      object["shapes"] = entry.shapes;
      object["extras"] = entry.extras;
    } else {
      object["key"] = entry.key;
      object["unreadable"] = entry.unreadable;
    }
    entries.push_back(std::move(object));
  }
  return {{"metadata", cache.metadata}, {"entries", std::move(entries)}};
}

std::string table_text(const exchange::FlashinferCache& cache, size_t most) {
  std::string text;
  for (const auto& [name, value] : cache.metadata) text += fmt::format("  {:<24}{}\n", name, value);
  if (cache.metadata.empty()) text = "  no _metadata: nothing says what it was made with\n";
  using Align = Table::Align;
  Table table({{"op", Align::kLeft},
               {"runner", Align::kLeft},
               {"shapes", Align::kLeft},
               {"extras", Align::kLeft},
               {"tactic", Align::kLeft}});
  for (size_t i = 0; i < std::min(most, cache.entries.size()); ++i) {
    const auto& entry = cache.entries[i];
    const bool is_readable = entry.unreadable.empty();
    table.add_row(
        {cut(is_readable ? entry.op : entry.key), cut(entry.runner),
         is_readable ? cut(shapes_text(entry.shapes)) : "cannot be read",
         entry.extras.empty() ? "" : cut(print_json_line(entry.extras)),
         cut(print_json_line(entry.tactic)) + (entry.is_fallback() ? " (fallback)" : "")});
  }
  text += '\n' + (cache.entries.empty() ? "no entries\n" : table.text());
  if (cache.entries.size() > most)
    text += fmt::format("and {} more; --json has all\n", cache.entries.size() - most);
  return text;
}

}  // namespace moetune::cli
