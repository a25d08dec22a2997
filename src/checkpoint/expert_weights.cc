#include "checkpoint/expert_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/bf16.h"
#include "base/integers.h"
#include "base/status_macros.h"
#include "checkpoint/json_events.h"
#include "checkpoint/layer_names.h"
#include "checkpoint/stored_values.h"
#include "ops/moe/format.h"
#include "ops/moe/pointer_weights.h"

namespace moetune::checkpoint {

namespace {

/// What one matrix of one expert consists of. Null: the format has no such part.
struct StoredMatrix {
  const StoredTensor* values = nullptr;
  const StoredTensor* scales = nullptr;
  const StoredTensor* global = nullptr;
  const StoredTensor* bias = nullptr;
};
using StoredExpert = std::array<StoredMatrix, kRoles>;

/// A part of a matrix in elements of a file (bytes of two codes count as one): the whole, and where
/// this rank's share begins.
struct Grid {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t first_row = 0;
  int64_t first_column = 0;
  int64_t own_rows = 0;
  int64_t own_columns = 0;
};

/// Knows where everything of a layer is, for one rank.
class Layer {
 public:
  Layer(std::shared_ptr<Checkpoint> checkpoint, const ModelSpec& model, const FusedMoeSpec& spec,
        const RankShare& share, bool adds_down_bias)
      : checkpoint_(std::move(checkpoint)),
        model_(model),
        spec_(spec),
        share_(share),
        parts_(format_parts(spec.weights)),
        adds_down_bias_(adds_down_bias) {}

  Status open(int64_t layer, LayerNames names);
  Result<ExpertPointers> pointers(int64_t expert);
  std::string part_name(int64_t expert, std::string_view part) const;
  int64_t experts() const { return spec_.experts; }

 private:
  bool has(Role role) const { return role != kGate || spec_.gated(); }
  Grid values_grid(Role role) const;
  Grid scales_grid(Role role) const;
  Grid bias_grid(Role role) const;
  std::vector<int64_t> shape_of(const Grid& grid, Role role) const;

  Status check_format(int64_t layer);
  Result<StoredMatrix> find_matrix(int64_t expert, Role role);
  Status check_values(const StoredTensor& tensor, Role role) const;
  Status check_scales(const StoredTensor& tensor, Role role) const;

  Strided locate(const StoredTensor& tensor, const Grid& grid, Role role, int64_t expert,
                 int64_t element_bytes) const;
  MatrixPointer values_pointer(const StoredTensor& tensor, Role role, int64_t expert);
  MatrixPointer scales_pointer(const StoredTensor& tensor, Role role, int64_t expert);
  Result<float> global(const StoredTensor* tensor) const;
  const float* bias(const StoredTensor* tensor, Role role, int64_t expert);
  void release(int64_t expert) const;

  std::shared_ptr<Checkpoint> checkpoint_;
  const ModelSpec model_;
  const FusedMoeSpec spec_;
  const RankShare share_;
  const FormatParts parts_;
  const bool adds_down_bias_;
  LayerNames names_;
  StoredFormat stored_;
  std::vector<StoredExpert> experts_;
  int64_t last_ = -1;  // The expert whose pages are in memory.

