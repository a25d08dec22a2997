#include "cli/engine_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/status_macros.h"
#include "engine/backend.h"

namespace moetune::cli {
namespace {

Result<exchange::Version> read_version(const char* flag, const std::string& text) {
  if (text.empty()) return exchange::Version{};
  const bool is_plain = text.find_first_not_of("0123456789.") == std::string::npos;
  const auto version = exchange::parse_version(text);
  if (version && is_plain && text.back() != '.') return *version;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} \"{}\" is no version", flag, text.substr(0, 40)),
               "a version is numbers with dots, as in 3.4.0; leave what follows + away"};
}

}  // namespace

void EngineFlags::declare(Flags& flags, const char* path_help) {
  flags.value("--vllm", "PATH", &vllm, path_help);
  flags.value("--sglang", "PATH", &sglang, "The same for SGLang");
  flags.value(
      "--device-name", "NAME", &device_name,
      "What torch.cuda.get_device_name() says where the engine runs, as in \"NVIDIA H200\"");
  flags.value("--engine-version", "X.Y.Z", &engine_version,
              "Of the engine; default: what is found, else the newest known");
  flags.value("--triton-version", "X.Y.Z", &triton_version,
              "Of the Triton that the engine uses: SGLang's folders have it in their names");
}

Result<EngineFlags::Values> EngineFlags::read() const {
  if (vllm.empty() == sglang.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 vllm.empty() ? "for which engine?" : "--vllm and --sglang are both given",
                 "give one of --vllm PATH and --sglang PATH"};
  }
  Values values;
  values.engine = vllm.empty() ? exchange::Engine::kSglang : exchange::Engine::kVllm;
  values.path = vllm.empty() ? sglang : vllm;
  MOETUNE_ASSIGN_OR_RETURN(values.engine_version, read_version("--engine-version", engine_version));
  MOETUNE_ASSIGN_OR_RETURN(values.triton_version, read_version("--triton-version", triton_version));
  return values;
}

Result<std::string> find_device_name(const std::string& flag) {
  if (flag.find_first_of("/,\n") != std::string::npos) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--device-name \"{}\" cannot be part of a file's name", flag),
                 "give it as torch.cuda.get_device_name() has it, as in \"NVIDIA H200\""};
  }
  if (!flag.empty()) return flag;
  MOETUNE_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, open_backend("auto"));
  const DeviceProperties& device = backend->device().properties();
  if (device.kind == "cuda") return device.name;
  return Error{ErrorCode::kUnsupported, "no GPU is here whose name could be part of a file's name",
               "give --device-name, as torch.cuda.get_device_name() has it where the engine runs"};
}

}  // namespace moetune::cli
