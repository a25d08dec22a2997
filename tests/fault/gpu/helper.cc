// A helper program that runs the faulty operator on the first GPU.
#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "fault/gpu/faulty_gpu_runner.h"
#include "fault/operator/faulty_operator.h"
#include "worker/server.h"

namespace {

using moetune::Device;
using moetune::Result;
using moetune::TunableRunner;
using moetune::Workbench;
using moetune::cuda::CudaDevice;
using moetune::worker::Place;

class FaultyGpuPlace final : public Place {
 public:
  explicit FaultyGpuPlace(std::shared_ptr<CudaDevice> device)
      : device_(std::move(device)), runner_(moetune::testing::make_faulty_gpu_runner(&*device_)) {}
  Device& device() override { return *device_; }
  Workbench& bench() override { return *bench_; }
  std::vector<TunableRunner*> runners() override { return {runner_.get()}; }

 private:
  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<Workbench> bench_ = moetune::testing::make_doubling_bench();
  std::unique_ptr<TunableRunner> runner_;
};

}  // namespace

int main(int argc, char** argv) {
  moetune::worker::Registry registry;
  registry.add(moetune::testing::kFaultyOp,
               [](const auto&, const auto&) -> Result<std::unique_ptr<Place>> {
                 MOETUNE_ASSIGN_OR_RETURN(std::shared_ptr<CudaDevice> device,
                                          moetune::cuda::make_cuda_device(0));
                 return std::unique_ptr<Place>(std::make_unique<FaultyGpuPlace>(std::move(device)));
               });
  return moetune::worker::run_program(argc, argv, registry);
}
