#include "cuda/mma/packed_weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "cuda/mma/programs.h"
#include "ops/moe/number_formats.h"
#include "ops/moe/weights.h"

namespace moetune::cuda {
namespace {

bool is_nvfp4(const WeightLayout& layout) { return layout.format == kernels::kNvfp4; }

size_t value_bytes(const WeightLayout& layout, const MatrixLayout& m) {
  const size_t values = static_cast<size_t>(m.rows) * m.k;
  return is_nvfp4(layout) ? values / 2 : values * 2;
}
size_t scale_bytes(const WeightLayout& layout, const MatrixLayout& m) {
  return is_nvfp4(layout) ? static_cast<size_t>(m.rows) * nvfp4_blocks(m.k) : 0;
}

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

Status check_scales(const void* tensor, size_t count, const char* name, int64_t expert) {
  const auto* scales = static_cast<const uint8_t*>(tensor);
  const uint8_t* bad = std::find_if(scales, scales + count, [](uint8_t s) { return s >= 0x7F; });
  if (bad == scales + count) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("fused_moe: scale {} of '{}' of expert {} is 0x{:02X}: {}", bad - scales,
                           name, expert, *bad, (*bad & 0x7F) == 0x7F ? "not a number" : "negative"),
               "block scales of nvfp4 are positive; is the tensor really e4m3?"};
}

}  // namespace

