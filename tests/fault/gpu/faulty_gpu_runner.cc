#include "fault/gpu/faulty_gpu_runner.h"

#include <utility>

#include "base/status_macros.h"
#include "cuda/jit.h"
#include "cuda/module.h"
#include "fault/operator/faulty_operator.h"

namespace moetune::testing {
namespace {

// `twice` does what is right, after `rounds` of useless work. The others take the same parameters.
constexpr const char* kProgram = R"(
#include <cstdint>
__device__ int runs;
__device__ void doubled(const float* x, float* y, int n, int rounds) {
  float value = 0;
  for (int i = 0; i < rounds; ++i) value = sinf(value + i);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = value > 2 ? value : 2 * x[i];
}
__global__ void twice(const float* x, float* y, int n, int rounds) { doubled(x, y, n, rounds); }
__global__ void wrong(const float* x, float* y, int n, int rounds) {
  doubled(x, y, n, 0);
  __syncthreads();
  if (threadIdx.x == 0) y[n / 2] += 1;
}
__global__ void not_a_number(const float* x, float* y, int n, int rounds) {
  doubled(x, y, n, 0);
  __syncthreads();
  if (threadIdx.x == 0) y[n - 1] = __int_as_float(0x7fc00000);
}
__global__ void half_written(const float* x, float* y, int n, int rounds) { doubled(x, y, n / 2, 0); }
__global__ void past_the_end(const float* x, float* y, int n, int rounds) {
  doubled(x, y, n, 0);
  if (threadIdx.x == 0) y[n] = 0;
}
__global__ void before_the_start(const float* x, float* y, int n, int rounds) {
  doubled(x, y, n, 0);
  if (threadIdx.x == 0) y[-1] = 0;
}
__global__ void changes_its_input(const float* x, float* y, int n, int rounds) {
  doubled(x, y, n, 0);
  __syncthreads();
  if (threadIdx.x == 0) const_cast<float*>(x)[0] += 1;
}
__global__ void wrong_later(const float* x, float* y, int n, int rounds) {
  doubled(x, y, n, 0);
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(&runs, 1) > 20) y[0] += 1;
}
__global__ void illegal_address(const float* x, float* y, int n, int rounds) {
  y[uint64_t{1} << 40] = 1;
}
__global__ void misaligned_address(const float* x, float* y, int n, int rounds) {
  *reinterpret_cast<volatile float*>(reinterpret_cast<char*>(y) + 1) = 1;
}
__global__ void trap(const float* x, float* y, int n, int rounds) { asm volatile("trap;"); }
__global__ void endless(const float* x, float* y, int n, int rounds) {
  volatile float* flag = y;
  while (true) *flag = *flag + 1;
}
)";

// Useless work of the right ones: all that are wrong are faster, and which is the fastest is no
// question of luck.
int rounds_of(std::string_view kind) {
  if (kind == "fast") return 5'000;
  return kind == "good" ? 20'000 : 60'000;
}

class GpuKernel final : public Executable {
 public:
  GpuKernel(cuda::Kernel kernel, std::string kind)
      : kernel_(std::move(kernel)), kind_(std::move(kind)) {}

  Status run(const Call& call) override {
    if (kind_ == "does_nothing") return {};
    const Tensor& x = call.arguments->at(0);
    const Tensor& y = call.arguments->at(1);
    // A block larger than any device takes, unlike what was compiled.
    const unsigned threads = kind_ == "cannot_launch" ? 4096 : 128;
    return kernel_({.threads = threads}, static_cast<cuda::CUstream>(call.stream),
                   static_cast<const float*>(x.data), static_cast<float*>(y.data),
                   static_cast<int>(x.values()), rounds_of(kind_));
  }

 private:
  cuda::Kernel kernel_;
  std::string kind_;
};

class FaultyGpuRunner final : public TunableRunner {
 public:
  explicit FaultyGpuRunner(cuda::CudaDevice* device) : device_(device) {
    Parameter parameter{"kind", {}, "which kernel"};
    for (const GpuFault& fault : gpu_faults()) parameter.values.emplace_back(fault.name);
    schemes_ = {{"single", {{"main", Space({parameter})}}}};
  }

  std::string name() const override { return faulty("default").runner; }
  const std::vector<Scheme>& schemes() const override { return schemes_; }
  Candidate default_candidate(int64_t) const override { return faulty("default"); }

  Result<std::shared_ptr<Executable>> compile(const Candidate& candidate, int64_t) override {
    const std::string kind(candidate.stages.at(0).tactic.word("kind"));
    if (kind == "takes_all_memory") MOETUNE_RETURN_IF_ERROR(take_all_memory());
    const std::string source =
        kind == "no_program" ? "__global__ void twice(int) { nonsense }" : kProgram;
    const bool is_right = kind == "default" || kind == "good" || kind == "fast";
    const bool is_other = kind == "does_nothing" || kind == "cannot_launch" ||
                          kind == "takes_all_memory" || kind == "no_program";
    MOETUNE_ASSIGN_OR_RETURN(auto program, cuda::default_jit().compile(
                                               {.label = candidate.text(),
                                                .arch = device_->context()->architecture(),
                                                .source = source,
                                                .kernels = {is_right || is_other ? "twice" : kind},
                                                .options = {}}));
    MOETUNE_ASSIGN_OR_RETURN(const auto module, cuda::Module::load(device_->context(), program));
    MOETUNE_ASSIGN_OR_RETURN(auto kernel, module.kernel(0));
    return std::shared_ptr<Executable>(std::make_shared<GpuKernel>(std::move(kernel), kind));
  }

 private:
  Status take_all_memory() {
    std::vector<std::unique_ptr<DeviceBuffer>> taken;
    while (true) {
      MOETUNE_ASSIGN_OR_RETURN(auto buffer, device_->allocate(size_t{4} << 30));
      taken.push_back(std::move(buffer));
    }
  }

  cuda::CudaDevice* device_;
  std::vector<Scheme> schemes_;
};

}  // namespace

const std::vector<GpuFault>& gpu_faults() {
  static const std::vector<GpuFault> faults = {
      {"default", true},
      {"good", true},
      {"fast", true},
      {"illegal_address", false, true},
      {"misaligned_address", false, true},
      {"trap", false, true},
      {"endless", false, true},
      {"no_program"},
      {"cannot_launch"},
      {"takes_all_memory"},
      {"does_nothing"},
      {"wrong"},
      {"wrong_later"},
      {"not_a_number"},
      {"half_written"},
      {"past_the_end"},
      {"before_the_start"},
      {"changes_its_input"},
  };
  return faults;
}

std::unique_ptr<TunableRunner> make_faulty_gpu_runner(cuda::CudaDevice* device) {
  return std::make_unique<FaultyGpuRunner>(device);
}

}  // namespace moetune::testing
