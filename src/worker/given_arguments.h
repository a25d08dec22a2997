// A workbench whose inputs can be given instead of made: by a parent whose data do not follow from
// the problem, or that makes them itself.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "moetune/measuring.h"

namespace moetune::worker {

/// Arguments of one routing sample: inputs with data, then outputs without.
struct GivenSample {
  Tensors arguments;
  std::vector<std::vector<std::byte>> storage;  ///< Where the data are.
};

/// Behaves like `bench`, which must outlive it, but for arguments() while some are given. Does not
/// judge. Thread-compatible.
class GivenArguments final : public Workbench {
 public:
  explicit GivenArguments(Workbench& bench) : bench_(bench) {}

  /// What arguments() answers from now on, whatever the case; none: what the bench makes.
  void give(std::vector<GivenSample> samples) { samples_ = std::move(samples); }

  const Problem& problem() const override { return bench_.problem(); }
  WeightSource& weights(Scale scale) override { return bench_.weights(scale); }
  Result<Tensors> arguments(const Case& c, Scale scale, int sample) override {
    if (samples_.empty()) return bench_.arguments(c, scale, sample);
    if (static_cast<size_t>(sample) < samples_.size())
      return samples_[static_cast<size_t>(sample)].arguments;
    return Error{ErrorCode::kInvalidArgument, "fewer arguments were given than samples"};
  }
  int outputs() const override { return bench_.outputs(); }
  std::vector<int64_t> check_rows(const Case& c, Scale scale, int sample) override {
    return bench_.check_rows(c, scale, sample);
  }
  std::vector<int64_t> look_rows(const Case& c, Scale scale, int sample) override {
    return bench_.look_rows(c, scale, sample);
  }
  Verdict judge(const Case&, Scale, int, std::span<const int64_t>, const Tensors&) override {
    return {false, "outputs are judged by the parent"};
  }
  Work work(const Case& c, Scale scale, int sample) override {
    return bench_.work(c, scale, sample);
  }

 private:
  Workbench& bench_;
  std::vector<GivenSample> samples_;
};

}  // namespace moetune::worker
