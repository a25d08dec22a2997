#include "cli/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/status_macros.h"
#include "cli/values.h"
#include "ops/moe/workload.h"

namespace moetune::cli {
namespace {

constexpr int64_t kMostRanks = 1 << 16;
constexpr int64_t kMostThreads = 4096;
constexpr int64_t kMostLayers = 1000;

Result<std::optional<WeightFormat>> parse_weights(const std::string& text) {
  if (text.empty()) return std::optional<WeightFormat>{};
  if (const auto format = parse_weight_format(text)) return format;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--weights \"{}\" is no weight format", text.substr(0, 40)),
               "there are bf16, fp16, fp8, fp8-block, nvfp4 and mxfp4"};
}

/// "uniform,zipf:1.2". A trace's file may have a comma in its name, so that a list holds no traces.
std::vector<std::string> split_workloads(const std::string& text) {
  std::vector<std::string> parts;
  if (text.starts_with("trace:")) return {text};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

void LayerFlags::declare(Flags& flags) {
  flags.positional("MODEL", &model,
                   "A Hugging Face model folder, a config.json, or a preset's name");
  flags.value("--weights", "FORMAT", &weights,
              "bf16, fp16, fp8, fp8-block, nvfp4 or mxfp4; default: what the model's config says");
  flags.value("--activations", "FORMAT", &activations,
              "a16 (default); fp8-block or fp8, with weights of the same name");
  flags.toggle("--shared-experts", &shared_experts,
               "Take the model's shared experts into the layer");
  flags.value("--tp", "N", &tp, "Tensor-parallel ranks; one rank's share is taken");
  flags.value("--ep", "N", &ep, "Expert-parallel ranks");
  flags.value("--rank", "N", &rank, "Whose share, where ranks differ; default 0");
}

void LayerFlags::declare_layer(Flags& flags) {
  flags.value("--layer", "N", &layer,
              "Use the weights of this layer of the model's folder, counted from 0, instead of "
              "random ones");
}

Result<LayerFlags::Layer> LayerFlags::read() const {
  LayerChoices choices{.shared_experts = shared_experts};
  MOETUNE_ASSIGN_OR_RETURN(choices.weights, parse_weights(weights));
  const auto activation_format = parse_activation_format(activations);
  if (!activation_format) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--activations \"{}\" is no activation format", activations.substr(0, 40)),
        "there are a16, fp8-block and fp8"};
  }
  choices.activations = *activation_format;
  MOETUNE_ASSIGN_OR_RETURN(const int64_t tp_ranks, parse_whole("--tp", tp, 1, kMostRanks));
  MOETUNE_ASSIGN_OR_RETURN(const int64_t ep_ranks, parse_whole("--ep", ep, 1, kMostRanks));
  MOETUNE_ASSIGN_OR_RETURN(const int64_t own_rank, parse_whole("--rank", rank, 0, kMostRanks));
  Layer read;
  MOETUNE_ASSIGN_OR_RETURN(read.model, load_model(model));
  const ParallelLayout layout{static_cast<int>(tp_ranks), static_cast<int>(ep_ranks),
                              static_cast<int>(own_rank)};
  MOETUNE_ASSIGN_OR_RETURN(read.spec, layer_spec(read.model, choices, layout));
  if (layer.empty()) return read;
  MOETUNE_ASSIGN_OR_RETURN(const int64_t number, parse_whole("--layer", layer, 0, kMostLayers));
  if (find_preset(model) != nullptr) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--layer {}: {} is a preset, which has no weights", number, model),
                 fmt::format("name a model's folder (./{} where it is called like that), or leave "
                             "--layer out",
                             model)};
  }
  std::error_code error;
  read.weights = RealWeights{std::filesystem::absolute(read.model.origin, error).string(), number,
                             layout.rank};
  return read;
}

void DeviceFlags::declare(Flags& flags) {
  flags.value("--device", "NAME", &device, "auto (the first GPU, else the CPU), cpu, or cuda:N");
  flags.value("--threads", "N", &threads,
              "Threads on a CPU; default: one per core that this process may use");
  flags.value("--memory", "SIZE", &memory, "Use no more device memory than this, as in 8GiB");
}

Result<DeviceFlags::Values> DeviceFlags::read() const {
  Values values{.device = device};
  MOETUNE_ASSIGN_OR_RETURN(const int64_t count, parse_whole("--threads", threads, 0, kMostThreads));
  values.threads = static_cast<int>(count);
  if (!memory.empty()) {
    MOETUNE_ASSIGN_OR_RETURN(values.memory_bytes, parse_bytes("--memory", memory));
  }
  return values;
}

void TrafficFlags::declare(Flags& flags, const char* tokens_help) {
  flags.value("--tokens", "LIST", &tokens, tokens_help);
  flags.value("--workload", "NAME", &workload, "uniform, balanced, zipf:1.2 or trace:FILE");
  flags.value("--seed", "N", &seed, "Of data and routing");
}

Result<TrafficFlags::Values> TrafficFlags::read(bool many) const {
  Values values;
  MOETUNE_ASSIGN_OR_RETURN(values.tokens, parse_tokens(tokens));
  MOETUNE_ASSIGN_OR_RETURN(const int64_t number,
                           parse_whole("--seed", seed, 0, std::numeric_limits<int64_t>::max()));
  values.seed = static_cast<uint64_t>(number);
  values.workloads = many ? split_workloads(workload) : std::vector<std::string>{workload};
  for (const std::string& text : values.workloads) {
    Result<Workload> parsed = parse_workload(text);
    if (!parsed.ok()) return std::move(parsed).error();
  }
  return values;
}

}  // namespace moetune::cli
