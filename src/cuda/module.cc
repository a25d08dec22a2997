#include "cuda/module.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include "base/status_macros.h"

namespace moetune::cuda {
namespace {

using ModuleHandle = Owned<CUmodule, &Driver::cuModuleUnload>;

// All shared memory of a multiprocessor may go to blocks: these kernels stream their data and gain
// nothing from L1.
constexpr int kCarveoutMaximum = 100;

}  // namespace

struct Module::State {
  ContextPtr context;
  CompiledProgramPtr program;
  ModuleHandle handle;
};

struct Kernel::State {
  std::shared_ptr<const Module::State> module;
  CUfunction function = nullptr;
  size_t index = 0;
};

Result<Module> Module::load(const ContextPtr& context, CompiledProgramPtr program) {
  // What is loaded already is shared: candidates differ in one kernel of several.
  static std::mutex mutex;
  static std::map<std::pair<const Context*, const CompiledProgram*>, std::weak_ptr<const State>>
      loaded;
  const std::lock_guard lock(mutex);
  std::erase_if(loaded, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const State>& shared = loaded[{context.get(), program.get()}];
  Module module;
  if ((module.state_ = shared.lock())) return module;
  MOETUNE_RETURN_IF_ERROR(context->make_current());
  CUmodule handle = nullptr;
  MOETUNE_CUDA_CHECK(context->driver(), cuModuleLoadData(&handle, program->cubin.data()),
                     fmt::format("loading code for {} on {} ({})", program->arch.text(),
                                 context->name(), context->architecture().text()));
  auto state = std::make_shared<State>();
  state->context = context;
  state->program = std::move(program);
  state->handle = ModuleHandle(context, handle);
  module.state_ = std::move(state);
  shared = module.state_;
  return module;
}

Result<Kernel> Module::kernel(size_t index, int shared_bytes) const {
  const Driver& driver = state_->context->driver();
  if (index >= state_->program->kernels.size()) {
    return Error{ErrorCode::kInternal, fmt::format("kernel {} of a program with {}", index,
                                                   state_->program->kernels.size())};
  }
  const CompiledKernel& compiled = state_->program->kernels[index];
  MOETUNE_RETURN_IF_ERROR(state_->context->make_current());
  CUfunction function = nullptr;
  MOETUNE_CUDA_CHECK(driver,
                     cuModuleGetFunction(&function, state_->handle.get(), compiled.symbol.c_str()),
                     fmt::format("finding {}", compiled.expression));
  if (shared_bytes > 0) {
    MOETUNE_CUDA_CHECK(
        driver, cuFuncSetAttribute(function, kFunctionMaxDynamicSharedBytes, shared_bytes),
        fmt::format("giving {} {} bytes of shared memory (the device has {} per block)",
                    compiled.expression, shared_bytes,
                    state_->context->attribute(kDeviceSharedPerBlockOptin)));
    MOETUNE_CUDA_CHECK(driver,
                       cuFuncSetAttribute(function, kFunctionSharedCarveout, kCarveoutMaximum),
                       fmt::format("preparing {}", compiled.expression));
  }
  Kernel kernel;
  kernel.state_ = std::make_shared<const Kernel::State>(Kernel::State{state_, function, index});
  return kernel;
}

Status Kernel::launch(const LaunchShape& shape, CUstream stream, void** arguments) const {
  CUlaunchAttribute attributes[3] = {};
  unsigned count = 0;
  if (shape.cluster_x > 1) {
    attributes[count].id = kLaunchClusterDimension;
    attributes[count++].value.cluster = {shape.cluster_x, 1, 1};
  }
  if (shape.cooperative) {
    attributes[count].id = kLaunchCooperative;
    attributes[count++].value.flag = 1;
  }
  if (shape.programmatic) {
    attributes[count].id = kLaunchProgrammaticSerialization;
    attributes[count++].value.flag = 1;
  }
  const CUlaunchConfig config = {
      shape.grid_x,       shape.grid_y, shape.grid_z, shape.threads, 1, 1,
      shape.shared_bytes, stream,       attributes,   count};
  const Driver& driver = state_->module->context->driver();
  const CUresult result = driver.cuLaunchKernelEx(&config, state_->function, arguments, nullptr);
  if (result == kCudaSuccess) return {};
  return to_status(
      driver, result,
      fmt::format("launching {} with {}x{}x{} blocks of {} threads and {} bytes of shared memory",
                  name(), shape.grid_x, shape.grid_y, shape.grid_z, shape.threads,
                  shape.shared_bytes));
}

const std::string& Kernel::name() const {
  return state_->module->program->kernels[state_->index].expression;
}

const KernelResources& Kernel::resources() const {
  return state_->module->program->kernels[state_->index].resources;
}

int Kernel::blocks_per_multiprocessor(int threads, size_t shared_bytes) const {
  int blocks = 0;
  const Driver& driver = state_->module->context->driver();
  return driver.cuOccupancyMaxActiveBlocks(&blocks, state_->function, threads, shared_bytes) ==
                 kCudaSuccess
             ? blocks
             : 0;
}

}  // namespace moetune::cuda
