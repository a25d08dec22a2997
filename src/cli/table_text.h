// Other engines' files as people read them, and as --json prints them.
#pragma once

#include <string>

#include "base/json.h"
#include "exchange/flashinfer_cache.h"
#include "exchange/table_name.h"
#include "exchange/triton_table.h"

namespace moetune::cli {

/// {"E", "N", "device_name", "dtype", "block_shape", "per_channel_quant", "down"}; dtype and
/// block_shape are null where the name has none.
Json describe(const exchange::TableName& name);

/// [{"tokens", "tactic": {...}}], by ascending number of tokens.
Json describe(const exchange::TritonTable& table);
/// One row for each number of tokens, one column for each parameter.
std::string table_text(const exchange::TritonTable& table);

/// {"metadata", "entries": [{"op", "runner", "shapes", "extras", "tactic", "fallback"}]}; an entry
/// whose key cannot be read has "key" and "unreadable" instead of op, shapes and extras.
Json describe(const exchange::FlashinferCache& cache);
/// What it was made with, then one row for each entry, at most `most`.
std::string table_text(const exchange::FlashinferCache& cache, size_t most);

}  // namespace moetune::cli
