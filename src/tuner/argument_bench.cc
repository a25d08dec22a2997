#include "tuner/argument_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/status_macros.h"
#include "tuner/output_comparison.h"

namespace moetune {

Result<Tensors> ArgumentBench::NoWeights::chunk(int64_t index) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("chunk {} of the weights of an operator without weights", index)};
}

Result<ArgumentBench> ArgumentBench::make(Problem problem, const Tensors& arguments, int outputs,
                                          TunableRunner& default_runner, int64_t tokens,
                                          Device& device) {
  ArgumentBench bench(std::move(problem), arguments, outputs);
  MOETUNE_RETURN_IF_ERROR(bench.copy_inputs(device));
  MOETUNE_RETURN_IF_ERROR(bench.run_default(default_runner, tokens, device));
  return bench;
}

ArgumentBench::ArgumentBench(Problem problem, const Tensors& arguments, int outputs)
    : problem_(std::move(problem)), tensors_(arguments), outputs_(outputs) {
  for (const Tensor& tensor : tensors_) contents_.emplace_back(tensor.bytes());
}

Status ArgumentBench::copy_inputs(Device& device) {
  for (size_t i = 0; i < inputs(); ++i) {
    MOETUNE_RETURN_IF_ERROR(
        device.download(contents_[i].data(), tensors_[i].data, contents_[i].size()));
    tensors_[i].data = contents_[i].data();
  }
  return {};
}

Status ArgumentBench::run_default(TunableRunner& runner, int64_t tokens, Device& device) {
  const Candidate candidate = runner.default_candidate(tokens);
  MOETUNE_ASSIGN_OR_RETURN(const auto executable, runner.compile(candidate, tokens));
  Tensors on_device = tensors_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  for (size_t i = 0; i < on_device.size(); ++i) {
    MOETUNE_ASSIGN_OR_RETURN(auto buffer,
                             device.allocate(std::max<size_t>(1, contents_[i].size())));
    on_device[i].data = buffer->data();
    buffers.push_back(std::move(buffer));
    if (i >= inputs()) continue;
    MOETUNE_RETURN_IF_ERROR(
        device.upload(on_device[i].data, contents_[i].data(), contents_[i].size()));
  }
  const size_t workspace_bytes = runner.workspace_bytes(candidate, tokens);
  MOETUNE_ASSIGN_OR_RETURN(const auto workspace,
                           device.allocate(std::max<size_t>(1, workspace_bytes)));
  MOETUNE_RETURN_IF_ERROR(device.run([&](void* stream) {
    return executable->run(Call{&on_device, nullptr, workspace->data(), workspace_bytes, stream});
  }));
  for (size_t i = inputs(); i < on_device.size(); ++i) {
    MOETUNE_RETURN_IF_ERROR(
        device.download(contents_[i].data(), on_device[i].data, contents_[i].size()));
    tensors_[i].data = contents_[i].data();
  }
  return {};
}

WeightSource& ArgumentBench::weights(Scale) { return no_weights_; }

Result<Tensors> ArgumentBench::arguments(const Case&, Scale, int) {
  Tensors arguments = tensors_;
  for (size_t i = inputs(); i < arguments.size(); ++i) arguments[i].data = nullptr;
  return arguments;
}

std::vector<int64_t> ArgumentBench::check_rows(const Case&, Scale, int) {
  // All of them, unless fetching and comparing that much would eat up the time for measuring.
  constexpr size_t kMaxBytes = size_t{64} << 20;
  size_t bytes = 0;
  for (size_t i = inputs(); i < contents_.size(); ++i) bytes += contents_[i].size();
  const int64_t rows = tensors_.back().shape.front();
  const auto share = static_cast<int64_t>(bytes / kMaxBytes) + 1;
  const int64_t checked = std::max<int64_t>(rows / share, std::min<int64_t>(rows, 2));
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < checked; ++i) {
    chosen.push_back(checked == 1 ? 0 : (rows - 1) * i / (checked - 1));
  }
  return chosen;
}

Verdict ArgumentBench::judge(const Case&, Scale, int, std::span<const int64_t> rows,
                             const Tensors& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::string reason = why_different(tensors_[inputs() + i], outputs[i], rows);
    if (!reason.empty()) return {false, std::move(reason)};
  }
  return {};
}

Work ArgumentBench::work(const Case&, Scale, int) {
  // All that is known of an unknown operator is that it writes its outputs.
  Work work;
  for (size_t i = inputs(); i < contents_.size(); ++i) {
    work.bytes += static_cast<double>(contents_[i].size());
  }
  return work;
}

}  // namespace moetune
