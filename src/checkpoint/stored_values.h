// Numbers of a checkpoint in whatever type they are stored, as f32.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/safetensors.h"
#include "moetune/result.h"
#include "ops/moe/pointer_weights.h"

namespace moetune::checkpoint {

/// Bytes of a value where the type is one that can be read as numbers: F32, BF16 or F16.
std::optional<int64_t> number_bytes(std::string_view type);

/// The value at any address. `type` is one of number_bytes()'s.
float number_at(std::string_view type, const std::byte* at);

/// A matrix' values, row after row.
std::vector<float> numbers_of(std::string_view type, const Strided& matrix);

/// All of a tensor. kUnsupported, naming it, where it holds no such numbers; kParse where it does
/// not have `shape`.
Result<std::vector<float>> numbers_of(const StoredTensor& tensor, std::vector<int64_t> shape);

/// kParse with "FILE: "NAME" is TYPE [SHAPE], not ...".
Error unlike(const StoredTensor& tensor, std::string_view wanted);

}  // namespace moetune::checkpoint
