#include "cuda/mma/packed_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "cuda/mma/programs.h"
#include "ops/moe/format.h"
#include "ops/moe/weights.h"

namespace moetune::cuda {
namespace {

size_t padded_rows(const MatrixLayout& m) {
  return static_cast<size_t>(m.groups) * kernels::kGroupRows;
}

// Biases of one expert in the order of groups.
void spread_bias(const MatrixLayout& m, const float* bias, float* out) {
  const int half = m.rows / 2;
  for (int group = 0; group < m.groups; ++group) {
    for (int row = 0; row < kernels::kGroupRows; ++row) {
      const int r = m.gated ? group * 8 + row % 8 : group * kernels::kGroupRows + row;
      const bool inside = r < (m.gated ? half : m.rows);
      out[group * kernels::kGroupRows + row] =
          inside ? bias[r + (m.gated && row >= 8 ? half : 0)] : 0.0f;
    }
  }
}

bool is_good_scale(DataType type, const void* scales, size_t index) {
  if (type == DataType::kF32) {
    const float scale = static_cast<const float*>(scales)[index];
    return std::isfinite(scale) && scale >= 0;
  }
  const uint8_t bits = static_cast<const uint8_t*>(scales)[index];
  return type == DataType::kUe8m0 ? bits <= kernels::kMxfp4LargestScale : bits < 0x7F;
}

std::string describe_bad_scale(DataType type, const void* scales, size_t index) {
  if (type == DataType::kF32) return fmt::format("{}", static_cast<const float*>(scales)[index]);
  const uint8_t bits = static_cast<const uint8_t*>(scales)[index];
  if (type == DataType::kUe8m0)
    return bits == 0xFF ? "not a number" : fmt::format("2^{}, above 2^27", bits - 127);
  return fmt::format("0x{:02X}: {}", bits, (bits & 0x7F) == 0x7F ? "not a number" : "negative");
}

Status check_scales(const Tensor& scales, int64_t expert) {
  for (size_t i = 0; i < static_cast<size_t>(scales.values()); ++i) {
    if (is_good_scale(scales.type, scales.data, i)) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("fused_moe: scale {} of '{}' of expert {} is {}", i, scales.name,
                             expert, describe_bad_scale(scales.type, scales.data, i)),
                 fmt::format("is the tensor really {}, and undamaged?", to_string(scales.type))};
  }
  return {};
}

// How many lanes of a unit the packing kernel gives a thread each.
int64_t threads_per_unit(kernels::Format format) {
  return format == kernels::kBf16 || format == kernels::kFp16 ? 128 : 32;
}

std::string pack_expression(kernels::Format format, bool unpack) {
  const char* const ns = "moetune::kernels::";
  switch (format) {
    case kernels::kBf16:
    case kernels::kFp16: return fmt::format("{}pack_halves<{}>", ns, unpack);
    case kernels::kFp8:
    case kernels::kFp8Block:
    case kernels::kFp8Rounded:
      return fmt::format("{}pack_fp8<{}, {}>", ns, unpack, static_cast<int>(format));
    case kernels::kNvfp4:
    case kernels::kMxfp4: break;
  }
  return fmt::format("{}pack_fp4<{}, {}>", ns, unpack, static_cast<int>(format));
}

// What a format's kernels leave to be multiplied into the sums beside its global scale.
float epilogue_factor(kernels::Format format) {
  return format == kernels::kNvfp4 ? kernels::kNvfp4Epilogue : 1.0f;
}

}  // namespace

size_t MmaWeights::bytes() const {
  const size_t experts = static_cast<size_t>(spec_.held_experts());
  size_t total = experts * static_cast<size_t>(layout_.w13.expert_bytes + layout_.w2.expert_bytes);
  if (!globals_.empty()) total += experts * 4 * sizeof(float);
  if (layout_.bias)
    total += experts * (padded_rows(layout_.w13) + padded_rows(layout_.w2)) * sizeof(float);
  return total;
}

Result<std::unique_ptr<MmaPacker>> MmaPacker::make(const ContextPtr& context,
                                                   const FusedMoeSpec& spec) {
  std::unique_ptr<MmaPacker> packer(new MmaPacker(context, spec));
  MOETUNE_RETURN_IF_ERROR(packer->prepare());
  return packer;
}

MmaPacker::Matrix MmaPacker::matrix(int index) const {
  const Tensors tensors = expert_tensors(spec_);
  Matrix m;
  m.layout = index == 0 ? &layout_.w13 : &layout_.w2;
  m.name = index == 0 ? "w13" : "w2";
  m.scales_name = std::string(m.name) + "_scales";
  const Tensor* scales = find(tensors, m.scales_name);
  m.value_bytes = find(tensors, m.name)->bytes();
  m.scale_bytes = scales == nullptr ? 0 : scales->bytes();
  return m;
}

