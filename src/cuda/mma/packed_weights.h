// Weights of the mma family on a device.
#pragma once

#include <memory>

#include "cuda/context.h"
#include "cuda/mma/layout.h"
#include "cuda/module.h"
#include "moetune/runner.h"

namespace moetune::cuda {

class MmaWeights : public PackedWeights {
 public:
  size_t bytes() const override;

  const FusedMoeSpec& spec() const { return spec_; }
  const WeightLayout& layout() const { return layout_; }
  CUdeviceptr w13() const { return w13_.get(); }
  CUdeviceptr w2() const { return w2_.get(); }
  /// nvfp4, fp8: [experts][2] factors of the sums; 0 otherwise.
  CUdeviceptr w13_scales() const { return w13_scales_.get(); }
  CUdeviceptr w2_scales() const { return w2_scales_.get(); }
  /// [experts][groups][16]; 0 without biases.
  CUdeviceptr w13_bias() const { return w13_bias_.get(); }
  CUdeviceptr w2_bias() const { return w2_bias_.get(); }

 private:
  friend class MmaPacker;
  FusedMoeSpec spec_;
  WeightLayout layout_;
  Memory w13_, w2_, w13_scales_, w2_scales_, w13_bias_, w2_bias_;
  // As they came, for unpacking.
  std::vector<float> globals_;    // nvfp4, fp8: gate, up and down of each expert
  std::vector<float> biases_[2];  // of w13 and w2, expert by expert
};

/// Brings weights into the layout and back, on the device. One call at a time.
class MmaPacker {
 public:
  /// kCompile where the kernels do not compile.
  static Result<std::unique_ptr<MmaPacker>> make(const ContextPtr& context,
                                                 const FusedMoeSpec& spec);

  /// kInvalidArgument where the source's tensors do not fit the specification, a block scale is
  /// negative, not finite or (mxfp4) above 2^27, or an fp8 value is NaN; kOutOfMemory.
  Result<std::shared_ptr<PackedWeights>> pack(WeightSource& source);
  Status unpack(const MmaWeights& weights, WeightSink& sink);

 private:
  MmaPacker(ContextPtr context, const FusedMoeSpec& spec)
      : context_(std::move(context)), spec_(spec), layout_(weight_layout(spec)) {}
  /// One expert's matrix: its layout, and what of its chunk belongs to it (format.h).
  struct Matrix {
    const MatrixLayout* layout;
    const char* name;         ///< "w13"
    std::string scales_name;  ///< "w13_scales"
    size_t value_bytes;
    size_t scale_bytes;
  };
  Matrix matrix(int index) const;
  Status prepare();
  Status upload(CUdeviceptr to, const void* from, size_t bytes);
  Status download(void* to, CUdeviceptr from, size_t bytes);
  Status launch(const Kernel& kernel, const MatrixLayout& matrix, CUdeviceptr packed);
  Status pack_matrix(const Matrix& matrix, const Tensors& chunk, int64_t expert,
                     CUdeviceptr packed);
  Status unpack_matrix(const Matrix& matrix, CUdeviceptr packed, const Tensors& chunk);
  Status check_values();
  Status allocate(MmaWeights& weights);

  ContextPtr context_;
  FusedMoeSpec spec_;
  WeightLayout layout_;
  Kernel pack_, unpack_;
  Stream stream_;
  Memory values_, scales_;  // One matrix as the operator has it.
  Memory not_a_number_;     // An int that the packing kernels set.
};

}  // namespace moetune::cuda
