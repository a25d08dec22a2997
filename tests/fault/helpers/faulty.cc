// A helper program that runs the faulty operator.
#include <memory>
#include <vector>

#include "fault/operator/faulty_operator.h"
#include "worker/server.h"

namespace {

using moetune::Device;
using moetune::Result;
using moetune::TunableRunner;
using moetune::Workbench;
using moetune::worker::Place;

class FaultyPlace final : public Place {
 public:
  Device& device() override { return *device_; }
  Workbench& bench() override { return *bench_; }
  std::vector<TunableRunner*> runners() override { return {runner_.get()}; }

 private:
  std::unique_ptr<moetune::testing::FaultyDevice> device_ = moetune::testing::make_faulty_device();
  std::unique_ptr<Workbench> bench_ = moetune::testing::make_doubling_bench();
  std::unique_ptr<TunableRunner> runner_ = moetune::testing::make_faulty_runner(device_.get());
};

}  // namespace

int main(int argc, char** argv) {
  moetune::worker::Registry registry;
  registry.add(moetune::testing::kFaultyOp,
               [](const auto&, const auto&) -> Result<std::unique_ptr<Place>> {
                 return std::unique_ptr<Place>(std::make_unique<FaultyPlace>());
               });
  return moetune::worker::run_program(argc, argv, registry);
}