Status MmaPacker::prepare() {
  MOETUNE_ASSIGN_OR_RETURN(auto kernels,
                           load_program(context_, {"packing weights for cuda.mma",
                                                   "cuda/kernels/pack.cuh",
                                                   {pack_expression(layout_.format, false),
                                                    pack_expression(layout_.format, true)}}));
  pack_ = kernels[0];
  unpack_ = kernels[1];
  const Matrix w13 = matrix(0), w2 = matrix(1);
  MOETUNE_ASSIGN_OR_RETURN(stream_, make_stream(context_));
  MOETUNE_ASSIGN_OR_RETURN(values_,
                           allocate_memory(context_, std::max(w13.value_bytes, w2.value_bytes)));
  MOETUNE_ASSIGN_OR_RETURN(scales_,
                           allocate_memory(context_, std::max(w13.scale_bytes, w2.scale_bytes)));
  MOETUNE_ASSIGN_OR_RETURN(not_a_number_, allocate_memory(context_, sizeof(int)));
  return {};
}

Status MmaPacker::upload(CUdeviceptr to, const void* from, size_t bytes) {
  const Driver& driver = context_->driver();
  if (bytes == 0) return {};
  MOETUNE_CUDA_CHECK(driver, cuMemcpyHtoDAsync(to, from, bytes, stream_.get()),
                     "copying weights to the device");
  MOETUNE_CUDA_CHECK(driver, cuStreamSynchronize(stream_.get()), "copying weights to the device");
  return {};
}

Status MmaPacker::download(void* to, CUdeviceptr from, size_t bytes) {
  const Driver& driver = context_->driver();
  if (bytes == 0) return {};
  MOETUNE_CUDA_CHECK(driver, cuMemcpyDtoHAsync(to, from, bytes, stream_.get()),
                     "copying weights from the device");
  MOETUNE_CUDA_CHECK(driver, cuStreamSynchronize(stream_.get()), "copying weights from the device");
  return {};
}

Status MmaPacker::launch(const Kernel& kernel, const MatrixLayout& matrix, CUdeviceptr packed) {
  const int64_t threads = int64_t{matrix.groups} * matrix.units * threads_per_unit(layout_.format);
  kernels::PackParams p = {};
  p.source = reinterpret_cast<const void*>(values_.get());
  p.source_scales = reinterpret_cast<const void*>(scales_.get());
  p.not_a_number = reinterpret_cast<int*>(not_a_number_.get());
  p.packed = reinterpret_cast<kernels::u8*>(packed);
  p.rows = matrix.rows;
  p.k = matrix.k;
  p.groups = matrix.groups;
  p.units = matrix.units;
  p.gated = matrix.gated ? 1 : 0;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((threads + 255) / 256);
  shape.threads = 256;
  return kernel(shape, stream_.get(), p);
}

Status MmaPacker::pack_matrix(const Matrix& matrix, const Tensors& chunk, int64_t expert,
                              CUdeviceptr packed) {
  if (matrix.scale_bytes > 0) {
    const Tensor& scales = *find(chunk, matrix.scales_name);
    MOETUNE_RETURN_IF_ERROR(check_scales(scales, expert));
    MOETUNE_RETURN_IF_ERROR(upload(scales_.get(), scales.data, matrix.scale_bytes));
  }
  MOETUNE_RETURN_IF_ERROR(
      upload(values_.get(), find(chunk, matrix.name)->data, matrix.value_bytes));
  return launch(pack_, *matrix.layout, packed);
}

Status MmaPacker::unpack_matrix(const Matrix& matrix, CUdeviceptr packed, const Tensors& chunk) {
  MOETUNE_RETURN_IF_ERROR(launch(unpack_, *matrix.layout, packed));
  MOETUNE_RETURN_IF_ERROR(
      download(find(chunk, matrix.name)->data, values_.get(), matrix.value_bytes));
  if (matrix.scale_bytes == 0) return {};
  return download(find(chunk, matrix.scales_name)->data, scales_.get(), matrix.scale_bytes);
}

// After all matrices were packed: waits for them.
Status MmaPacker::check_values() {
  int found = 0;
  MOETUNE_RETURN_IF_ERROR(download(&found, not_a_number_.get(), sizeof(found)));
  if (found == 0) return {};
  return Error{ErrorCode::kInvalidArgument,
               "fused_moe: the weights hold an e4m3 NaN (0x7F or 0xFF)",
               "are the tensors really e4m3fn, and undamaged?"};
}

Status MmaPacker::allocate(MmaWeights& w) {
  const size_t experts = static_cast<size_t>(spec_.held_experts()),
               floats = experts * 2 * sizeof(float);
  MOETUNE_ASSIGN_OR_RETURN(w.w13_, allocate_memory(context_, experts * layout_.w13.expert_bytes));
  MOETUNE_ASSIGN_OR_RETURN(w.w2_, allocate_memory(context_, experts * layout_.w2.expert_bytes));
  if (format_parts(spec_.weights).has_global) {
    MOETUNE_ASSIGN_OR_RETURN(w.w13_scales_, allocate_memory(context_, floats));
    MOETUNE_ASSIGN_OR_RETURN(w.w2_scales_, allocate_memory(context_, floats));
  }
  if (layout_.bias) {
    MOETUNE_ASSIGN_OR_RETURN(
        w.w13_bias_, allocate_memory(context_, experts * padded_rows(layout_.w13) * sizeof(float)));
    MOETUNE_ASSIGN_OR_RETURN(
        w.w2_bias_, allocate_memory(context_, experts * padded_rows(layout_.w2) * sizeof(float)));
  }
  return {};
}

