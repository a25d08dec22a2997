#include "cuda/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "cuda/cublaslt.h"
#include "cuda/module.h"

namespace moetune::cuda {
namespace {

constexpr const char* kProgram = "#include \"cuda/kernels/ceilings.cuh\"\n";
constexpr size_t kWordBytes = 16;
constexpr size_t kAlignment = 256;
constexpr double kSequenceUs =
    1000;  // One sample's work: long against what starting a graph costs.
constexpr double kGuessBytesPerUs = 4e6;  // Only sizes the sample.
constexpr size_t kLargestSpan = size_t{2} << 30;
constexpr int kWarmUp = 2;
constexpr int kSamples = 5;
constexpr size_t kMatmulWorkspace = size_t{64} << 20;

void* offset(const DeviceBuffer& buffer, size_t bytes) {
  return static_cast<char*>(buffer.data()) + bytes;
}

Result<Module> load_program(CudaDevice& device, Jit& jit) {
  const CompileRequest request{
      .label = "ceilings",
      .arch = device.context()->architecture(),
      .source = kProgram,
      .kernels = {"moetune::kernels::read_once<4>", "moetune::kernels::read_once<8>",
                  "moetune::kernels::fill_normal_bf16"}};
  MOETUNE_ASSIGN_OR_RETURN(CompiledProgramPtr program, jit.compile(request));
  return Module::load(device.context(), std::move(program));
}

Result<std::unique_ptr<DeviceBuffer>> random_buffer(CudaDevice& device, const Module& module,
                                                    size_t bytes) {
  MOETUNE_ASSIGN_OR_RETURN(auto buffer, device.allocate(bytes));
  MOETUNE_ASSIGN_OR_RETURN(const Kernel fill, module.kernel(2));
  const LaunchShape shape{.grid_x = 4096, .threads = 256};
  MOETUNE_RETURN_IF_ERROR(device.run([&](void* stream) {
    return fill(shape, static_cast<CUstream>(stream), buffer->data(),
                uint64_t{bytes / sizeof(uint16_t)}, uint32_t{17});
  }));
  return buffer;
}

// The lowest of some samples of a sequence, in microseconds per call: a ceiling is what can be
// reached.
Result<double> best_us(CudaDevice& device, std::vector<Device::DeviceCall> calls) {
  MOETUNE_ASSIGN_OR_RETURN(auto sequence, device.record(std::move(calls)));
  MOETUNE_ASSIGN_OR_RETURN(double best, sequence->sample_us(kWarmUp));
  for (int i = 0; i < kSamples; ++i) {
    MOETUNE_ASSIGN_OR_RETURN(const double us, sequence->sample_us(1));
    best = std::min(best, us);
  }
  return best;
}

// Launches that read one slice each, one slice after the other, through all of the buffer and round
// again.
std::vector<Device::DeviceCall> reading_calls(const Kernel& kernel, const LaunchShape& shape,
                                              const DeviceBuffer& memory, size_t bytes,
                                              void* sink) {
  const size_t pitch = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t slices = memory.bytes() / pitch;
  const auto launches =
      static_cast<size_t>(kSequenceUs * kGuessBytesPerUs / static_cast<double>(bytes));
  std::vector<Device::DeviceCall> calls;
  for (size_t i = 0; i < std::clamp<size_t>(launches, 4, 400); ++i) {
    void* const slice = offset(memory, i % slices * pitch);
    calls.emplace_back([=](void* stream) {
      return kernel(shape, static_cast<CUstream>(stream), slice, uint64_t{bytes / kWordBytes},
                    sink);
    });
  }
  return calls;
}

// The handles of one product, released together.
class Product {
 public:
  Product(const CublasLt& library, int size) : library_(library), size_(size) {}
  ~Product() {
    if (preference_) library_.cublasLtMatmulPreferenceDestroy(preference_);
    if (layout_) library_.cublasLtMatrixLayoutDestroy(layout_);
    if (description_) library_.cublasLtMatmulDescDestroy(description_);
    if (handle_) library_.cublasLtDestroy(handle_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  Status prepare() {
    const auto size = static_cast<uint64_t>(size_);
    MOETUNE_RETURN_IF_ERROR(check(library_.cublasLtCreate(&handle_)));
    MOETUNE_RETURN_IF_ERROR(
        check(library_.cublasLtMatmulDescCreate(&description_, kCublasCompute32F, kCudaR32F)));
    // Both operands with k innermost, as the layers of a model have them.
    MOETUNE_RETURN_IF_ERROR(check(library_.cublasLtMatmulDescSetAttribute(
        description_, kMatmulTransA, &kCublasTranspose, sizeof(int))));
    MOETUNE_RETURN_IF_ERROR(
        check(library_.cublasLtMatrixLayoutCreate(&layout_, kCudaR16Bf, size, size, size_)));
    MOETUNE_RETURN_IF_ERROR(check(library_.cublasLtMatmulPreferenceCreate(&preference_)));
    return check(library_.cublasLtMatmulPreferenceSetAttribute(
        preference_, kMatmulPreferenceWorkspace, &kMatmulWorkspace, sizeof kMatmulWorkspace));
  }

  Result<std::vector<cublasLtMatmulAlgo>> algorithms() const {
    cublasLtMatmulHeuristicResult found[16];
    int count = 0;
    MOETUNE_RETURN_IF_ERROR(check(library_.cublasLtMatmulAlgoGetHeuristic(
        handle_, description_, layout_, layout_, layout_, layout_, preference_, std::size(found),
        found, &count)));
    std::vector<cublasLtMatmulAlgo> all;
    for (int i = 0; i < count; ++i) {
      if (found[i].state == 0) all.push_back(found[i].algorithm);
    }
    return all;
  }

  Status run(const cublasLtMatmulAlgo& algorithm, const void* a, const void* b, void* c,
             void* workspace, CUstream stream) const {
    const float one = 1;
    const float zero = 0;
    return check(library_.cublasLtMatmul(handle_, description_, &one, a, layout_, b, layout_, &zero,
                                         c, layout_, c, layout_, &algorithm, workspace,
                                         kMatmulWorkspace, stream));
  }

 private:
  static Status check(cublasStatus status) {
    if (status == 0) return {};
    return Error{ErrorCode::kRun,
                 fmt::format("cuBLASLt refuses the matrix product (status {})", status)};
  }

  const CublasLt& library_;
  int size_;
  cublasLtHandle handle_ = nullptr;
  cublasLtMatmulDesc description_ = nullptr;
  cublasLtMatrixLayout layout_ = nullptr;
  cublasLtMatmulPreference preference_ = nullptr;
};

}  // namespace

Result<ReadCeiling> measure_read_ceiling(CudaDevice& device, Jit& jit, size_t bytes) {
  bytes = bytes / kWordBytes * kWordBytes;
  if (bytes == 0)
    return Error{ErrorCode::kInvalidArgument, "a read ceiling needs at least 16 bytes per launch"};
  MOETUNE_ASSIGN_OR_RETURN(const Module module, load_program(device, jit));
  const size_t rotation =
      std::max(4 * device.last_level_cache_bytes() + bytes, 2 * (bytes + kAlignment));
  const size_t span = std::max(rotation, std::min(kLargestSpan, device.free_memory_bytes() / 4));
  MOETUNE_ASSIGN_OR_RETURN(const auto memory, random_buffer(device, module, span));
  MOETUNE_ASSIGN_OR_RETURN(const auto sink, device.allocate(sizeof(uint32_t)));

  const auto multiprocessors =
      static_cast<unsigned>(device.context()->attribute(kDeviceMultiprocessors));
  const auto threads_per_multiprocessor =
      static_cast<unsigned>(device.context()->attribute(kDeviceThreadsPerMultiprocessor));
  ReadCeiling best;
  for (const size_t variant : {0, 1}) {
    MOETUNE_ASSIGN_OR_RETURN(const Kernel kernel, module.kernel(variant));
    for (const unsigned threads : {256u, 512u, 1024u}) {
      for (const unsigned blocks : {1u, 2u, 4u, 8u}) {
        if (blocks * threads > threads_per_multiprocessor) continue;
        const LaunchShape shape{.grid_x = blocks * multiprocessors, .threads = threads};
        MOETUNE_ASSIGN_OR_RETURN(
            const double us,
            best_us(device, reading_calls(kernel, shape, *memory, bytes, sink->data())));
        if (best.us > 0 && us >= best.us) continue;
        best = {bytes, us, static_cast<double>(bytes) / us * 1e6,
                fmt::format("{} blocks of {} threads per multiprocessor, {} loads each", blocks,
                            threads, variant == 0 ? 4 : 8)};
      }
    }
  }
  return best;
}

Result<MatrixCeiling> measure_matrix_ceiling(CudaDevice& device, Jit& jit, int size) {
  MOETUNE_ASSIGN_OR_RETURN(const CublasLt* library, load_cublaslt());
  MOETUNE_ASSIGN_OR_RETURN(const Module module, load_program(device, jit));
  const size_t bytes = static_cast<size_t>(size) * static_cast<size_t>(size) * sizeof(uint16_t);
  MOETUNE_ASSIGN_OR_RETURN(const auto a, random_buffer(device, module, bytes));
  MOETUNE_ASSIGN_OR_RETURN(const auto b, random_buffer(device, module, bytes));
  MOETUNE_ASSIGN_OR_RETURN(const auto c, device.allocate(bytes));
  MOETUNE_ASSIGN_OR_RETURN(const auto workspace, device.allocate(kMatmulWorkspace));
  MOETUNE_RETURN_IF_ERROR(device.context()->make_current());
  Product product(*library, size);
  MOETUNE_RETURN_IF_ERROR(product.prepare());
  MOETUNE_ASSIGN_OR_RETURN(const auto algorithms, product.algorithms());

  MatrixCeiling best;
  for (const cublasLtMatmulAlgo& algorithm : algorithms) {
    const Device::DeviceCall call = [&](void* stream) {
      return product.run(algorithm, a->data(), b->data(), c->data(), workspace->data(),
                         static_cast<CUstream>(stream));
    };
    MOETUNE_RETURN_IF_ERROR(device.run(call));
    MOETUNE_ASSIGN_OR_RETURN(const double us, best_us(device, {call, call}));
    if (best.us > 0 && us >= best.us) continue;
    const double operations = 2.0 * size * size * size;
    best = {us, operations / us * 1e6, fmt::format("cuBLASLt {}", library->version_text())};
  }
  if (best.us == 0)
    return Error{ErrorCode::kUnsupported, "cuBLASLt proposes no algorithm for a bf16 product here"};
  return best;
}

}  // namespace moetune::cuda