  // Of the expert at hand, for what is stored in another type than is wanted.
  std::array<std::vector<uint16_t>, kRoles> rounded_;
  std::array<std::vector<float>, kRoles> scales_;
  std::array<std::vector<float>, kRoles> biases_;
};

Grid Layer::values_grid(Role role) const {
  const int64_t per_byte = parts_.values == DataType::kE2M1x2 ? 2 : 1;
  if (role == kDown) {
    return {model_.hidden, model_.intermediate / per_byte, 0, share_.first_row / per_byte,
            spec_.hidden,  spec_.intermediate / per_byte};
  }
  return {model_.intermediate, model_.hidden / per_byte, share_.first_row, 0,
          spec_.intermediate,  spec_.hidden / per_byte};
}

// Shares begin where a block does (rank_share).
Grid Layer::scales_grid(Role role) const {
  const int64_t in_rows = parts_.block_rows;
  const int64_t in_columns = parts_.block_k;
  if (role == kDown) {
    return {ceil_div(model_.hidden, in_rows),
            ceil_div(model_.intermediate, in_columns),
            0,
            share_.first_row / in_columns,
            ceil_div(spec_.hidden, in_rows),
            ceil_div(spec_.intermediate, in_columns)};
  }
  return {ceil_div(model_.intermediate, in_rows),
          ceil_div(model_.hidden, in_columns),
          share_.first_row / in_rows,
          0,
          ceil_div(spec_.intermediate, in_rows),
          ceil_div(spec_.hidden, in_columns)};
}

// A column, so that gate's and up's rows lie as those of their matrix do.
Grid Layer::bias_grid(Role role) const {
  if (role == kDown) return {model_.hidden, 1, 0, 0, spec_.hidden, 1};
  return {model_.intermediate, 1, share_.first_row, 0, spec_.intermediate, 1};
}

std::vector<int64_t> Layer::shape_of(const Grid& grid, Role role) const {
  if (!names_.is_stacked) return {grid.rows, grid.columns};
  const int64_t rows = role == kDown || !spec_.gated() ? grid.rows : 2 * grid.rows;
  if (names_.is_transposed) return {model_.experts, grid.columns, rows};
  return {model_.experts, rows, grid.columns};
}

Status Layer::check_format(int64_t layer) {
  MOETUNE_ASSIGN_OR_RETURN(stored_, find_format(*checkpoint_, names_, share_.first_expert));
  if (stored_.format == spec_.weights) return {};
  const std::string other =
      model_.weights == spec_.weights ? fmt::format(" (config.json: {})", model_.weights_text) : "";
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("the {}experts of layer {} are stored in {}, not in {}{}: {}",
                  names_.is_shared ? "shared " : "", layer, to_string(stored_.format),
                  to_string(spec_.weights), other, stored_.evidence),
      fmt::format("take {} weights for this layer, or another layer", to_string(stored_.format))};
}

Status Layer::check_values(const StoredTensor& tensor, Role role) const {
  const bool is_right_type = tensor.type == "F32"   ? parts_.values == DataType::kBf16
                             : tensor.type == "F16" ? parts_.values == DataType::kF16
                             : tensor.type == "U8"  ? parts_.values == DataType::kE2M1x2
                             : tensor.type == "BF16"
                                 ? parts_.values == DataType::kBf16
                                 : tensor.type == "F8_E4M3" && parts_.values == DataType::kF8E4M3;
  if (!is_right_type)
    return unlike(tensor, fmt::format("of the layer's format, {}", to_string(spec_.weights)));
  std::vector<int64_t> wanted = shape_of(values_grid(role), role);
  if (tensor.shape == wanted) return {};
  if (stored_.values == "_blocks") {  // [..., K / 2] as [..., blocks, 16]
    wanted.back() /= 16;
    wanted.push_back(16);
    if (tensor.shape == wanted && values_grid(role).columns % 16 == 0) return {};
  }
  return unlike(tensor, fmt::format("[{}]", fmt::join(wanted, ", ")));
}

Status Layer::check_scales(const StoredTensor& tensor, Role role) const {
  const bool is_right_type = *parts_.scales == DataType::kF8E4M3 ? tensor.type == "F8_E4M3"
                             : *parts_.scales == DataType::kUe8m0
                                 ? tensor.type == "U8" || tensor.type == "F8_E8M0"
                                 : number_bytes(tensor.type).has_value();
  if (!is_right_type)
    return unlike(tensor, fmt::format("the scales of {}", to_string(spec_.weights)));
  const std::vector<int64_t> wanted = shape_of(scales_grid(role), role);
  if (tensor.shape == wanted) return {};
  return unlike(tensor, fmt::format("[{}], a scale for each {} x {} values",
                                    fmt::join(wanted, ", "), parts_.block_rows, parts_.block_k));
}

Result<StoredMatrix> Layer::find_matrix(int64_t expert, Role role) {
  const std::string name = names_.matrix(expert, role);
  StoredMatrix matrix;
  MOETUNE_ASSIGN_OR_RETURN(matrix.values, checkpoint_->find(name + stored_.values));
  MOETUNE_RETURN_IF_ERROR(check_values(*matrix.values, role));
  if (!stored_.scales.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(matrix.scales, checkpoint_->find(name + stored_.scales));
    MOETUNE_RETURN_IF_ERROR(check_scales(*matrix.scales, role));
  }
  if (!stored_.global.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(matrix.global, checkpoint_->find(name + stored_.global));
    if (matrix.global->shape != std::vector<int64_t>{1} && !matrix.global->shape.empty())
      return unlike(*matrix.global, "a single value");
  }
  const std::string bias = name + (names_.is_stacked ? "_bias" : ".bias");
  if (!spec_.bias && checkpoint_->has(bias)) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: {}: {} has no biases, says its config.json",
                             checkpoint_->folder(), in_quotes(bias), model_.name),
                 "is this the checkpoint that config.json belongs to?"};
  }
  if (!spec_.bias) return matrix;
  MOETUNE_ASSIGN_OR_RETURN(matrix.bias, checkpoint_->find(bias));
  std::vector<int64_t> wanted = {bias_grid(role).rows};
  if (names_.is_stacked) wanted = {model_.experts, (role == kDown ? 1 : 2) * wanted[0]};
  if (matrix.bias->shape != wanted || !number_bytes(matrix.bias->type))
    return unlike(*matrix.bias, fmt::format("numbers [{}]", fmt::join(wanted, ", ")));
  return matrix;
}

