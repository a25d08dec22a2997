// The workbench of an operator that is known by its arguments alone: the caller's own tensors are
// the data, and what the default makes of them is what is right.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "moetune/measuring.h"

namespace moetune {

class ArgumentBench final : public Workbench {
 public:
  /// Copies the inputs from the device and runs the default once, in memory of its own. The bench
  /// then needs neither.
  static Result<ArgumentBench> make(Problem problem, const Tensors& arguments, int outputs,
                                    TunableRunner& default_runner, int64_t tokens, Device& device);

  const Problem& problem() const override { return problem_; }
  WeightSource& weights(Scale scale) override;
  Result<Tensors> arguments(const Case& c, Scale scale, int sample) override;
  int outputs() const override { return outputs_; }
  std::vector<int64_t> check_rows(const Case& c, Scale scale, int sample) override;
  Verdict judge(const Case& c, Scale scale, int sample, std::span<const int64_t> rows,
                const Tensors& outputs) override;
  Work work(const Case& c, Scale scale, int sample) override;

 private:
  class NoWeights final : public WeightSource {
   public:
    int64_t chunks() const override { return 0; }
    Result<Tensors> chunk(int64_t index) override;
  };

  ArgumentBench(Problem problem, const Tensors& arguments, int outputs);
  Status copy_inputs(Device& device);
  Status run_default(TunableRunner& runner, int64_t tokens, Device& device);
  size_t inputs() const { return tensors_.size() - static_cast<size_t>(outputs_); }

  Problem problem_;
  Tensors
      tensors_;  ///< As the caller's, with data in `contents_`: inputs, then the default's outputs.
  std::vector<std::vector<std::byte>> contents_;
  int outputs_;
  NoWeights no_weights_;
};

}  // namespace moetune
