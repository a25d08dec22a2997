#include "capi/dl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/status_macros.h"
#include "capi/boundary.h"

namespace moetune::capi {

namespace {

// DLDataTypeCode and DLDeviceType of dlpack.h.
constexpr int kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kE4m3fn = 10, kE8m0fnu = 14,
              kE2m1fn = 17;
constexpr int kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;

// More than any tensor here has; what is beyond it is no tensor.
constexpr int32_t kMostDimensions = 8;

struct DlType {
  int code;
  int bits;
  int lanes;
};

DlType own_type(DataType type) {
  switch (type) {
    case DataType::kF32: return {kFloat, 32, 1};
    case DataType::kF16: return {kFloat, 16, 1};
    case DataType::kBf16: return {kBfloat, 16, 1};
    case DataType::kF8E4M3: return {kE4m3fn, 8, 1};
    case DataType::kUe8m0: return {kE8m0fnu, 8, 1};
    case DataType::kE2M1x2: return {kE2m1fn, 4, 2};
    case DataType::kI32: return {kInt, 32, 1};
    case DataType::kU8: return {kUint, 8, 1};
  }
  return {kUint, 8, 1};
}

// Whether the format's bits may come as unsigned integers: where frameworks lack the type.
bool may_be_bits(DataType type) { return type != DataType::kF32 && type != DataType::kI32; }

bool is_type(const DLDataType& given, const DlType& type) {
  return given.code == type.code && given.bits == type.bits && given.lanes == type.lanes;
}

std::string type_name(const DlType& type) {
  const std::string lanes = type.lanes > 1 ? fmt::format(" x{}", type.lanes) : std::string();
  switch (type.code) {
    case kInt: return fmt::format("int{}{}", type.bits, lanes);
    case kUint: return fmt::format("uint{}{}", type.bits, lanes);
    case kFloat: return fmt::format("float{}{}", type.bits, lanes);
    case kBfloat: return fmt::format("bfloat{}{}", type.bits, lanes);
    case kE4m3fn: return "float8_e4m3fn" + lanes;
    case kE8m0fnu: return "float8_e8m0fnu" + lanes;
    case kE2m1fn: return "float4_e2m1fn" + lanes;
    default: return fmt::format("type {} of {} bits{}", type.code, type.bits, lanes);
  }
}

std::string device_name(const DLDevice& device) {
  switch (static_cast<int>(device.device_type)) {
    case kCpu: return "the CPU";
    case kCuda: return fmt::format("cuda:{}", device.device_id);
    case kCudaHost: return "pinned host memory";
    case kCudaManaged: return "managed memory";
    default: return fmt::format("device type {}", static_cast<int>(device.device_type));
  }
}

std::span<const int64_t> shape_of(const DLTensor& tensor) {
  return {tensor.shape, static_cast<size_t>(tensor.ndim)};
}

Status check_place(const DLTensor& tensor, const DlWanted& wanted) {
  const int type = static_cast<int>(tensor.device.device_type);
  if (type == kCudaManaged) return {};
  if (wanted.place.is_host ? type == kCpu || type == kCudaHost
                           : type == kCuda && tensor.device.device_id == wanted.place.ordinal)
    return {};
  const std::string there =
      wanted.place.is_host ? "host memory" : fmt::format("cuda:{}", wanted.place.ordinal);
  return Error{ErrorCode::kUnsupported,
               fmt::format("{} is on {}; it must be in {}", wanted.name, device_name(tensor.device),
                           wanted.place.is_host ? there : there + "'s memory"),
               fmt::format("copy it to {} first", there)};
}

Error wrong(const DLTensor& tensor, const DlWanted& wanted) {
  const DlType own = own_type(wanted.type);
  const bool has_bits = may_be_bits(wanted.type) && own.code != kUint;
  std::vector<std::string> sizes;
  for (const int64_t size : wanted.shape)
    sizes.push_back(size < 0 ? "any" : fmt::format("{}", size));
  return {
      ErrorCode::kInvalidArgument,
      fmt::format("{} is {}; {}{} [{}] is wanted", wanted.name, describe(tensor), type_name(own),
                  has_bits ? fmt::format(" (or uint{})", own.bits * own.lanes) : std::string(),
                  fmt::join(sizes, ", "))};
}

bool has_shape(const DLTensor& tensor, std::span<const int64_t> wanted) {
  return std::ranges::equal(shape_of(tensor), wanted, [](int64_t given, int64_t size) {
    return size < 0 ? given >= 0 : given == size;
  });
}

}  // namespace

std::string describe(const DLTensor& tensor) {
  const DlType type{tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes};
  return fmt::format("a {} [{}]", type_name(type), fmt::join(shape_of(tensor), ", "));
}

Status check_tensor(const DLTensor* tensor, const DlWanted& wanted) {
  MOETUNE_RETURN_IF_ERROR(need(tensor, wanted.name.c_str()));
  if (tensor->ndim < 0 || tensor->ndim > kMostDimensions) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} has {} dimensions", wanted.name, tensor->ndim)};
  }
  if (tensor->ndim > 0)
    MOETUNE_RETURN_IF_ERROR(need(tensor->shape, (wanted.name + "'s shape").c_str()));
  const DlType own = own_type(wanted.type);
  const bool fits =
      is_type(tensor->dtype, own) ||
      (may_be_bits(wanted.type) && is_type(tensor->dtype, {kUint, own.bits * own.lanes, 1}));
  if (!fits || !has_shape(*tensor, wanted.shape)) return wrong(*tensor, wanted);
  MOETUNE_RETURN_IF_ERROR(check_place(*tensor, wanted));
  const auto shape = shape_of(*tensor);
  if (std::ranges::find(shape, 0) != shape.end()) return {};
  MOETUNE_RETURN_IF_ERROR(need(tensor->data, (wanted.name + "'s data").c_str()));
  for (int i = 0; tensor->strides != nullptr && i < tensor->ndim; ++i) {
    if (shape[static_cast<size_t>(i)] > 1 && tensor->strides[i] == 0) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}: stride 0 in dimension {}", wanted.name, i),
                   "hand over a copy that is no broadcast"};
    }
  }
  return {};
}

Status check_dense(const DLTensor* tensor, const DlWanted& wanted) {
  MOETUNE_RETURN_IF_ERROR(check_tensor(tensor, wanted));
  if (tensor->strides == nullptr) return {};
  const auto shape = shape_of(*tensor);
  if (std::ranges::find(shape, 0) != shape.end()) return {};
  int64_t next = 1;
  for (int i = tensor->ndim - 1; i >= 0; --i) {
    const int64_t size = shape[static_cast<size_t>(i)];
    if (size > 1 && tensor->strides[i] != next) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("{} has strides [{}]; its elements must follow each other row by row",
                      wanted.name,
                      fmt::join(tensor->strides, tensor->strides + tensor->ndim, ", ")),
          "hand over a contiguous copy"};
    }
    next *= size;
  }
  return {};
}

std::byte* data_of(const DLTensor& tensor) {
  return static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
}

int64_t stride_bytes(const DLTensor& tensor, int dimension) {
  const auto shape = shape_of(tensor);
  if (shape[static_cast<size_t>(dimension)] <= 1) return 0;
  int64_t stride = 1;
  if (tensor.strides != nullptr) {
    stride = tensor.strides[dimension];
  } else {
    for (int i = dimension + 1; i < tensor.ndim; ++i) stride *= shape[static_cast<size_t>(i)];
  }
  return stride * (tensor.dtype.bits * tensor.dtype.lanes / 8);
}

}  // namespace moetune::capi