Status Layer::open(int64_t layer, LayerNames names) {
  names_ = std::move(names);
  MOETUNE_RETURN_IF_ERROR(check_format(layer));
  experts_.resize(static_cast<size_t>(spec_.experts));
  for (size_t i = 0; i < experts_.size(); ++i) {
    for (const Role role : {kGate, kUp, kDown}) {
      if (!has(role)) continue;
      const int64_t expert = share_.first_expert + static_cast<int64_t>(i);
      MOETUNE_ASSIGN_OR_RETURN(experts_[i][role], find_matrix(expert, role));
    }
  }
  return {};
}

Strided Layer::locate(const StoredTensor& tensor, const Grid& grid, Role role, int64_t expert,
                      int64_t element_bytes) const {
  const int64_t matrices = role == kDown || !spec_.gated() ? 1 : 2;
  int64_t row_stride = grid.columns;
  int64_t column_stride = 1;
  int64_t first = 0;
  if (names_.is_stacked) {
    const bool is_second = role == kUp && matrices == 2;
    const int64_t steps = names_.takes_turns ? matrices : 1;  // From a row of ours to the next.
    const int64_t skipped = !is_second ? 0 : names_.takes_turns ? 1 : grid.rows;
    const int64_t one_row = names_.is_transposed ? 1 : grid.columns;
    first = expert * matrices * grid.rows * grid.columns + skipped * one_row;
    row_stride = steps * one_row;
    if (names_.is_transposed) column_stride = matrices * grid.rows;
  }
  first += grid.first_row * row_stride + grid.first_column * column_stride;
  return Strided({.data = tensor.bytes.data() + first * element_bytes,
                  .row_stride = row_stride * element_bytes,
                  .column_stride = column_stride * element_bytes},
                 grid.own_rows, grid.own_columns, element_bytes);
}

MatrixPointer pointer_to(const Strided& matrix) {
  return {
      .data = matrix.data, .row_stride = matrix.row_stride, .column_stride = matrix.column_stride};
}

MatrixPointer Layer::values_pointer(const StoredTensor& tensor, Role role, int64_t expert) {
  const Grid grid = values_grid(role);
  if (tensor.type != "F32") {
    const bool of_two_bytes = tensor.type == "BF16" || tensor.type == "F16";
    return pointer_to(locate(tensor, grid, role, expert, of_two_bytes ? 2 : 1));
  }
  const std::vector<float> numbers = numbers_of("F32", locate(tensor, grid, role, expert, 4));
  rounded_[role].resize(numbers.size());
  std::transform(numbers.begin(), numbers.end(), rounded_[role].begin(), float_to_bf16);
  return {.data = rounded_[role].data()};
}

MatrixPointer Layer::scales_pointer(const StoredTensor& tensor, Role role, int64_t expert) {
  const Grid grid = scales_grid(role);
  const bool is_converted = *parts_.scales == DataType::kF32 && tensor.type != "F32";
  const int64_t element_bytes = number_bytes(tensor.type).value_or(1);
  const Strided matrix = locate(tensor, grid, role, expert, element_bytes);
  if (!is_converted) return pointer_to(matrix);
  scales_[role] = numbers_of(tensor.type, matrix);
  return {.data = scales_[role].data()};
}

