// FlashInfer's autotuner cache, and the same bytes as the text of one of its keys.
#include "exchange/flashinfer_cache.h"

#include "exchange/python_text.h"
#include "fuzz/fuzz_target.h"

namespace moetune::fuzz {
namespace {

void run(std::string_view input) {
  const auto key = exchange::parse_python_text(input);
  if (!key.ok()) require(!key.error().message.empty(), "an error says what is wrong");
  (void)exchange::looks_like_flashinfer_cache(input);
  const auto cache = exchange::parse_flashinfer_cache(input, "input");
  if (!cache.ok()) {
    require(!cache.error().message.empty(), "an error says what is wrong");
    return;
  }
  for (const auto& entry : cache->entries) {
    require(!entry.unreadable.empty() || exchange::parse_python_text(entry.key).ok(),
            "a key is read or said to be unreadable", entry.key);
    require(entry.unreadable.empty() || entry.shapes.empty(), "nothing of it is half read");
  }
}

const Register registered("flashinfer_cache", run);

}  // namespace
}  // namespace moetune::fuzz
