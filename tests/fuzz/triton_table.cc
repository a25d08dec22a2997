// A tuning file of vLLM or SGLang: a line that is its name, then its text; and the same bytes as
// lines of an engine's log.
#include "exchange/triton_table.h"

#include <limits>

#include "exchange/engine_log.h"
#include "exchange/table_name.h"
#include "fuzz/fuzz_target.h"

namespace moetune::fuzz {
namespace {

using exchange::Engine;

void check_name(std::string_view text) {
  const auto name = exchange::parse_table_name(text);
  if (!name.ok()) return;
  for (const Engine engine : {Engine::kVllm, Engine::kSglang}) {
    const auto again = exchange::parse_table_name(name->text(engine));
    require(again.ok() && *again == *name, "a name that is written can be read", text);
  }
}

void check_table(std::string_view text) {
  const auto table = exchange::parse_triton_table(text, "input");
  (void)exchange::looks_like_triton_table(text);
  if (!table.ok()) {
    require(!table.error().message.empty(), "an error says what is wrong");
    return;
  }
  require(exchange::looks_like_triton_table(text), "what can be read looks like it");
  for (const auto& entry : table->entries)
    require(table->nearest(entry.tokens).tokens == entry.tokens, "an entry is nearest to itself");
  (void)table->nearest(std::numeric_limits<int64_t>::min());
  (void)table->nearest(std::numeric_limits<int64_t>::max());
  for (const Engine engine : {Engine::kVllm, Engine::kSglang}) {
    const auto written = exchange::print_triton_table(*table, engine);
    if (!written.ok()) continue;
    const auto again = exchange::parse_triton_table(*written, "written");
    require(again.ok() && again->entries == table->entries, "what was written is the same");
  }
}

void check_log(std::string_view text) {
  exchange::EngineLog log;
  while (!text.empty()) log.add_line(take_until(text, "\n"));
  for (const auto& finding : log.findings()) {
    require(finding.lines > 0, "somebody said it");
    require(!finding.used.empty() || !finding.looked_for.empty(), "it is about a file");
  }
}

void run(std::string_view input) {
  check_log(input);
  check_name(take_until(input, "\n"));
  check_table(input);
}

const Register registered("triton_table", run);

}  // namespace
}  // namespace moetune::fuzz