Result<float> Layer::global(const StoredTensor* tensor) const {
  if (tensor == nullptr) return 1.0f;
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<float> values, numbers_of(*tensor, tensor->shape));
  return stored_.global_divides ? 1 / values.front() : values.front();
}

const float* Layer::bias(const StoredTensor* tensor, Role role, int64_t expert) {
  if (tensor == nullptr || (role == kDown && !adds_down_bias_)) return nullptr;
  // Biases lie row by row whichever way round their matrix is.
  Grid grid = bias_grid(role);
  const int64_t bytes = *number_bytes(tensor->type);
  biases_[role] = numbers_of(tensor->type, locate(*tensor, grid, role, expert, bytes));
  return biases_[role].data();
}

void Layer::release(int64_t expert) const {
  for (const StoredMatrix& matrix : experts_[static_cast<size_t>(expert)]) {
    for (const StoredTensor* tensor : {matrix.values, matrix.scales}) {
      if (tensor == nullptr) continue;
      std::span<const std::byte> bytes = tensor->bytes;
      if (names_.is_stacked) {
        const size_t each = bytes.size() / static_cast<size_t>(model_.experts);
        bytes = bytes.subspan(static_cast<size_t>(share_.first_expert + expert) * each, each);
      }
      tensor->file->release(bytes);
    }
  }
}

Result<ExpertPointers> Layer::pointers(int64_t expert) {
  if (last_ >= 0 && last_ != expert) release(last_);
  last_ = expert;
  const int64_t stored = share_.first_expert + expert;
  ExpertPointers at;
  struct Target {
    MatrixPointer* values;
    MatrixPointer* scales;
    float* global;
    const float** bias;
  };
  const std::array<Target, kRoles> targets = {
      Target{&at.gate, &at.gate_scales, &at.gate_global, &at.gate_bias},
      Target{&at.up, &at.up_scales, &at.up_global, &at.up_bias},
      Target{&at.down, &at.down_scales, &at.down_global, &at.down_bias}};
  for (const Role role : {kGate, kUp, kDown}) {
    if (!has(role)) continue;
    const StoredMatrix& matrix = experts_[static_cast<size_t>(expert)][role];
    const Target& target = targets[role];
    *target.values = values_pointer(*matrix.values, role, stored);
    if (matrix.scales != nullptr) *target.scales = scales_pointer(*matrix.scales, role, stored);
    MOETUNE_ASSIGN_OR_RETURN(*target.global, global(matrix.global));
    *target.bias = bias(matrix.bias, role, stored);
  }
  return at;
}

// "gate_scales" -> "FILE: "model.layers.3.mlp.experts.5.gate_proj.weight_scale"".
std::string Layer::part_name(int64_t expert, std::string_view part) const {
  const Role role = part.starts_with("gate") ? kGate : part.starts_with("up") ? kUp : kDown;
  const StoredMatrix& matrix = experts_[static_cast<size_t>(expert)][role];
  const StoredTensor* tensor = part.ends_with("_scales")   ? matrix.scales
                               : part.ends_with("_global") ? matrix.global
                               : part.ends_with("_bias")   ? matrix.bias
                                                           : matrix.values;
  if (tensor == nullptr) return fmt::format("expert {}: {}", expert, part);
  const bool is_part = spec_.tp > 1 || names_.is_stacked;
  return fmt::format(
      "{}: {}{}", tensor->file->path(), in_quotes(tensor->name),
      is_part ? fmt::format(" (expert {}, {} of this rank)", share_.first_expert + expert, part)
              : "");
}

Error not_the_share(const FusedMoeSpec& spec, const RankShare& share, int rank) {
  const int64_t block = format_parts(spec.weights).block_rows > 1
                            ? format_parts(spec.weights).block_rows
                            : format_parts(spec.weights).block_k;
  const std::string blocks =
      block > 1 ? fmt::format(", split between blocks of {}", block) : std::string();
  return {
      ErrorCode::kInvalidArgument,
      fmt::format("rank {} of tp {} and ep {} holds {} of each expert's rows{}, and {} experts; "
                  "the specification says {} and {}",
                  rank, spec.tp, spec.ep, share.rows, blocks, share.experts, spec.intermediate,
                  spec.experts),
      "layer_spec() of that rank gives the right one: ranks may differ in size"};
}