Result<std::shared_ptr<PackedWeights>> MmaPacker::pack(WeightSource& source) {
  // Fewer, while candidates race on a part of the layer: then nothing is routed to the others.
  if (source.chunks() < 1 || source.chunks() > spec_.held_experts()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("fused_moe: weights of {} experts for {}",
                                                          source.chunks(), spec_.held_experts())};
  }
  MOETUNE_RETURN_IF_ERROR(context_->make_current());
  auto weights = std::make_shared<MmaWeights>();
  weights->spec_ = spec_;
  weights->layout_ = layout_;
  MOETUNE_RETURN_IF_ERROR(allocate(*weights));
  const Driver& driver = context_->driver();
  MOETUNE_CUDA_CHECK(driver, cuMemsetD8Async(not_a_number_.get(), 0, sizeof(int), stream_.get()),
                     "packing weights");
  const Matrix matrices[2] = {matrix(0), matrix(1)};
  const float factor = epilogue_factor(layout_.format);
  std::vector<float> factors[2], biases[2];
  for (int64_t e = 0; e < source.chunks(); ++e) {
    MOETUNE_ASSIGN_OR_RETURN(const Tensors chunk, source.chunk(e));
    MOETUNE_ASSIGN_OR_RETURN(const ExpertWeights expert, view_expert(spec_, chunk));
    if (format_parts(spec_.weights).has_global) {
      const float low = spec_.gated() ? expert.gate_global : expert.up_global;
      weights->globals_.insert(weights->globals_.end(),
                               {expert.gate_global, expert.up_global, expert.down_global});
      factors[0].insert(factors[0].end(), {low * factor, expert.up_global * factor});
      factors[1].insert(factors[1].end(), 2, expert.down_global * factor);
    }
    if (layout_.bias) {
      const float* bias[2] = {expert.w13_bias, expert.w2_bias};
      for (int i = 0; i < 2; ++i) {
        const MatrixLayout& m = i == 0 ? layout_.w13 : layout_.w2;
        weights->biases_[i].insert(weights->biases_[i].end(), bias[i], bias[i] + m.rows);
        biases[i].resize(biases[i].size() + padded_rows(m));
        spread_bias(m, bias[i], biases[i].data() + biases[i].size() - padded_rows(m));
      }
    }
    const CUdeviceptr packed[2] = {weights->w13(), weights->w2()};
    for (int i = 0; i < 2; ++i) {
      MOETUNE_RETURN_IF_ERROR(
          pack_matrix(matrices[i], chunk, e,
                      packed[i] + static_cast<CUdeviceptr>(e * matrices[i].layout->expert_bytes)));
    }
  }
  MOETUNE_RETURN_IF_ERROR(
      upload(weights->w13_scales(), factors[0].data(), factors[0].size() * sizeof(float)));
  MOETUNE_RETURN_IF_ERROR(
      upload(weights->w2_scales(), factors[1].data(), factors[1].size() * sizeof(float)));
  MOETUNE_RETURN_IF_ERROR(
      upload(weights->w13_bias(), biases[0].data(), biases[0].size() * sizeof(float)));
  MOETUNE_RETURN_IF_ERROR(
      upload(weights->w2_bias(), biases[1].data(), biases[1].size() * sizeof(float)));
  MOETUNE_RETURN_IF_ERROR(check_values());
  return std::shared_ptr<PackedWeights>(std::move(weights));
}

Status MmaPacker::unpack(const MmaWeights& weights, WeightSink& sink) {
  MOETUNE_RETURN_IF_ERROR(context_->make_current());
  Tensors chunk = expert_tensors(spec_);
  std::vector<std::vector<uint32_t>> storage;
  for (Tensor& tensor : chunk) tensor.data = storage.emplace_back((tensor.bytes() + 3) / 4).data();
  const auto copy = [&chunk](const char* name, auto from, int64_t count) {
    if (const Tensor* tensor = find(chunk, name)) std::copy_n(from, count, tensor->as<float>());
  };
  const Matrix matrices[2] = {matrix(0), matrix(1)};
  const CUdeviceptr packed[2] = {weights.w13(), weights.w2()};
  for (int64_t e = 0; e < spec_.held_experts(); ++e) {
    for (int i = 0; i < 2; ++i) {
      MOETUNE_RETURN_IF_ERROR(unpack_matrix(
          matrices[i], packed[i] + static_cast<CUdeviceptr>(e * matrices[i].layout->expert_bytes),
          chunk));
    }
    copy("w13_global", weights.globals_.begin() + e * 3, 2);
    copy("w2_global", weights.globals_.begin() + e * 3 + 2, 1);
    copy("w13_bias", weights.biases_[0].begin() + e * spec_.w13_rows(), spec_.w13_rows());
    copy("w2_bias", weights.biases_[1].begin() + e * spec_.hidden, spec_.hidden);
    MOETUNE_RETURN_IF_ERROR(sink.chunk(e, chunk));
  }
  return {};
}

}  // namespace moetune::cuda
