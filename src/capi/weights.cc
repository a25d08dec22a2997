#include "capi/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/dl.h"
#include "moetune/moe_weights.h"
#include "ops/moe/format.h"

namespace moetune::capi {

namespace {

MatrixPointer to_pointer(const moetune_matrix& matrix) {
  return {matrix.data, matrix.row_stride, matrix.column_stride};
}

Result<ExpertPointers> to_pointers(const moetune_expert& expert) {
  return ExpertPointers{.gate = to_pointer(expert.gate),
                        .up = to_pointer(expert.up),
                        .down = to_pointer(expert.down),
                        .gate_scales = to_pointer(expert.gate_scales),
                        .up_scales = to_pointer(expert.up_scales),
                        .down_scales = to_pointer(expert.down_scales),
                        .gate_global = expert.gate_global,
                        .up_global = expert.up_global,
                        .down_global = expert.down_global,
                        .gate_bias = expert.gate_bias,
                        .up_bias = expert.up_bias,
                        .down_bias = expert.down_bias};
}

// Where the first element of one expert's part is, and how to get to the others.
struct Slice {
  const std::byte* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;

  MatrixPointer matrix(int64_t first_row = 0) const {
    return {data + first_row * row_stride, row_stride, column_stride};
  }
};

// One of the operator's tensors (w13, w2_scales, ...) of all experts, checked.
class DlPart {
 public:
  static Result<DlPart> check(const Tensor& wanted, const DLTensor* const* tensors, int64_t count,
                              int64_t experts);

  Slice of(int64_t expert) const {
    const DLTensor& tensor = *tensors_[is_stacked_ ? 0 : expert];
    const int row = is_stacked_ ? 1 : 0;
    Slice slice;
    slice.data = data_of(tensor) + (is_stacked_ ? expert * stride_bytes(tensor, 0) : 0);
    slice.row_stride = stride_bytes(tensor, row);
    slice.column_stride = tensor.ndim > row + 1 ? stride_bytes(tensor, row + 1) : 0;
    return slice;
  }

 private:
  const DLTensor* const* tensors_ = nullptr;
  bool is_stacked_ = false;
};

Result<DlPart> DlPart::check(const Tensor& wanted, const DLTensor* const* tensors, int64_t count,
                             int64_t experts) {
  MOETUNE_RETURN_IF_ERROR(need(tensors, wanted.name.c_str()));
  DlPart part;
  part.tensors_ = tensors;
  std::vector<int64_t> shape = wanted.shape;
  if (wanted.type == DataType::kE2M1x2) shape.back() /= 2;
  const auto one = static_cast<int32_t>(shape.size());
  const bool has_one = count == 1 && tensors[0] != nullptr;
  part.is_stacked_ = count == 1 && !(experts == 1 && has_one && tensors[0]->ndim == one);
  if (part.is_stacked_) shape.insert(shape.begin(), experts);
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = part.is_stacked_ ? wanted.name : fmt::format("{}[{}]", wanted.name, i);
    MOETUNE_RETURN_IF_ERROR(check_tensor(tensors[i], {name, wanted.type, shape, {}}));
    if (!wanted.name.ends_with("_bias")) continue;
    // Handed on as a pointer to floats.
    const Slice first = part.of(i);
    const bool is_dense = first.row_stride == 0 || first.row_stride == sizeof(float);
    const bool is_aligned = reinterpret_cast<uintptr_t>(first.data) % alignof(float) == 0;
    if (is_dense && is_aligned) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: an expert's values do not follow each other", name),
                 "hand over a contiguous copy"};
  }
  return part;
}

struct DlParts {
  std::array<DlPart, 8> parts;
  std::array<bool, 8> is_there = {};
  Tensors layout;  // Of one expert; parts are in its order.
  bool is_gated = false;

  ExpertPointers of(int64_t expert) const;
};

float scalar(const Slice& slice, int64_t index) {
  float value = 0;
  std::memcpy(&value, slice.data + index * slice.row_stride, sizeof value);
  return value;
}

