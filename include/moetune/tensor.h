// A named view of a dense, row-major array, the only way in which data crosses moetune's
// interfaces. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

enum class DataType : uint8_t {
  kF32,
  kF16,
  kBf16,
  kF8E4M3,  ///< e4m3fn: no infinities, largest 448.
  kUe8m0,   ///< Power-of-two scale, 2^(bits - 127).
  kE2M1x2,  ///< Two fp4 values a byte, the low nibble is the even index. A shape counts values, not
            ///< bytes.
  kI32,
  kU8,
};

/// Bits one value takes (4 for kE2M1x2).
int bits_per_value(DataType type);
/// "f32", "bf16", "e4m3", ...
const char* to_string(DataType type);

struct Tensor {
  std::string name;  ///< What the operator calls it: "hidden", "w13", "output", ...
  DataType type = DataType::kF32;
  std::vector<int64_t> shape;  ///< Outermost first, in values.
  void* data = nullptr;  ///< Host or device memory, as the interface that takes it says. Not owned.

  int64_t values() const;
  size_t bytes() const;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

using Tensors = std::vector<Tensor>;

/// The tensor of that name, or nullptr.
const Tensor* find(const Tensors& tensors, std::string_view name);

}  // namespace moetune
