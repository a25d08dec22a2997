#include "moetune/tensor.h"

namespace moetune {

int bits_per_value(DataType type) {
  switch (type) {
    case DataType::kF32:
    case DataType::kI32: return 32;
    case DataType::kF16:
    case DataType::kBf16: return 16;
    case DataType::kF8E4M3:
    case DataType::kUe8m0:
    case DataType::kU8: return 8;
    case DataType::kE2M1x2: return 4;
  }
  return 0;
}

const char* to_string(DataType type) {
  switch (type) {
    case DataType::kF32: return "f32";
    case DataType::kF16: return "f16";
    case DataType::kBf16: return "bf16";
    case DataType::kF8E4M3: return "e4m3";
    case DataType::kUe8m0: return "ue8m0";
    case DataType::kE2M1x2: return "e2m1x2";
    case DataType::kI32: return "i32";
    case DataType::kU8: return "u8";
  }
  return "?";
}

int64_t Tensor::values() const {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

size_t Tensor::bytes() const {
  return (static_cast<size_t>(values()) * static_cast<size_t>(bits_per_value(type)) + 7) / 8;
}

const Tensor* find(const Tensors& tensors, std::string_view name) {
  for (const Tensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace moetune