size_t MmaWeights::bytes() const {
  const size_t experts = static_cast<size_t>(spec_.experts);
  size_t total = experts * static_cast<size_t>(layout_.w13.expert_bytes + layout_.w2.expert_bytes);
  if (is_nvfp4(layout_)) total += experts * 4 * sizeof(float);
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

Status MmaPacker::prepare() {
  const char* name = is_nvfp4(layout_) ? "pack_nvfp4" : "pack_bf16";
  MOETUNE_ASSIGN_OR_RETURN(
      auto kernels, load_program(context_, {"packing weights for cuda.mma",
                                            "cuda/kernels/pack.cuh",
                                            {fmt::format("moetune::kernels::{}<false>", name),
                                             fmt::format("moetune::kernels::{}<true>", name)}}));
  pack_ = kernels[0];
  unpack_ = kernels[1];
  MOETUNE_ASSIGN_OR_RETURN(stream_, make_stream(context_));
  MOETUNE_ASSIGN_OR_RETURN(values_,
                           allocate_memory(context_, std::max(value_bytes(layout_, layout_.w13),
                                                              value_bytes(layout_, layout_.w2))));
  MOETUNE_ASSIGN_OR_RETURN(scales_,
                           allocate_memory(context_, std::max(scale_bytes(layout_, layout_.w13),
                                                              scale_bytes(layout_, layout_.w2))));
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
  const int64_t threads = int64_t{matrix.groups} * matrix.units * (is_nvfp4(layout_) ? 32 : 128);
  kernels::PackParams p = {};
  p.source = reinterpret_cast<const void*>(values_.get());
  p.source_scales = reinterpret_cast<const kernels::u8*>(scales_.get());
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

Status MmaPacker::pack_matrix(const MatrixLayout& matrix, const void* values, const void* scales,
                              CUdeviceptr packed) {
  MOETUNE_RETURN_IF_ERROR(upload(values_.get(), values, value_bytes(layout_, matrix)));
  MOETUNE_RETURN_IF_ERROR(upload(scales_.get(), scales, scale_bytes(layout_, matrix)));
  return launch(pack_, matrix, packed);
}

Status MmaPacker::unpack_matrix(const MatrixLayout& matrix, CUdeviceptr packed,
                                std::vector<uint8_t>& values, std::vector<uint8_t>& scales) {
  values.resize(value_bytes(layout_, matrix));
  scales.resize(scale_bytes(layout_, matrix));
  MOETUNE_RETURN_IF_ERROR(launch(unpack_, matrix, packed));
  MOETUNE_RETURN_IF_ERROR(download(values.data(), values_.get(), values.size()));
  return download(scales.data(), scales_.get(), scales.size());
}

Status MmaPacker::allocate(MmaWeights& w) {
  const size_t experts = static_cast<size_t>(spec_.experts), floats = experts * 2 * sizeof(float);
  MOETUNE_ASSIGN_OR_RETURN(w.w13_, allocate_memory(context_, experts * layout_.w13.expert_bytes));
  MOETUNE_ASSIGN_OR_RETURN(w.w2_, allocate_memory(context_, experts * layout_.w2.expert_bytes));
  if (is_nvfp4(layout_)) {
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
  if (source.chunks() < 1 || source.chunks() > spec_.experts) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("fused_moe: weights of {} experts for {}",
                                                          source.chunks(), spec_.experts)};
  }
  MOETUNE_RETURN_IF_ERROR(context_->make_current());
  auto weights = std::make_shared<MmaWeights>();
  weights->spec_ = spec_;
  weights->layout_ = layout_;
  MOETUNE_RETURN_IF_ERROR(allocate(*weights));
  std::vector<float> factors[2], biases[2];
  for (int64_t e = 0; e < source.chunks(); ++e) {
    MOETUNE_ASSIGN_OR_RETURN(const Tensors chunk, source.chunk(e));
    MOETUNE_ASSIGN_OR_RETURN(const ExpertWeights expert, view_expert(spec_, chunk));
    if (is_nvfp4(layout_)) {
      MOETUNE_RETURN_IF_ERROR(
          check_scales(expert.w13_scales, scale_bytes(layout_, layout_.w13), "w13_scales", e));
      MOETUNE_RETURN_IF_ERROR(
          check_scales(expert.w2_scales, scale_bytes(layout_, layout_.w2), "w2_scales", e));
      const float low = spec_.gated() ? expert.gate_global : expert.up_global;
      weights->globals_.insert(weights->globals_.end(),
                               {expert.gate_global, expert.up_global, expert.down_global});
      factors[0].insert(factors[0].end(), {low * kernels::kNvfp4Epilogue,
                                           expert.up_global * kernels::kNvfp4Epilogue});
      factors[1].insert(factors[1].end(), 2, expert.down_global * kernels::kNvfp4Epilogue);
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
    MOETUNE_RETURN_IF_ERROR(
        pack_matrix(layout_.w13, expert.w13, expert.w13_scales,
                    weights->w13() + static_cast<CUdeviceptr>(e * layout_.w13.expert_bytes)));
    MOETUNE_RETURN_IF_ERROR(
        pack_matrix(layout_.w2, expert.w2, expert.w2_scales,
                    weights->w2() + static_cast<CUdeviceptr>(e * layout_.w2.expert_bytes)));
  }
  MOETUNE_RETURN_IF_ERROR(
      upload(weights->w13_scales(), factors[0].data(), factors[0].size() * sizeof(float)));
  MOETUNE_RETURN_IF_ERROR(
      upload(weights->w2_scales(), factors[1].data(), factors[1].size() * sizeof(float)));
  MOETUNE_RETURN_IF_ERROR(
      upload(weights->w13_bias(), biases[0].data(), biases[0].size() * sizeof(float)));
  MOETUNE_RETURN_IF_ERROR(
      upload(weights->w2_bias(), biases[1].data(), biases[1].size() * sizeof(float)));
  MOETUNE_CUDA_CHECK(context_->driver(), cuStreamSynchronize(stream_.get()), "packing weights");
  return std::shared_ptr<PackedWeights>(std::move(weights));
}

Status MmaPacker::unpack(const MmaWeights& weights, WeightSink& sink) {
  MOETUNE_RETURN_IF_ERROR(context_->make_current());
  std::vector<uint8_t> w13, w2, w13_scales, w2_scales;
  const int64_t rows = spec_.w13_rows(), hidden = spec_.hidden, intermediate = spec_.intermediate;
  const DataType type = is_nvfp4(layout_) ? DataType::kE2M1x2 : DataType::kBf16;
  for (int64_t e = 0; e < spec_.experts; ++e) {
    MOETUNE_RETURN_IF_ERROR(unpack_matrix(
        layout_.w13, weights.w13() + static_cast<CUdeviceptr>(e * layout_.w13.expert_bytes), w13,
        w13_scales));
    MOETUNE_RETURN_IF_ERROR(unpack_matrix(
        layout_.w2, weights.w2() + static_cast<CUdeviceptr>(e * layout_.w2.expert_bytes), w2,
        w2_scales));
    Tensors tensors = {{"w13", type, {rows, hidden}, w13.data()},
                       {"w2", type, {hidden, intermediate}, w2.data()}};
    float globals[3] = {1, 1, 1};
    if (is_nvfp4(layout_)) {
      std::copy_n(weights.globals_.begin() + e * 3, 3, globals);
      tensors.insert(
          tensors.begin() + 1,
          {{"w13_scales", DataType::kF8E4M3, {rows, nvfp4_blocks(hidden)}, w13_scales.data()},
           {"w13_global", DataType::kF32, {2}, globals}});
      tensors.push_back(
          {"w2_scales", DataType::kF8E4M3, {hidden, nvfp4_blocks(intermediate)}, w2_scales.data()});
      tensors.push_back({"w2_global", DataType::kF32, {1}, globals + 2});
    }
    std::vector<float> bias13, bias2;
    if (layout_.bias) {
      bias13.assign(weights.biases_[0].begin() + e * rows,
                    weights.biases_[0].begin() + (e + 1) * rows);
      bias2.assign(weights.biases_[1].begin() + e * hidden,
                   weights.biases_[1].begin() + (e + 1) * hidden);
      tensors.push_back({"w13_bias", DataType::kF32, {rows}, bias13.data()});
      tensors.push_back({"w2_bias", DataType::kF32, {hidden}, bias2.data()});
    }
    MOETUNE_RETURN_IF_ERROR(sink.chunk(e, tensors));
  }
  return {};
}

}  // namespace moetune::cuda
