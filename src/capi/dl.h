// Checks of DLPack tensors before anybody follows their pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "moetune/moetune.h"
#include "moetune/result.h"
#include "moetune/tensor.h"

namespace moetune::capi {

/// Where a tensor must be.
struct DlPlace {
  bool is_host = true;
  int32_t ordinal = 0;  ///< Of the GPU, where it is none of the host's.
};

/// Shapes are in elements: two 4-bit codes are one. -1 is any size.
struct DlWanted {
  std::string name;  ///< In messages.
  DataType type = DataType::kF32;
  std::span<const int64_t> shape;
  DlPlace place;
};

/// kInvalidArgument where something is null, or not of that type and shape; kUnsupported where the
/// tensor is on another device. Strides of 0 (the same memory for several elements) are refused.
Status check_tensor(const DLTensor* tensor, const DlWanted& wanted);
/// The same, and kInvalidArgument where the elements do not follow each other row by row.
Status check_dense(const DLTensor* tensor, const DlWanted& wanted);

/// Of a checked tensor: its first element, and the bytes from an element to the next of a
/// dimension, 0 where there is no next one.
std::byte* data_of(const DLTensor& tensor);
int64_t stride_bytes(const DLTensor& tensor, int dimension);

/// "a float32 [4, 8] on cuda:0"
std::string describe(const DLTensor& tensor);

}  // namespace moetune::capi