Status check_spec(const ModelSpec& model, const FusedMoeSpec& spec) {
  const bool fits = spec.hidden == model.hidden && spec.global_experts == model.experts &&
                    spec.bias == model.bias &&
                    spec.gated() == (model.activation != Activation::kRelu2);
  if (fits) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format(
          "the specification ({} hidden, {} experts, {} biases, {}) is not {}'s ({} hidden, "
          "{} experts, {} biases, {})",
          spec.hidden, spec.global_experts, spec.bias ? "with" : "without",
          to_string(spec.activation), model.name, model.hidden, model.experts,
          model.bias ? "with" : "without", to_string(model.activation)),
      "take layer_spec() of the same model"};
}

/// A layer's routed experts, and its shared ones, each as a layer of one expert: some of the rows
/// that the file has of all of them.
struct OpenLayer {
  std::unique_ptr<Layer> routed;
  std::vector<std::unique_ptr<Layer>> shared;
  int64_t experts() const { return routed->experts(); }

  std::pair<Layer*, int64_t> at(int64_t expert) const {
    if (expert < experts()) return {routed.get(), expert};
    return {shared[static_cast<size_t>(expert - experts())].get(), 0};
  }
};

Result<std::vector<std::unique_ptr<Layer>>> open_shared(std::shared_ptr<Checkpoint> checkpoint,
                                                        const ModelSpec& model, int64_t layer,
                                                        const FusedMoeSpec& spec,
                                                        const RankShare& share,
                                                        const LayerNames& routed) {
  const FormatParts parts = format_parts(spec.weights);
  if (spec.shared_experts > 1 &&
      model.intermediate % std::max(parts.block_rows, parts.block_k) != 0) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: its {} shared experts, stored as one, do not part between blocks "
                             "of {} weights",
                             model.name, spec.shared_experts, to_string(spec.weights)),
                 "leave out --shared-experts"};
  }
  MOETUNE_ASSIGN_OR_RETURN(const LayerNames names, find_shared(*checkpoint, routed));
  ModelSpec stored = model;
  stored.experts = 1;
  stored.intermediate = model.shared_intermediate;
  FusedMoeSpec one = spec;
  one.experts = one.global_experts = 1;
  one.shared_experts = 0;
  one.top_k = 1;
  std::vector<std::unique_ptr<Layer>> layers;
  for (int i = 0; i < spec.shared_experts; ++i) {
    const RankShare rows{share.first_row + i * model.intermediate, share.rows, 0, 1};
    layers.push_back(
        std::make_unique<Layer>(checkpoint, stored, one, rows, /*adds_down_bias=*/false));
    MOETUNE_RETURN_IF_ERROR(layers.back()->open(layer, names));
  }
  return layers;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> make_expert_weights(std::shared_ptr<Checkpoint> checkpoint,
                                                          const ModelSpec& model, int64_t layer,
                                                          const FusedMoeSpec& spec, int rank) {
  MOETUNE_RETURN_IF_ERROR(validate(spec));
  MOETUNE_RETURN_IF_ERROR(check_spec(model, spec));
  MOETUNE_ASSIGN_OR_RETURN(
      const RankShare share,
      rank_share(model, spec.weights, {.tp = spec.tp, .ep = spec.ep, .rank = rank}));
  if (share.rows != spec.intermediate || share.experts != spec.experts)
    return not_the_share(spec, share, rank);
  MOETUNE_ASSIGN_OR_RETURN(const LayerNames names, find_layer(*checkpoint, model, layer));
  auto opened = std::make_shared<OpenLayer>();
  opened->routed = std::make_unique<Layer>(checkpoint, model, spec, share,
                                           /*adds_down_bias=*/rank % spec.tp == 0);
  MOETUNE_RETURN_IF_ERROR(opened->routed->open(layer, names));
  if (spec.shared_experts > 0) {
    MOETUNE_ASSIGN_OR_RETURN(opened->shared,
                             open_shared(checkpoint, model, layer, spec, share, names));
  }
  return make_pointer_weights(
      spec,
      [opened](int64_t expert) {
        const auto [part, own] = opened->at(expert);
        return part->pointers(own);
      },
      [opened](int64_t expert, std::string_view part_of) {
        const auto [part, own] = opened->at(expert);
        return part->part_name(own, part_of);
      },
      ErrorCode::kParse);
}

}  // namespace moetune::checkpoint
