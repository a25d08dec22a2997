#include "cli/foreign_file.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/status_macros.h"
#include "cli/table_text.h"

namespace moetune::cli {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;
constexpr size_t kMostRows = 200;

Result<std::optional<Exit>> show_table(const std::string& path, const std::string& text,
                                       Output& output) {
  MOETUNE_ASSIGN_OR_RETURN(const exchange::TritonTable table,
                           exchange::parse_triton_table(text, path));
  const Result<exchange::TableName> name = exchange::parse_table_name(path);
  output.text(path + "\n  a tuning file of vLLM's or SGLang's Triton kernels\n");
  if (name.ok()) output.text(fmt::format("  for {}, on {}\n", name->shape_text(), name->device));
  if (!table.triton_version.empty())
    output.text(fmt::format("  tuned with Triton {}\n", table.triton_version));
  output.text('\n' + table_text(table) + "\nthe nearest number of tokens counts\n");
  output.object(
      {{"file", path},
       {"format", "triton_table"},
       {"name", name.ok() ? cli::describe(*name) : Json()},
       {"triton_version", table.triton_version.empty() ? Json() : Json(table.triton_version)},
       {"entries", cli::describe(table)}});
  return std::optional<Exit>(Exit::kDone);
}

Result<std::optional<Exit>> show_cache(const std::string& path, const std::string& text,
                                       Output& output) {
  MOETUNE_ASSIGN_OR_RETURN(const exchange::FlashinferCache cache,
                           exchange::parse_flashinfer_cache(text, path));
  output.text(fmt::format("{}\n  FlashInfer's autotuner cache, {} entries\n{}", path,
                          cache.entries.size(), table_text(cache, kMostRows)));
  Json object = {{"file", path}, {"format", "flashinfer_cache"}};
  object.update(cli::describe(cache));
  output.object(object);
  return std::optional<Exit>(Exit::kDone);
}

}  // namespace

Result<std::optional<Exit>> show_foreign_file(const std::string& path, Output& output) {
  const Result<std::string> text = read_file(path, kMostBytes);
  if (!text.ok()) return std::optional<Exit>{};  // The usual reader has the words for it.
  if (exchange::parse_table_name(path).ok() || exchange::looks_like_triton_table(*text))
    return show_table(path, *text, output);
  if (exchange::looks_like_flashinfer_cache(*text)) return show_cache(path, *text, output);
  return std::optional<Exit>{};
}

}  // namespace moetune::cli
