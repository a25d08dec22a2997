// moetune_spec and the C++ specification, each from the other.
#pragma once

#include "moetune/moe_spec.h"
#include "moetune/moetune.h"
#include "moetune/result.h"

namespace moetune::capi {

/// Reads and validates.
Result<FusedMoeSpec> to_spec(const moetune_spec* given);

/// All members but struct_size.
moetune_spec from_spec(const FusedMoeSpec& spec);

/// kInvalidArgument for what is neither 0 nor 1: most likely memory that nobody initialised.
Result<bool> to_bool(int32_t value, const char* name);

}  // namespace moetune::capi
