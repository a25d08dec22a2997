// Python's texts of values: what str() makes of a tuple. FlashInfer's cache has such texts as keys.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "moetune/result.h"

namespace moetune::exchange {

/// Reads one value: tuples and lists (arrays), strings, integers of 64 bits, finite floats, True,
/// False, None (null), and names with dots such as torch.bfloat16 (strings). kParse with the place
/// for anything else, for what follows the value, and for more than 16 levels.
Result<Json> parse_python_text(std::string_view text);

}  // namespace moetune::exchange
