// A helper program that runs fused_moe like moetune-worker, but hangs in compiling whatever comes
// after the default.
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/isolation.h"
#include "worker/announcing_runner.h"
#include "worker/server.h"

namespace {

using moetune::Device;
using moetune::Result;
using moetune::TunableRunner;
using moetune::Workbench;
using moetune::worker::AnnouncingRunner;
using moetune::worker::Place;

// The first compilation is the default's; all others never end.
class HangingPlace final : public Place {
 public:
  explicit HangingPlace(std::unique_ptr<Place> inner) : inner_(std::move(inner)) {
    for (TunableRunner* runner : inner_->runners()) {
      runners_.push_back(
          std::make_unique<AnnouncingRunner>(*runner, [count = 0](const char*) mutable {
            if (++count > 2) std::this_thread::sleep_for(std::chrono::hours(1));
          }));
    }
  }
  Device& device() override { return inner_->device(); }
  Workbench& bench() override { return inner_->bench(); }
  std::vector<TunableRunner*> runners() override {
    std::vector<TunableRunner*> pointers;
    for (const auto& runner : runners_) pointers.push_back(runner.get());
    return pointers;
  }

 private:
  std::unique_ptr<Place> inner_;
  std::vector<std::unique_ptr<AnnouncingRunner>> runners_;
};

}  // namespace

int main(int argc, char** argv) {
  const moetune::worker::Registry real = moetune::make_worker_registry();
  moetune::worker::Registry registry;
  registry.add(
      "fused_moe", [&](const auto& problem, const auto& options) -> Result<std::unique_ptr<Place>> {
        auto place = real.make(problem, options);
        if (!place.ok()) return std::move(place).error();
        return std::unique_ptr<Place>(std::make_unique<HangingPlace>(std::move(place).value()));
      });
  return moetune::worker::run_program(argc, argv, registry);
}