ExpertPointers DlParts::of(int64_t expert) const {
  ExpertPointers at;
  for (size_t i = 0; i < layout.size(); ++i) {
    if (!is_there[i]) continue;
    const std::string_view name = layout[i].name;
    const Slice slice = parts[i].of(expert);
    const int64_t up = is_gated ? layout[i].shape[0] / 2 : 0;  // Where up's rows begin.
    const auto* floats = reinterpret_cast<const float*>(slice.data);
    if (name == "w13") {
      at.gate = slice.matrix();
      at.up = slice.matrix(up);
    } else if (name == "w13_scales") {
      at.gate_scales = slice.matrix();
      at.up_scales = slice.matrix(up);
    } else if (name == "w13_global") {
      at.gate_global = scalar(slice, 0);
      at.up_global = scalar(slice, 1);
    } else if (name == "w13_bias") {
      at.gate_bias = floats;
      at.up_bias = floats + up;
    } else if (name == "w2") {
      at.down = slice.matrix();
    } else if (name == "w2_scales") {
      at.down_scales = slice.matrix();
    } else if (name == "w2_global") {
      at.down_global = scalar(slice, 0);
    } else {
      at.down_bias = floats;
    }
  }
  return at;
}

const DLTensor* const* given_as(const moetune_dl_weights& weights, std::string_view name) {
  if (name == "w13") return weights.w13;
  if (name == "w2") return weights.w2;
  if (name == "w13_scales") return weights.w13_scales;
  if (name == "w2_scales") return weights.w2_scales;
  if (name == "w13_global") return weights.w13_global;
  if (name == "w2_global") return weights.w2_global;
  return name == "w13_bias" ? weights.w13_bias : weights.w2_bias;
}

Error wrong_count(int64_t count, int64_t experts) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("weights of {} experts; the specification has {} (shared ones included)",
                      count, experts)};
}

}  // namespace

Result<std::unique_ptr<WeightSource>> source_of(const FusedMoeSpec& spec,
                                                const moetune_weights* weights) {
  MOETUNE_ASSIGN_OR_RETURN(const moetune_weights given,
                           read_struct(weights, moetune_weights{}, "moetune_weights"));
  MOETUNE_RETURN_IF_ERROR(need(given.experts, "moetune_weights.experts"));
  MOETUNE_RETURN_IF_ERROR(check_size(given.expert_size, kFirstSize<moetune_expert>,
                                     "moetune_expert (moetune_weights.expert_size)"));
  if (given.count != spec.held_experts()) return wrong_count(given.count, spec.held_experts());
  return weights_from_pointers(spec, [given](int64_t index) -> Result<ExpertPointers> {
    const auto* at = reinterpret_cast<const std::byte*>(given.experts) +
                     static_cast<size_t>(index) * given.expert_size;
    moetune_expert expert = {};
    std::memcpy(&expert, at, std::min(given.expert_size, sizeof expert));
    MOETUNE_RETURN_IF_ERROR(check_given(at, given.expert_size, kFirstSize<moetune_expert>,
                                        sizeof expert, "moetune_expert"));
    return to_pointers(expert);
  });
}

Result<std::unique_ptr<WeightSource>> source_of(const FusedMoeSpec& spec,
                                                const moetune_dl_weights* weights) {
  MOETUNE_ASSIGN_OR_RETURN(const moetune_dl_weights given,
                           read_struct(weights, moetune_dl_weights{}, "moetune_dl_weights"));
  const int64_t experts = spec.held_experts();
  if (given.count != 1 && given.count != experts) return wrong_count(given.count, experts);
  DlParts all;
  all.layout = expert_tensors(spec);
  all.is_gated = spec.gated();
  for (size_t i = 0; i < all.layout.size(); ++i) {
    const Tensor& wanted = all.layout[i];
    const DLTensor* const* tensors = given_as(given, wanted.name);
    all.is_there[i] = tensors != nullptr || wanted.name != "w2_bias";
    if (!all.is_there[i]) continue;
    MOETUNE_ASSIGN_OR_RETURN(all.parts[i], DlPart::check(wanted, tensors, given.count, experts));
  }
  return weights_from_pointers(spec, [all = std::move(all)](int64_t expert) {
    return Result<ExpertPointers>(all.of(expert));
  });
}

}  // namespace moetune::capi

moetune_status moetune_weights_init(moetune_weights* weights, size_t struct_size) {
  return moetune::capi::guarded([&] {
    return moetune::capi::write_struct(weights, struct_size, moetune_weights{}, "moetune_weights");
  });
}

moetune_status moetune_dl_weights_init(moetune_dl_weights* weights, size_t struct_size) {
  return moetune::capi::guarded([&] {
    moetune_dl_weights defaults = {};
    defaults.count = 1;
    return moetune::capi::write_struct(weights, struct_size, defaults, "moetune_dl_weights");
  });
}
